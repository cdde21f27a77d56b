"""The auditor: keeps what the API server, the ledger and the queue say, and judges it.

It trusts nobody's arithmetic: requests, room and constraints are computed here, plainly, from the objects themselves.
It reports what cannot be explained by one source being heard of later than another.

    seen --waits--> bound --> finished --> gone        a listing is one moment: what is gone leaves before
       \\                                               what is new is judged
        +--made with a node: counts, and is not judged
"""

from collections.abc import Callable
from enum import Enum

from shared.messages.watch import Kind
from shared.model.objects import DEFAULT_SCHEDULER, Pod
from testing.auditor.cluster import Cluster
from testing.auditor.demand import demand_of
from testing.auditor.events import (
    BindingsHeard,
    Event,
    LedgerRead,
    LedgerSilent,
    Lost,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
    QueueRead,
    QueueSilent,
    Resumed,
    Tick,
    Unreadable,
)
from testing.auditor.ledger import LedgerAudit
from testing.auditor.limits import Limits
from testing.auditor.permits import PermitAudit
from testing.auditor.placements import Placements
from testing.auditor.pods import PodRecord
from testing.auditor.queue import QueueAudit
from testing.auditor.statistics import Counts, Statistics
from testing.auditor.violations import Invariant, Violation

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})

Expected = int | Callable[[PodRecord], bool]
"""How many pods are expected to be left unbound in the end, or which."""


class Found(Enum):
    """How a pod comes to be known."""

    WATCHED = "as it happens"
    LISTED = "in the first listing"
    RELISTED = "in a listing, after something may have been missed"


