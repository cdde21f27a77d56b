"""Snapshot: the one writer of the cluster's state.

It takes what the API server's watch says and what cycle decides, gives every change a sequence number and publishes it
as a delta. A decision is taken only if nothing was added to its node, nor the node changed, after the evaluation that
it rests on; so capacity has one owner, and no lock is held while anybody thinks.

A decided pod is assumed: it holds its place, and stands in the ledger until it is seen there.

    decided --commit--> assumed --binding finished--> bound --seen by the watch--> confirmed
                           |                             |
                           +--failed or overdue--> fenced at the API server: bound there, or forgotten

Its place is given away only when no call can bind it any more: its pod is gone or on another node, it has another
version than the orders of the attempt name, or the one process that had the order has not called on Bind. Where that is
not known the pod is given another version first. Time alone, or one binder's word, frees nothing.

A nomination is a decision, too: it is checked like one, and from then on no evaluation from before is trusted on its
node, so that all who judge keep the room. Then a binder is told who has to make way.

Effects are to be carried out in order: what is to be persisted is safe before anybody hears of it.

A new leader is made with the ledger of the one before it. It is told all that the watch lists, its effects being of no
interest yet, and then begins: what is still assumed goes on with the binders that hold it, as of the new term.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress

import msgspec

from services.snapshot.checks import Checks
from services.snapshot.commit import Deciding
from services.snapshot.event_handlers import NodeUpdates
from services.snapshot.events import (
    Beat,
    BindingFailed,
    BindingFinished,
    BindingStale,
    BindingWaits,
    Dispatch,
    Effect,
    Event,
    Fence,
    Forgot,
    Heard,
    LookedUp,
    LookUp,
    NodeGone,
    NodeSeen,
    NodeUnreadable,
    ObjectGone,
    ObjectSeen,
    Observed,
    Persist,
    PodDeleted,
    PodSeen,
    PodUnreadable,
    Problem,
    Publish,
    Resume,
    Spared,
    Stale,
    Tick,
    Withhold,
)
from services.snapshot.gathering import Gathering
from services.snapshot.introspection import Cache
from services.snapshot.state.cluster_state import Cluster
from services.snapshot.state.ledger import Attempt, Doubt
from services.snapshot.state.pending_pods import Pending
from shared.errors import MOST_REMEMBERED, ClusterError, FlotillaError, InvariantBroken, ProtocolError
from shared.messages.binding import Withdraw
from shared.messages.loads import Loads
from shared.messages.queue import POD_GONE
from shared.messages.state import (
    BindingOrder,
    Change,
    Commit,
    Committed,
    Heartbeat,
    LedgerEntry,
    NominationGone,
    PodGone,
    PodPlaced,
    State,
)
from shared.model.load import PodLoad, load_of
from shared.model.objects import Pod

MOST_CHANGES = 1 << 12
"""In one delta, far fewer than a message may hold: a node comes with all the pods that are on it."""
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class SnapshotCore:
    def __init__(
        self,
        epoch: int,
        ledger: Iterable[LedgerEntry] = (),
        answer: Committed | None = None,
        checks: Mapping[str, Checks] | None = None,
        pending: Pending | None = None,
    ) -> None:
        """`ledger` and `answer`: what the leader before has left. `checks`: by profile; by default, all.

        `pending`: what is known of pods that wait. Without it, commits are believed what they say of a pod.
        """
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self._cluster = Cluster(epoch, ledger)
        self._nodes = self._cluster.nodes
        self._pods = self._cluster.pods
        self._objects = self._cluster.objects
        self._nominations = self._cluster.nominations
        self._doomed = self._cluster.doomed
        self._ledger = self._cluster.ledger
        self._node_updates = NodeUpdates(self._cluster)
        self._bound: set[str] = set()
        """Uids that the watch has shown on a node, and not finished or gone since."""
        self._deciding = Deciding(self._cluster, answer, self.refused, checks or {}, pending)

    def begin(self, now: float) -> list[Effect]:
        """All that the watch lists has been told: takes up what the leader before has left."""
        self._ledger.begin(now)
        return [Resume(tuple((each.uid, each.attempt) for each in self._ledger if not each.bound))]

    def stands(self, attempt: Attempt) -> bool:
        """Whether its pod is assumed by this attempt."""
        return self._ledger.find(*attempt) is not None

    def assume_again(self, entries: Iterable[LedgerEntry]) -> None:
        """Before the beginning: pods that an earlier term may have bound there, unless the listing shows a place."""
        for entry in entries:
            if entry.uid not in self._pods:
                self._cluster.restore(msgspec.structs.replace(entry, bound=False))

    def order(self, attempt: Attempt, now: float) -> BindingOrder | None:
        """For a binder, as it is to have it now; None if no binder is to have it any more."""
        return self._ledger.order(attempt, self.epoch, now)

    def is_nominated(self, uid: str, attempt: int, node: str) -> bool:
        """Whether the nomination of this number stands, for whose sake others are told to go."""
        return self._nominations.stands(uid, attempt, node)

    def set_wall(self, ahead: float) -> None:
        """Seconds from the clock of `now` to Unix time, for what people read."""
        self._ledger.ahead = ahead

    def restate(self, epoch: int) -> None:
        """The stored state was lost: the same state goes on as that of a new term."""
        self._cluster.begin_term(epoch)
        self._deciding.begin_term()

    @property
    def epoch(self) -> int:
        return self._cluster.epoch

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Commit():
                return self._deciding.take(event, now)
            case Observed():
                return self._on_observed(event, now)
            case PodSeen(pod=pod):
                return self._on_pod(pod, now)
            case PodDeleted(uid=uid):
                return self._on_pod_gone(uid)
            case PodUnreadable():
                return self._on_pod_unreadable(event, now)
            case NodeSeen(node=node, problem=problem):
                return self._node_updates.seen(node, problem)
            case NodeUnreadable(name=name, problem=problem):
                return self._node_updates.unreadable(name, problem)
            case NodeGone(name=name):
                return self._node_updates.gone(name)
            case ObjectSeen(object=obj):
                return self._cluster.publish(self._objects.see(obj, self._cluster.seq + 1), [])
            case ObjectGone(kind=kind, key=key):
                return self._cluster.publish(self._objects.lose(kind, key), [])
            case Heard(words=words):
                return [effect for word in words for effect in self.handle(word, now)]
            case BindingFinished(uid=uid, attempt=attempt):
                return self._on_bound(uid, attempt, now)
            case BindingFailed():
                return self._on_failed(event, now)
            case BindingWaits():
                return self._on_waits(event, now)
            case BindingStale():
                return self._on_stale(event)
            case LookedUp():
                return self._on_looked_up(event, now)
            case Spared(uid=uid):
                return self._cluster.reprieve(self._doomed.spare(uid))
            case Tick():
                return self._on_tick(now)
            case Beat():
                return [Publish(Heartbeat(self.epoch, self._cluster.seq))]

    def next_deadline(self) -> float | None:
        nominated, doomed = self._nominations.next_due(), self._doomed.next_due
        deadlines = (self._ledger.next_due(), nominated, doomed, self._objects.next_deadline)
        return min((at for at in deadlines if at is not None), default=None)

    def state(self, shards: Container[int] = (0,), shard_count: int = 1) -> State:
        """All there is of these shards, for a worker that starts or has missed something."""
        return self._cluster.state(shards, shard_count)

    def counts(self) -> dict[str, int]:
        return self._cluster.counts()

    @property
    def closed_nodes(self) -> int:
        return len(self._nodes.closed)

    def is_bound(self, uid: str) -> bool:
        """Whether the watch has shown this pod on a node, and not finished or gone since."""
        return uid in self._bound

    def validate(self) -> None:
        """Every pod that was seen on a node counts there, or has closed it, until it is finished or gone."""
        self._cluster.validate()
        invisible = [uid for uid in self._bound if uid not in self._pods and not self._nodes.closed.closes(uid)]
        if invisible:
            raise InvariantBroken(f"pods on nodes neither count nor close their node: {sorted(invisible)[:10]}")

    @property
    def seq(self) -> int:
        return self._cluster.seq

    @property
    def ledger(self) -> dict[str, LedgerEntry]:
        return dict(self._ledger.entries())

    @property
    def answer(self) -> Committed | None:
        """What a doubled commit of the last round is to be answered."""
        return self._deciding.answer

    def cache(self) -> Cache:
        """For whoever looks at it; nothing of it is to be changed."""
        return Cache(self.epoch, self._cluster.seq, self._nodes, self._pods, self._nominations, self._ledger)

    # What the watch says

    def _on_observed(self, observed: Observed, now: float) -> list[Effect]:
        cluster, effects = self._cluster, list[Effect]()
        try:
            for event in observed.events:
                cluster.gathering = gathering = cluster.gathering or Gathering()
                effects += self.handle(event, now)
                if len(gathering.changes) >= MOST_CHANGES:
                    effects += cluster.publish_gathered()
            return effects + cluster.publish_gathered()
        finally:
            cluster.gathering = None

    # Pods

    def _on_pod(self, pod: Pod, now: float) -> list[Effect]:
        if pod.status.phase in FINISHED_PHASES:
            return self._on_pod_gone(pod.uid)
        if not pod.spec.node_name:
            return self._on_unplaced(pod)
        try:
            load = load_of(pod)
        except (FlotillaError, ValueError) as cause:
            return self._on_pod_unreadable(PodUnreadable(pod.uid, pod.key, pod.spec.node_name, str(cause)), now)
        self._bound.add(pod.uid)
        return [*self._on_placed(pod, load, now), *self._node_updates.reopen_for(pod.uid)]

    def _on_unplaced(self, pod: Pod) -> list[Effect]:
        if pod.uid in self._bound:  # a binding is for life
            return [Stale(pod.uid, pod.key)]
        if pod.metadata.deletion_timestamp is not None:
            return self._on_unplaced_gone(pod.uid)
        if not self._may_be_nominated(pod):
            return []  # it is the queue's
        try:
            load = load_of(pod)
        except (FlotillaError, ValueError) as cause:
            return [Problem(cause if isinstance(cause, FlotillaError) else ClusterError(f"Pod {pod.key}: {cause}"))]
        return self._on_waiting(pod, load)

    def _on_pod_unreadable(self, seen: PodUnreadable, now: float) -> list[Effect]:
        """It counts with what could be read of it now, or before, and its node gets no further pod."""
        effects: list[Effect] = []
        if seen.pod is not None and seen.pod.status.phase not in FINISHED_PHASES:
            with suppress(FlotillaError, ValueError):
                effects += self._on_placed(seen.pod, load_of(seen.pod), now)
        self._bound.add(seen.uid)
        return [*effects, *self._node_updates.close_for(seen)]

    def _on_placed(self, pod: Pod, load: PodLoad, now: float) -> list[Effect]:
        uid, node, started = pod.uid, pod.spec.node_name, pod.started
        place, load = self._pods.get(uid), self._doomed.seen(pod.uid, load)
        changes: list[Change] = []
        if self._nominations.forget(uid):
            changes.append(NominationGone(uid))
        entry = self._ledger.take(uid)
        settled = () if entry is None else (uid,)
        if entry is not None and entry.node == node:
            self._objects.confirm(uid, now)
        elif entry is not None:
            changes += self._objects.release(uid, self._cluster.seq + 1)
        stays = place is not None and place.node == node and place.load == load
        if place is not None and stays and (place.key, place.started) == (pod.key, started):
            place.assumed = False
            return self._cluster.publish(changes, [], settled=settled)
        self._pods.put(uid, node, load, pod.key, started, assumed=False)
        if node not in self._nodes:
            unknown = Problem(ClusterError(f"Pod {pod.key}: spec.nodeName: no node {node!r} is known"))
            changes += [PodGone(uid)] if place is not None else []
            return [unknown, *self._cluster.publish(changes, [], settled=settled)]
        changes.append(PodPlaced(uid, node, 0, pod.key, started))
        return self._cluster.publish(changes, [load], writes=() if stays else (node,), settled=settled)

    def _on_pod_gone(self, uid: str) -> list[Effect]:
        self._bound.discard(uid)
        return [*self._on_left(uid), *self._node_updates.reopen_for(uid)]

    def _on_left(self, uid: str) -> list[Effect]:
        withheld = self._withheld(uid)
        gone = self._nominations.forget(uid)
        return [*withheld, *(self._cluster.publish([NominationGone(uid)], []) if gone else self._cluster.remove(uid))]

    def _on_unplaced_gone(self, uid: str) -> list[Effect]:
        """It is being deleted and has not come to a node: it is not to have one any more."""
        gone = uid not in self._pods and self._nominations.forget(uid)
        return [*self._withheld(uid), *(self._cluster.publish([NominationGone(uid)], []) if gone else [])]

    def _withheld(self, uid: str) -> list[Effect]:
        """A pod that is or will be gone is not to be bound any more."""
        entry = self._ledger.entries().get(uid)
        if entry is None or entry.bound:
            return []
        return [Withhold(Withdraw(uid, entry.attempt, "", "the pod is deleted"))]

    # Nominations

    def _may_be_nominated(self, pod: Pod) -> bool:
        """Whether it may be nominated after this; one that has a place is not."""
        if pod.uid not in self._pods:
            return bool(pod.status.nominated_node_name) or self._nominations.knows(pod.uid)
        self._nominations.note(pod.uid, pod.status.nominated_node_name)
        return False

    def _on_waiting(self, pod: Pod, load: PodLoad) -> list[Effect]:
        uid, before = pod.uid, self._nominations.get(pod.uid)
        now = self._nominations.see(uid, pod.status.nominated_node_name, load, pod.key)
        if now == before:
            return []
        if now is None:
            return self._cluster.publish([NominationGone(uid)], [])
        loads = Loads()
        return self._cluster.publish([now.told(uid, loads)], loads.items, writes=(now.node,))

    # Bindings

    def _on_bound(self, uid: str, attempt: int, now: float) -> list[Effect]:
        entry = self._ledger.find(uid, attempt)
        if entry is None or entry.bound:
            return []
        return [Persist(ledger=(self._ledger.bind(entry, now),))]

    def _on_failed(self, failed: BindingFailed, now: float) -> list[Effect]:
        entry = self._ledger.find(failed.uid, failed.attempt)
        if entry is None or entry.bound:
            return []
        if failed.gone or (failed.sure and failed.version == entry.version):
            return self._forget(entry, failed.reason, failed.plugin, rejected=failed.rejected)
        if not failed.holds:
            return []
        return [self._fence(entry, Doubt(failed.reason, failed.plugin, failed.rejected), now)]

    def _on_waits(self, waits: BindingWaits, now: float) -> list[Effect]:
        entry = self._ledger.find(waits.uid, waits.attempt)
        if entry is None or entry.bound:
            return []
        return [Persist(ledger=(self._ledger.extend(entry, waits.wait, now),))]

    def _on_stale(self, stale: BindingStale) -> list[Effect]:
        """Order it with the version that was found, once that is in the ledger: what a deposed leader finds is not."""
        entry = self._ledger.find(stale.uid, stale.attempt)
        if entry is None or entry.bound:
            return []
        effects: list[Effect] = []
        if stale.version == entry.version:
            assignment = msgspec.structs.replace(entry.assignment, version=stale.found)
            renewed = msgspec.structs.replace(entry, assignment=assignment)
            self._ledger.change(renewed)
            effects.append(Persist(ledger=(renewed,)))
        return [*effects, Dispatch(((entry.uid, entry.attempt),))]

    def _fence(self, entry: LedgerEntry, doubt: Doubt, now: float) -> Fence:
        """It stays assumed until no call can bind it any more."""
        self._ledger.doubt(entry.uid, doubt, now)
        return Fence(
            entry.uid,
            entry.attempt,
            entry.assignment.namespace,
            entry.assignment.name,
            entry.version,
        )

    def _forget(self, entry: LedgerEntry, reason: str, plugin: str = "", *, rejected: bool = False) -> list[Effect]:
        return [*self._cluster.remove(entry.uid), Forgot(entry.uid, reason, plugin, rejected)]

    def _on_tick(self, now: float) -> list[Effect]:
        """An assumption ends by its observed outcome, never by time alone."""
        effects: list[Effect] = [self._fence(entry, Doubt(), now) for entry in self._ledger.due(now)]
        for uid, attempt, nomination in self._nominations.due(now):
            namespace, _, name = nomination.key.partition("/")
            effects.append(LookUp(uid, attempt, namespace, name))
        effects += self._cluster.reprieve(list(self._doomed.expire(now)))
        return effects + self._cluster.publish(self._objects.expire(now, self._cluster.seq + 1), [])

    def _on_looked_up(self, found: LookedUp, now: float) -> list[Effect]:
        entry = self._ledger.find(found.uid, found.attempt)
        if entry is None:
            return self._on_nominee_found(found)
        if found.gone:
            return self._forget(entry, POD_GONE)
        if found.node is None and found.version != entry.version:
            return [
                Fence(
                    entry.uid,
                    entry.attempt,
                    entry.assignment.namespace,
                    entry.assignment.name,
                    entry.version,
                )
            ]
        if found.node is None:
            doubt = self._ledger.doubted(found.uid) or Doubt()
            return self._forget(entry, doubt.reason, doubt.plugin, rejected=doubt.rejected)
        if found.node == entry.node:
            return self._on_bound(found.uid, found.attempt, now)
        self._ledger.take(found.uid)
        key = entry.key
        self._pods.put(found.uid, found.node, entry.load, key, assumed=False)
        changes = self._objects.release(found.uid, self._cluster.seq + 1)
        settled = (found.uid,)
        free = Forgot(found.uid, f"{POD_GONE} from there: it is on node {found.node}")
        if found.node not in self._nodes:
            return [*self._cluster.publish([PodGone(found.uid), *changes], [], settled=settled), free]
        changes.append(PodPlaced(found.uid, found.node, 0, key))
        return [*self._cluster.publish(changes, [entry.load], writes=(found.node,), settled=settled), free]

    def _on_nominee_found(self, found: LookedUp) -> list[Effect]:
        """A nomination that nobody writes down was lost on its way to the queue: nobody is to wait for it."""
        nomination = self._nominations.get(found.uid)
        if nomination is None or not self._nominations.is_unconfirmed(found.uid, found.attempt):
            return []
        if found.gone:
            return [*self._on_pod_gone(found.uid), Forgot(found.uid, POD_GONE)]
        if found.node is not None or found.nominated == nomination.node:
            return []
        free = Forgot(found.uid, f"{POD_GONE} from node {nomination.node}, which it has never heard of")
        return [*self._cluster.publish(self._cluster.revoke((found.uid,)), []), free]
