"""What benchmarks schedule: nodes in zones, and pods of several kinds with the rules that cost something."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shared.model.wellknown import HOSTNAME, INSTANCE_TYPE, REGION, ZONE
from testing.inprocess.device_workloads import claim_of, claiming, device_objects, template_of

Object = dict[str, Any]

NAMESPACE = "bench"
CLAIM_TEMPLATES = "resourceclaimtemplates"
RUN_SECONDS = "simulator.flotilla.io/run-seconds"
"""Annotation: the simulated kubelet ends the pod so long after it was bound."""
ZONES = 10
NODE_TYPES = 5
CPU_OF_NODE, MAX_PODS_OF_NODE = 4_000, 110
FILLERS_OF_NODE = 4
URGENT = "urgent"
"""The priority class of pods that preempt."""
CPU, MEMORY = 100, 500
"""Thousandths and MiB that pods ask for; each class a little more than the one before."""

APP = {"name": "app", "image": "registry.example/app:1"}
"""A container."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def make_node(
    name: str,
    cpu: str,
    memory: str,
    labels: dict[str, str],
    taints: Sequence[Object] = (),
    images: Sequence[Object] = (),
) -> Object:
    """A ready node with room for 110 pods."""
    amounts = {"cpu": cpu, "memory": memory, "pods": str(MAX_PODS_OF_NODE)}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, **labels}},
        "spec": {"taints": taints},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images, "conditions": conditions},
    }


def node_name(i: int) -> str:
    return f"node-{i:06}"


def node(i: int) -> Object:
    """4 cpu, 32 GiB, 110 pods."""
    labels = {ZONE: f"zone-{i % ZONES}", REGION: "region-0", INSTANCE_TYPE: f"type-{i % NODE_TYPES}"}
    return make_node(node_name(i), f"{CPU_OF_NODE}m", "32Gi", labels)


def spread(labels: dict[str, str], key: str, when: str, skew: int) -> Object:
    """The part of a pod's spec that spreads pods with these labels over domains."""
    selector = {"matchLabels": labels}
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


