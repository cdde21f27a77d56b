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
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from shared.cluster.images import ImageSizes
from shared.cluster.load import PodLoad, load_of
from shared.errors import ClusterError, FlotillaError, InvariantBroken, ProtocolError
from shared.messages.state import (
    BindingOrder,
    Change,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    LedgerEntry,
    NodeRemoved,
    NodeUpserted,
    PodGone,
    PodPlaced,
    State,
)
from shared.model.objects import Node, Pod, validate_node

BINDING_DEADLINE = 30.0
"""Seconds after which an assumption without an outcome is looked up at the API server."""
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """Event: the watch says that a node is so."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """Event: the watch says that a node is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """Event: the watch says that a pod is so."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """Event: the watch says that a pod is no more."""

    uid: str


@dataclass(frozen=True, slots=True)
class BindingFinished:
    """Event: the API server has bound an assumed pod."""

    uid: str


@dataclass(frozen=True, slots=True)
class BindingFailed:
    """Event: an assumed pod will not be bound to its node."""

    uid: str


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Event: where the API server says that a pod is; None where there is no such pod, or it is not bound."""

    uid: str
    node: str | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Effect: make this durable. `answer` is what a doubled commit of the same round is to be answered."""

    delta: Delta | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    settled: tuple[str, ...] = ()
    answer: Committed | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: tell all workers."""

    delta: Delta


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: answer the cycle service."""

    message: Committed


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Effect: hand these to the binders."""

    orders: tuple[BindingOrder, ...]


@dataclass(frozen=True, slots=True)
class LookUp:
    """Effect: ask the API server where this pod is."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Effect: somebody should know of this; the object was left out, and nothing else was touched."""

    error: FlotillaError


Event = NodeSeen | NodeGone | PodSeen | PodDeleted | BindingFinished | BindingFailed | LookedUp | Commit | Tick
Effect = Persist | Publish | Reply | Dispatch | LookUp | Problem


