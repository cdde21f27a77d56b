"""Trees of groups that arrive in a full cluster, with a solver that says who had to make way for them."""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flotilla.events import Action, Resource
from services.queue import events as queue
from services.queue.scheduling.cluster_event import ClusterChange
from services.snapshot import events as snapshot
from shared.framework.clusterevents import ClusterEvent
from shared.messages.queue import GangGroup
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, object_from
from shared.model.quantity import MILLI, Quantity
from testing.builders import PodBuilder, pod
from testing.inprocess.pipeline import bound
from tests.rounds.preempting_gangs import PreemptingGangs
from tests.rounds.support import BY_NAME
from tests.rounds.test_tree_placements import Case, placements, wrong

PRIORITY = 10
ADDED = ClusterEvent(Resource.POD_GROUP, Action.ADD)
POD_ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)


def group_object(
    name: str, least: int, parent: str = "", *, composite: bool = False, keys: Iterable[str] = (), **spec: Any
) -> ClusterObject:
    policy = {"minGroupCount": least} if composite else {"minCount": least}
    raw = {"schedulingPolicy": {"gang": policy}, **spec}
    raw |= {"parentCompositePodGroupName": parent} if parent else {}
    raw |= {"schedulingConstraints": {"topology": [{"key": key} for key in keys]}} if keys else {}
    kind = ObjectKind.COMPOSITE_POD_GROUP if composite else ObjectKind.POD_GROUP
    return object_from(kind, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": raw})


def objects_of(groups: Sequence[GangGroup]) -> list[ClusterObject]:
    return [
        group_object(
            each.name,
            each.least,
            groups[each.parent].name if number else "",
            composite=each.is_composite,
            keys=[level.key for level in each.topology],
        )
        for number, each in enumerate(groups)
    ]


class PreemptingTrees(PreemptingGangs):
    def add_objects(self, objects: Iterable[ClusterObject]) -> None:
        for each in objects:
            self.observe(snapshot.ObjectSeen(each))
            self._tell_queue(queue.WatchEvents([ClusterChange(ADDED, None, each)]))

    def _bind(self, uid: str, attempt: int, node: str) -> None:
        """Groups go on counting the pod."""
        super()._bind(uid, attempt, node)
        self._tell_queue(queue.WatchEvents([ClusterChange(POD_ADDED, None, bound(self.submitted[uid], node))]))


def world(nodes: Iterable[Any], pods: Iterable[Pod], shards: int) -> PreemptingTrees:
    run = PreemptingTrees(shards=shards, round_size=256, ties=BY_NAME)
    run.add_nodes(nodes)
    run.add_pods(pods)
    run.settle()
    return run


@dataclass(frozen=True)
class Crowded:
    """A tree, and pods of lower priority in its way. Each group of these goes whole."""

    case: Case
    low: Sequence[Pod]
    groups: Sequence[str]

    def units(self) -> list[frozenset[str]]:
        """Uids that go together."""
        by_unit: dict[str, set[str]] = {}
        for each in self.low:
            of = each.spec.scheduling_group
            name = "" if of is None else of.pod_group_name or ""
            by_unit.setdefault(name or each.uid, set()).add(each.uid)
        return [frozenset(of) for of in by_unit.values()]

    def fits(self, gone: Iterable[str]) -> bool:
        """Whether the tree has a placement once these are gone."""
        away = set(gone)
        nodes = []
        for each in self.case.nodes:
            stay = [p for p in self.low if p.spec.node_name == each.name and p.uid not in away]
            left = Quantity(MILLI * 1000 * (_cpus_of(each) - sum(map(_cpus, stay))))
            status = msgspec.structs.replace(each.status, allocatable=each.status.allocatable | {"cpu": left})
            nodes.append(msgspec.structs.replace(each, status=status))
        smaller = self.case._replace(nodes=nodes)
        return any(any(placed.values()) and not wrong(smaller, placed) for placed in placements(smaller))

    def smallest(self) -> int | None:
        """How many units must go at least; None if nothing helps."""
        units = self.units()
        for size in range(len(units) + 1):
            if any(self.fits(itertools.chain(*picked)) for picked in itertools.combinations(units, size)):
                return size
        return None


def _cpus_of(where: Node) -> int:
    return int(where.status.allocatable["cpu"].milli) // 1000


def _cpus(each: Pod) -> int:
    return sum(int(container.resources.requests["cpu"].milli) for container in each.spec.containers) // 1000


def crowded(case: Case, seed: int) -> Crowded:
    """Fills its nodes, or most of them."""
    dice = random.Random(seed)
    groups = ["old0", "old1"] if dice.random() < 0.4 else []
    low: list[Pod] = []
    for where in case.nodes:
        left = _cpus_of(where)
        while left > 0 and dice.random() < 0.85:
            cpu = min(left, dice.choice((1, 1, 2)))
            left -= cpu
            made = pod(f"low{len(low)}").request(cpu=cpu).priority(dice.randrange(4))
            made = made.started(f"2024-01-{1 + len(low):02}T00:00:00Z")
            if groups and dice.random() < 0.5:
                made = made.group(dice.choice(groups)).priority(2)
            low.append(bound(made.build(), where.name))
    pods = {number: [_preempting(each) for each in of] for number, of in case.pods.items()}
    return Crowded(case._replace(pods=pods), low, groups)


def _preempting(each: Pod) -> Pod:
    spec = msgspec.structs.replace(each.spec, preemption_policy="PreemptLowerPriority", priority=PRIORITY)
    return msgspec.structs.replace(each, spec=spec)


def in_its_group(each: Pod, group: str) -> Pod:
    return PodBuilder(metadata=each.metadata, spec=each.spec, status=each.status).group(group).build()
