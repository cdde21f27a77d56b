"""The auditor's core: compares what the API server, the ledger and the queue report.

It computes requests, capacity and constraints on its own, from the objects themselves, and reports what delays between
the sources cannot explain.

    seen --> waiting --> bound --> finished --> gone     a listing is atomic: deleted objects leave
       \\                                                 before new ones are checked
        +--> created with a node: counted, not checked
"""

from collections.abc import Callable
from enum import Enum

from shared.messages.watch import Kind
from shared.model.objects import DEFAULT_SCHEDULER, Pod
from testing.auditor import events
from testing.auditor.checks import LedgerChecks, PermitChecks, QueueChecks
from testing.auditor.cluster import Cluster, Counts, PodRecord, Statistics
from testing.auditor.placements import Placements
from testing.auditor.usage import demand_of
from testing.auditor.violations import Invariant, Limits, Violation

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})

Expected = int | Callable[[PodRecord], bool]
"""How many pods may be left unbound at the end, or a predicate that says which."""


class Source(Enum):
    WATCH = "watch"
    FIRST_LISTING = "first listing"
    RELISTING = "listing after a gap"


class AuditorCore:
    def __init__(
        self, schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER}), limits: Limits | None = None
    ) -> None:
        self.statistics = Statistics()
        self._schedulers = schedulers
        self._cluster = Cluster(limits or Limits())
        self._placements = Placements(self._cluster)
        self._ledger = LedgerChecks(self._cluster)
        self._queue = QueueChecks(self._cluster)
        self._permits = PermitChecks(self._cluster)
        self._broken: list[Violation] = []
        self._events = 0
        self._violations = 0

    def handle(self, event: events.Event, now: float) -> list[Violation]:
        self._events += 1
        self._take(event, now)
        self._broken += self._placements.expire(now)
        return self._reported()

    def finish(self, now: float, unbound: Expected = 0) -> list[Violation]:
        """Final checks. `unbound`: what may be left in the queue as unschedulable or gated."""
        self._broken += self._placements.finish(now)
        self._broken += self._ledger.finish(now)
        self._broken += self._queue.finish(now)
        self._broken += self._permits.finish(now)
        self._broken += self._left_over(now, unbound)
        return self._reported()

    def is_done(self, unbound: Expected = 0) -> bool:
        """Whether the scheduler is idle, no violation is pending, and no pod is left that should not be."""
        at_rest = not self._placements and self._ledger.at_rest and self._queue.at_rest and not self._permits
        return at_rest and not self._left_over(0.0, unbound)

    def counts(self) -> Counts:
        return Counts(
            created=self.statistics.created,
            bound=self.statistics.bound,
            waiting=len(self._cluster.waiting),
            gated=len(self._cluster.gated),
            pods=len(self._cluster.pods),
            nodes=len(self._cluster.nodes),
            assumed=len(self._ledger),
            events=self._events,
            violations=self._violations,
        )

    @property
    def progress(self) -> float:
        """The share of our pods that are bound."""
        waiting, bound = len(self._cluster.waiting), self.statistics.bound
        return bound / (bound + waiting) if bound + waiting else 0.0

    @property
    def is_listed(self) -> bool:
        """Whether all first listings are complete."""
        return self._cluster.streams.all_listed()

    def validate(self) -> None:
        self._cluster.validate()

    # Events

    def _take(self, event: events.Event, now: float) -> None:
        match event:
            case events.PodSeen(pod=pod):
                record = self._update(pod, now, Source.WATCH)
                if record is not None:
                    self._broken += self._placements.check(pod, record, now)
            case events.PodGone(uid=uid):
                self._remove(uid, now)
            case events.PodsListed():
                self._on_pods_listed(event, now)
            case events.NodeSeen(node=node):
                if self._cluster.nodes.update(node, now, self._cluster.horizon(now)):
                    self._placements.node_changed(node.name)
            case events.NodeGone(name=name):
                self._cluster.nodes.remove(name, now, self._cluster.horizon(now))
            case events.NodesListed():
                self._on_nodes_listed(event, now)
            case events.Unreadable(kind=kind, id=id):
                self._on_unreadable(kind, id, now)
            case events.WatchLost(kind=kind):
                self._cluster.streams.begin_gap(kind, now)
            case events.WatchResumed(kind=kind):
                self._cluster.streams.end_gap(kind, now)
            case events.LedgerRead():
                self._permits.read(event)
                self._broken += self._ledger.read(event, now)
            case events.LedgerUnavailable():
                self._ledger.unavailable()
            case events.QueueRead():
                self._broken += self._queue.read(event, now)
            case events.QueueUnavailable():
                self._queue.unavailable()
            case events.BindingsReported(outcomes=outcomes):
                self._permits.hear(outcomes, now)
            case events.Tick():
                self._broken += self._permits.expire(now)

    def _on_pods_listed(self, listing: events.PodsListed, now: float) -> None:
        there = {pod.uid for pod in listing.pods} | set(listing.unreadable)
        for uid in (self._cluster.pods.keys() | self._cluster.unreadable) - there:
            self._remove(uid, now)
        for uid in listing.unreadable:
            self._on_unreadable(Kind.POD, uid, now)
        source = Source.RELISTING if self._cluster.streams.is_listed(Kind.POD) else Source.FIRST_LISTING
        updated = [(pod, self._update(pod, now, source)) for pod in listing.pods]
        for pod, record in updated:
            if record is not None:
                self._broken += self._placements.check(pod, record, now)
        self._cluster.streams.end_gap(Kind.POD, now)

    def _on_nodes_listed(self, listing: events.NodesListed, now: float) -> None:
        nodes, streams = self._cluster.nodes, self._cluster.streams
        horizon, missed_since = self._cluster.horizon(now), streams.lost_at(Kind.NODE, now)
        first = not streams.is_listed(Kind.NODE)
        there = {node.name for node in listing.nodes} | set(listing.unreadable)
        for name in nodes.names() - there:
            nodes.mark_unknown(name, missed_since, horizon)
            nodes.remove(name, now, horizon)
        for name in listing.unreadable:
            self._on_unreadable(Kind.NODE, name, now)
        for node in listing.nodes:
            if not first and not nodes.is_as_known(node):
                nodes.mark_unknown(node.name, missed_since, horizon)
            nodes.update(node, now, horizon)
            self._placements.node_changed(node.name)
        streams.end_gap(Kind.NODE, now)

    def _on_unreadable(self, kind: Kind, id: str, now: float) -> None:
        if kind is Kind.NODE:
            self._cluster.nodes.mark_unknown(id, now, self._cluster.horizon(now))
        else:
            self._cluster.unreadable.add(id)
            self._cluster.unlist(id)

    # Pods

    def _update(self, pod: Pod, now: float, source: Source) -> PodRecord | None:
        """Update a pod's record; returns it if the scheduler bound the pod and this is new."""
        record = self._cluster.pods.get(pod.uid)
        met = record is None
        if record is None:
            record = self._meet(pod, now)
        version = _version(pod)
        if 0 < version < record.resource_version:
            return None  # outdated
        record.resource_version = version
        if record.node and pod.spec.node_name != record.node:
            self._on_moved(record, pod.spec.node_name, now)
        newly_bound = bool(pod.spec.node_name) and not record.node
        first_time = record.bound_at is None
        self._take_in(pod, record, now)
        if newly_bound:
            record.node, record.bound_at = pod.spec.node_name, now
            record.decided = record.ours and (not met or source is Source.RELISTING)
            record.note(now, f"bound to node {record.node}")
        self._cluster.settle(record, now)
        if met and record.ours and (not record.node or record.decided):
            self.statistics.on_created(now)
        if not newly_bound or not record.decided:
            return None
        if first_time:
            self.statistics.on_bound(None if met else now - record.waits_since, now)
        return None if record.finished else record

    def _meet(self, pod: Pod, now: float) -> PodRecord:
        ours = pod.spec.scheduler_name in self._schedulers
        record = PodRecord(pod.uid, pod.key, ours, now, demand_of(pod), gated=bool(pod.spec.scheduling_gates))
        record.note(now, "seen, gated" if record.gated else "seen")
        self._cluster.pods[pod.uid] = record
        return record

    def _on_moved(self, record: PodRecord, node: str, now: float) -> None:
        what = f"was bound to node {record.node} and is now " + (f"bound to node {node}" if node else "not bound")
        record.note(now, f"moved from node {record.node} to {node or 'none'}")
        self._broken.append(self._cluster.violation(Invariant.BOUND_ONCE, now, what, uid=record.uid))
        self._cluster.remove_usage(record)
        record.node = ""

    def _take_in(self, pod: Pod, record: PodRecord, now: float) -> None:
        record.terminating = pod.metadata.deletion_timestamp is not None
        if pod.status.phase in FINISHED_PHASES and not record.finished:
            record.finished = True
            record.note(now, f"finished: {pod.status.phase}")
        gated = bool(pod.spec.scheduling_gates)
        if record.gated and not gated:
            record.waits_since = now
            record.note(now, "gates removed")
        record.gated = gated
        if not (record.holds and _resizing(pod)):  # the node has not granted the new size yet
            record.demand = demand_of(pod)

    def _remove(self, uid: str, now: float) -> None:
        self._cluster.unreadable.discard(uid)
        self._cluster.unlist(uid)
        record = self._cluster.pods.remove(uid, now)
        if record is not None:
            self._cluster.remove_usage(record)

    # Reports

    def _left_over(self, now: float, unbound: Expected) -> list[Violation]:
        left = [self._cluster.pods[uid] for uid in sorted(self._cluster.waiting)]
        if not isinstance(unbound, int):
            return [
                self._cluster.violation(Invariant.ALL_BOUND, now, "not bound at the end", uid=record.uid)
                for record in left
                if not unbound(record)
            ]
        if len(left) == unbound:
            return []
        what = f"{len(left)} pods are not bound, {unbound} expected"
        numbers = {"unbound": len(left), "expected": unbound}
        uid = left[0].uid if left else ""
        return [self._cluster.violation(Invariant.ALL_BOUND, now, what, uid=uid, numbers=numbers)]

    def _reported(self) -> list[Violation]:
        reported, self._broken = self._broken, []
        self._violations += len(reported)
        return reported


def _version(pod: Pod) -> int:
    """The resource version; 0 if absent."""
    text = pod.metadata.resource_version
    return int(text) if text.isdecimal() else 0


def _resizing(pod: Pod) -> bool:
    return any(condition.type == "PodResizePending" for condition in pod.status.conditions)
