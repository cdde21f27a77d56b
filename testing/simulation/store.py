"""Redis, as the snapshot's terms, the workers' loading and the queue's memory see it: away or empty at times."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any

import msgspec

from services.queue.events import Lapse, Remember
from services.queue.kept import Kept
from services.queue.remembering import PAUSE as MEMORY_PAUSE
from services.queue.remembering import PAUSE_AFTER_FAILURE, RECALL_PATIENCE
from services.snapshot.core import SnapshotCore
from services.snapshot.events import Persist
from shared.cluster.load import PodLoad
from shared.cluster.shards import shard_of
from shared.messages.state import (
    Change,
    Committed,
    LedgerEntry,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodPlaced,
    PodState,
    SharedHostnames,
    State,
)
from shared.model.objects import ClusterObject, Node, ObjectKind, key_of, kind_of
from shared.store.errors import Deposed
from shared.store.term import Recovered
from testing.simulation.apiserver import ApiServer

LATENCY = 0.002
OF_THE_PROCESS = ("down", "process", "_before")
MOST_REMEMBERED = 4096
"""Writes that may be undone."""
PAUSE = 0.2


class Store:
    def __init__(self) -> None:
        self.down = False
        self.process = 0
        """Which of its processes this is: one that was started from a file may lack the last writes."""
        self._before: deque[tuple[float, dict[str, Any]]] = deque(maxlen=MOST_REMEMBERED)
        self.flush()

    def note(self) -> None:
        """Before a write: what there is."""
        kept = {name: copy(value) for name, value in vars(self).items() if name not in OF_THE_PROCESS}
        self._before.append((asyncio.get_running_loop().time(), kept))

    def roll_back(self, seconds: float) -> None:
        """It is started again, or a replica takes its place, without the writes of the last seconds."""
        since = asyncio.get_running_loop().time() - seconds
        self.process += 1
        state = next((kept for at, kept in self._before if at >= since), None)
        if state is not None:
            vars(self).update({name: copy(value) for name, value in state.items()})
        self._before.clear()

    def flush(self) -> None:
        self.epoch = 0
        self.lost = False
        self.history = -1
        self.seq: int | None = None
        self.run = 0
        self.write = 0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[str, PodLoad, PodState]] = {}
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.nominations: dict[str, tuple[PodNominated, PodLoad]] = {}
        self.shared_hostnames: list[str] = []
        self.ledger: dict[str, LedgerEntry] = {}
        self.answer: Committed | None = None
        self.kept: dict[str, Kept] = {}

    async def reached(self) -> None:
        """Returns when it answers."""
        await asyncio.sleep(LATENCY)
        while self.down:
            await asyncio.sleep(PAUSE)

    def apply(self, persist: Persist) -> None:
        if persist.delta is not None:
            for change in persist.delta.changes:
                self._apply_change(change, persist.delta.loads)
            self.seq = persist.delta.seq
        self.ledger |= {entry.uid: entry for entry in persist.ledger}
        for uid in persist.settled:
            self.ledger.pop(uid, None)
        if persist.answer is not None:
            self.answer = persist.answer

    def _apply_change(self, change: Change, loads: Sequence[PodLoad]) -> None:
        match change:
            case PodPlaced(uid=uid, node=node, load=load, key=key, started=started):
                self.pods[uid] = (node, loads[load], PodState(0, key, started))
            case PodGone(uid=uid):
                self.pods.pop(uid, None)
            case NodeUpserted(node=node_object):
                self.nodes[node_object.name] = node_object
            case NodeRemoved(name=name):
                self.nodes.pop(name, None)
            case ObjectUpserted(object=obj):
                self.objects[kind_of(obj), key_of(obj)] = obj
            case ObjectRemoved(kind=kind, key=key):
                self.objects.pop((kind, key), None)
            case PodNominated(uid=uid, load=load):
                self.nominations[uid] = (change, loads[load])
            case NominationGone(uid=uid):
                self.nominations.pop(uid, None)
            case SharedHostnames(values=values):
                self.shared_hostnames = values


class SimTerms:
    """As `services.snapshot.terms.Terms`. `alive`: a process that is killed writes no more."""

    def __init__(self, server: ApiServer, store: Store) -> None:
        self.alive = True
        self.healthy = True
        self.epoch = 0
        self._server = server
        self._store = store
        self._run = 0
        self._write = 0

    async def take(self) -> Recovered:
        store = self._store
        while True:
            self.epoch = self._server.term("snapshot")
            await store.reached()
            if store.epoch < self.epoch and self.alive:
                break
        store.note()
        before, store.epoch, store.seq = store.epoch, self.epoch, None
        store.lost = store.lost or not before or store.history != store.process
        store.history = store.process
        if store.lost:
            return Recovered(before, [], None, lost=True)
        ledger = sorted(store.ledger.values(), key=lambda e: (e.deadline, e.uid))
        return Recovered(before, ledger, store.answer, store.lost)

    async def begin(self, core: SnapshotCore, shard_count: int) -> bool:
        state, ledger, answer = core.state(range(shard_count), shard_count), core.ledger, core.answer
        await self._store.reached()
        if not self._may_write():
            return False
        store = self._store
        store.note()
        self._run = store.run = store.run + 1
        self._write = store.write = 0
        store.nodes = {each.node.name: each.node for each in state.nodes}
        store.pods = {
            uid: (each.node.name, state.loads[pod.load], pod) for each in state.nodes for uid, pod in each.pods.items()
        }
        store.objects = {(kind_of(obj), key_of(obj)): obj for obj in state.objects}
        store.nominations = {each.uid: (each, state.loads[each.load]) for each in state.nominations}
        store.shared_hostnames = state.shared_hostnames
        store.ledger, store.answer, store.seq, store.lost = dict(ledger), answer, state.seq, False
        return True

    async def write(self, persists: Sequence[Persist]) -> bool:
        await self._store.reached()
        if not self._may_write() or (self._store.run, self._store.write) != (self._run, self._write):
            return False
        self._store.note()
        self._write = self._store.write = self._write + 1
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
        for uid, (name, load, pod) in store.pods.items():
            if name in nodes:
                nodes[name].pods[uid] = PodState(len(loads), pod.key, pod.started)
                loads.append(load)
        nominations = []
        for nominated, load in store.nominations.values():
            nominations.append(msgspec.structs.replace(nominated, load=len(loads)))
            loads.append(load)
        objects, shared = list(store.objects.values()), store.shared_hostnames
        state = State(store.epoch, store.seq, list(nodes.values()), loads, objects, nominations, shared)
        await asyncio.sleep(LATENCY)
        return state


class SimRemembering:
    """As `services.queue.remembering.Remembering`. `alive`: a process that is killed writes no more."""

    def __init__(self, store: Store, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self.alive = True
        self._store = store
        self._clock, self._wall = clock, wall
        self._waiting: dict[str, Kept | None] = {}

    async def recall(self) -> dict[str, Kept]:
        try:
            async with asyncio.timeout(RECALL_PATIENCE):
                await self._store.reached()
        except TimeoutError:
            return {}
        ahead, now = self._wall_is_ahead(), self._clock()
        return {uid: kept.resumed(-ahead, now) for uid, kept in self._store.kept.items()}

    def take(self, effect: Remember | Lapse) -> None:
        self._waiting[effect.uid] = effect.kept if isinstance(effect, Remember) else None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_AFTER_FAILURE if self._store.down else MEMORY_PAUSE)
            if self._waiting and not self._store.down:
                await asyncio.sleep(LATENCY)
                self._write()

    async def finish(self) -> None:
        self._write()

    def _wall_is_ahead(self) -> int:
        return round(self._wall() - self._clock())

    def _write(self) -> None:
        for uid, kept in self._waiting.items() if self.alive and not self._store.down else ():
            if kept is None:
                self._store.kept.pop(uid, None)
            else:
                self._store.kept[uid] = kept.moved(self._wall_is_ahead())
        if not self._store.down:
            self._waiting = {}