class AuditorCore:
    def __init__(
        self, schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER}), limits: Limits | None = None
    ) -> None:
        self.statistics = Statistics()
        self._schedulers = schedulers
        self._cluster = Cluster(limits or Limits())
        self._placements = Placements(self._cluster)
        self._ledger = LedgerAudit(self._cluster)
        self._queue = QueueAudit(self._cluster)
        self._permits = PermitAudit(self._cluster)
        self._broken: list[Violation] = []
        self._events = 0
        self._violations = 0

    def handle(self, event: Event, now: float) -> list[Violation]:
        self._events += 1
        self._take(event, now)
        self._broken += self._placements.expire(now)
        return self._reported()

    def finish(self, now: float, unbound: Expected = 0) -> list[Violation]:
        """Everything has come to rest, they say. `unbound`: what may be left in the queue as unschedulable or gated."""
        self._broken += self._placements.finish(now)
        self._broken += self._ledger.finish(now)
        self._broken += self._queue.finish(now)
        self._broken += self._permits.finish(now)
        self._broken += self._left_over(now, unbound)
        return self._reported()

    def is_done(self, unbound: Expected = 0) -> bool:
        """As of what was told last, the scheduler is at rest, no judgement is open, and no pod left that should not."""
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

    def latency(self, quantile: float) -> float:
        """Seconds from a pod's first sight to the sight of its binding."""
        return self.statistics.latency(quantile)

    @property
    def progress(self) -> float:
        """The share of our pods that do not wait any more."""
        waiting, bound = len(self._cluster.waiting), self.statistics.bound
        return bound / (bound + waiting) if bound + waiting else 0.0

    @property
    def is_listed(self) -> bool:
        """All that there is has been seen."""
        return self._cluster.streams.all_listed()

    def validate(self) -> None:
        self._cluster.validate()

    # Events

    def _take(self, event: Event, now: float) -> None:
        match event:
            case PodSeen(pod=pod):
                record = self._update(pod, now, Found.WATCHED)
                if record is not None:
                    self._broken += self._placements.judge(pod, record, now)
            case PodGone(uid=uid):
                self._remove(uid, now)
            case PodsListed():
                self._on_pods_listed(event, now)
            case NodeSeen(node=node):
                if self._cluster.nodes.see(node, now, self._cluster.horizon(now)):
                    self._placements.node_changed(node.name)
            case NodeGone(name=name):
                self._cluster.nodes.lose(name, now, self._cluster.horizon(now))
            case NodesListed():
                self._on_nodes_listed(event, now)
            case Unreadable(kind=kind, id=id):
                self._on_unreadable(kind, id, now)
            case Lost(kind=kind):
                self._cluster.streams.lose(kind, now)
            case Resumed(kind=kind):
                self._cluster.streams.resume(kind, now)
            case LedgerRead():
                self._permits.read(event)
                self._broken += self._ledger.read(event, now)
            case LedgerSilent():
                self._ledger.silent()
            case QueueRead():
                self._broken += self._queue.read(event, now)
            case QueueSilent():
                self._queue.silent()
            case BindingsHeard(outcomes=outcomes):
                self._permits.hear(outcomes, now)
            case Tick():
                self._broken += self._permits.expire(now)

    def _on_pods_listed(self, listing: PodsListed, now: float) -> None:
        there = {pod.uid for pod in listing.pods} | set(listing.unreadable)
        for uid in (self._cluster.pods.keys() | self._cluster.unreadable) - there:
            self._remove(uid, now)
        for uid in listing.unreadable:
            self._on_unreadable(Kind.POD, uid, now)
        found = Found.RELISTED if self._cluster.streams.is_listed(Kind.POD) else Found.LISTED
        updated = [(pod, self._update(pod, now, found)) for pod in listing.pods]
        for pod, record in updated:
            if record is not None:
                self._broken += self._placements.judge(pod, record, now)
        self._cluster.streams.resume(Kind.POD, now)

    def _on_nodes_listed(self, listing: NodesListed, now: float) -> None:
        nodes, streams = self._cluster.nodes, self._cluster.streams
        horizon, missed_since = self._cluster.horizon(now), streams.lost_at(Kind.NODE, now)
        first = not streams.is_listed(Kind.NODE)
        there = {node.name for node in listing.nodes} | set(listing.unreadable)
        for name in nodes.names() - there:
            nodes.blur(name, missed_since, horizon)
            nodes.lose(name, now, horizon)
        for name in listing.unreadable:
            self._on_unreadable(Kind.NODE, name, now)
        for node in listing.nodes:
            if not first and not nodes.is_as_known(node):
                nodes.blur(node.name, missed_since, horizon)
            nodes.see(node, now, horizon)
            self._placements.node_changed(node.name)
        streams.resume(Kind.NODE, now)

    def _on_unreadable(self, kind: Kind, id: str, now: float) -> None:
        if kind is Kind.NODE:
            self._cluster.nodes.blur(id, now, self._cluster.horizon(now))
        else:
            self._cluster.unreadable.add(id)
            self._cluster.unlist(id)

    # Pods

    def _update(self, pod: Pod, now: float, found: Found) -> PodRecord | None:
        """Take in what a pod is like; the record if it was decided and is newly seen on its node."""
        record = self._cluster.pods.get(pod.uid)
        met = record is None
        if record is None:
            record = self._meet(pod, now)
        version = _version(pod)
        if 0 < version < record.resource_version:
            return None  # it is known better already
        record.resource_version = version
        if record.node and pod.spec.node_name != record.node:
            self._on_moved(record, pod.spec.node_name, now)
        newly_bound = bool(pod.spec.node_name) and not record.node
        first_time = record.bound_at is None
        self._take_in(pod, record, now)
        if newly_bound:
            record.node, record.bound_at = pod.spec.node_name, now
            record.decided = record.ours and (not met or found is Found.RELISTED)
            record.tell(now, f"bound to node {record.node}")
        self._settle(record, now)
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
        record.tell(now, "seen, gated" if record.gated else "seen")
        self._cluster.pods[pod.uid] = record
        return record

    def _on_moved(self, record: PodRecord, node: str, now: float) -> None:
        what = f"it was bound to node {record.node} and is now " + (f"bound to node {node}" if node else "not bound")
        record.tell(now, f"moved from node {record.node} to {node or 'none'}")
        self._broken.append(self._cluster.violation(Invariant.BOUND_ONCE, now, what, uid=record.uid))
        self._cluster.take(record)
        record.node = ""

    def _take_in(self, pod: Pod, record: PodRecord, now: float) -> None:
        record.terminating = pod.metadata.deletion_timestamp is not None
        if pod.status.phase in FINISHED_PHASES and not record.finished:
            record.finished = True
            record.tell(now, f"finished: {pod.status.phase}")
        gated = bool(pod.spec.scheduling_gates)
        if record.gated and not gated:
            record.waits_since = now
            record.tell(now, "gates gone")
        record.gated = gated
        if not (record.holds and _resizing(pod)):  # what it asks for is not granted yet
            record.demand = demand_of(pod)

    def _settle(self, record: PodRecord, now: float) -> None:
        """Its room and whether it waits follow from what it is like."""
        self._cluster.unreadable.discard(record.uid)
        if record.holds:
            self._cluster.put(record, now)
        else:
            self._cluster.take(record)
        self._cluster.list_waiting(record)

    def _remove(self, uid: str, now: float) -> None:
        self._cluster.unreadable.discard(uid)
        self._cluster.unlist(uid)
        record = self._cluster.pods.lose(uid, now)
        if record is not None:
            self._cluster.take(record)

    # Reports

    def _left_over(self, now: float, unbound: Expected) -> list[Violation]:
        left = [self._cluster.pods[uid] for uid in sorted(self._cluster.waiting)]
        if not isinstance(unbound, int):
            return [
                self._cluster.violation(Invariant.ALL_BOUND, now, "in the end it is not bound", uid=record.uid)
                for record in left
                if not unbound(record)
            ]
        if len(left) == unbound:
            return []
        what = f"{len(left)} pods are not bound, expected are {unbound}"
        numbers = {"unbound": len(left), "expected": unbound}
        uid = left[0].uid if left else ""
        return [self._cluster.violation(Invariant.ALL_BOUND, now, what, uid=uid, numbers=numbers)]

    def _reported(self) -> list[Violation]:
        reported, self._broken = self._broken, []
        self._violations += len(reported)
        return reported


def _version(pod: Pod) -> int:
    """0 if it tells nothing."""
    text = pod.metadata.resource_version
    return int(text) if text.isdecimal() else 0


def _resizing(pod: Pod) -> bool:
    return any(condition.type == "PodResizePending" for condition in pod.status.conditions)
