"""Snapshot: the one writer of the cluster's state.

It takes what the API server's watch says and what cycle decides, gives every change a sequence number and publishes it
as a delta. A decision is taken only if nothing was added to its node, nor the node changed, after the evaluation that
it rests on; so capacity has one owner, and no lock is held while anybody thinks.

A decided pod is assumed: it holds its place, and stands in the ledger until it is seen there.

    decided --commit--> assumed --binding finished--> bound --seen by the watch--> confirmed
                           |                             |
                           +--binding failed-------------+--> forgotten
                           +--overdue--> looked up at the API server, then bound or forgotten

A nomination is a decision, too: it is checked like one, and from then on no evaluation from before is trusted on its
node, so that all who judge keep the room. Then a binder is told who has to make way.

Effects are to be carried out in order: what is to be persisted is safe before anybody hears of it.

A new leader is made with the ledger of the one before it. It is told all that the watch lists, its effects being of no
interest yet, and then begins: what is still assumed is dispatched again, as of the new term.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import msgspec

from services.snapshot.doomed import Doomed
from services.snapshot.dumping import Cache
from services.snapshot.events import (
    Beat,
    BindingFailed,
    BindingFinished,
    BindingWaits,
    Dispatch,
    Displace,
    Effect,
    Event,
    Forgot,
    LookedUp,
    LookUp,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    Observed,
    Persist,
    PodDeleted,
    PodSeen,
    Problem,
    Publish,
    Reply,
    Spared,
    Tick,
    Withhold,
)
from services.snapshot.evictions import evict_of, evicts
from services.snapshot.gathering import Gathering
from services.snapshot.judging import Judge, units
from services.snapshot.ledger import BINDING_DEADLINE, Ledger, entry_of, order_of
from services.snapshot.nodes import Nodes
from services.snapshot.nominations import Nomination, Nominations
from services.snapshot.objects import Objects
from services.snapshot.places import Places
from shared.cluster.load import PodLoad, load_of
from shared.cluster.shards import shard_of
from shared.errors import MOST_REMEMBERED, ClusterError, FlotillaError, InvariantBroken, ProtocolError
from shared.messages.binding import Evict, Withdraw
from shared.messages.loads import Loads
from shared.messages.queue import POD_GONE
from shared.messages.state import (
    EPOCH_SHIFT,
    Change,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    Heartbeat,
    LedgerEntry,
    NodeState,
    Nominate,
    NominationGone,
    PodGone,
    PodNominated,
    PodPlaced,
    State,
)
from shared.model.objects import Node, Pod, validate_node

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class _Accepted:
    """What of a commit stands, and what does not. `nodes`: those that may not be judged as before."""

    loads: Loads
    changes: list[Change]
    conflicts: list[Conflict] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    displaced: list[Displace] = field(default_factory=list)


class SnapshotCore:
    def __init__(self, epoch: int, ledger: Iterable[LedgerEntry] = (), answer: Committed | None = None) -> None:
        """`ledger` and `answer`: what the leader before has left."""
        self.epoch = epoch
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self._seq = epoch << EPOCH_SHIFT
        self._nodes = Nodes()
        self._pods = Places()
        self._objects = Objects()
        self._nominations = Nominations()
        self._doomed = Doomed()
        self._ledger = Ledger()
        self._judge = Judge(self._nodes, self._pods, self._objects)
        self._cycle_epoch = 0 if answer is None else answer.epoch
        self._decided_at = 0
        self._answer = None if answer is None else msgspec.structs.replace(answer, seq=self._seq)
        self._gathering: Gathering | None = None
        for entry in ledger:
            self._pods.put(entry.uid, entry.node, entry.load, f"{entry.namespace}/{entry.name}", assumed=True)
            self._ledger.enter(entry)
            if entry.volumes is not None:
                self._objects.restore(entry.uid, entry.node, entry.volumes)

    def begin(self, now: float) -> list[Effect]:
        """All that the watch lists has been told: takes up what the leader before has left."""
        orders = [order_of(e, self.epoch) for e in self._ledger if not e.bound and now < e.deadline]
        return [Dispatch(tuple(orders))] if orders else []

    def restate(self, epoch: int) -> None:
        """The stored state was lost: the same state goes on as that of a new term."""
        self.epoch, self._seq = epoch, epoch << EPOCH_SHIFT
        if self._answer is not None:
            self._answer = msgspec.structs.replace(self._answer, seq=self._seq)

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Commit():
                return self._on_commit(event, now)
            case Observed():
                return self._on_observed(event, now)
            case PodSeen(pod=pod):
                return self._on_pod(pod, now)
            case PodDeleted(uid=uid):
                return self._on_pod_gone(uid)
            case NodeSeen(node=node):
                return self._on_node_seen(node)
            case NodeGone(name=name):
                return self._on_node_gone(name)
            case ObjectSeen(object=obj):
                return self._publish(self._objects.see(obj, self._seq + 1), [])
            case ObjectGone(kind=kind, key=key):
                return self._publish(self._objects.lose(kind, key), [])
            case BindingFinished(uid=uid, attempt=attempt):
                return self._on_bound(uid, attempt)
            case BindingFailed():
                return self._on_failed(event)
            case BindingWaits():
                return self._on_waits(event)
            case LookedUp():
                return self._on_looked_up(event)
            case Spared(uid=uid):
                return self._reprieve(self._doomed.spare(uid))
            case Tick():
                return self._on_tick(now)
            case Beat():
                return [Publish(Heartbeat(self.epoch, self._seq))]

    def next_deadline(self) -> float | None:
        nominated, doomed = self._nominations.next_due(), self._doomed.next_due
        deadlines = (self._ledger.next_due(), nominated, doomed, self._objects.next_deadline)
        return min((at for at in deadlines if at is not None), default=None)

    def state(self, shards: Container[int] = (0,), shard_count: int = 1) -> State:
        """All there is of these shards, for a worker that starts or has missed something."""
        loads = Loads()
        nodes = [
            NodeState(node, {uid: self._pods[uid].state(loads) for uid in self._pods.on_node(node.name)})
            for node in self._nodes
            if shard_of(node.name, shard_count) in shards
        ]
        nominations = [each.told(uid, loads) for uid, each in self._nominations]
        objects, shared = list(self._objects.all()), self._nodes.shared_hostnames
        return State(self.epoch, self._seq, nodes, loads.items, objects, nominations, shared)

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def ledger(self) -> dict[str, LedgerEntry]:
        return dict(self._ledger.entries())

    @property
    def answer(self) -> Committed | None:
        """What a doubled commit of the last round is to be answered."""
        return self._answer

    def cache(self) -> Cache:
        """For whoever looks at it; nothing of it is to be changed."""
        return Cache(self.epoch, self._seq, self._nodes, self._pods, self._nominations, self._ledger)

    def counts(self) -> dict[str, int]:
        return {
            "nodes": len(self._nodes),
            "pods": len(self._pods),
            "assumed_pods": len(self._ledger),
            "nominated_pods": len(self._nominations),
            "objects": len(self._objects),
        }

    # What the watch says

    def _on_observed(self, observed: Observed, now: float) -> list[Effect]:
        self._gathering = gathering = Gathering()
        effects: list[Effect] = []
        try:
            for event in observed.events:
                effects += self.handle(event, now)
        finally:
            self._gathering = None
        return effects + self._publish(
            gathering.changes, gathering.loads, writes=gathering.writes, settled=tuple(gathering.settled)
        )

    # Nodes

    def _on_node_seen(self, node: Node) -> list[Effect]:
        try:
            validate_node(node)
        except FlotillaError as cause:
            return [Problem(cause), *(self._drop_node(node.name) if node.name in self._nodes else ())]
        is_new = node.name not in self._nodes
        changes = self._nodes.see(node)
        if not changes:
            return []
        loads = Loads()
        if is_new:
            changes += [self._pods[uid].told(uid, loads) for uid in sorted(self._pods.on_node(node.name))]
        return self._publish(changes, loads.items, writes=(node.name,))

    def _on_node_gone(self, name: str) -> list[Effect]:
        if name not in self._nodes:
            return [Problem(ClusterError(f"Node {name}: metadata.name: no such node is known"))]
        return self._drop_node(name)

    def _drop_node(self, name: str) -> list[Effect]:
        """Its pods stay known: they are there again when the node is."""
        return self._publish(self._nodes.drop(name), [])

    # Pods

    def _on_pod(self, pod: Pod, now: float) -> list[Effect]:
        if pod.status.phase in FINISHED_PHASES:
            return self._on_pod_gone(pod.uid)
        if not pod.spec.node_name and pod.metadata.deletion_timestamp is not None:
            return self._on_unplaced_gone(pod.uid)
        if not pod.spec.node_name and not self._may_be_nominated(pod):
            return []  # it is the queue's
        try:
            load = load_of(pod)
        except (FlotillaError, ValueError) as cause:
            return [Problem(cause if isinstance(cause, FlotillaError) else ClusterError(f"Pod {pod.key}: {cause}"))]
        return self._on_placed(pod, load, now) if pod.spec.node_name else self._on_waiting(pod, load)

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
            changes += self._objects.release(uid, self._seq + 1)
        stays = place is not None and place.node == node and place.load == load
        if place is not None and stays and (place.key, place.started) == (pod.key, started):
            place.assumed = False
            return self._publish(changes, [], settled=settled)
        self._pods.put(uid, node, load, pod.key, started, assumed=False)
        if node not in self._nodes:
            unknown = Problem(ClusterError(f"Pod {pod.key}: spec.nodeName: no node {node!r} is known"))
            changes += [PodGone(uid)] if place is not None else []
            return [unknown, *self._publish(changes, [], settled=settled)]
        changes.append(PodPlaced(uid, node, 0, pod.key, started))
        return self._publish(changes, [load], writes=() if stays else (node,), settled=settled)

    def _on_pod_gone(self, uid: str) -> list[Effect]:
        withheld = self._withheld(uid)
        gone = self._nominations.forget(uid)
        return [*withheld, *(self._publish([NominationGone(uid)], []) if gone else self._remove(uid))]

    def _on_unplaced_gone(self, uid: str) -> list[Effect]:
        """It is being deleted and has not come to a node: it is not to have one any more."""
        gone = uid not in self._pods and self._nominations.forget(uid)
        return [*self._withheld(uid), *(self._publish([NominationGone(uid)], []) if gone else [])]

    def _withheld(self, uid: str) -> list[Effect]:
        """A pod that is or will be gone is not to be bound any more."""
        entry = self._ledger.entries().get(uid)
        if entry is None or entry.bound:
            return []
        return [Withhold(Withdraw(uid, entry.attempt, "", "the pod is deleted"))]

    def _remove(self, uid: str) -> list[Effect]:
        """It leaves its place."""
        settled = (uid,) if self._ledger.take(uid) is not None else ()
        if uid not in self._pods:
            return []
        self._pods.take(uid)
        self._doomed.forget(uid)
        changes: list[Change] = [PodGone(uid), *self._objects.release(uid, self._seq + 1)]
        return self._publish(changes, [], settled=settled)

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
            return self._publish([NominationGone(uid)], [])
        loads = Loads()
        return self._publish([now.told(uid, loads)], loads.items, writes=(now.node,))

    def _nominate(self, commit: Commit, n: Nominate, changes: list[Change], now: float) -> Displace | None:
        """From here on its room is kept, and nobody's of lower priority is whom it takes it from."""
        nomination = Nomination(n.node, commit.loads[n.load], f"{n.namespace}/{n.name}")
        self._nominations.decide(n.uid, nomination, self._seq + 1, now)
        changes.append(PodNominated(n.uid, n.node, n.load, nomination.key))
        if not evicts(n):
            return None
        losers = self._nominations.below(n.node, nomination.load.priority)
        changes += self._revoke(uid for uid, _ in losers)
        return Displace(evict_of(n, self.epoch, self._seq + 1, self._ledger, losers))

    def _doom(self, evict: Evict, accepted: "_Accepted", now: float) -> None:
        """Whoever is to make way counts as going from now on."""
        for victim in evict.victims:
            place = self._pods[victim.uid]
            load = self._doomed.doom(victim.uid, evict.uid, place.load, now)
            self._pods.put(victim.uid, place.node, load, place.key, place.started, assumed=place.assumed)
            accepted.changes.append(self._pods[victim.uid].told(victim.uid, accepted.loads))

    def _reprieve(self, loads: list[tuple[str, PodLoad]]) -> list[Effect]:
        """These pods stay, and count for this where they are. Whoever waited for them to go is to look for others."""
        if not loads:
            return []
        told = Loads()
        changes: list[Change] = []
        for uid, load in loads:
            place = self._pods[uid]
            self._pods.put(uid, place.node, load, place.key, place.started, assumed=place.assumed)
            if place.node in self._nodes:
                changes.append(self._pods[uid].told(uid, told))
        free = Forgot(loads[0][0], f"{POD_GONE} from those who were to make way")
        return [*self._publish(changes, told.items), free]

    def _revoke(self, uids: Iterable[str]) -> list[Change]:
        return [NominationGone(uid) for uid in uids if self._nominations.revoke(uid)]

    # Decisions

    def _on_commit(self, commit: Commit, now: float) -> list[Effect]:
        if commit.epoch < self._cycle_epoch:
            self.refused.append(ProtocolError(f"commit of epoch {commit.epoch}, now {self._cycle_epoch}"))
            return []
        if commit.epoch > self._cycle_epoch:
            self._cycle_epoch, self._answer = commit.epoch, None
            self._judge.to_be_seen = self._decided_at
        if self._answer is not None and commit.round <= self._answer.round:
            return [Reply(self._answer)] if commit.round == self._answer.round else []
        named = [*(each.load for each in commit.decisions), *(each.load for each in commit.nominations)]
        if not all(0 <= load < len(commit.loads) for load in named):
            self.refused.append(ProtocolError(f"commit of round {commit.round} names a load that it does not have"))
            return []
        accepted = _Accepted(Loads(commit.loads), changes=self._revoke(commit.denominated))
        for unit in units(commit.decisions):
            conflicts = self._judge.decisions(unit)
            accepted.conflicts += conflicts.values()
            if not conflicts:
                accepted.entries += [self._assume(commit, each, accepted.changes, now) for each in unit]
        accepted.nodes += [entry.node for entry in accepted.entries]
        for nominate in commit.nominations:
            conflict = self._judge.nomination(nominate, accepted.nodes)
            if conflict is not None:
                accepted.conflicts.append(conflict)
                continue
            accepted.nodes.append(nominate.node)
            displace = self._nominate(commit, nominate, accepted.changes, now)
            if displace is not None:
                accepted.displaced.append(displace)
                self._doom(displace.message, accepted, now)
        return self._accept(commit, accepted)

    def _assume(self, commit: Commit, d: Decision, changes: list[Change], now: float) -> LedgerEntry:
        """From here on the decisions after this one reckon with it; `changes` are added to."""
        load, key, volumes = commit.loads[d.load], f"{d.namespace}/{d.name}", d.volumes
        changes += self._revoke((d.uid,))
        self._pods.put(d.uid, d.node, load, key, assumed=True)
        changes.append(PodPlaced(d.uid, d.node, d.load, key))
        if volumes is not None:
            volumes, laid = self._objects.assume(d.uid, d.node, volumes, self._seq + 1)
            changes += laid
        entry = entry_of(msgspec.structs.replace(d, volumes=volumes), load, commit, self._seq + 1, now)
        self._ledger.enter(entry)
        return entry

    def _accept(self, commit: Commit, accepted: "_Accepted") -> list[Effect]:
        delta: Delta | None = None
        if accepted.changes:
            delta = self._delta(accepted.changes, accepted.loads.items, accepted.nodes)
        if accepted.nodes:
            self._decided_at = self._seq
        self._answer = Committed(commit.epoch, commit.round, self._seq, accepted.conflicts)
        effects: list[Effect] = [Persist(delta, tuple(accepted.entries), answer=self._answer)]
        if delta is not None:
            effects.append(Publish(delta))
        effects.append(Reply(self._answer))
        if accepted.entries:
            effects.append(Dispatch(tuple(order_of(entry, self.epoch) for entry in accepted.entries)))
        return effects + accepted.displaced

    # Bindings

    def _on_bound(self, uid: str, attempt: int) -> list[Effect]:
        entry = self._ledger.find(uid, attempt)
        if entry is None or entry.bound:
            return []
        bound = msgspec.structs.replace(entry, bound=True)
        self._ledger.enter(bound)
        return [Persist(ledger=(bound,))]

    def _on_failed(self, failed: BindingFailed) -> list[Effect]:
        entry = self._ledger.find(failed.uid, failed.attempt)
        if entry is None or entry.bound:
            return []
        return self._forget(entry, failed.reason, failed.plugin, rejected=failed.rejected)

    def _on_waits(self, waits: BindingWaits) -> list[Effect]:
        entry = self._ledger.find(waits.uid, waits.attempt)
        if entry is None or entry.bound:
            return []
        waiting = msgspec.structs.replace(entry, deadline=waits.until + BINDING_DEADLINE)
        self._ledger.enter(waiting)
        return [Persist(ledger=(waiting,))]

    def _forget(self, entry: LedgerEntry, reason: str, plugin: str = "", *, rejected: bool = False) -> list[Effect]:
        return [*self._remove(entry.uid), Forgot(entry.uid, reason, plugin, rejected)]

    def _on_tick(self, now: float) -> list[Effect]:
        """An assumption ends by its observed outcome, never by time alone."""
        effects: list[Effect] = []
        for entry in self._ledger.due(now):
            effects.append(LookUp(entry.uid, entry.attempt, entry.namespace, entry.name))
            self._ledger.enter(msgspec.structs.replace(entry, deadline=now + BINDING_DEADLINE))
        for uid, attempt, nomination in self._nominations.due(now):
            namespace, _, name = nomination.key.partition("/")
            effects.append(LookUp(uid, attempt, namespace, name))
        effects += self._reprieve(list(self._doomed.expire(now)))
        return effects + self._publish(self._objects.expire(now, self._seq + 1), [])

    def _on_looked_up(self, found: LookedUp) -> list[Effect]:
        entry = self._ledger.find(found.uid, found.attempt)
        if entry is None:
            return self._on_nominee_found(found)
        if found.gone:
            return self._forget(entry, POD_GONE)
        if found.node is None:
            return self._forget(entry, "the binding was not finished in time")
        if found.node == entry.node:
            return self._on_bound(found.uid, found.attempt)
        self._ledger.take(found.uid)
        key = f"{entry.namespace}/{entry.name}"
        self._pods.put(found.uid, found.node, entry.load, key, assumed=False)
        changes = self._objects.release(found.uid, self._seq + 1)
        settled = (found.uid,)
        free = Forgot(found.uid, f"{POD_GONE} from there: it is on node {found.node}")
        if found.node not in self._nodes:
            return [*self._publish([PodGone(found.uid), *changes], [], settled=settled), free]
        changes.append(PodPlaced(found.uid, found.node, 0, key))
        return [*self._publish(changes, [entry.load], writes=(found.node,), settled=settled), free]

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
        return [*self._publish(self._revoke((found.uid,)), []), free]

    # Inside

    def _publish(
        self,
        changes: list[Change],
        loads: list[PodLoad],
        *,
        writes: Iterable[str] = (),
        settled: tuple[str, ...] = (),
    ) -> list[Effect]:
        if self._gathering is not None:
            self._gathering.add(changes, loads, writes, settled)
            return []
        if not changes:
            return [Persist(settled=settled)] if settled else []
        delta = self._delta(changes, loads, writes)
        return [Persist(delta, settled=settled), Publish(delta)]

    def _delta(self, changes: list[Change], loads: list[PodLoad], writes: Iterable[str]) -> Delta:
        """`writes`: the nodes that an evaluation from before may no longer be trusted on."""
        self._seq += 1
        for node in writes:
            self._nodes.write(node, self._seq)
        return Delta(self.epoch, self._seq, changes, loads)

    def validate(self) -> None:
        """The ledger holds the assumed pods and no other, each has a deadline, and every index agrees."""
        self._pods.validate()
        self._nodes.validate()
        self._nominations.validate()
        self._ledger.validate()
        self._doomed.validate()
        ledger = self._ledger.entries()
        self._objects.validate(ledger)
        assumed = {uid for uid, place in self._pods.items() if place.assumed}
        if assumed != set(ledger):
            raise InvariantBroken(f"assumed and not in the ledger or the reverse: {assumed ^ set(ledger)}")
        if any(uid in self._pods for uid, _ in self._nominations):
            raise InvariantBroken("a pod with a place is nominated")
        for uid, entry in ledger.items():
            if self._pods[uid].node != entry.node:
                raise InvariantBroken(f"pod {uid} is assumed elsewhere than the ledger says")
