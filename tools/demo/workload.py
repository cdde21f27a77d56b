"""The demo's cluster and workload: nodes of three sizes in three zones, and pods of many kinds that all fit."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from shared.errors import UserError
from shared.model.wellknown import INSTANCE_TYPE, ZONE
from testing.inprocess.workloads import PREFERRED, REQUIRED, Object, make_node
from tools.demo import devices

NAMESPACE = "demo"
ZONES = ("a", "b", "c")
SIZES = (("small", 4, 16), ("medium", 8, 32), ("large", 16, 64))
"""Name, CPUs, GiB of memory."""
MAX_PODS_PER_NODE = 60
"""On average, so that pods with few eligible nodes fit as well."""
MAX_UTILIZATION = 0.5
"""Share of all CPUs and memory that the pods request."""
STEPS = 8
"""Pods request between one and this many units of CPU and memory."""
URGENT = "demo-urgent"


@dataclass(frozen=True, slots=True)
class DemoWorkload:
    nodes: int
    pods: int
    kinds: int
    seed: int
    late: int = 0
    """High-priority pods for the second scene."""
    devices: bool = False
    """Nodes have devices, and each pod claims one."""
    training: int = 0
    """Members of the gang of the last scene."""

    def __post_init__(self) -> None:
        most = MAX_PODS_PER_NODE * self.nodes
        if self.pods > most:
            raise UserError(f"--pods: must be at most {MAX_PODS_PER_NODE} per node, {most} here, not {self.pods}")
        if self.training % 2:
            raise UserError(f"--training: must be even, as two members fill a node, not {self.training}")
        most = devices.PER_THREE_NODES * (self.nodes // 3) // 3
        if self.devices and self.pods > most:
            raise UserError(f"--pods: with --devices at most {most} for {self.nodes} nodes, not {self.pods}")

    def preparations(self) -> list[tuple[str, Object]]:
        """Objects that must exist before the pods, as (path, object)."""
        return [
            ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": URGENT}, "value": 1000}),
            *(devices.preparations(NAMESPACE) if self.devices else ()),
        ]

    def make_nodes(self) -> Iterator[Object]:
        """Every tenth node is tainted; some have images already."""
        for i in range(self.nodes):
            name = f"node-{i:05}"
            size, cpus, memory = SIZES[i % len(SIZES)]
            labels = {ZONE: ZONES[i // len(SIZES) % len(ZONES)], INSTANCE_TYPE: size}
            taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}] if i % 10 == 9 else []
            images = [{"names": [image(kind)], "sizeBytes": 300 << 20} for kind in range(i % 7, min(self.kinds, 50), 7)]
            node = make_node(name, str(cpus), f"{memory}Gi", labels, [] if self.devices else taints, images)
            if self.devices:
                node["metadata"]["annotations"] = devices.annotations_of(size)
            yield node

    def make_pods(self) -> Iterator[Object]:
        """Pods of all kinds in turn."""
        chance = Random(self.seed)
        specs = [self._spec(kind, chance) for kind in range(self.kinds)]
        for i in range(self.pods):
            kind = i % self.kinds
            metadata = {"name": f"app-{kind:02}-{i:05}", "namespace": NAMESPACE, "labels": {"app": f"app-{kind:02}"}}
            yield {"metadata": metadata, "spec": specs[kind]}

    def _spec(self, kind: int, chance: Random) -> Object:
        cpu, memory = self._units()
        requests = {"cpu": f"{chance.randint(1, STEPS) * cpu}m", "memory": f"{chance.randint(1, STEPS) * memory}Mi"}
        container: Object = {"name": "app", "image": image(kind), "resources": {"requests": requests}}
        spec: Object = {"containers": [container]}
        if self.devices:
            return spec | {"resourceClaims": devices.claims_of(kind)}
        group, turn = kind % 5, kind // 5
        if group == 1:
            spec["nodeSelector"] = {ZONE: self._zones()[turn % len(self._zones())]}
        elif group == 2:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        elif group == 3:
            spec["affinity"] = {"nodeAffinity": self._affinity(self._zones()[turn % len(self._zones())])}
            if turn % 5 == 0 and self.pods // self.kinds < self.nodes // 3:
                container["ports"] = [{"containerPort": 80, "hostPort": 8000 + kind}]
        elif group == 4:
            spec["priorityClassName"] = URGENT
        return spec

    def _affinity(self, zone: str) -> Object:
        """Require larger nodes, if there are any, and prefer this zone."""
        sizes = [size for size, _, _ in SIZES[: self.nodes]]
        required = {"key": INSTANCE_TYPE, "operator": "In", "values": sizes[1:] or sizes}
        preferred = {"key": ZONE, "operator": "In", "values": [zone]}
        return {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [required]}]},
            PREFERRED: [{"weight": 50, "preference": {"matchExpressions": [preferred]}}],
        }

    def _zones(self) -> tuple[str, ...]:
        """The zones that have nodes."""
        return ZONES[: -(-self.nodes // len(SIZES))]

    def _units(self) -> tuple[int, int]:
        """Units of CPU (thousandths) and memory (MiB)."""
        share = MAX_UTILIZATION * self.nodes / self.pods / ((STEPS + 1) / 2)
        sizes = SIZES[: self.nodes]
        cpus = sum(cpus for _, cpus, _ in sizes) / len(sizes)
        memory = sum(memory for _, _, memory in sizes) / len(sizes)
        return max(1, min(50, int(share * cpus * 1000))), max(1, min(128, int(share * memory * 1024)))


def image(kind: int) -> str:
    return f"registry.example/app-{kind:02}:1"
