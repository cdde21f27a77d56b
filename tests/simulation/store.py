"""Redis, as the snapshot's terms and the workers' loading see it: fenced, atomic, and at times away or empty."""

import asyncio
from collections.abc import Collection, Sequence

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Persist
from shared.cluster.load import PodLoad
from shared.cluster.shards import shard_of
from shared.messages.state import (
    Committed,
    LedgerEntry,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    PodGone,
    PodPlaced,
    State,
)
from shared.model.objects import Node
from shared.store.errors import Deposed
from shared.store.term import Recovered
from tests.simulation.apiserver import ApiServer

LATENCY = 0.002
PAUSE = 0.2


class Store:
    def __init__(self) -> None:
        self.down = False
        self.flush()

    def flush(self) -> None:
        self.epoch = 0
        self.lost = False
        self.seq: int | None = None
        self.run = 0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[str, PodLoad]] = {}
        self.ledger: dict[str, LedgerEntry] = {}
        self.answer: Committed | None = None

    async def reached(self) -> None:
        """Returns when it answers."""
        await asyncio.sleep(LATENCY)
        while self.down:
            await asyncio.sleep(PAUSE)

    def apply(self, persist: Persist) -> None:
        if persist.delta is not None:
            for change in persist.delta.changes:
                match change:
                    case PodPlaced(uid=uid, node=node, load=load):
                        self.pods[uid] = (node, persist.delta.loads[load])
                    case PodGone(uid=uid):
                        self.pods.pop(uid, None)
                    case NodeUpserted(node=node_object):
                        self.nodes[node_object.name] = node_object
                    case NodeRemoved(name=name):
                        self.nodes.pop(name, None)
            self.seq = persist.delta.seq
        self.ledger |= {entry.uid: entry for entry in persist.ledger}
        for uid in persist.settled:
            self.ledger.pop(uid, None)
        if persist.answer is not None:
            self.answer = persist.answer


class SimTerms:
    """As `services.snapshot.terms.Terms`. `alive`: a process that is killed writes no more."""

    def __init__(self, server: ApiServer, store: Store) -> None:
        self.alive = True
        self.healthy = True
        self.epoch = 0
        self._server = server
        self._store = store
        self._run = 0

    async def take(self) -> Recovered:
        store = self._store
        while True:
            self.epoch = self._server.term("snapshot")
            await store.reached()
            if store.epoch < self.epoch and self.alive:
                break
        before, store.epoch, store.seq = store.epoch, self.epoch, None
        store.lost = store.lost or not before
        ledger = sorted(store.ledger.values(), key=lambda e: (e.deadline, e.uid))
        return Recovered(before, ledger, store.answer, store.lost)

    async def begin(self, core: SnapshotCore, shard_count: int) -> bool:
        state, ledger, answer = core.state(range(shard_count), shard_count), core.ledger, core.answer
        await self._store.reached()
        if not self._may_write():
            return False
        store = self._store
        self._run = store.run = store.run + 1
        store.nodes = {each.node.name: each.node for each in state.nodes}
        store.pods = {uid: (n.node.name, state.loads[load]) for n in state.nodes for uid, load in n.pods.items()}
        store.ledger, store.answer, store.seq, store.lost = dict(ledger), answer, state.seq, False
        return True

    async def write(self, persists: Sequence[Persist]) -> bool:
        await self._store.reached()
        if not self._may_write() or self._store.run != self._run:
            return False
        for persist in persists:
            self._store.apply(persist)
        return True

    def _may_write(self) -> bool:
        if not self.alive:
            return False
        if self._store.epoch > self.epoch:
            raise Deposed(self.epoch, self._store.epoch)
        return self._store.epoch == self.epoch


class SimReader:
    """As `shared.store.reader.Reader`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, shards: Collection[int], shard_count: int) -> State | None:
        store = self._store
        await store.reached()
        if store.seq is None:
            return None
        loads: list[PodLoad] = []
        nodes = {n: NodeState(node, {}) for n, node in store.nodes.items() if shard_of(n, shard_count) in shards}
        for uid, (name, load) in store.pods.items():
            if name in nodes:
                nodes[name].pods[uid] = len(loads)
                loads.append(load)
        state = State(store.epoch, store.seq, list(nodes.values()), loads)
        await asyncio.sleep(LATENCY)
        return state