class SnapshotCore:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.refused: list[ProtocolError] = []
        self._seq = 0
        self._nodes: dict[str, Node] = {}
        self._reported: dict[str, Node] = {}
        self._written: dict[str, int] = {}
        self._pods: dict[str, _Place] = {}
        self._on_node: dict[str, set[str]] = {}
        self._ledger: dict[str, LedgerEntry] = {}
        self._images = ImageSizes()
        self._cycle_epoch = 0
        self._answer: Committed | None = None

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Commit():
                return self._on_commit(event, now)
            case PodSeen(pod=pod):
                return self._on_pod(pod)
            case PodDeleted(uid=uid):
                return self._remove(uid)
            case NodeSeen(node=node):
                return self._on_node_seen(node)
            case NodeGone(name=name):
                return self._on_node_gone(name)
            case BindingFinished(uid=uid):
                return self._on_bound(uid)
            case BindingFailed(uid=uid):
                entry = self._ledger.get(uid)
                return [] if entry is None or entry.bound else self._forget(uid)
            case LookedUp(uid=uid, node=node_name):
                return self._on_looked_up(uid, node_name)
            case Tick():
                return self._on_tick(now)

    def next_deadline(self) -> float | None:
        return min((entry.deadline for entry in self._ledger.values()), default=None)

    def state(self) -> State:
        """All there is, for a worker that starts or has missed something."""
        loads = _Loads()
        pods = [
            PodPlaced(uid, place.node, loads.number(place.load))
            for uid, place in self._pods.items()
            if place.node in self._nodes
        ]
        return State(self.epoch, self._seq, list(self._nodes.values()), pods, loads.items)

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def ledger(self) -> dict[str, LedgerEntry]:
        return dict(self._ledger)

    # Nodes

    def _on_node_seen(self, node: Node) -> list[Effect]:
        try:
            validate_node(node)
        except FlotillaError as cause:
            return [Problem(cause)]
        before = self._reported.get(node.name)
        self._reported[node.name] = node
        settled = self._images.settle(node, before)
        if self._nodes.get(node.name) == settled:
            return []
        changes: list[Change] = [NodeUpserted(settled)]
        loads = _Loads()
        if node.name not in self._nodes:
            waiting = sorted(self._on_node.get(node.name, ()))
            changes += [PodPlaced(uid, node.name, loads.number(self._pods[uid].load)) for uid in waiting]
        self._nodes[node.name] = settled
        return self._publish(changes, loads.items, writes=(node.name,))

    def _on_node_gone(self, name: str) -> list[Effect]:
        """Its pods stay known: they are there again when the node is."""
        if self._nodes.pop(name, None) is None:
            return [Problem(ClusterError(f"Node {name}: metadata.name: no such node is known"))]
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
            return [Persist(settled=settled)] if settled else []
        self._place(pod.uid, node, load, assumed=False)
        if node not in self._nodes:
            unknown = Problem(ClusterError(f"Pod {pod.key}: spec.nodeName: no node {node!r} is known"))
            gone: list[Change] = [PodGone(pod.uid)] if place is not None else []
            return [unknown, *self._publish(gone, [], settled=settled)]
        return self._publish([PodPlaced(pod.uid, node, 0)], [load], writes=(node,), settled=settled)

    def _remove(self, uid: str) -> list[Effect]:
        settled = (uid,) if self._ledger.pop(uid, None) is not None else ()
        if uid not in self._pods:
            return []
        self._unplace(uid)
        return self._publish([PodGone(uid)], [], settled=settled)

    def _place(self, uid: str, node: str, load: PodLoad, *, assumed: bool) -> None:
        if uid in self._pods:
            self._unplace(uid)
        self._pods[uid] = _Place(node, load, assumed)
        self._on_node.setdefault(node, set()).add(uid)

    def _unplace(self, uid: str) -> None:
        place = self._pods.pop(uid)
        on_node = self._on_node[place.node]
        on_node.discard(uid)
        if not on_node:
            del self._on_node[place.node]

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
            self._place(d.uid, d.node, load, assumed=True)
            entry = LedgerEntry(
                d.uid, d.namespace, d.name, d.profile, d.node, load, commit.epoch, commit.round, now + BINDING_DEADLINE
            )
            self._ledger[d.uid] = entry
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
            self.epoch, entry.uid, entry.namespace, entry.name, entry.profile, entry.node, entry.deadline
        )

    # Bindings

    def _on_bound(self, uid: str) -> list[Effect]:
        entry = self._ledger.get(uid)
        if entry is None or entry.bound:
            return []  # confirmed by the watch before, or told twice
        bound = msgspec.structs.replace(entry, bound=True)
        self._ledger[uid] = bound
        return [Persist(ledger=(bound,))]

    def _forget(self, uid: str) -> list[Effect]:
        place = self._pods.get(uid)
        if place is None or not place.assumed:
            return []
        return self._remove(uid)

    def _on_tick(self, now: float) -> list[Effect]:
        """An assumption ends by its observed outcome, never by time alone."""
        effects: list[Effect] = []
        for uid, entry in self._ledger.items():
            if entry.deadline <= now:
                effects.append(LookUp(uid, entry.namespace, entry.name))
                self._ledger[uid] = msgspec.structs.replace(entry, deadline=now + BINDING_DEADLINE)
        return effects

    def _on_looked_up(self, uid: str, node: str | None) -> list[Effect]:
        entry = self._ledger.get(uid)
        if entry is None:
            return []
        if node is None:
            return self._forget(uid)
        if node == entry.node:
            return self._on_bound(uid)
        del self._ledger[uid]
        self._place(uid, node, entry.load, assumed=False)
        if node not in self._nodes:
            return self._publish([PodGone(uid)], [], settled=(uid,))
        return self._publish([PodPlaced(uid, node, 0)], [entry.load], writes=(node,), settled=(uid,))

    # Inside

    def _publish(
        self,
        changes: list[Change],
        loads: list[PodLoad],
        *,
        writes: Iterable[str] = (),
        settled: tuple[str, ...] = (),
    ) -> list[Effect]:
        if not changes:
            return [Persist(settled=settled)] if settled else []
        delta = self._delta(changes, loads, writes)
        return [Persist(delta, settled=settled), Publish(delta)]

    def _delta(self, changes: list[Change], loads: list[PodLoad], writes: Iterable[str]) -> Delta:
        """`writes`: the nodes that an evaluation from before may no longer be trusted on."""
        self._seq += 1
        for node in writes:
            self._written[node] = self._seq
        return Delta(self.epoch, self._seq, changes, loads)

    def validate(self) -> None:
        """The ledger holds the assumed pods and no other, and every index agrees."""
        assumed = {uid for uid, place in self._pods.items() if place.assumed}
        if assumed != set(self._ledger):
            raise InvariantBroken(f"assumed and not in the ledger or the reverse: {assumed ^ set(self._ledger)}")
        indexed = {uid: node for node, uids in self._on_node.items() for uid in uids}
        if indexed != {uid: place.node for uid, place in self._pods.items()}:
            raise InvariantBroken("the index of pods by node does not agree with the pods")
        for uid, entry in self._ledger.items():
            if self._pods[uid].node != entry.node:
                raise InvariantBroken(f"pod {uid} is assumed elsewhere than the ledger says")


@dataclass(slots=True)
class _Place:
    node: str
    load: PodLoad
    assumed: bool


class _Loads:
    """Numbers equal loads once in a message."""

    def __init__(self) -> None:
        self.items: list[PodLoad] = []
        self._numbers: dict[int, int] = {}

    def number(self, load: PodLoad) -> int:
        number = self._numbers.get(id(load))
        if number is None:
            number = self._numbers[id(load)] = len(self.items)
            self.items.append(load)
        return number
