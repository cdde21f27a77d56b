"""The auditor's core: compares what the API server, the ledger and the queue report.

It computes requests, capacity and constraints on its own, from the objects themselves, and reports what delays between
the sources cannot explain.

    seen --> waiting --> bound --> finished --> gone     a listing is atomic: deleted objects leave
       \\                                                 before new ones are checked
        +--> created with a node: counted, not checked
"""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.messages.binding import BindingOutcomes
from shared.messages.queue import QueueContents
from shared.messages.state import LedgerEntry
from shared.messages.watch import Kind
from shared.model.objects import DEFAULT_SCHEDULER, Node, Pod
from testing.auditor.checks import LedgerChecks, PermitChecks, QueueChecks
from testing.auditor.cluster import AuditedCluster, Counts, PodRecord
from testing.auditor.placements import AuditedPlacements
from testing.auditor.usage import demand_of
from testing.auditor.violations import Invariant, Limits, Violation

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})

Expected = int | Callable[[PodRecord], bool]
"""How many pods may be left unbound at the end, or a predicate that says which."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The watch shows an object."""

    object: Pod | Node


@dataclass(frozen=True, slots=True)
class Gone:
    """The watch shows that an object was deleted. `id`: a pod's uid or a node's name, here and below."""

    kind: Kind
    id: str


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects of a kind, as of one moment. `unreadable`: ids of those that cannot be decoded."""

    kind: Kind
    objects: Sequence[Pod | Node]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The watch shows an object that cannot be decoded."""

    kind: Kind
    id: str


@dataclass(frozen=True, slots=True)
class WatchLost:
    """A watch has ended: changes from now on are seen later, or not at all."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class WatchResumed:
    """A watch has resumed where it ended: nothing was missed."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """The whole ledger, at some moment since `asked_at`; None: it could not be read."""

    entries: Sequence[LedgerEntry] | None
    asked_at: float


@dataclass(frozen=True, slots=True)
class QueueRead:
    """The queue's contents, at some moment since `asked_at`; None: it did not answer."""

    contents: QueueContents | None
    asked_at: float


class Tick:
    """Time has passed."""


Event = Seen | Gone | Listed | Unreadable | WatchLost | WatchResumed | LedgerRead | QueueRead | BindingOutcomes | Tick
"""Times are Unix times, like those in the ledger."""


