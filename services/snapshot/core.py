"""Snapshot: the one writer of the cluster's state.

It takes what the API server's watch says and what cycle decides, gives every change a sequence number and publishes it
as a delta. A decision is taken only if nothing was added to its node, nor the node changed, after the evaluation that
it rests on; so capacity has one owner, and no lock is held while anybody thinks.

A decided pod is assumed: it holds its place, and stands in the ledger until it is seen there.

    decided --commit--> assumed --binding finished--> bound --seen by the watch--> confirmed
                           |                             |
                           +--binding failed-------------+--> forgotten
                           +--overdue--> looked up at the API server, then bound or forgotten

Effects are to be carried out in order: what is to be persisted is safe before anybody hears of it.

A new leader is made with the ledger of the one before it. It is told all that the watch lists, its effects being of no
interest yet, and then begins: what is still assumed is dispatched again, as of the new term.
"""

import heapq
from collections import deque
from collections.abc import Container, Iterable

import msgspec

from services.snapshot.events import (
    Beat,
    BindingFailed,
    BindingFinished,
    BindingWaits,
    Dispatch,
    Effect,
    Event,
    Forgot,
    LookedUp,
    LookUp,
    NodeGone,
    NodeSeen,
    Observed,
    Persist,
    PodDeleted,
    PodSeen,
    Problem,
    Publish,
    Reply,
    Tick,
)
from services.snapshot.gathering import Gathering
from services.snapshot.places import Loads, Places
from shared.cluster.images import ImageSizes
from shared.cluster.load import PodLoad, load_of
from shared.cluster.shards import shard_of
from shared.errors import MOST_REMEMBERED, ClusterError, FlotillaError, InvariantBroken, ProtocolError
from shared.messages.queue import POD_GONE
from shared.messages.state import (
    EPOCH_SHIFT,
    BindingOrder,
    Change,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    Heartbeat,
    LedgerEntry,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    PodGone,
    PodPlaced,
    State,
)
from shared.model.objects import Node, Pod, validate_node

