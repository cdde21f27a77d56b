"""The auditor's view of the cluster, shared by all checks: nodes with their recent versions, pods, and watches."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shared.errors import InvariantBroken
from shared.messages.watch import Kind
from shared.model.objects import Node, Taint
from testing.auditor.usage import Amounts, Demand, NodeUsage, allocatable_of
from testing.auditor.violations import Invariant, Limits, Violation


@dataclass(frozen=True, slots=True)
class NodeState:
    """The fields of a node that decide whether a pod may be on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    unschedulable: bool
    allocatable: Amounts


def node_state(node: Node) -> NodeState:
    return NodeState(node.name, node.metadata.labels, node.spec.taints, node.spec.unschedulable, allocatable_of(node))


@dataclass(frozen=True, slots=True)
class NodeVersion:
    """A node from `since` on: its state, None if deleted, or `unknown` after a gap in the watch."""

    since: float
    standing: NodeState | None
    unknown: bool = False


class AuditedNodes:
    """Versions that were replaced before the cluster's horizon are forgotten."""

    def __init__(self, cluster: "AuditedCluster") -> None:
        self._cluster = cluster
        self._versions: dict[str, deque[NodeVersion]] = {}
        self._resource_versions: dict[str, str] = {}
        self._gone: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._resource_versions)

    def names(self) -> set[str]:
        return set(self._resource_versions)

    def current(self, name: str) -> NodeState | None:
        versions = self._versions.get(name)
        return versions[-1].standing if versions else None

    def states_since(self, name: str, since: float) -> Iterator[NodeState]:
        """Its states at any time after `since`, newest first."""
        for version in reversed(self._versions.get(name, ())):
            if version.standing is not None:
                yield version.standing
            if version.since <= since:
                return

    def was_unknown(self, name: str, since: float) -> bool:
        """Whether, after `since`, it may have had a state that the watch did not show."""
        for version in reversed(self._versions.get(name, ())):
            if version.unknown:
                return True
            if version.since <= since:
                return False
        return False

    def update(self, node: Node) -> bool:
        """Returns whether the node has changed."""
        self._resource_versions[node.name] = node.metadata.resource_version
        standing = node_state(node)
        if self.current(node.name) == standing:
            return False
        self._append(node.name, NodeVersion(self._cluster.now, standing))
        return True

    def remove(self, name: str) -> None:
        if self._resource_versions.pop(name, None) is not None:
            self._append(name, NodeVersion(self._cluster.now, None))
            self._gone.append((self._cluster.now, name))

    def mark_unknown(self, name: str, since: float) -> None:
        """From `since` on its state may have differed from what is known."""
        self._append(name, NodeVersion(since, None, unknown=True))

    def is_as_known(self, node: Node) -> bool:
        return self._resource_versions.get(node.name) == node.metadata.resource_version and self.current(
            node.name
        ) == node_state(node)

    def _append(self, name: str, version: NodeVersion) -> None:
        versions, horizon = self._versions.setdefault(name, deque()), self._cluster.horizon()
        versions.append(version)
        while len(versions) > 1 and versions[1].since < horizon:
            versions.popleft()
        while self._gone and self._gone[0][0] < horizon:
            _, gone = self._gone.popleft()
            if gone not in self._resource_versions:
                self._versions.pop(gone, None)


MAX_STORY = 16
"""Lines of a pod's story: the first and the latest ones."""
MAX_GONE = 4096
"""Deleted pods whose stories are kept."""


