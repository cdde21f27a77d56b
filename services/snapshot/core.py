"""The snapshot's core: the one writer of the cluster's state.

It applies the watch's events and the cycle's commits, gives every change a sequence number and publishes it as a delta.
A decision is applied only if its node has not changed since the evaluation that it rests on; so capacity has one owner,
and no lock is held.

A decided pod is assumed: it counts on its node, and stands in the ledger until the watch shows it there.

    decided --commit--> assumed --binding finished--> bound --seen by the watch--> confirmed
                           |                             |
                           +--failed or overdue--> fenced at the API server: bound there, or forgotten

Its node is freed only when no call can bind the pod any more: the pod is gone or on another node, it has another
version than the orders of the attempt name, or the one process that had the order has not called Bind. If that is not
known, the pod is first given another version. Neither time alone nor one binder's word frees a node.

A nomination is checked like a decision, and from then on earlier evaluations of its node no longer count, so that all
later ones count with it. Then a binder evicts the victims.

Effects must be carried out in order: what is to be persisted is durable before binders or the queue get anything.

The core of a new term is made with the ledger of the term before. It gets all that the watch lists, its effects being
dropped, and then begins: attempts continue with the binders that hold them.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from services.snapshot.commit import CommitHandler
from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.event_handlers import EventHandlers
from services.snapshot.events import (
    Beat,
    BindingReport,
    BindingReports,
    ClaimsFenced,
    DispatchOrders,
    Effect,
    Event,
    Fence,
    FenceClaims,
    LookedUp,
    RecallAttempts,
    Tick,
    WatchEvents,
)
from services.snapshot.quiet_deltas import QuietDeltas
from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.ledger import AttemptKey
from services.snapshot.state.pending_pods import PendingPods
from shared.deadlines import earliest
from shared.errors import MAX_REMEMBERED, ProtocolError
from shared.messages.binding import OVERDUE, Evicted
from shared.messages.queue import POD_GONE, ForgottenPod
from shared.messages.state import (
    BindingOrder,
    Change,
    Commit,
    Committed,
    Heartbeat,
    LedgerEntry,
    NeedDeltas,
    OthersChanged,
    PodGone,
    PodPlaced,
    State,
)
from shared.store.schema import Persist, WholeState

MAX_WRITTEN = 1 << 10
"""Ledger entries that are written together when the term ends."""


class SnapshotCore:
    def __init__(
        self,
        epoch: int,
        ledger: Iterable[LedgerEntry] = (),
        answer: Committed | None = None,
        filters: Mapping[str, ProfileFilters] | None = None,
        pending: PendingPods | None = None,
    ) -> None:
        """`ledger` and `answer`: of the term before. `filters`: by profile; by default, all.

        `pending`: the pending pods. Without it, what commits say of pods is not checked.
        """
        self.refused: deque[ProtocolError] = deque(maxlen=MAX_REMEMBERED)
        self.cluster = ClusterState(epoch, ledger)
        self._ledger = self.cluster.ledger
        self._quiet_deltas = QuietDeltas()
        self._tells_others = False
        """Whether the cycle wants to know of the next change that is no decision: after a commit, once."""
        self._handlers = EventHandlers(self.cluster)
        self._commits = CommitHandler(self.cluster, answer, self.refused, filters or {}, pending)

    def take_over(self, epoch: int, ledger: Iterable[LedgerEntry], answer: Committed | None, now: float) -> None:
        """A standby, which has followed the watch, leads from now on. `ledger` and `answer`: of the term before."""
        self.cluster.now = now
        self.cluster.take_over(epoch, ledger, self._handlers.is_bound)
        self._commits.take_over(answer)

    def begin(self, now: float) -> list[Effect]:
        """The watch has listed everything: takes over the ledger of the term before."""
        self._ledger.begin(now)
        attempts = tuple((entry.uid, entry.attempt) for entry in self._ledger if not entry.bound)
        return [RecallAttempts(attempts), *map(FenceClaims, self.cluster.held)]

    def is_assumed(self, key: AttemptKey) -> bool:
        """Whether the pod is assumed by this attempt."""
        return self._ledger.find(*key) is not None

    def assume_again(self, entries: Iterable[LedgerEntry]) -> None:
        """Before `begin`: assumes pods that an earlier term may have bound, unless the listing shows their node."""
        for entry in entries:
            if entry.uid not in self.cluster.pods:
                self.cluster.restore(msgspec.structs.replace(entry, bound=False))

    def order(self, key: AttemptKey, now: float) -> BindingOrder | None:
        """The order as a binder must have it now; None if no binder must have it."""
        return self._ledger.order(key, self.epoch, now)

    def restate(self, epoch: int) -> None:
        """The stored state was lost: the same state continues in a new term."""
        self.cluster.begin_term(epoch)
        self._quiet_deltas.clear()
        self._commits.begin_term()

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.cluster.now = now
        others = self.cluster.others
        effects = self._handle(event, now)
        if isinstance(event, Commit):
            self._tells_others = True
        elif self._tells_others and self.cluster.others != others:
            self._tells_others = False
            effects.insert(0, OthersChanged(self.epoch, self.cluster.others))
        return self._quiet_deltas.arranged(event, effects, now)

    def _handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Commit():
                return self._commits.handle(event, now)
            case WatchEvents():
                return self._handlers.handle_all(event, now)
            case BindingReport():
                return self._on_report(event, now)
            case BindingReports(reports=reports):
                return [effect for report in reports for effect in self._on_report(report, now)]
            case LookedUp():
                return self._on_looked_up(event, now)
            case ClaimsFenced(uid=uid, versions=versions):
                return self.cluster.publish(self.cluster.objects.fenced(uid, versions, self.seq + 1))
            case Evicted(uid=uid, failure=failure):
                return self.cluster.spare(self.cluster.victims.spare(uid)) if failure else []
            case NeedDeltas():
                return []
            case Tick():
                return self._on_tick(now)
            case Beat():
                return [*self.cluster.publish_postponed(), self.heartbeat()]
            case _:
                return self._handlers.handle(event, now)

    def next_deadline(self) -> float | None:
        cluster = self.cluster
        return earliest(
            self._ledger.next_due(),
            self.cluster.nominator.next_due(),
            cluster.victims.next_due,
            cluster.objects.next_deadline,
            cluster.held.next_deadline,
            self._quiet_deltas.next_deadline,
        )

    def _on_report(self, report: BindingReport, now: float) -> list[Effect]:
        outcome = report.outcome
        entry = self._ledger.find_unbound(outcome.uid, outcome.attempt)
        if entry is None:
            return []
        if outcome.found:
            # A deposed leader's find is void: the ledger must have it before the attempt is ordered with it.
            dispatch, fits = DispatchOrders(((entry.uid, entry.attempt),)), outcome.version == entry.version
            return [Persist(ledger=(self._ledger.set_version(entry, outcome.found),)), dispatch] if fits else [dispatch]
        if outcome.wait is not None:
            return [Persist(ledger=(self._ledger.extend(entry, outcome.wait, now),))]
        if outcome.bound:
            self._ledger.bind(entry, now)
            return []
        failure = ForgottenPod(outcome.uid, outcome.reason, outcome.plugin, outcome.rejected)
        if outcome.gone or (report.sure and outcome.version == entry.version):
            return self._forget(failure)
        return [self._fence(entry, failure, now)] if report.sole else []

    def _fence(self, entry: LedgerEntry, failure: ForgottenPod, now: float) -> Fence:
        """The pod stays assumed until no call can bind it any more."""
        self._ledger.fence(failure, now)
        return _fence_of(entry)

    def _forget(self, failure: ForgottenPod) -> list[Effect]:
        return [*self.cluster.remove_pod(failure.uid), failure]

    def _on_tick(self, now: float) -> list[Effect]:
        due = self._ledger.due(now)
        effects: list[Effect] = [self._fence(entry, ForgottenPod(entry.uid, OVERDUE), now) for entry in due]
        for uid, attempt, nomination in self.cluster.nominator.due(now):
            namespace, _, name = nomination.key.partition("/")
            effects.append(Fence(uid, attempt, namespace, name, version=""))
        effects += self.cluster.spare(list(self.cluster.victims.expire(now)))
        effects += self.cluster.held.due(now)
        return effects + self.cluster.publish(self.cluster.objects.expire(now, self.cluster.seq + 1))

    def _on_looked_up(self, found: LookedUp, now: float) -> list[Effect]:
        entry = self._ledger.find(found.uid, found.attempt)
        if entry is None:
            return self._on_nominated_looked_up(found)
        if found.gone:
            return self._forget(ForgottenPod(found.uid, POD_GONE))
        if found.node is None:
            is_fenced = found.version == entry.version
            return self._forget(self._ledger.failure(found.uid)) if is_fenced else [_fence_of(entry)]
        if found.node == entry.node:
            if not entry.bound:
                self._ledger.bind(entry, now)
            return []
        return self._on_bound_elsewhere(entry, found.node)

    def _on_bound_elsewhere(self, entry: LedgerEntry, node: str) -> list[Effect]:
        cluster, uid = self.cluster, entry.uid
        self._ledger.remove(uid)
        cluster.pods.put(uid, node, entry.load, entry.key, assumed=False)
        held = cluster.hold_devices(entry, is_bound=entry.bound)
        changes: list[Change] = cluster.objects.release(uid, cluster.seq + 1)
        forgotten = ForgottenPod(uid, f"{POD_GONE} from there: it is on node {node}")
        if node not in cluster.nodes:
            return [*held, *cluster.publish([PodGone(uid), *changes], settled=(uid,)), forgotten]
        changes.append(PodPlaced(uid, node, 0, entry.key))
        return [*held, *cluster.publish(changes, [entry.load], writes=(node,), settled=(uid,)), forgotten]

    def _on_nominated_looked_up(self, found: LookedUp) -> list[Effect]:
        """A nomination that the status does not show was lost on its way: revokes it.

        The pod has another version by now, so no binder writes an old nomination into its status.
        """
        nomination = self.cluster.nominator.get(found.uid)
        if nomination is None or not self.cluster.nominator.is_unshown(found.uid, found.attempt):
            return []
        if found.gone:
            return [*self._handlers.on_pod_gone(found.uid), ForgottenPod(found.uid, POD_GONE)]
        if found.node is not None or found.nominated == nomination.node:
            return []
        forgotten = ForgottenPod(found.uid, f"{POD_GONE} from node {nomination.node}: its nomination was lost")
        return [*self.cluster.publish(self.cluster.revoke((found.uid,))), forgotten]

    def end(self) -> Iterator[Persist]:
        """The term ends, and nothing that it ordered is under way: what Redis does not know of bound pods.

        While a term lasts that is not written. If it breaks off, the listing of the next one shows that they are bound,
        or the attempts are ordered again, and their binders say so.
        """
        bound = tuple(entry for entry in self._ledger if entry.bound)
        for start in range(0, len(bound), MAX_WRITTEN):
            yield Persist(ledger=bound[start : start + MAX_WRITTEN])

    # What the shell reads

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(self.epoch, self.seq)

    @property
    def epoch(self) -> int:
        return self.cluster.epoch

    @property
    def seq(self) -> int:
        return self.cluster.seq

    @property
    def ledger(self) -> dict[str, LedgerEntry]:
        return {entry.uid: entry for entry in self._ledger}

    @property
    def stored_ledger(self) -> list[LedgerEntry]:
        """Also entries of attempts that are over, and hold devices."""
        return [*self._ledger, *self.cluster.held]

    @property
    def answer(self) -> Committed | None:
        """To a repeated commit of the last round."""
        return self._commits.answer

    def state(self, shards: Container[int] = (0,), shard_count: int = 1) -> State:
        """The whole state of these shards, for a worker that starts or has missed a delta."""
        return self.cluster.state(shards, shard_count)

    def whole(self) -> WholeState:
        """The whole state as it is now, for the copy in Redis."""
        return self.cluster.whole()

    def is_bound(self, uid: str) -> bool:
        """Whether the watch has shown this pod on a node, and not finished or gone since."""
        return self._handlers.is_bound(uid)

    def validate(self) -> None:
        self.cluster.validate()
        self._handlers.validate()


def _fence_of(entry: LedgerEntry) -> Fence:
    of = entry.assignment
    return Fence(of.uid, entry.attempt, of.namespace, of.name, of.version)
