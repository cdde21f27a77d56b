"""The workload of a fault run: pods of kinds that are known to fit, or not to fit. A pure function of a seed.

Wide nodes have more capacity than is ever requested, so every pod for them fits. Tight nodes are full of fillers, which
urgent pods and crowds preempt, which are gangs; a filler that is created late may not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from shared.model.wellknown import HOSTNAME, ZONE
from testing.inprocess.workloads import PREFERRED, Object, affinity, make_node, spread

NAMESPACE = "faults"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS_PATH = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
NODES_PATH = "/api/v1/nodes"
ZONES = ("a", "b", "c")
POOL = "pool"
WIDE, TIGHT = "wide", "tight"
TIGHT_SHARE = 10
"""One node in this many is tight."""
FILLERS_PER_NODE = 4
"""Each requests one CPU; a tight node has as many CPUs."""
FILLER, URGENT, APART, TOGETHER, PORTED = "filler", "urgent", "apart", "together", "ported"
HUGE, NOWHERE = "huge", "nowhere"
PERMITTED, CLAIMING = "permitted", "claiming"
GANG, STUCK, CROWD = "gang", "stuck", "crowd"
GANGS = (GANG, STUCK, CROWD)
PERMIT_PLUGIN = "FaultsPermit"
PERMIT_TIMEOUT = 5.0
"""Seconds until a wait for a permit ends as rejected and the pod is retried."""
MEMBERS = 3
"""Pods per gang; in a stuck gang the last one fits nowhere."""
STUCK_GANGS = 2
STORAGE = "static"
SPARE_VOLUMES = 3
"""Volumes in each zone beyond the number of claims."""
MISFITS = {HUGE: "Insufficient cpu", NOWHERE: "didn't match Pod's node affinity/selector", STUCK: ""}
"""Kinds that fit nowhere, and what their condition must contain."""
FILLER_MISFIT = "Insufficient cpu"
PRIORITIES = {FILLER: 1, URGENT: 1000}
INITIAL_SHARE = 0.2
"""Share of the pods that are created before the first fault."""
DELETED_AT_ONCE, DELETED_LATER = 0.08, 0.25
"""Shares of pods deleted right after their creation, and some waves later."""
MIN_AGE = 2
"""Waves that pods live before they are deleted later."""
FILL_KINDS = ("small", "large", "zonal", "spread", "loose", "drawn")
"""Kinds that make up the rest of the number of pods."""


@dataclass(slots=True)
class Wave:
    """`deleted`: names of pods to delete, created in this wave or earlier ones."""

    created: list[Object] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FaultWorkload:
    pods: int
    nodes: int
    seed: int

    @property
    def tight(self) -> int:
        return max(2, self.nodes // TIGHT_SHARE)

    @property
    def wide(self) -> int:
        return self.nodes - self.tight

    def preparations(self) -> list[tuple[str, Object]]:
        """Objects that must exist before the pods, as (path, object)."""
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        made = [(classes, {"metadata": {"name": name}, "value": value}) for name, value in PRIORITIES.items()]
        counts = {GANG: self.gangs, STUCK: STUCK_GANGS, CROWD: self.crowds}
        groups = [(kind, number) for kind, count in counts.items() for number in range(count)]
        return [
            ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            *made,
            *storage(self.claims),
            *(group_of(kind, number) for kind, number in groups),
        ]

    @property
    def claims(self) -> int:
        """Pods with a claim, each for a volume of its own that is bound with the pod."""
        return self.pods // 20

    @property
    def gangs(self) -> int:
        return max(1, self.pods // 150)

    @property
    def crowds(self) -> int:
        """Gangs for tight nodes. Wherever their members go, at most one each, all urgent pods have room beside them."""
        return max(1, self.tight // 4)

    def make_nodes(self) -> Iterator[Object]:
        for i in range(self.nodes):
            tight = i >= self.wide
            name = f"{TIGHT if tight else WIDE}-{i:04}"
            labels = {POOL: TIGHT if tight else WIDE, ZONE: ZONES[i % len(ZONES)]}
            taints = [{"key": POOL, "value": TIGHT, "effect": "NoSchedule"}] if tight else []
            yield make_node(name, str(FILLERS_PER_NODE if tight else 16), "64Gi", labels, taints)

    def initial(self) -> Wave:
        """Pods before the first fault: some of all kinds, and all fillers that fit."""
        fillers = [(FILLER, i) for i in range(FILLERS_PER_NODE * self.tight)]
        return Wave([pod(kind, i) for kind, i in fillers + self._ordered()[: self._initial_count]])

    def waves(self, count: int) -> list[Wave]:
        """The remaining pods, during the faults."""
        chance = Random(f"waves {self.seed}")
        rest = self._ordered()[self._initial_count :] + self._late()
        chance.shuffle(rest)
        waves = [Wave() for _ in range(count)]
        for number, (kind, i) in enumerate(rest):
            index = number * count // len(rest)
            made = pod(kind, i)
            waves[index].created.append(made)
            if kind not in (FILLER, URGENT, *GANGS):
                draw, deleted_in = chance.random(), None
                if draw < DELETED_AT_ONCE:
                    deleted_in = index
                elif draw < DELETED_AT_ONCE + DELETED_LATER and index + MIN_AGE < count:
                    deleted_in = chance.randrange(index + MIN_AGE, count)
                if deleted_in is not None:
                    waves[deleted_in].deleted.append(made["metadata"]["name"])
        return waves

    @property
    def _initial_count(self) -> int:
        return round(INITIAL_SHARE * self.pods)

    def _late(self) -> list[tuple[str, int]]:
        """Pods that are created only during the faults: gangs, and pods for the tight nodes.

        Urgent pods need half of the tight nodes' capacity, and crowds a fifth, so some late fillers may not fit.
        """
        first = FILLERS_PER_NODE * self.tight
        tight = [(URGENT, i) for i in range(self.tight)] + [(FILLER, first + i) for i in range(self.tight)]
        counts = {GANG: self.gangs, STUCK: STUCK_GANGS, CROWD: self.crowds}
        gangs = [(kind, i) for kind, count in counts.items() for i in range(MEMBERS * count)]
        return tight + gangs

    def _ordered(self) -> list[tuple[str, int]]:
        """Kinds and numbers of all pods for wide nodes, in the order of their creation."""
        chance = Random(f"kinds {self.seed}")
        some = min(self.wide // 2, self.pods // 20)
        counts = {APART: some, PORTED: some, TOGETHER: self.pods // 20, HUGE: self.pods // 50, NOWHERE: self.pods // 50}
        counts |= {PERMITTED: self.pods // 20, CLAIMING: self.claims}
        left = self.pods - sum(counts.values()) - FILLERS_PER_NODE * self.tight - len(self._late())
        for number, kind in enumerate(FILL_KINDS):
            counts[kind] = max(0, left * (number + 1) // len(FILL_KINDS) - left * number // len(FILL_KINDS))
        names = [(kind, i) for kind, count in counts.items() for i in range(count)]
        chance.shuffle(names)
        return names


def pod_path(name: str) -> str:
    return f"{PODS_PATH}/{name}"


def kind_of(name: str) -> str:
    """The kind of a pod, by its name."""
    return name.partition("-")[0]


def pod(kind: str, number: int) -> Object:
    labels = {"kind": kind}
    cpu = {"large": "500m", FILLER: "1", CROWD: "1", URGENT: "2", HUGE: "1000"}.get(kind, "100m")
    container: Object = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    spec: Object = {"containers": [container], **_particular(kind, number)}
    if kind == PORTED:
        container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    if kind == STUCK and number % MEMBERS == MEMBERS - 1:
        container["resources"]["requests"]["cpu"] = "1000"
    if kind in GANGS and _is_labelled(kind, number // MEMBERS):
        labels["scheduling.x-k8s.io/pod-group"] = _group(kind, number // MEMBERS)
    return {"metadata": {"name": f"{kind}-{number:05}", "namespace": NAMESPACE, "labels": labels}, "spec": spec}


def gang_of(name: str) -> str:
    """The group of a gang member, by the member's name."""
    kind, _, number = name.partition("-")
    return _group(kind, int(number) // MEMBERS)


def group_of(kind: str, number: int) -> tuple[str, Object]:
    """A PodGroup of one of the two APIs, as (path, object); of every fourth the members are in one zone."""
    metadata, folder = {"name": _group(kind, number)}, "scheduling.k8s.io/v1alpha2"
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}, "disruptionMode": "PodGroup"}
    if number % 4 == 0 and kind != CROWD:
        spec["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
    if kind == CROWD:
        spec["priorityClassName"] = URGENT
    if _is_labelled(kind, number):
        folder, spec = "scheduling.x-k8s.io/v1alpha1", {"minMember": MEMBERS, "scheduleTimeoutSeconds": 1}
    return f"/apis/{folder}/namespaces/{NAMESPACE}/podgroups", {"metadata": metadata, "spec": spec}


def storage(claims: int) -> Iterator[tuple[str, Object]]:
    """A storage class without provisioner, volumes in each zone, and the claims, as (path, object)."""
    first = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    yield "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": STORAGE}, **first}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": STORAGE}
    for i in range(claims + SPARE_VOLUMES * len(ZONES)):
        zone = {"key": ZONE, "operator": "In", "values": [ZONES[i % len(ZONES)]]}
        spec = {
            **common,
            "capacity": {"storage": "10Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            "csi": {"driver": "disk.example.com", "volumeHandle": f"disk-{i}"},
        }
        volume = {"metadata": {"name": f"volume-{i:05}"}, "spec": spec, "status": {"phase": "Available"}}
        yield "/api/v1/persistentvolumes", volume
    for i in range(claims):
        wanted = {**common, "resources": {"requests": {"storage": "5Gi"}}}
        yield CLAIMS_PATH, {"metadata": {"name": claim_of(i)}, "spec": wanted}


def claim_of(number: int) -> str:
    return f"claim-{number:05}"


def _group(kind: str, number: int) -> str:
    return f"{kind}-{number}"


def _is_labelled(kind: str, group: int) -> bool:
    """Every second group uses the API of the coscheduling plugin, but for crowds, which have a priority."""
    return bool(group % 2) and kind != CROWD


def _particular(kind: str, number: int) -> Object:
    """What a kind has besides its requests."""
    own = {"kind": kind}
    match kind:
        case "zonal":
            return {"nodeSelector": {ZONE: ZONES[number % len(ZONES)]}}
        case "spread":
            return spread(own, ZONE, "DoNotSchedule", 2)
        case "loose":
            return spread(own, HOSTNAME, "ScheduleAnyway", 2)
        case "drawn":
            wanted = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
            preferred = [{"weight": 10, "preference": wanted}]
            return {"affinity": {"nodeAffinity": {PREFERRED: preferred}}}
        case "apart":
            return affinity("podAntiAffinity", own, HOSTNAME)
        case "together":
            return affinity("podAffinity", own, ZONE)
        case "filler" | "urgent":
            tolerated = [{"key": POOL, "operator": "Exists"}]
            return {"nodeSelector": {POOL: TIGHT}, "tolerations": tolerated, "priorityClassName": kind}
        case "crowd":
            group = {"schedulingGroup": {"podGroupName": _group(kind, number // MEMBERS)}}
            return group | _particular(URGENT, number)
        case "claiming":
            source = {"persistentVolumeClaim": {"claimName": claim_of(number)}}
            return {"volumes": [{"name": "data", **source}]}
        case "gang" | "stuck" if not _is_labelled(kind, number // MEMBERS):
            return {"schedulingGroup": {"podGroupName": _group(kind, number // MEMBERS)}}
        case "nowhere":
            return {"nodeSelector": {POOL: "none"}}
    return {}
