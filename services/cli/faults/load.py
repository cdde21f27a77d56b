"""Pods that come and go, of kinds of which each is known to fit, or not to: a pure function of a seed.

Most nodes have more room than is ever asked for, so that every pod fits, whatever came before it. A few are just full:
there fillers have to make way for urgent pods, and one that comes late may find no room.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shared.model.wellknown import HOSTNAME, ZONE

Object = dict[str, Any]

NAMESPACE = "faults"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES_PATH = "/api/v1/nodes"
ZONES = ("a", "b", "c")
POOL = "pool"
WIDE, TIGHT = "wide", "tight"
TIGHT_SHARE = 10
"""One node of so many is tight."""
FILLERS_A_NODE = 4
"""Each asks for one CPU, and a tight node has as many."""
FILLER, URGENT, APART, TOGETHER, PORTED = "filler", "urgent", "apart", "together", "ported"
HUGE, NOWHERE = "huge", "nowhere"
MISFITS = {HUGE: "Insufficient cpu", NOWHERE: "didn't match Pod's node affinity/selector"}
"""Kinds that fit nowhere, and what their owner is to be told."""
FILLER_MISFIT = "Insufficient cpu"
PRIORITIES = {FILLER: 1, URGENT: 1000}
CALM_SHARE = 0.2
"""Of the pods so many come before the first fault."""
GONE_AT_ONCE, GONE_LATER = 0.08, 0.25
"""The shares that are deleted just after they were created, and some waves later."""
LEAST_AGE = 2
"""Waves that a pod lives that is to be deleted later."""
EVERYWHERE = ("small", "large", "zonal", "spread", "loose", "drawn")
"""Kinds that fill up what the others leave of the number of pods."""


@dataclass(slots=True)
class Wave:
    """`fleeting`: names of those of the created that are deleted at once; `leaving`: of earlier ones."""

    created: list[Object] = field(default_factory=list)
    fleeting: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
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
        """What has to exist before pods, as (path, object)."""
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        made = [(classes, {"metadata": {"name": name}, "value": value}) for name, value in PRIORITIES.items()]
        return [("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}), *made]

    def make_nodes(self) -> Iterator[Object]:
        for i in range(self.nodes):
            tight = i >= self.wide
            name = f"{TIGHT if tight else WIDE}-{i:04}"
            labels = {POOL: TIGHT if tight else WIDE, ZONE: ZONES[i % len(ZONES)], HOSTNAME: name}
            amounts = {"cpu": str(FILLERS_A_NODE if tight else 16), "memory": "64Gi", "pods": "110"}
            taints = [{"key": POOL, "value": TIGHT, "effect": "NoSchedule"}] if tight else []
            yield {
                "metadata": {"name": name, "labels": labels},
                "spec": {"taints": taints},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }

    def calm(self) -> Wave:
        """What comes before the first fault: some pods of all kinds, and all fillers that there is room for."""
        return Wave([*self._fillers(), *(pod(kind, i) for kind, i in self._ordered()[: self._calm_count])])

    def waves(self, count: int) -> list[Wave]:
        """The others."""
        chance = Random(f"waves {self.seed}")
        rest = self._ordered()[self._calm_count :] + self._late()
        chance.shuffle(rest)
        waves = [Wave() for _ in range(count)]
        for number, (kind, i) in enumerate(rest):
            index = number * count // len(rest)
            made = pod(kind, i)
            waves[index].created.append(made)
            if kind not in (FILLER, URGENT):
                _let_go(chance, waves, index, made["metadata"]["name"])
        return waves

    @property
    def _calm_count(self) -> int:
        return round(CALM_SHARE * self.pods)

    def _fillers(self) -> Iterator[Object]:
        return (pod(FILLER, i) for i in range(FILLERS_A_NODE * self.tight))

    def _late(self) -> list[tuple[str, int]]:
        """To the tight nodes: they need half of the room there, and some fillers more, for which there may be none."""
        first = FILLERS_A_NODE * self.tight
        return [(URGENT, i) for i in range(self.tight)] + [(FILLER, first + i) for i in range(self.tight)]

    def _ordered(self) -> list[tuple[str, int]]:
        """Kinds and numbers of all but those of the tight nodes, in the order in which they come."""
        chance = Random(f"kinds {self.seed}")
        some = min(self.wide // 2, self.pods // 20)
        counts = {APART: some, PORTED: some, TOGETHER: self.pods // 20, HUGE: self.pods // 50, NOWHERE: self.pods // 50}
        left = self.pods - sum(counts.values()) - (FILLERS_A_NODE + 2) * self.tight
        for number, kind in enumerate(EVERYWHERE):
            counts[kind] = max(0, left * (number + 1) // len(EVERYWHERE) - left * number // len(EVERYWHERE))
        names = [(kind, i) for kind, count in counts.items() for i in range(count)]
        chance.shuffle(names)
        return names


def _let_go(chance: Random, waves: list[Wave], index: int, name: str) -> None:
    draw = chance.random()
    if draw < GONE_AT_ONCE:
        waves[index].fleeting.append(name)
    elif draw < GONE_AT_ONCE + GONE_LATER and index + LEAST_AGE < len(waves):
        waves[chance.randrange(index + LEAST_AGE, len(waves))].leaving.append(name)


def kind_of(name: str) -> str:
    """Of a pod, by its name."""
    return name.partition("-")[0]


def pod(kind: str, number: int) -> Object:
    labels = {"kind": kind}
    cpu = {"large": "500m", FILLER: "1", URGENT: "2", HUGE: "1000"}.get(kind, "100m")
    container: Object = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    spec: Object = {"containers": [container], **_particular(kind, number)}
    if kind == PORTED:
        container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    return {"metadata": {"name": f"{kind}-{number:05}", "namespace": NAMESPACE, "labels": labels}, "spec": spec}


def _particular(kind: str, number: int) -> Object:
    """What a kind has beside its requests."""
    own = {"labelSelector": {"matchLabels": {"kind": kind}}}
    match kind:
        case "zonal":
            return {"nodeSelector": {ZONE: ZONES[number % len(ZONES)]}}
        case "spread":
            return {"topologySpreadConstraints": [_spread(ZONE, "DoNotSchedule", own)]}
        case "loose":
            return {"topologySpreadConstraints": [_spread(HOSTNAME, "ScheduleAnyway", own)]}
        case "drawn":
            wanted = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
            preferred = [{"weight": 10, "preference": wanted}]
            return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
        case "apart":
            return {"affinity": {"podAntiAffinity": _required(HOSTNAME, own)}}
        case "together":
            return {"affinity": {"podAffinity": _required(ZONE, own)}}
        case "filler" | "urgent":
            tolerated = [{"key": POOL, "operator": "Exists"}]
            return {"nodeSelector": {POOL: TIGHT}, "tolerations": tolerated, "priorityClassName": kind}
        case "nowhere":
            return {"nodeSelector": {POOL: "none"}}
    return {}


def _spread(key: str, otherwise: str, own: Object) -> Object:
    return {"maxSkew": 2, "topologyKey": key, "whenUnsatisfiable": otherwise, **own}


def _required(key: str, own: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, **own}]}
