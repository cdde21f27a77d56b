"""The cluster's state, and its sequence number: every change has a number, and is published once.

Methods that change something return the effects that persist and publish it. While a delta is being built, changes are
gathered in it instead.
"""

from collections.abc import Callable, Container, Iterable, Sequence

import msgspec

from services.snapshot.events import Effect, FenceClaims
from services.snapshot.state.held_devices import HeldDevices
from services.snapshot.state.ledger import Ledger
from services.snapshot.state.nodes import Nodes
from services.snapshot.state.nominator import Nominator
from services.snapshot.state.object_overlay import ObjectOverlay
from services.snapshot.state.placements import Placements
from services.snapshot.state.preemption_victims import PreemptionVictims
from services.snapshot.state.topology_labels import TopologyLabels
from shared.cluster.nodetable import shard_of
from shared.errors import InvariantBroken
from shared.messages.queue import POD_GONE, ForgottenPod
from shared.messages.state import (
    EPOCH_SHIFT,
    Change,
    Delta,
    LedgerEntry,
    Loads,
    NodeState,
    NominationGone,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodPlaced,
    SharedHostnames,
    State,
    pod_uid_of,
)
from shared.model.load import PodLoad
from shared.store.schema import Persist, WholeState

MAX_POSTPONED = 1 << 10
"""Changes that may wait for the next delta."""
_WITH_LOAD = (PodPlaced, PodNominated)