@dataclass(slots=True)
class Assumed:
    """A ledger entry of a pod, and when it was first seen. `as_devices`: extended resources that it gets as devices."""

    attempt: int
    node: str
    since: float
    as_devices: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class PodRecord:
    """`ours`: for one of the audited schedulers. `decided`: bound by a scheduler, not created with a node."""

    uid: str
    key: str
    ours: bool
    waits_since: float
    demand: Demand
    resource_version: int = 0
    node: str = ""
    bound_at: float | None = None
    decided: bool = False
    finished: bool = False
    terminating: bool = False
    gated: bool = False
    assumed: Assumed | None = None
    notes: list[tuple[float, str]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether it occupies a node."""
        return bool(self.node) and not self.finished

    @property
    def waits(self) -> bool:
        """Whether our scheduler has yet to place it."""
        return self.ours and not self.node and not self.finished and not self.terminating

    def was_bound(self, at: float) -> bool:
        return self.bound_at is not None and bool(self.node) and self.bound_at < at

    def note(self, now: float, what: str) -> None:
        if len(self.notes) == MAX_STORY:
            del self.notes[1]
        self.notes.append((now, what))

    def story(self) -> tuple[str, ...]:
        return tuple(f"{clock(at)} {what}" for at, what in self.notes)


class Pods(dict[str, PodRecord]):
    """All pods by uid, and the stories of the most recently deleted ones."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: dict[str, PodRecord] = {}

    def remove(self, uid: str, now: float) -> PodRecord | None:
        record = self.pop(uid, None)
        if record is not None:
            record.note(now, "gone")
            self._gone[uid] = record
            if len(self._gone) > MAX_GONE:
                del self._gone[next(iter(self._gone))]
        return record

    def remembered(self, uid: str) -> PodRecord | None:
        """The record of a pod, even if it was deleted."""
        return self.get(uid) or self._gone.get(uid)


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


@dataclass(frozen=True, slots=True)
class Counts:
    """`created` and `bound` count pods of our schedulers since the first listing; the rest is current."""

    created: int
    bound: int
    waiting: int
    gated: int
    pods: int
    nodes: int
    assumed: int
    events: int
    violations: int


@dataclass(slots=True)
class AuditedStream:
    """A gap lasted from `lost_at` to `whole_since`, which is infinite during a gap and before the first listing."""

    listed: bool = False
    lost_at: float | None = None
    whole_since: float = math.inf

    def begin_gap(self, now: float, lag: float) -> None:
        """Begin a gap, or extend the last one if it ended less than `lag` ago."""
        if self.whole_since < math.inf:
            if self.lost_at is None or now - self.whole_since >= lag:
                self.lost_at = now
            self.whole_since = math.inf

    def end_gap(self, now: float) -> None:
        self.listed = True
        self.whole_since = min(self.whole_since, now)

    def missed_since(self, now: float) -> float:
        """The start of the gap that a listing now would end; `now` if there is none."""
        return now if self.lost_at is None or self.whole_since < math.inf else self.lost_at


EMPTY = NodeUsage()
AUDITED = (Kind.POD, Kind.NODE)
"""The kinds that the auditor watches."""


class AuditedCluster:
    """`unreadable`: uids of pods that exist but cannot be decoded; `waiting`: uids of pods to schedule; `gated`: the
    waiting ones with scheduling gates."""

    def __init__(self, limits: Limits) -> None:
        self.now = 0.0
        """The time of the current event."""
        self.limits = limits
        self.found: list[Violation] = []
        self.streams = {kind: AuditedStream() for kind in AUDITED}
        self.pods = Pods()
        self.nodes = AuditedNodes(self)
        self.unreadable: set[str] = set()
        self.waiting: set[str] = set()
        self.gated: set[str] = set()
        self.oldest_assumed: float | None = None
        self._usage: dict[str, NodeUsage] = {}

    def usage(self, node: str) -> NodeUsage:
        return self._usage.get(node, EMPTY)

    def remove_usage(self, record: PodRecord) -> None:
        """Remove the pod from its node, if it is on one."""
        usage = self._usage.get(record.node)
        if usage is not None and record.uid in usage.pods:
            usage.remove(record.uid)
            if not usage.pods:
                del self._usage[record.node]

    def settle(self, record: PodRecord) -> None:
        """Update node usage, `waiting` and `gated` from the record."""
        self.unreadable.discard(record.uid)
        if record.holds:
            usage = self._usage.setdefault(record.node, NodeUsage())
            usage.add(record.uid, record.demand, self.now, decided=record.decided)
        else:
            self.remove_usage(record)
        self.unlist(record.uid)
        if record.waits:
            self.waiting.add(record.uid)
            if record.gated:
                self.gated.add(record.uid)

    def unlist(self, uid: str) -> None:
        self.waiting.discard(uid)
        self.gated.discard(uid)

    def whole(self, at: float) -> bool:
        """Whether the view was complete at this time, so that other sources can be compared with it."""
        return at >= max(stream.whole_since for stream in self.streams.values()) + self.limits.lag

    def reach(self) -> float:
        """The earliest time at which a change seen now may have happened."""
        gaps = (
            stream.lost_at
            for stream in self.streams.values()
            if stream.lost_at is not None and self.now < stream.whole_since + self.limits.lag
        )
        return min(gaps, default=self.now)

    def horizon(self) -> float:
        """State that was replaced before this time cannot matter to any decision still to be checked."""
        reach = self.reach()
        return (reach if self.oldest_assumed is None else min(reach, self.oldest_assumed)) - self.limits.lag

    def decided_since(self, record: PodRecord) -> float:
        """The earliest time at which a decision seen now may have been made."""
        reach, assumed = self.reach(), record.assumed
        if assumed is not None and assumed.node == record.node:
            reach = min(reach, assumed.since)
        return reach - self.limits.lag

    def report(self, invariant: Invariant, what: str, *, uid: str = "", node: str = "") -> None:
        record = self.pods.remembered(uid)
        violation = Violation(
            invariant,
            self.now,
            what,
            uid=uid,
            pod=record.key if record is not None else "unknown" if uid else "",
            node=node or (record.node if record is not None else ""),
            story=record.story() if record is not None else (),
        )
        self.found.append(violation)

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
