"""A cluster and its scheduler on virtual time, with mishaps by seed, and what must hold whatever happens."""

import asyncio
from collections.abc import Callable

import msgspec

from shared.cluster.load import load_of
from shared.model.objects import (
    MapSelectorSpec,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeSpec,
    Pod,
    PodGroup,
    Service,
    key_of,
    kind_of,
)
from testing.builders import PodBuilder, node, pod
from testing.simulation.calm import moved_by_time
from testing.simulation.processes import RESTART, Process, Surroundings
from testing.simulation.wishes import APP, HOST, ZONE, with_a_wish

SERVICES = {
    "watcher": "watcher",
    "queue": "queue",
    "cycle": "cycle",
    "snapshot": "snapshot",
    "w1": "worker",
    "w2": "worker",
    "b1": "binder",
    "b2": "binder",
}
NODES = [f"n{i}" for i in range(6)]
ELSEWHERE = "elsewhere"
"""A large node that takes no new pods of ours: who binds pods beside us puts them there."""
SETTLED_WITHIN = 150.0
"""Seconds of quiet after which every pod that fits anywhere is bound: patience, the longest rest, and some."""
SOON = 60.0
"""The same, where nothing goes wrong: victims of victims are gone, and the longest rest is over."""


class World:
    def __init__(
        self, seed: int, *, mishaps: frozenset[str], bad_luck: float, round_size: int, wishes: float = 0.0
    ) -> None:
        """`wishes`: the share of pods that have some about other pods, or go before others."""
        self.around = around = Surroundings(seed, round_size)
        self.server, self.store, self.network, self.dice = around.server, around.store, around.network, around.dice
        self.processes: dict[str, Process] = {}
        self.log: list[str] = []
        self.is_calm = not (mishaps or bad_luck)
        self._mishaps = sorted(mishaps)
        self._bad_luck = bad_luck
        self._wishes = wishes
        self._number = 0
        self._extra: list[Process] = []
        self.settled_after = 0.0

    # The run

    async def run(self, seconds: float = 40.0) -> None:
        """Trouble for so long, then quiet until everything has settled; then all that must hold is looked at."""
        self.furnish()
        for name in SERVICES:
            self.start(name)
        keeper = asyncio.create_task(self._keep())
        try:
            await asyncio.sleep(2.0)
            self.network.bad_luck = self.server.bad_luck = self._bad_luck
            ends = self.now + seconds
            while self.now < ends:
                await asyncio.sleep(self.dice.uniform(0.0, 0.5))
                self._something_happens()
                if self._mishaps and self.dice.random() < 0.08:
                    self._mishap(self.dice.choice(self._mishaps))
                assert not self._broken(), "\n".join(self._broken())
            self._heal()
            await self._settle()
        finally:
            keeper.cancel()
            await self.end()

    def furnish(self) -> None:
        """What there is before anything happens."""
        for name in NODES:
            self.server.put_node(self._node(name))
        self.server.put_node(node(ELSEWHERE).capacity(cpu=1000, memory="1000Gi").unschedulable().build())

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what)

    async def end(self) -> None:
        for process in (*self.processes.values(), *self._extra):
            process.kill()
        for process in (*self.processes.values(), *self._extra):
            await process.ended()

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def pending(self) -> list[str]:
        return [each.name for each in self.server.pods.values() if not each.spec.node_name]

    def _note(self, text: str) -> None:
        self.log.append(f"{self.now:8.3f} {text}")

    def start(self, name: str) -> None:
        self.processes[name] = Process(SERVICES[name], name, self.around)

    async def _keep(self) -> None:
        """Whoever has ended is started again."""
        while True:
            await asyncio.sleep(RESTART)
            for name, process in self.processes.items():
                if not process.running:
                    self._note(f"{name} starts again")
                    self.start(name)

    # The cluster

    def happenings(self) -> dict[Callable[[], None], float]:
        """What can happen, and how often it does compared with the others."""
        return {
            self.create: 10,
            self._delete: 2,
            self._recreate: 1,
            self._update: 1,
            self._bind_elsewhere: 0.5,
            self._finish: 1,
            self._renew: 0.7,
            self._change_object: 2,
            self._nominate: 1,
        }

    def _something_happens(self) -> None:
        happenings = self.happenings()
        self.dice.choices(list(happenings), list(happenings.values()))[0]()

    def create(self, name: str = "") -> None:
        for _ in range(1 if name else self.dice.choice((1, 1, 1, 4))):
            self._number += 1
            kind = self.dice.randrange(3)
            built = pod(name or f"p{self._number}").uid(f"u{self._number}")
            built = built.request(cpu=("500m", "1", "1500m")[kind], memory="100Mi")
            self.server.put_pod(self._with_wishes(built).build())

    def _with_wishes(self, built: PodBuilder) -> PodBuilder:
        return with_a_wish(built, self.dice) if self._wishes and self.dice.random() < self._wishes else built

    def _any_pod(self, *, bound: bool | None = None) -> Pod | None:
        pods = [p for p in self.server.pods.values() if bound is None or bool(p.spec.node_name) == bound]
        return self.dice.choice(pods) if pods else None

    def _delete(self) -> None:
        if (found := self._any_pod()) is not None:
            self.server.delete_pod(found.uid)

    def _recreate(self) -> None:
        if (found := self._any_pod()) is not None:
            self.server.delete_pod(found.uid)
            self.create(found.name)

    def _update(self) -> None:
        if (found := self._any_pod()) is not None:
            labels = {**found.metadata.labels, "v": str(self.dice.randrange(3))}
            metadata = msgspec.structs.replace(found.metadata, labels=labels)
            self.server.put_pod(msgspec.structs.replace(found, metadata=metadata))

    def _bind_elsewhere(self) -> None:
        if (found := self._any_pod(bound=False)) is not None:
            self.server.bind(found.name, found.uid, ELSEWHERE)

    def _finish(self) -> None:
        """A pod that has run is over, and stays to be looked at."""
        if (found := self._any_pod(bound=True)) is not None and found.status.phase != "Succeeded":
            status = msgspec.structs.replace(found.status, phase="Succeeded")
            self.server.put_pod(msgspec.structs.replace(found, status=status))

    def _change_object(self) -> None:
        name, value = self.dice.choice("abcd"), str(self.dice.randrange(3))
        obj = self.dice.choice((_service, _volume))(name, value)
        if self.dice.random() < 0.3:
            self.server.delete_object(kind_of(obj), key_of(obj))
        else:
            self.server.put_object(obj)

    def _nominate(self) -> None:
        """Room is promised to a pod, or it is not any more."""
        if (found := self._any_pod(bound=False)) is not None:
            where = self.dice.choice(("", self.dice.choice(NODES)))
            status = msgspec.structs.replace(found.status, nominated_node_name=where)
            self.server.put_pod(msgspec.structs.replace(found, status=status))

    def _renew(self) -> None:
        """A node goes, its pods after it, and one of the same name comes."""
        name = self.dice.choice(NODES)
        self._note(f"node {name} is another one")
        self.server.delete_node(name)
        loop = asyncio.get_running_loop()
        for each in [each for each in self.server.pods.values() if each.spec.node_name == name]:
            loop.call_later(self.dice.uniform(0.0, 2.0), self.server.delete_pod, each.uid)
        loop.call_later(self.dice.choice((0.001, 0.05, 1.0)), self.server.put_node, self._node(name))

    def _node(self, name: str) -> Node:
        zone = f"z{NODES.index(name) % 3}"
        return node(name).label({ZONE: zone, HOST: name}).capacity(cpu=4, memory="8Gi").build()

    # Mishaps

    def _mishap(self, kind: str) -> None:
        self._note(f"mishap: {kind}")
        loop = asyncio.get_running_loop()
        length = self.dice.choice((0.3, 2.0, 6.0))
        match kind:
            case "kill":
                self.processes[self.dice.choice(list(SERVICES))].kill()
            case "kill snapshot":
                self.processes["snapshot"].kill()
            case "twins":
                self._twins(self.dice.choice(("queue", "cycle", "snapshot", "watcher")), length)
            case "bus":
                self.network.down = True
                loop.call_later(length, setattr, self.network, "down", False)
            case "store":
                self.store.down = True
                loop.call_later(length, setattr, self.store, "down", False)
            case "flush":
                self.store.flush()
            case "rolled back":
                self.processes["snapshot"].kill()
                self.store.roll_back(self.dice.choice((0.3, 1.0, 2.0)))
            case "stall":
                self.server.stalled_until = self.now + self.dice.choice((3.0, 12.0))
            case "long stall":
                self.server.stalled_until = self.now + 36.0
            case _:
                raise ValueError(kind)

    def _twins(self, name: str, length: float) -> None:
        """A new one begins while the old one still lives."""
        old = self.processes[name]
        self._extra.append(old)
        self.start(name)
        asyncio.get_running_loop().call_later(length, old.kill)

    def _heal(self) -> None:
        self._note("quiet from here on")
        self.network.bad_luck = self.server.bad_luck = 0.0
        self.network.down = self.store.down = False
        self.server.stalled_until = 0.0

    # What must hold

    async def _settle(self) -> None:
        began = self.now
        within = SOON if self.is_calm else SETTLED_WITHIN
        while (wrong := self.wrong()) and not self._broken() and self.now < began + within:
            await asyncio.sleep(0.5)
        self.settled_after = self.now - began
        assert not wrong, "\n".join(wrong)

    def wrong(self) -> list[str]:
        """What is not as it has to be in the end."""
        return [text for check in self.checks() for text in check()]

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return self._broken, self._left_over, self._not_alike, self._kept

    def _broken(self) -> list[str]:
        """What is wrong, whatever comes after it."""
        queue = self.processes["queue"].core
        late = moved_by_time(queue, self.processes["queue"].clock()) if self.is_calm and queue is not None else []
        return self.server.broken + self.around.failures + late

    def story(self, uid: str) -> str:
        queue = self.processes["queue"].core
        return str(queue.story(uid)) if queue is not None else ""

    def _left_over(self) -> list[str]:
        """Pods that fit somewhere and are not bound."""
        free = [each for each in self.server.nodes.values() if not each.spec.unschedulable]
        left = [
            f"{each.name} ({each.uid}) fits and is not bound: {self.story(each.uid)}"
            for each in self.server.pods.values()
            if not each.spec.node_name and self._is_due(each) and any(self._is_free(where, each) for where in free)
        ]
        return [*left[:3], f"and {len(left) - 3} more"] if len(left) > 3 else left

    def _is_due(self, pod: Pod) -> bool:
        """Whether room is all that it can wait for."""
        return APP not in pod.metadata.labels

    def _is_free(self, where: Node, pod: Pod) -> bool:
        """With what is kept for others that are nominated to it."""
        kept = [
            each
            for each in self.server.pods.values()
            if not each.spec.node_name
            and each.status.nominated_node_name == where.name
            and each.uid != pod.uid
            and each.priority >= pod.priority
        ]
        return self.server.has_room(where, *kept, pod)

    def _not_alike(self) -> list[str]:
        """The snapshot knows what the API server knows, and the workers what the snapshot knows."""
        snapshot = self.processes["snapshot"].core
        if snapshot is None:
            return ["no snapshot"]
        truth = {
            each.uid: each.spec.node_name
            for each in self.server.pods.values()
            if each.spec.node_name and each.status.phase != "Succeeded"
        }
        found = {uid: place.node for uid, place in snapshot._pods.items()}
        wrong = [f"places differ: {sorted(truth.items() ^ found.items())}"] if truth != found else []
        loads = {uid: load_of(self.server.pods[uid]) for uid in truth}
        seen = {uid: (where, load) for w in ("w1", "w2") for uid, where, load in self._placed(w)}
        expected = {uid: (where, loads[uid]) for uid, where in truth.items() if where in self.server.nodes}
        if seen != expected:
            wrong.append(f"the workers see other pods: {sorted(seen.keys() ^ expected.keys())}")
        return wrong + self._objects_not_alike()

    def _objects_not_alike(self) -> list[str]:
        wrong = []
        nominated = {
            each.uid: each.status.nominated_node_name
            for each in self.server.pods.values()
            if each.status.nominated_node_name and not each.spec.node_name
        }
        found: dict[str, str] = {}
        for worker in ("w1", "w2"):
            if (core := self.processes[worker].core) is not None:
                objects = {(kind_of(obj), key_of(obj)): obj for obj in core.table.objects.all()}
                truth = {key: obj for key, obj in self.server.objects.items() if not isinstance(obj, PodGroup)}
                if objects != truth:
                    wrong.append(f"{worker} knows other objects: {sorted(objects.keys() ^ truth.keys())}")
                nominations = core.table.nominations
                found |= {uid: node for node in nominations for uid in nominations.of(node)}
        if found != nominated:
            wrong.append(f"nominations differ: {sorted(found.items() ^ nominated.items())}")
        return wrong

    def _placed(self, worker: str) -> list[tuple[str, str, object]]:
        core = self.processes[worker].core
        return [] if core is None else list(core.table.placed())

    def _kept(self) -> list[str]:
        """What is remembered of things that are over."""
        snapshot, binders = self.processes["snapshot"], [self.processes[name] for name in ("b1", "b2")]
        wrong = []
        if snapshot.core is not None and snapshot.core.ledger:
            wrong.append(f"the ledger still has {sorted(snapshot.core.ledger)}")
        if snapshot.shell is not None:
            dispatcher = snapshot.shell._dispatcher
            if dispatcher.held or dispatcher.waiting:
                wrong.append(f"{dispatcher.held} orders are held, {dispatcher.waiting} wait")
        cycle = self.processes["cycle"].core
        if cycle is not None and cycle.pods_held:
            wrong.append(f"cycle holds {cycle.pods_held} pods")
        wrong += [f"{b.name} holds {b.core.held} orders" for b in binders if b.core is not None and b.core.held]
        return wrong


def _service(name: str, value: str) -> Service:
    metadata = ObjectMeta(name=name, namespace="default")
    return Service(metadata=metadata, spec=MapSelectorSpec(selector={"v": value}))


def _volume(name: str, value: str) -> PersistentVolume:
    return PersistentVolume(metadata=ObjectMeta(name=name), spec=PersistentVolumeSpec(storage_class_name=value))