class DeltaBuilder:
    """The changes of several events, for one delta."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.loads = Loads()
        self.writes: list[str] = []
        self.settled: list[str] = []
        self.forgotten: list[ForgottenPod] = []

    def add(
        self, changes: Iterable[Change], loads: Sequence[PodLoad], writes: Iterable[str], settled: Iterable[str]
    ) -> None:
        """`changes` refer to `loads` by index."""
        for change in changes:
            if isinstance(change, _WITH_LOAD) and (number := self.loads.number(loads[change.load])) != change.load:
                change = msgspec.structs.replace(change, load=number)
            self.changes.append(change)
        self.writes.extend(writes)
        self.settled.extend(settled)

    def place(self, uid: str, node: str, load: PodLoad, key: str, started: float | None) -> None:
        """A pod is new on this node."""
        self.changes.append(PodPlaced(uid, node, self.loads.number(load), key, started))
        self.writes.append(node)


class ClusterState:
    def __init__(self, epoch: int, ledger: Iterable[LedgerEntry]) -> None:
        """`ledger`: the pods that earlier terms have assumed."""
        self.begin_term(epoch)
        self.nodes = Nodes(self.seq)
        self.topology_labels = TopologyLabels(self.nodes)
        self.pods = Placements()
        self.objects = ObjectOverlay()
        self.held = HeldDevices(self.objects)
        self.nominator = Nominator()
        self.victims = PreemptionVictims()
        self.ledger = Ledger()
        self.building: DeltaBuilder | None = None
        self.now = 0.0
        """Of the event that is being handled."""
        for entry in ledger:
            self.restore(entry)

    def begin_term(self, epoch: int) -> None:
        """Its sequence numbers are greater than all before. It begins with the whole state."""
        self.epoch, self.seq = epoch, epoch << EPOCH_SHIFT
        self.others = self.seq
        """The number of the last change that was no decision, nor a mere change of labels or start times."""
        self.relabelled = self.seq
        """The number of the last change of labels that went with decisions."""
        self._postponed = DeltaBuilder()

    def take_over(self, epoch: int, ledger: Iterable[LedgerEntry], is_bound: Callable[[str], bool]) -> None:
        """A standby, which has followed the watch, leads from now on.

        `ledger`: the pods that earlier terms have assumed. `is_bound`: whether the watch has shown it on a node.
        """
        self.begin_term(epoch)
        self.nodes.begin_term(self.seq)
        for entry in ledger:
            if entry.held or not is_bound(entry.uid) or entry.uid not in self.pods:
                self.restore(entry)
            else:
                self._restore_seen(entry)

    def _restore_seen(self, entry: LedgerEntry) -> None:
        """As if the pod had been assumed when the watch showed it on its node."""
        is_there = self.pods[entry.uid].node == entry.node
        self.objects.restore(entry.assignment)
        self.hold_devices(entry, is_bound=is_there or entry.bound)
        if is_there:
            self.objects.confirm(entry.uid, self.now)
        else:
            self.objects.release(entry.uid, self.seq)

    def publish(
        self,
        changes: list[Change],
        loads: Sequence[PodLoad] = (),
        *,
        writes: Iterable[str] = (),
        settled: tuple[str, ...] = (),
    ) -> list[Effect]:
        """`writes`: as for `delta`. `settled`: uids that have left the ledger."""
        forgotten: list[ForgottenPod] = []
        if ended := self.held.take_ended():
            settled = (*settled, *ended)
            why = f"{POD_GONE} from its devices"
            forgotten = [ForgottenPod(pod_uid_of(uid), why) for uid, frees in ended.items() if frees]
        if self.building is not None:
            self.building.add(changes, loads, writes, settled)
            self.building.forgotten += forgotten
            return []
        if not changes:
            return [*([Persist(settled=settled)] if settled else ()), *forgotten]
        delta = self.delta(changes, list(loads), writes)
        return [Persist(delta, settled=settled), delta, *forgotten]

    def postpone(
        self, changes: list[Change], loads: Sequence[PodLoad], *, writes: Iterable[str], settled: tuple[str, ...]
    ) -> list[Effect]:
        """As `publish`, but with the next delta, or when `publish_postponed` is called: as if it were seen then.

        Postponed changes come before everything that is published after them.
        """
        building, postponed = self.building, self._postponed
        if (building is not None and building.changes) or len(postponed.changes) >= MAX_POSTPONED:
            return self.publish(changes, loads, writes=writes, settled=settled)
        postponed.add(changes, loads, writes, ())
        return self.publish([], settled=settled)

    @property
    def has_postponed(self) -> bool:
        return bool(self._postponed.changes)

    @property
    def postponed(self) -> Sequence[Change]:
        """A new term forgets them, as it begins with the whole state."""
        return self._postponed.changes

    def publish_postponed(self) -> list[Effect]:
        if not self._postponed.changes:
            return []
        is_written = bool(self._postponed.writes)
        delta = self.delta([], [], ())
        if is_written:
            self.others = self.seq  # decisions about these nodes that rest on an earlier state are refused
        return [Persist(delta), delta]

    def publish_built(self) -> list[Effect]:
        built, self.building = self.building, None
        if built is None:
            return []
        published = self.publish(built.changes, built.loads.items, writes=built.writes, settled=tuple(built.settled))
        return [*published, *built.forgotten]

    def delta(
        self, changes: list[Change], loads: list[PodLoad], writes: Iterable[str], *, decides: bool = False
    ) -> Delta:
        """The delta begins with the postponed changes.

        `writes`: nodes whose earlier evaluations no longer count. `decides`: the changes are decisions only.
        """
        self.seq += 1
        if changes and not decides:
            self.others = self.seq
        if self._postponed.writes:
            self.relabelled = self.seq
        if self._postponed.changes:
            built, self._postponed = self._postponed, DeltaBuilder()
            built.add(changes, loads, writes, ())
            changes, loads, writes = built.changes, built.loads.items, built.writes
        for node in writes:
            self.nodes.set_written(node, self.seq)
        return Delta(self.epoch, self.seq, changes, loads)

    # Pods

    def restore(self, entry: LedgerEntry) -> None:
        """Assumes a pod that an earlier term has assumed, or holds its devices."""
        if entry.held:
            self.held.restore(entry)
            return
        self.nominator.forget(entry.uid)
        self.pods.put(entry.uid, entry.node, entry.load, entry.key, assumed=True)
        self.ledger.restore(entry)
        self.objects.restore(entry.assignment)

    def remove_pod(self, uid: str) -> list[Effect]:
        entry = self.ledger.remove(uid)
        settled = (uid,) if entry is not None else ()
        held = [] if entry is None else self.hold_devices(entry, is_bound=entry.bound)
        if uid not in self.pods:
            return held
        self.pods.remove(uid)
        self.victims.forget(uid)
        return [*held, *self.publish([PodGone(uid), *self.objects.release(uid, self.seq + 1)], settled=settled)]

    def hold_devices(self, entry: LedgerEntry, *, is_bound: bool) -> list[Effect]:
        """The entry has left the ledger. `is_bound`: the pod was bound, so its claims should be allocated."""
        held = self.held.hold(entry)
        if held is None:
            return []
        if is_bound:
            self.held.fence_later(held, self.now)
            return [Persist(ledger=(held,))]
        return [Persist(ledger=(held,)), FenceClaims(held)]

    def spare(self, victims: list[tuple[str, PodLoad]]) -> list[Effect]:
        """These victims stay, with these loads. The queue retries pods, which may find other victims."""
        if not victims:
            return []
        loads = Loads()
        changes: list[Change] = []
        for uid, load in victims:
            placement = self.pods.set_load(uid, load)
            if placement.node in self.nodes:
                changes.append(placement.placed(uid, loads))
        return [*self.publish(changes, loads.items), ForgottenPod(victims[0][0], f"{POD_GONE} from the victims")]

    def revoke(self, uids: Iterable[str]) -> list[Change]:
        return [NominationGone(uid) for uid in uids if self.nominator.revoke(uid)]

    # Introspection

    def state(self, shards: Container[int] = (0,), shard_count: int = 1) -> State:
        """The whole state of these shards, for a worker that starts or has missed a delta."""
        loads = Loads()
        nodes = [
            NodeState(node, {uid: self.pods[uid].state(loads) for uid in self.pods.on_node(node.name)})
            for node in self.nodes
            if shard_of(node.name, shard_count) in shards
        ]
        nominations = [each.nominated(uid, loads) for uid, each in self.nominator]
        objects, shared = list(self.objects.all()), self.nodes.shared_hostnames
        return State(self.epoch, self.seq, nodes, loads.items, objects, nominations, shared)

    def whole(self) -> WholeState:
        """As it is now, for the copy in Redis. It takes a fraction of the memory of `state`."""
        loads = Loads()
        others: list[Change] = [ObjectUpserted(obj) for obj in self.objects.all()]
        others += [each.nominated(uid, loads) for uid, each in self.nominator]
        others.append(SharedHostnames(self.nodes.shared_hostnames))
        return WholeState(self.epoch, self.seq, list(self.nodes), self.pods.copied(), others, loads.items)

    def counts(self) -> dict[str, int]:
        return {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "assumed_pods": len(self.ledger),
            "nominated_pods": len(self.nominator),
            "held_devices": len(self.held),
            "objects": len(self.objects),
        }

    def validate(self) -> None:
        for part in (self.pods, self.nodes, self.nominator, self.ledger, self.victims):
            part.validate()
        ledger = {entry.uid: entry for entry in self.ledger}
        self.objects.validate(ledger)
        assumed = {uid for uid, placement in self.pods.items() if placement.assumed}
        if assumed != set(ledger):
            raise InvariantBroken(f"assumed and not in the ledger or the reverse: {assumed ^ set(ledger)}")
        if any(uid in self.pods for uid, _ in self.nominator):
            raise InvariantBroken("a placed pod is nominated")
        for uid, entry in ledger.items():
            if self.pods[uid].node != entry.node:
                raise InvariantBroken(f"pod {uid} is assumed on another node than in the ledger")
