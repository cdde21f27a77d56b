"""The auditor's view of the cluster, shared by all checks, and the state of its watches."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.errors import InvariantBroken
from shared.messages.watch import Kind
from testing.auditor.nodes import Nodes
from testing.auditor.pods import PodRecord, Pods
from testing.auditor.usage import NodeUsage
from testing.auditor.violations import Invariant, Limits, Violation

EMPTY = NodeUsage()
AUDITED = (Kind.POD, Kind.NODE)
"""The kinds that the auditor watches."""


class Cluster:
    """`unreadable`: uids of pods that exist but cannot be decoded; `waiting`: uids of pods to schedule; `gated`: the
    waiting ones with scheduling gates."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.streams = Streams(limits.lag)
        self.pods = Pods()
        self.nodes = Nodes()
        self.unreadable: set[str] = set()
        self.waiting: set[str] = set()
        self.gated: set[str] = set()
        self.oldest_assumed: float | None = None
        self._usage: dict[str, NodeUsage] = {}

    def usage(self, node: str) -> NodeUsage:
        return self._usage.get(node, EMPTY)

    def add_usage(self, record: PodRecord, now: float) -> None:
        self._usage.setdefault(record.node, NodeUsage()).add(record.uid, record.demand, now, decided=record.decided)

    def remove_usage(self, record: PodRecord) -> None:
        """Remove the pod from its node, if it is on one."""
        usage = self._usage.get(record.node)
        if usage is not None and record.uid in usage.pods:
            usage.remove(record.uid)
            if not usage.pods:
                del self._usage[record.node]

    def list_waiting(self, record: PodRecord) -> None:
        """Update `waiting` and `gated` for this pod."""
        self.unlist(record.uid)
        if record.waits:
            self.waiting.add(record.uid)
            if record.gated:
                self.gated.add(record.uid)

    def unlist(self, uid: str) -> None:
        self.waiting.discard(uid)
        self.gated.discard(uid)

    def horizon(self, now: float) -> float:
        """State that was replaced before this time cannot matter to any decision still to be checked."""
        reach = self.streams.reach(now)
        return (reach if self.oldest_assumed is None else min(reach, self.oldest_assumed)) - self.limits.lag

    def decided_since(self, record: PodRecord, now: float) -> float:
        """The earliest time at which a decision seen now may have been made."""
        reach, assumed = self.streams.reach(now), record.assumed
        if assumed is not None and assumed.node == record.node:
            reach = min(reach, assumed.since)
        return reach - self.limits.lag

    def violation(
        self,
        invariant: Invariant,
        now: float,
        what: str,
        *,
        uid: str = "",
        node: str = "",
        numbers: Mapping[str, float] | None = None,
    ) -> Violation:
        record = self.pods.remembered(uid)
        return Violation(
            invariant,
            now,
            what,
            uid=uid,
            pod=record.key if record is not None else "unknown" if uid else "",
            node=node or (record.node if record is not None else ""),
            numbers=numbers or {},
            story=record.story() if record is not None else (),
        )

    def validate(self) -> None:
        """Recount everything; InvariantBroken if the kept totals differ."""
        for name, usage in self._usage.items():
            usage.validate(name)
        _same("pods on nodes", ((uid, node) for node, usage in self._usage.items() for uid in usage.pods), self._held())
        demands = ((r.uid, self.usage(r.node).pods[r.uid].demand == r.demand) for r in self.pods.values() if r.holds)
        _same("demands", demands, ((uid, True) for uid, _ in self._held()))
        waiting = {uid for uid, record in self.pods.items() if record.waits and uid not in self.unreadable}
        _same("waiting pods", self.waiting, waiting)
        _same("gated pods", self.gated, (uid for uid in waiting if self.pods[uid].gated))

    def _held(self) -> list[tuple[str, str]]:
        return [(uid, record.node) for uid, record in self.pods.items() if record.holds]


def _same(what: str, kept: Iterable[object], recount: Iterable[object]) -> None:
    difference = set(kept) ^ set(recount)
    if difference:
        raise InvariantBroken(f"{what}: kept and recounted differ by {difference}")


@dataclass(slots=True)
class Stream:
    """A gap lasted from `lost_at` to `whole_since`, which is infinite during a gap and before the first listing."""

    listed: bool = False
    lost_at: float | None = None
    whole_since: float = math.inf


class Streams:
    def __init__(self, lag: float) -> None:
        self._lag = lag
        self._streams = {kind: Stream() for kind in AUDITED}

    def all_listed(self) -> bool:
        return all(stream.listed for stream in self._streams.values())

    def is_listed(self, kind: Kind) -> bool:
        return self._streams[kind].listed

    def lost_at(self, kind: Kind, now: float) -> float:
        """The start of the gap that a listing now would end; `now` if there is none."""
        stream = self._streams[kind]
        return now if stream.lost_at is None or stream.whole_since < math.inf else stream.lost_at

    def begin_gap(self, kind: Kind, now: float) -> None:
        """Begin a gap, or extend the last one if it ended less than `lag` ago."""
        stream = self._streams[kind]
        if stream.whole_since < math.inf:
            if stream.lost_at is None or now - stream.whole_since >= self._lag:
                stream.lost_at = now
            stream.whole_since = math.inf

    def end_gap(self, kind: Kind, now: float) -> None:
        stream = self._streams[kind]
        stream.listed = True
        stream.whole_since = min(stream.whole_since, now)

    def whole_since(self) -> float:
        """Since when no stream has had a gap; infinite during one."""
        return max(stream.whole_since for stream in self._streams.values())

    def steady(self, at: float) -> bool:
        """Whether the view was complete at this time, so that other sources can be compared with it."""
        return at >= self.whole_since() + self._lag

    def reach(self, now: float) -> float:
        """The earliest time at which a change seen now may have happened."""
        gaps = [
            stream.lost_at
            for stream in self._streams.values()
            if stream.lost_at is not None and now < stream.whole_since + self._lag
        ]
        return min(gaps, default=now)