def affinity(kind: str, labels: dict[str, str], key: str, weight: int | None = None) -> Object:
    """The part of a pod's spec with a term about pods with these labels; `weight`: of a preference, else required."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    terms = {REQUIRED: [term]} if weight is None else {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}
    return {"affinity": {kind: terms}}


@dataclass(frozen=True, slots=True)
class Workload:
    """`rule`: what its pods say beside their requests, given the labels of their kind.

    `claims`: every pod has a volume of its own, bound already, in one of the zones. `owned`: the pods of a kind belong
    to a ReplicaSet, and so are spread by the system's defaults. `devices`: how every pod asks for a device. `churns`:
    pods end soon after they are bound, and give their devices back. `preempts`: nodes are full of pods of lower
    priority, and each pod takes the room of half of a node's. `gang`: pods come in groups of that, each placed as a
    whole.
    """

    name: str
    rule: Callable[[dict[str, str]], Object] = lambda labels: {}
    claims: bool = False
    owned: bool = False
    devices: str = ""
    churns: bool = False
    preempts: bool = False
    gang: int = 0

    def pod(self, i: int, classes: int) -> Object:
        """Of all classes in turn."""
        kind = i % classes
        labels = {"app": f"app-{kind:02}"}
        cpu = CPU_OF_NODE // 2 - kind if self.preempts else CPU + kind
        requests = {"cpu": f"{cpu}m", "memory": f"{MEMORY + kind}Mi"}
        container = {**APP, "resources": {"requests": requests}}
        spec: Object = {"containers": [container], **self.rule(labels)}
        if self.claims:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{i:06}"}}]
        if self.preempts:
            spec["priorityClassName"] = URGENT
        if self.gang:
            spec["schedulingGroup"] = {"podGroupName": f"gang-{i // self.gang:04}"}
        name = f"pod-{i:06}"
        metadata: Object = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{i}", "labels": labels}
        if self.owned:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": labels["app"], "uid": labels["app"]}
            metadata["ownerReferences"] = [owner | {"controller": True}]
        if self.churns:
            metadata["annotations"] = {RUN_SECONDS: "1"}
        made: Object = {"metadata": metadata, "spec": spec}
        return claiming(self.devices, made) if self.devices else made

    def fillers(self, nodes: int) -> Iterator[Object]:
        """The pods that fill the nodes."""
        for i in range(nodes * FILLERS_OF_NODE if self.preempts else 0):
            requests = {"cpu": f"{CPU_OF_NODE // FILLERS_OF_NODE}m"}
            container = {**APP, "resources": {"requests": requests}}
            spec = {"containers": [container], "nodeName": node_name(i % nodes), "terminationGracePeriodSeconds": 1}
            yield {"metadata": {"name": f"filler-{i:06}", "namespace": NAMESPACE}, "spec": spec}

    def of_nodes(self, nodes: int) -> Iterator[tuple[str, Object]]:
        """The nodes' devices and their class, as (kind, object)."""
        if self.devices:
            yield from device_objects(self.devices, [node_name(i) for i in range(nodes)])

    def of_devices(self, nodes: int, pods: int) -> Iterator[tuple[str, Object]]:
        """The nodes' devices and the pods' claims, as (kind, object)."""
        yield from self.of_nodes(nodes)
        for i in range(pods) if self.devices and self.devices != "extended" else ():
            yield "resourceclaim", claim_of(self.devices, NAMESPACE, f"pod-{i:06}", f"uid-{i}")

    def objects(self, pods: int, classes: int) -> Iterator[tuple[str, Object]]:
        """What has to exist before pods, as (plural, object)."""
        for kind in range(classes) if self.owned else ():
            name = f"app-{kind:02}"
            metadata = {"name": name, "namespace": NAMESPACE, "uid": name}
            template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [APP]}}
            spec = {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template}
            yield "replicasets", {"metadata": metadata, "spec": spec}
        if self.devices and self.devices != "extended":
            yield CLAIM_TEMPLATES, template_of(self.devices, NAMESPACE)
        for i in range(pods // self.gang) if self.gang else ():
            policy = {"schedulingPolicy": {"gang": {"minCount": self.gang}}}
            yield "podgroups", {"metadata": {"name": f"gang-{i:04}", "namespace": NAMESPACE}, "spec": policy}
        if self.preempts:
            yield "priorityclasses", {"metadata": {"name": URGENT}, "value": 1_000}
        for i in range(pods) if self.claims else ():
            yield "persistentvolumes", _volume(i)
            yield "persistentvolumeclaims", _claim(i)


def _preferred(labels: dict[str, str]) -> Object:
    """Rather in one zone, and rather not on one node."""
    near, apart = affinity("podAffinity", labels, ZONE, 20), affinity("podAntiAffinity", labels, HOSTNAME, 80)
    return {"affinity": near["affinity"] | apart["affinity"]}


DEVICE_KINDS = ("template", "selectors", "first-available", "partitions", "extended")

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("plain"),
        Workload("replicasets", owned=True),
        Workload("spread-hard", lambda labels: spread(labels, ZONE, "DoNotSchedule", 5)),
        Workload("spread-soft", lambda labels: spread(labels, ZONE, "ScheduleAnyway", 1)),
        Workload("anti-host", lambda labels: affinity("podAntiAffinity", labels, HOSTNAME)),
        Workload("affinity-zone", lambda labels: affinity("podAffinity", labels, ZONE)),
        Workload("preferred", _preferred),
        Workload("volumes", claims=True),
        *(Workload(f"devices-{kind}", devices=kind) for kind in DEVICE_KINDS),
        Workload("devices-churn", devices="template", churns=True),
    )
}

PREEMPTION = Workload("preemption", preempts=True)
PREEMPTING_GANGS = Workload("preempting-gangs", preempts=True, gang=64)
"""Apart from the others: without API calls nobody evicts."""


def _volume(i: int) -> Object:
    zone = {"key": ZONE, "operator": "In", "values": [f"zone-{i % ZONES}"]}
    return {
        "metadata": {"name": f"volume-{i:06}", "uid": f"volume-uid-{i}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disk.example", "volumeHandle": f"disk-{i}"},
            "claimRef": {"namespace": NAMESPACE, "name": f"claim-{i:06}", "uid": f"claim-uid-{i}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            "storageClassName": "",
        },
        "status": {"phase": "Bound"},
    }


def _claim(i: int) -> Object:
    bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    return {
        "metadata": {"name": f"claim-{i:06}", "namespace": NAMESPACE, "uid": f"claim-uid-{i}", "annotations": bound},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": f"volume-{i:06}",
        },
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
