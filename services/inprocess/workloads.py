"""What benchmarks schedule: nodes in zones, and pods of several kinds with the rules that cost something."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

NAMESPACE = "bench"
ZONES = 10
NODE_TYPES = 5
CPU_OF_NODE, MOST_PODS_OF_NODE = 4_000, 110
CPU, MEMORY = 100, 500
"""Thousandths and MiB that pods ask for; each class a little more than the one before."""

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(i: int) -> Object:
    """4 cpu, 32 GiB, 110 pods."""
    name = f"node-{i:06}"
    labels = {
        HOST: name,
        ZONE: f"zone-{i % ZONES}",
        "topology.kubernetes.io/region": "region-0",
        "node.kubernetes.io/instance-type": f"type-{i % NODE_TYPES}",
    }
    amounts = {"cpu": f"{CPU_OF_NODE}m", "memory": "32Gi", "pods": str(MOST_PODS_OF_NODE)}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


@dataclass(frozen=True, slots=True)
class Workload:
    """`rule`: what its pods say beside their requests, given the labels of their kind.

    `claims`: every pod has a volume of its own, bound already, in one of the zones.
    """

    name: str
    rule: Callable[[dict[str, str]], Object]
    claims: bool = False

    def pod(self, i: int, classes: int) -> Object:
        """Of all classes in turn."""
        kind = i % classes
        labels = {"app": f"app-{kind:02}"}
        requests = {"cpu": f"{CPU + kind}m", "memory": f"{MEMORY + kind}Mi"}
        container = {"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}
        spec: Object = {"containers": [container], **self.rule(labels)}
        if self.claims:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{i:06}"}}]
        name = f"pod-{i:06}"
        metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{i}", "labels": labels}
        return {"metadata": metadata, "spec": spec}

    def objects(self, pods: int) -> Iterator[tuple[str, Object]]:
        """What has to exist before pods, as (plural, object)."""
        for i in range(pods) if self.claims else ():
            yield "persistentvolumes", _volume(i)
            yield "persistentvolumeclaims", _claim(i)


def _nothing(labels: dict[str, str]) -> Object:
    return {}


def _spread(when: str, skew: int) -> Callable[[dict[str, str]], Object]:
    def rule(labels: dict[str, str]) -> Object:
        selector = {"matchLabels": labels}
        constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selector}
        return {"topologySpreadConstraints": [constraint]}

    return rule


def _required(kind: str, key: str) -> Callable[[dict[str, str]], Object]:
    def rule(labels: dict[str, str]) -> Object:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
        return {"affinity": {kind: {_REQUIRED: [term]}}}

    return rule


def _preferred(labels: dict[str, str]) -> Object:
    """Rather in one zone, and rather not on one node."""
    near = {"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}}
    apart = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    return {
        "affinity": {
            "podAffinity": {_PREFERRED: [{"weight": 20, "podAffinityTerm": near}]},
            "podAntiAffinity": {_PREFERRED: [{"weight": 80, "podAffinityTerm": apart}]},
        }
    }


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("plain", _nothing),
        Workload("spread-hard", _spread("DoNotSchedule", 5)),
        Workload("spread-soft", _spread("ScheduleAnyway", 1)),
        Workload("anti-host", _required("podAntiAffinity", HOST)),
        Workload("affinity-zone", _required("podAffinity", ZONE)),
        Workload("preferred", _preferred),
        Workload("volumes", _nothing, claims=True),
    )
}


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
        "metadata": {
            "name": f"claim-{i:06}",
            "namespace": NAMESPACE,
            "uid": f"claim-uid-{i}",
            "annotations": bound,
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": f"volume-{i:06}",
        },
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
