"""Judges bindings: room, host ports, and whether the node admits the pod.

A binding rests on a node as it was when it was decided. Pods and nodes are heard of on two streams, so a binding is
wrong only if no version of the node will do that was current between the decision and `lag` seconds after the binding
was seen. Till then there is a doubt.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from shared.model.objects import Pod
from testing.auditor.admission import objection
from testing.auditor.cluster import Cluster
from testing.auditor.demand import Amounts, Demand
from testing.auditor.nodes import Standing
from testing.auditor.pods import PodRecord
from testing.auditor.rooms import excess
from testing.auditor.violations import Invariant, Violation


@dataclass(frozen=True, slots=True)
class Objection:
    what: str
    numbers: Mapping[str, float]


NO_SUCH_NODE = Objection("no such node is known", {})
Judgement = Callable[[Standing], Objection | None]


@dataclass(slots=True)
class Doubt:
    """`last`: what the newest version of the node has against it."""

    invariant: Invariant
    uid: str
    node: str
    since: float
    until: float
    judge: Judgement
    last: Objection


class Placements:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._doubts: deque[Doubt] = deque()

    def __len__(self) -> int:
        """So many judgements are still open."""
        return len(self._doubts)

    def judge(self, pod: Pod, record: PodRecord, now: float) -> list[Violation]:
        """A pod that was decided is seen on its node, and so is everything else that was there by then."""
        self._judge_version(Invariant.CONSTRAINTS, record, partial(_judge_admission, pod), now)
        room, standing = self._cluster.room(record.node), self._cluster.nodes.current(record.node)
        if standing is None or excess(record.demand.amounts, room.totals, standing.allocatable):
            totals = room.counted(self._cluster.decided_since(record, now))
            fits = partial(judge_room, record.demand, totals)
            self._judge_version(Invariant.CAPACITY, record, fits, now)
        if not record.demand.ports:
            return []
        clash = room.port_clash(record.uid, record.demand, self._cluster.decided_since(record, now))
        if clash is None:
            return []
        other, port = clash
        what = f"{port.protocol} port {port.number} on {port.address} is taken by pod {self._name(other)}"
        return [self._cluster.violation(Invariant.HOST_PORTS, now, what, uid=record.uid, numbers={"port": port.number})]

    def node_changed(self, name: str) -> None:
        """A newer version of the node may be what the scheduler had seen."""
        standing = self._cluster.nodes.current(name)
        if self._doubts and standing is not None:
            self._doubts = deque(d for d in self._doubts if d.node != name or not _settles(d, standing))

    def expire(self, now: float) -> list[Violation]:
        """What no version of the node has settled in time."""
        streams, broken = self._cluster.streams, []
        if streams.steady(now):  # else the version that settles it may still be on its way
            while self._doubts and self._doubts[0].until <= now:
                broken += self._confirm(self._doubts.popleft(), now)
        return broken

    def finish(self, now: float) -> list[Violation]:
        broken = [violation for doubt in self._doubts for violation in self._confirm(doubt, now)]
        self._doubts.clear()
        return broken

    def _judge_version(self, invariant: Invariant, record: PodRecord, judge: Judgement, now: float) -> None:
        nodes = self._cluster.nodes
        standing = nodes.current(record.node)
        last = NO_SUCH_NODE if standing is None else judge(standing)
        if last is None:
            return
        since = self._cluster.decided_since(record, now)
        if any(judge(standing) is None for standing in nodes.lately(record.node, since)):
            return
        until = now + self._cluster.limits.lag
        self._doubts.append(Doubt(invariant, record.uid, record.node, since, until, judge, last))

    def _confirm(self, doubt: Doubt, now: float) -> list[Violation]:
        if self._cluster.nodes.was_unseen(doubt.node, doubt.since):
            return []
        last = doubt.last
        return [
            self._cluster.violation(
                doubt.invariant, now, last.what, uid=doubt.uid, node=doubt.node, numbers=last.numbers
            )
        ]

    def _name(self, uid: str) -> str:
        return self._cluster.pods[uid].key


def judge_room(demand: Demand, totals: Amounts, node: Standing) -> Objection | None:
    numbers = excess(demand.amounts, totals, node.allocatable)
    if not numbers:
        return None
    texts = [f"{name} {amount:g}" for name, amount in numbers.items()]
    return Objection(f"the pods on the node request more than it has: {', '.join(texts)}", numbers)


def _judge_admission(pod: Pod, node: Standing) -> Objection | None:
    what = objection(pod, node)
    return None if what is None else Objection(what, {})


def _settles(doubt: Doubt, standing: Standing) -> bool:
    last = doubt.judge(standing)
    if last is not None:
        doubt.last = last
    return last is None