class AuditorCore:
    def __init__(
        self, schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER}), limits: Limits | None = None
    ) -> None:
        self._schedulers = schedulers
        self._cluster = AuditedCluster(limits or Limits())
        self._placements = AuditedPlacements(self._cluster)
        self._ledger = LedgerChecks(self._cluster)
        self._queue = QueueChecks(self._cluster)
        self._permits = PermitChecks(self._cluster)
        self._checks = (self._placements, self._ledger, self._queue, self._permits)
        self._created = self._bound = self._events = self._violations = 0
        self._latencies = array("d")

    def handle(self, event: Event, now: float) -> list[Violation]:
        self._events += 1
        self._cluster.now = now
        self._take(event)
        self._placements.expire()
        return self._reported()

    def finish(self, now: float, unbound: Expected = 0) -> list[Violation]:
        """Final checks. `unbound`: what may be left in the queue as unschedulable or gated."""
        self._cluster.now = now
        for check in self._checks:
            check.finish()
        for uid, what in self._left_over(unbound):
            self._cluster.report(Invariant.ALL_BOUND, what, uid=uid)
        return self._reported()

    def is_done(self, unbound: Expected = 0) -> bool:
        """Whether the scheduler is idle, no violation is pending, and no pod is left that should not be."""
        return all(check.at_rest for check in self._checks) and not self._left_over(unbound)

    def counts(self) -> Counts:
        return Counts(
            created=self._created,
            bound=self._bound,
            waiting=len(self._cluster.waiting),
            gated=len(self._cluster.gated),
            pods=len(self._cluster.pods),
            nodes=len(self._cluster.nodes),
            assumed=len(self._ledger),
            events=self._events,
            violations=self._violations,
        )

    def latency(self, quantile: float) -> float:
        """Seconds from first seeing a pod without gates to seeing it bound, at this quantile; 1 is the maximum."""
        if not self._latencies:
            return 0.0
        rank = math.ceil(quantile * len(self._latencies)) - 1
        return sorted(self._latencies)[max(rank, 0)]

    @property
    def is_listed(self) -> bool:
        """Whether all first listings are complete."""
        return all(stream.listed for stream in self._cluster.streams.values())

    def validate(self) -> None:
        self._cluster.validate()

    # Events

    def _take(self, event: Event) -> None:
        cluster = self._cluster
        match event:
            case Seen(object=Pod() as pod):
                self._check(pod, self._update(pod))
            case Seen(object=Node() as node):
                if cluster.nodes.update(node):
                    self._placements.node_changed(node.name)
            case Gone(kind=Kind.NODE, id=name):
                cluster.nodes.remove(name)
            case Gone(id=uid):
                self._remove(uid)
            case Listed(kind=Kind.NODE):
                self._on_nodes_listed(event)
            case Listed():
                self._on_pods_listed(event)
            case Unreadable(kind=kind, id=id):
                self._on_unreadable(kind, id)
            case WatchLost(kind=kind):
                cluster.streams[kind].begin_gap(cluster.now, cluster.limits.lag)
            case WatchResumed(kind=kind):
                cluster.streams[kind].end_gap(cluster.now)
            case LedgerRead(entries=entries, asked_at=asked_at):
                if entries is not None:
                    self._permits.read_ledger(entries, asked_at)
                self._ledger.read(entries, asked_at)
            case QueueRead(contents=contents, asked_at=asked_at):
                self._queue.read(contents, asked_at)
            case BindingOutcomes(outcomes=outcomes):
                self._permits.on_outcomes(outcomes)
            case Tick():
                self._permits.expire()

    def _on_pods_listed(self, listing: Listed) -> None:
        stream = self._cluster.streams[Kind.POD]
        pods = [each for each in listing.objects if isinstance(each, Pod)]
        there = {pod.uid for pod in pods} | set(listing.unreadable)
        for uid in (self._cluster.pods.keys() | self._cluster.unreadable) - there:
            self._remove(uid)
        for uid in listing.unreadable:
            self._on_unreadable(Kind.POD, uid)
        for pod, record in [(pod, self._update(pod, relisted=stream.listed)) for pod in pods]:
            self._check(pod, record)
        stream.end_gap(self._cluster.now)

    def _on_nodes_listed(self, listing: Listed) -> None:
        nodes, stream = self._cluster.nodes, self._cluster.streams[Kind.NODE]
        missed_since = stream.missed_since(self._cluster.now)
        listed = {each.name: each for each in listing.objects if isinstance(each, Node)}
        for name in nodes.names() - listed.keys() - set(listing.unreadable):
            nodes.mark_unknown(name, missed_since)
            nodes.remove(name)
        for name in listing.unreadable:
            self._on_unreadable(Kind.NODE, name)
        for name, node in listed.items():
            if stream.listed and not nodes.is_as_known(node):
                nodes.mark_unknown(name, missed_since)
            nodes.update(node)
            self._placements.node_changed(name)
        stream.end_gap(self._cluster.now)

    def _on_unreadable(self, kind: Kind, id: str) -> None:
        if kind is Kind.NODE:
            self._cluster.nodes.mark_unknown(id, self._cluster.now)
        else:
            self._cluster.unreadable.add(id)
            self._cluster.unlist(id)

    # Pods

    def _check(self, pod: Pod, newly_bound: PodRecord | None) -> None:
        if newly_bound is not None:
            self._placements.check(pod, newly_bound)

    def _update(self, pod: Pod, *, relisted: bool = False) -> PodRecord | None:
        """Update a pod's record; returns it if the scheduler bound the pod and this is new.

        `relisted`: seen in a listing after a gap.
        """
        record, now = self._cluster.pods.get(pod.uid), self._cluster.now
        met = record is None
        gated = bool(pod.spec.scheduling_gates)
        if record is None:
            ours = pod.spec.scheduler_name in self._schedulers
            record = self._cluster.pods[pod.uid] = PodRecord(pod.uid, pod.key, ours, now, demand_of(pod), gated=gated)
            record.note(now, "seen, gated" if gated else "seen")
        text = pod.metadata.resource_version
        version = int(text) if text.isdecimal() else 0
        if 0 < version < record.resource_version:
            return None  # outdated
        record.resource_version = version
        if record.node and pod.spec.node_name != record.node:
            self._on_moved(record, pod.spec.node_name)
        newly_bound = bool(pod.spec.node_name) and not record.node
        first_time = record.bound_at is None
        self._take_in(pod, record)
        if newly_bound:
            record.node, record.bound_at = pod.spec.node_name, now
            record.decided = record.ours and (not met or relisted)
            record.note(now, f"bound to node {record.node}")
        self._cluster.settle(record)
        if met and record.ours and (not record.node or record.decided):
            self._created += 1
        if not newly_bound or not record.decided:
            return None
        if first_time:
            self._bound += 1
            if not met:
                self._latencies.append(now - record.waits_since)
        return None if record.finished else record

    def _on_moved(self, record: PodRecord, node: str) -> None:
        what = f"was bound to node {record.node} and is now " + (f"bound to node {node}" if node else "not bound")
        record.note(self._cluster.now, f"moved from node {record.node} to {node or 'none'}")
        self._cluster.report(Invariant.BOUND_ONCE, what, uid=record.uid)
        self._cluster.remove_usage(record)
        record.node = ""

    def _take_in(self, pod: Pod, record: PodRecord) -> None:
        now = self._cluster.now
        record.terminating = pod.metadata.deletion_timestamp is not None
        if pod.status.phase in FINISHED_PHASES and not record.finished:
            record.finished = True
            record.note(now, f"finished: {pod.status.phase}")
        gated = bool(pod.spec.scheduling_gates)
        if record.gated and not gated:
            record.waits_since = now
            record.note(now, "gates removed")
        record.gated = gated
        resizing = any(condition.type == "PodResizePending" for condition in pod.status.conditions)
        if not (record.holds and resizing):  # else the node has not granted the new size yet
            record.demand = demand_of(pod)

    def _remove(self, uid: str) -> None:
        self._cluster.unreadable.discard(uid)
        self._cluster.unlist(uid)
        record = self._cluster.pods.remove(uid, self._cluster.now)
        if record is not None:
            self._cluster.remove_usage(record)

    # Reports

    def _left_over(self, unbound: Expected) -> list[tuple[str, str]]:
        """The pods that should not be left, by uid, and what is wrong."""
        left = [self._cluster.pods[uid] for uid in sorted(self._cluster.waiting)]
        if not isinstance(unbound, int):
            return [(record.uid, "not bound at the end") for record in left if not unbound(record)]
        if len(left) == unbound:
            return []
        return [(left[0].uid if left else "", f"{len(left)} pods are not bound, {unbound} expected")]

    def _reported(self) -> list[Violation]:
        reported, self._cluster.found = self._cluster.found, []
        self._violations += len(reported)
        return reported
