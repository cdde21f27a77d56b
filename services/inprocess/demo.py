"""A cluster and a day's work for the demo: nodes of three sizes, pods of many kinds, and a few that fit nowhere."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from services.cycle import events as cycle
from services.inprocess.pipeline import Pipeline
from shared.cluster.load import load_of
from shared.model.objects import Node, Pod, decode_node, decode_pod
from shared.model.resources import allocatable

SIZES = (("4", "16Gi"), ("8", "32Gi"), ("16", "64Gi"))
ZONES = ("a", "b", "c")


@dataclass(slots=True)
class Checked:
    """What was found wrong in the end; empty lists are good news."""

    overfull: list[str] = field(default_factory=list)
    port_clashes: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    left_in_ledger: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.overfull or self.port_clashes or self.unaccounted or self.left_in_ledger)


def make_nodes(count: int, seed: int) -> Iterator[Node]:
    chance = random.Random(seed)
    for i in range(count):
        cpu, memory = chance.choice(SIZES)
        labels = {"topology.kubernetes.io/zone": chance.choice(ZONES), "kubernetes.io/hostname": f"node-{i:05}"}
        spec = {"taints": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]} if i % 10 == 0 else {}
        yield decode_node(
            msgspec.json.encode(
                {
                    "metadata": {"name": f"node-{i:05}", "labels": labels},
                    "spec": spec,
                    "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
                }
            )
        )


def make_pods(count: int, kinds: int, seed: int) -> Iterator[Pod]:
    """Pods of `kinds` kinds in turn; the last three ask for what no node has."""
    chance = random.Random(seed)
    specs = [_spec(kind, chance) for kind in range(kinds)]
    for i in range(count):
        yield _pod(f"app-{i % kinds}-{i}", specs[i % kinds])
    huge: dict[str, object] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]}
    yield _pod("too-big", huge)
    yield _pod("wants-a-gpu", {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]})
    yield _pod("wants-another-zone", huge | {"nodeSelector": {"topology.kubernetes.io/zone": "z"}})


def check(pipeline: Pipeline, pods: list[Pod]) -> Checked:
    """Holds the outcome against what must be true of any schedule."""
    found = Checked()
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        outcome = pipeline.outcomes.get(pod.uid)
        if outcome is None:
            found.unaccounted.append(pod.key)
        elif isinstance(outcome, cycle.Decided):
            by_node.setdefault(outcome.node, []).append(pod)
    for node in (known.node for known in pipeline.snapshot.state().nodes):
        loads = [load_of(pod) for pod in by_node.get(node.name, ())]
        room = allocatable(node) | {"pods": allocatable(node).get("pods", 0) - len(loads)}
        for load in loads:
            for resource, amount in load.requests.items():
                room[resource] = room.get(resource, 0) - amount
        if min(room.values()) < 0:
            found.overfull.append(node.name)
        ports = [(port.protocol, port.port) for load in loads for port in load.ports]
        if len(ports) != len(set(ports)):
            found.port_clashes.append(node.name)
    found.left_in_ledger = sorted(pipeline.snapshot.ledger)
    return found


def _spec(kind: int, chance: random.Random) -> dict[str, object]:
    requests = {"cpu": f"{chance.randrange(1, 9) * 50}m", "memory": f"{chance.randrange(1, 9) * 128}Mi"}
    container: dict[str, object] = {"name": "c", "image": f"app-{kind}:1", "resources": {"requests": requests}}
    spec: dict[str, object] = {"containers": [container]}
    if kind % 5 == 1:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": chance.choice(ZONES)}
    if kind % 5 == 2:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if kind % 25 == 3:
        container["ports"] = [{"containerPort": 80, "hostPort": 8000 + kind}]
    return spec


def _pod(name: str, spec: dict[str, object]) -> Pod:
    return decode_pod(msgspec.json.encode({"metadata": {"name": name, "namespace": "demo"}, "spec": spec}))