BINDING_DEADLINE = 30.0
"""Seconds after which nobody begins to bind an assumed pod any more."""
LOOK_UP_GRACE = 5.0
"""Seconds after that until the pod is looked up: a last call may still land, and clocks differ a little."""
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class SnapshotCore:
    def __init__(self, epoch: int, ledger: Iterable[LedgerEntry] = (), answer: Committed | None = None) -> None:
        """`ledger` and `answer`: what the leader before has left."""
        self.epoch = epoch
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self._seq = epoch << EPOCH_SHIFT
        self._nodes: dict[str, Node] = {}
        self._reported: dict[str, Node] = {}
        self._written: dict[str, int] = {}
        self._pods = Places()
        self._ledger: dict[str, LedgerEntry] = {}
        self._due: list[tuple[float, str, int]] = []
        self._images = ImageSizes()
        self._cycle_epoch = 0 if answer is None else answer.epoch
        self._answer = None if answer is None else msgspec.structs.replace(answer, seq=self._seq)
        self._gathering: Gathering | None = None
        for entry in ledger:
            self._pods.put(entry.uid, entry.node, entry.load, assumed=True)
            self._enter(entry)

    def begin(self, now: float) -> list[Effect]:
        """All that the watch lists has been told: takes up what the leader before has left."""
        orders = [self._order(e) for e in self._ledger.values() if not e.bound and now < e.deadline]
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
                return self._on_pod(pod)
            case PodDeleted(uid=uid):
                return self._remove(uid)
            case NodeSeen(node=node):
                return self._on_node_seen(node)
            case NodeGone(name=name):
                return self._on_node_gone(name)
            case BindingFinished(uid=uid, attempt=attempt):
                return self._on_bound(uid, attempt)
            case BindingFailed():
                return self._on_failed(event)
            case BindingWaits():
                return self._on_waits(event)
            case LookedUp():
                return self._on_looked_up(event)
            case Tick():
                return self._on_tick(now)
            case Beat():
                return [Publish(Heartbeat(self.epoch, self._seq))]

    def next_deadline(self) -> float | None:
        while self._due and not self._is_due(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def state(self, shards: Container[int] = (0,), shard_count: int = 1) -> State:
        """All there is of these shards, for a worker that starts or has missed something."""
        loads = Loads()
        nodes = [
            NodeState(node, {uid: loads.number(self._pods[uid].load) for uid in self._pods.on_node(name)})
            for name, node in self._nodes.items()
            if shard_of(name, shard_count) in shards
        ]
        return State(self.epoch, self._seq, nodes, loads.items)

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def ledger(self) -> dict[str, LedgerEntry]:
        return dict(self._ledger)

    @property
    def answer(self) -> Committed | None:
        """What a doubled commit of the last round is to be answered."""
        return self._answer

    def counts(self) -> dict[str, int]:
        return {"nodes": len(self._nodes), "pods": len(self._pods), "assumed_pods": len(self._ledger)}

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
        # Kubelets and others report all the time, and mostly nothing that anybody reads.
        metadata = msgspec.structs.replace(node.metadata, resource_version="", annotations={})
        node = msgspec.structs.replace(node, metadata=metadata)
        before = self._reported.get(node.name)
        self._reported[node.name] = node
        settled = self._images.settle(node, before)
        if self._nodes.get(node.name) == settled:
            return []
        changes: list[Change] = [NodeUpserted(settled)]
        loads = Loads()
        if node.name not in self._nodes:
            waiting = sorted(self._pods.on_node(node.name))
            changes += [PodPlaced(uid, node.name, loads.number(self._pods[uid].load)) for uid in waiting]
        self._nodes[node.name] = settled
        return self._publish(changes, loads.items, writes=(node.name,))

    def _on_node_gone(self, name: str) -> list[Effect]:
        if name not in self._nodes:
            return [Problem(ClusterError(f"Node {name}: metadata.name: no such node is known"))]
        return self._drop_node(name)

    def _drop_node(self, name: str) -> list[Effect]:
        """Its pods stay known: they are there again when the node is."""
        del self._nodes[name]
        self._images.forget(self._reported.pop(name))
        self._written.pop(name, None)
        return self._publish([NodeRemoved(name)], [])

    # Pods

    def _on_pod(self, pod: Pod) -> list[Effect]:
        node = pod.spec.node_name
        if pod.status.phase in FINISHED_PHASES:
            return self._remove(pod.uid)
        if not node:
            return []  # it is the queue's
        try:
            load = load_of(pod)
        except (FlotillaError, ValueError) as cause:
            return [Problem(cause if isinstance(cause, FlotillaError) else ClusterError(f"Pod {pod.key}: {cause}"))]
        place = self._pods.get(pod.uid)
        settled = (pod.uid,) if self._ledger.pop(pod.uid, None) is not None else ()
        if place is not None and place.node == node and place.load == load:
            place.assumed = False
            return self._publish([], [], settled=settled)
        self._pods.put(pod.uid, node, load, assumed=False)
        if node not in self._nodes:
            unknown = Problem(ClusterError(f"Pod {pod.key}: spec.nodeName: no node {node!r} is known"))
            gone: list[Change] = [PodGone(pod.uid)] if place is not None else []
            return [unknown, *self._publish(gone, [], settled=settled)]
        return self._publish([PodPlaced(pod.uid, node, 0)], [load], writes=(node,), settled=settled)

    def _remove(self, uid: str) -> list[Effect]:
        settled = (uid,) if self._ledger.pop(uid, None) is not None else ()
        if uid not in self._pods:
            return []
        self._pods.take(uid)
        return self._publish([PodGone(uid)], [], settled=settled)

    # Decisions

    def _on_commit(self, commit: Commit, now: float) -> list[Effect]:
        if commit.epoch < self._cycle_epoch:
            self.refused.append(ProtocolError(f"commit of epoch {commit.epoch}, now {self._cycle_epoch}"))
            return []
        if commit.epoch > self._cycle_epoch:
            self._cycle_epoch, self._answer = commit.epoch, None
        if self._answer is not None and commit.round <= self._answer.round:
            return [Reply(self._answer)] if commit.round == self._answer.round else []
        if not all(0 <= decision.load < len(commit.loads) for decision in commit.decisions):
            self.refused.append(ProtocolError(f"commit of round {commit.round} names a load that it does not have"))
            return []
        conflicts: list[Conflict] = []
        accepted: list[Decision] = []
        taken: dict[str, str] = {}
        for decision in commit.decisions:
            conflict = self._conflict(decision, taken)
            if conflict is None:
                accepted.append(decision)
                taken[decision.uid] = decision.node
            else:
                conflicts.append(conflict)
        return self._accept(commit, accepted, conflicts, now)

    def _conflict(self, decision: Decision, taken: dict[str, str]) -> Conflict | None:
        place = self._pods.get(decision.uid)
        where = taken.get(decision.uid) if place is None else place.node
        if where is not None:
            return Conflict(decision.uid, f"the pod is on node {where} already", placed=True)
        if decision.node not in self._nodes:
            return Conflict(decision.uid, f"node {decision.node} is gone")
        if self._written.get(decision.node, 0) > decision.seen:
            return Conflict(decision.uid, f"node {decision.node} has changed since it was judged")
        return None

    def _accept(self, commit: Commit, accepted: list[Decision], conflicts: list[Conflict], now: float) -> list[Effect]:
        entries: list[LedgerEntry] = []
        for d in accepted:
            load = commit.loads[d.load]
            self._pods.put(d.uid, d.node, load, assumed=True)
            entry = LedgerEntry(
                uid=d.uid,
                attempt=self._seq + 1,
                namespace=d.namespace,
                name=d.name,
                profile=d.profile,
                node=d.node,
                load=load,
                epoch=commit.epoch,
                round=commit.round,
                deadline=now + BINDING_DEADLINE,
                pod=d.pod,
            )
            self._enter(entry)
            entries.append(entry)
        delta: Delta | None = None
        if accepted:
            changes: list[Change] = [PodPlaced(d.uid, d.node, d.load) for d in accepted]
            delta = self._delta(changes, commit.loads, [d.node for d in accepted])
        self._answer = Committed(commit.epoch, commit.round, self._seq, conflicts)
        effects: list[Effect] = [Persist(delta, tuple(entries), answer=self._answer)]
        if delta is not None:
            effects.append(Publish(delta))
        effects.append(Reply(self._answer))
        if entries:
            effects.append(Dispatch(tuple(self._order(entry) for entry in entries)))
        return effects

    def _order(self, entry: LedgerEntry) -> BindingOrder:
        return BindingOrder(
            epoch=self.epoch,
            attempt=entry.attempt,
            uid=entry.uid,
            namespace=entry.namespace,
            name=entry.name,
            profile=entry.profile,
            node=entry.node,
            deadline=entry.deadline,
            pod=entry.pod,
        )

    # Bindings

    def _enter(self, entry: LedgerEntry) -> None:
        self._ledger[entry.uid] = entry
        heapq.heappush(self._due, (entry.deadline + LOOK_UP_GRACE, entry.uid, entry.attempt))

    def _is_due(self, due: tuple[float, str, int]) -> bool:
        """Or has this become of no interest: settled, or put off?"""
        at, uid, attempt = due
        entry = self._ledger.get(uid)
        return entry is not None and entry.attempt == attempt and entry.deadline + LOOK_UP_GRACE == at

    def _entry(self, uid: str, attempt: int) -> LedgerEntry | None:
        """What stands in the ledger for this attempt; None once its outcome is known, or another has begun."""
        entry = self._ledger.get(uid)
        return None if entry is None or entry.attempt != attempt else entry

    def _on_bound(self, uid: str, attempt: int) -> list[Effect]:
        entry = self._entry(uid, attempt)
        if entry is None or entry.bound:
            return []
        bound = self._ledger[uid] = msgspec.structs.replace(entry, bound=True)
        return [Persist(ledger=(bound,))]

    def _on_failed(self, failed: BindingFailed) -> list[Effect]:
        entry = self._entry(failed.uid, failed.attempt)
        return [] if entry is None or entry.bound else self._forget(entry, failed.reason)

    def _on_waits(self, waits: BindingWaits) -> list[Effect]:
        entry = self._entry(waits.uid, waits.attempt)
        if entry is None or entry.bound:
            return []
        waiting = msgspec.structs.replace(entry, deadline=waits.until + BINDING_DEADLINE)
        self._enter(waiting)
        return [Persist(ledger=(waiting,))]

    def _forget(self, entry: LedgerEntry, reason: str) -> list[Effect]:
        return [*self._remove(entry.uid), Forgot(entry.uid, reason)]

    def _on_tick(self, now: float) -> list[Effect]:
        """An assumption ends by its observed outcome, never by time alone."""
        effects: list[Effect] = []
        while (due := self.next_deadline()) is not None and due <= now:
            entry = self._ledger[heapq.heappop(self._due)[1]]
            effects.append(LookUp(entry.uid, entry.attempt, entry.namespace, entry.name))
            self._enter(msgspec.structs.replace(entry, deadline=now + BINDING_DEADLINE))
        return effects

    def _on_looked_up(self, found: LookedUp) -> list[Effect]:
        entry = self._entry(found.uid, found.attempt)
        if entry is None:
            return []
        if found.gone:
            return self._forget(entry, POD_GONE)
        if found.node is None:
            return self._forget(entry, "the binding was not finished in time")
        if found.node == entry.node:
            return self._on_bound(found.uid, found.attempt)
        del self._ledger[found.uid]
        self._pods.put(found.uid, found.node, entry.load, assumed=False)
        settled = (found.uid,)
        free = Forgot(found.uid, f"{POD_GONE} from there: it is on node {found.node}")
        if found.node not in self._nodes:
            return [*self._publish([PodGone(found.uid)], [], settled=settled), free]
        placed = PodPlaced(found.uid, found.node, 0)
        return [*self._publish([placed], [entry.load], writes=(found.node,), settled=settled), free]

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
            if node in self._nodes:
                self._written[node] = self._seq
        return Delta(self.epoch, self._seq, changes, loads)

    def validate(self) -> None:
        """The ledger holds the assumed pods and no other, each has a deadline, and every index agrees."""
        self._pods.validate()
        assumed = {uid for uid, place in self._pods.items() if place.assumed}
        if assumed != set(self._ledger):
            raise InvariantBroken(f"assumed and not in the ledger or the reverse: {assumed ^ set(self._ledger)}")
        for uid, entry in self._ledger.items():
            if self._pods[uid].node != entry.node:
                raise InvariantBroken(f"pod {uid} is assumed elsewhere than the ledger says")
        if {uid for due in self._due if self._is_due(due) for uid in due[1:2]} != set(self._ledger):
            raise InvariantBroken("an entry of the ledger has no deadline")
