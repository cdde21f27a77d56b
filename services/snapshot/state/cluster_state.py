"""The cluster's state, and its sequence number: every change has a number, and is published once.

Methods that change something return the effects that persist and publish it. While a delta is being built, changes are
gathered in it instead.
"""

from collections.abc import Container, Iterable, Sequence

import msgspec

from services.snapshot.events import Effect
from services.snapshot.state.ledger import FENCE_GRACE, Ledger
from services.snapshot.state.nodes import Nodes
from services.snapshot.state.nominator import Nominator
from services.snapshot.state.object_overlay import ObjectOverlay
from services.snapshot.state.placements import Placements
from services.snapshot.state.preemption_victims import PreemptionVictims
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
    PodGone,
    PodNominated,
    PodPlaced,
    State,
)
from shared.model.load import PodLoad
from shared.store.schema import Persist


class DeltaBuilder:
    """The changes of several events, for one delta."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.loads: list[PodLoad] = []
        self.writes: list[str] = []
        self.settled: list[str] = []

    def add(
        self, changes: Iterable[Change], loads: Sequence[PodLoad], writes: Iterable[str], settled: Iterable[str]
    ) -> None:
        """`changes` refer to `loads` by index."""
        before = len(self.loads)
        for change in changes:
            if isinstance(change, PodPlaced | PodNominated) and before:
                change = msgspec.structs.replace(change, load=change.load + before)
            self.changes.append(change)
        self.loads.extend(loads)
        self.writes.extend(writes)
        self.settled.extend(settled)


class ClusterState:
    def __init__(self, epoch: int, ledger: Iterable[LedgerEntry]) -> None:
        """`ledger`: the pods that earlier terms have assumed."""
        self.begin_term(epoch)
        self.nodes = Nodes(self.seq)
        self.pods = Placements()
        self.objects = ObjectOverlay()
        self.nominator = Nominator()
        self.victims = PreemptionVictims()
        self.ledger = Ledger()
        self.building: DeltaBuilder | None = None
        self.now = 0.0
        """Of the event that is being handled."""
        for entry in ledger:
            self.restore(entry)

    def begin_term(self, epoch: int) -> None:
        """Its sequence numbers are greater than all before."""
        self.epoch, self.seq = epoch, epoch << EPOCH_SHIFT

    def publish(
        self,
        changes: list[Change],
        loads: Sequence[PodLoad] = (),
        *,
        writes: Iterable[str] = (),
        settled: tuple[str, ...] = (),
    ) -> list[Effect]:
        """`writes`: as for `delta`. `settled`: uids that have left the ledger."""
        if self.building is not None:
            self.building.add(changes, loads, writes, settled)
            return []
        if not changes:
            return [Persist(settled=settled)] if settled else []
        delta = self.delta(changes, list(loads), writes)
        return [Persist(delta, settled=settled), delta]

    def publish_built(self) -> list[Effect]:
        built, self.building = self.building, None
        if built is None:
            return []
        return self.publish(built.changes, built.loads, writes=built.writes, settled=tuple(built.settled))

    def delta(self, changes: list[Change], loads: list[PodLoad], writes: Iterable[str]) -> Delta:
        """`writes`: nodes whose earlier evaluations no longer count."""
        self.seq += 1
        for node in writes:
            self.nodes.set_written(node, self.seq)
        return Delta(self.epoch, self.seq, changes, loads)

    # Pods

    def restore(self, entry: LedgerEntry) -> None:
        """Assumes a pod that an earlier term has assumed."""
        self.nominator.forget(entry.uid)
        self.pods.put(entry.uid, entry.node, entry.load, entry.key, assumed=True)
        self.ledger.restore(entry)
        self.objects.restore(entry.assignment)

    def remove_pod(self, uid: str, *, is_gone: bool = True) -> list[Effect]:
        """`is_gone`: its binder may not know that yet. Otherwise no binder acts for the pod any more."""
        entry = self.ledger.remove(uid)
        settled = (uid,) if entry is not None else ()
        if entry is not None and is_gone:
            self.hold_devices(entry)
        if uid not in self.pods:
            return []
        self.pods.remove(uid)
        self.victims.forget(uid)
        return self.publish([PodGone(uid), *self.objects.release(uid, self.seq + 1)], settled=settled)

    def hold_devices(self, entry: LedgerEntry) -> None:
        """The pod has left the ledger, and a binder may still write the devices that it was given."""
        if not entry.bound:
            self.objects.hold(entry.uid, entry.attempt, self.now + entry.window + FENCE_GRACE)

    def freed(self, changes: list[Change], uid: str = "") -> list[Effect]:
        """Devices that were held are free. The queue retries pods."""
        return [*self.publish(changes), ForgottenPod(uid, f"{POD_GONE} from its devices")] if changes else []

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

    def counts(self) -> dict[str, int]:
        return {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "assumed_pods": len(self.ledger),
            "nominated_pods": len(self.nominator),
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
