"""What the snapshot knows of the cluster, and how far: every change has a number, and is told once.

Whoever changes something here answers with the effects that make it safe and known. What is seen at once is gathered,
and makes one delta.
"""

from collections.abc import Container, Iterable

from services.snapshot.events import Effect, Forgot, Persist, Publish
from services.snapshot.gathering import Gathering
from services.snapshot.state.ledger import Ledger
from services.snapshot.state.nodes import Nodes
from services.snapshot.state.nominator import Nominations
from services.snapshot.state.object_overlay import Objects
from services.snapshot.state.placements import Places
from services.snapshot.state.preemption_victims import Doomed
from shared.cluster.shards import shard_of
from shared.errors import InvariantBroken
from shared.messages.loads import Loads
from shared.messages.queue import POD_GONE
from shared.messages.state import EPOCH_SHIFT, Change, Delta, LedgerEntry, NodeState, NominationGone, PodGone, State
from shared.model.load import PodLoad


class Cluster:
    def __init__(self, epoch: int, ledger: Iterable[LedgerEntry]) -> None:
        """`ledger`: of the pods that the leader before has assumed."""
        self.begin_term(epoch)
        self.nodes = Nodes(self.seq)
        self.pods = Places()
        self.objects = Objects()
        self.nominations = Nominations()
        self.doomed = Doomed()
        self.ledger = Ledger()
        self.gathering: Gathering | None = None
        for entry in ledger:
            self.restore(entry)

    def begin_term(self, epoch: int) -> None:
        """Its numbers are greater than all before."""
        self.epoch, self.seq = epoch, epoch << EPOCH_SHIFT

    def publish(
        self,
        changes: list[Change],
        loads: list[PodLoad],
        *,
        writes: Iterable[str] = (),
        settled: tuple[str, ...] = (),
    ) -> list[Effect]:
        if self.gathering is not None:
            self.gathering.add(changes, loads, writes, settled)
            return []
        if not changes:
            return [Persist(settled=settled)] if settled else []
        delta = self.delta(changes, loads, writes)
        return [Persist(delta, settled=settled), Publish(delta)]

    def publish_gathered(self) -> list[Effect]:
        """As one delta; nothing is gathered from then on."""
        gathered, self.gathering = self.gathering, None
        if gathered is None:
            return []
        return self.publish(gathered.changes, gathered.loads, writes=gathered.writes, settled=tuple(gathered.settled))

    def delta(self, changes: list[Change], loads: list[PodLoad], writes: Iterable[str]) -> Delta:
        """`writes`: the nodes that an evaluation from before may no longer be trusted on."""
        self.seq += 1
        for node in writes:
            self.nodes.write(node, self.seq)
        return Delta(self.epoch, self.seq, changes, loads)

    # Pods

    def restore(self, entry: LedgerEntry) -> None:
        """A pod that an earlier leader has assumed."""
        self.nominations.forget(entry.uid)
        self.pods.put(
            entry.uid,
            entry.node,
            entry.load,
            entry.key,
            assumed=True,
        )
        self.ledger.restore(entry)
        if entry.assignment.volumes is not None:
            self.objects.restore(entry.uid, entry.node, entry.assignment.volumes)

    def remove(self, uid: str) -> list[Effect]:
        """It leaves its place."""
        settled = (uid,) if self.ledger.take(uid) is not None else ()
        if uid not in self.pods:
            return []
        self.pods.take(uid)
        self.doomed.forget(uid)
        changes: list[Change] = [PodGone(uid), *self.objects.release(uid, self.seq + 1)]
        return self.publish(changes, [], settled=settled)

    def reprieve(self, loads: list[tuple[str, PodLoad]]) -> list[Effect]:
        """These pods stay, and count for this where they are. Whoever waited for them to go is to look for others."""
        if not loads:
            return []
        told = Loads()
        changes: list[Change] = []
        for uid, load in loads:
            place = self.pods[uid]
            self.pods.put(uid, place.node, load, place.key, place.started, assumed=place.assumed)
            if place.node in self.nodes:
                changes.append(self.pods[uid].told(uid, told))
        free = Forgot(loads[0][0], f"{POD_GONE} from those who were to make way")
        return [*self.publish(changes, told.items), free]

    def revoke(self, uids: Iterable[str]) -> list[Change]:
        return [NominationGone(uid) for uid in uids if self.nominations.revoke(uid)]

    # To look at

    def state(self, shards: Container[int] = (0,), shard_count: int = 1) -> State:
        """All there is of these shards, for a worker that starts or has missed something."""
        loads = Loads()
        nodes = [
            NodeState(node, {uid: self.pods[uid].state(loads) for uid in self.pods.on_node(node.name)})
            for node in self.nodes
            if shard_of(node.name, shard_count) in shards
        ]
        nominations = [each.told(uid, loads) for uid, each in self.nominations]
        objects, shared = list(self.objects.all()), self.nodes.shared_hostnames
        return State(self.epoch, self.seq, nodes, loads.items, objects, nominations, shared)

    def counts(self) -> dict[str, int]:
        return {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "assumed_pods": len(self.ledger),
            "nominated_pods": len(self.nominations),
            "objects": len(self.objects),
        }

    def validate(self) -> None:
        """The ledger holds the assumed pods and no other, each has a deadline, and every index agrees."""
        self.pods.validate()
        self.nodes.validate()
        self.nominations.validate()
        self.ledger.validate()
        self.doomed.validate()
        ledger = self.ledger.entries()
        self.objects.validate(ledger)
        assumed = {uid for uid, place in self.pods.items() if place.assumed}
        if assumed != set(ledger):
            raise InvariantBroken(f"assumed and not in the ledger or the reverse: {assumed ^ set(ledger)}")
        if any(uid in self.pods for uid, _ in self.nominations):
            raise InvariantBroken("a pod with a place is nominated")
        for uid, entry in ledger.items():
            if self.pods[uid].node != entry.node:
                raise InvariantBroken(f"pod {uid} is assumed elsewhere than the ledger says")
