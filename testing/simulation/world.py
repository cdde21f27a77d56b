"""A cluster and its scheduler on virtual time: what a schedule says happens to them, and what must hold."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from shared.model.load import load_of
from shared.model.objects import (
    ClusterObject,
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
from testing.builders import NodeBuilder, PodBuilder, node, pod
from testing.simulation.auditor import Auditor
from testing.simulation.calm import moved_by_time
from testing.simulation.drawing import CALM, NODES, PROCESSES
from testing.simulation.loop import NOBODY, end_all_tasks
from testing.simulation.mishaps import Mishaps
from testing.simulation.oversized import Oversized
from testing.simulation.processes import RESTART, Process, Surroundings
from testing.simulation.schedule import Entry, Schedule
from testing.simulation.wishes import APP, HOST, ZONE, with_a_wish

ELSEWHERE = "elsewhere"
"""A large node that takes no new pods of ours: who binds pods beside us puts them there."""
SETTLED_WITHIN = 150.0
"""Seconds of quiet after which every pod that fits anywhere is bound: patience, the longest rest, and some."""
PATIENCE = 330.0
"""Seconds more where a pod may have been said not to fit for a reason that nobody's change wakes it for."""
SOON = 60.0
"""The same, where nothing goes wrong: victims of victims are gone, and the longest rest is over."""
WISHES = 0.6
"""The share of pods that have some about other pods, or go before others, where any have."""

T = TypeVar("T")


class World:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.around = around = Surroundings(schedule.seed, schedule.round_size)
        self.server, self.redis, self.network = around.server, around.redis, around.network
        self.processes: dict[str, Process] = {}
        self.log: list[str] = []
        self.on_note: list[Callable[[str], None]] = []
        """Told of mishaps, and of processes that start again."""
        self.on_end: list[Callable[[], None]] = []
        self.is_calm = schedule.scene.endswith(CALM)
        self.dice = random.Random(schedule.seed)
        """Of the entry that happens just now."""
        self.mishaps = Mishaps(around, self.processes, self.start)
        self.auditor = Auditor(self.server, around.transport.bindings, lambda: self.leading("snapshot"))
        self.network.overhears.append(self.auditor.overhear)
        around.transport.deletes.append(lambda uid, name: self.auditor.on_delete(uid, self.processes[name]))
        self.settled_after = 0.0
        self._oversized = Oversized(self.server, self.later)
        self._wishes = WISHES if schedule.scene.startswith("wishes") else 0.0
        self._number = 0
        self._entry = 0

    # The run

    async def run(self) -> None:
        """All entries, then quiet until everything has settled. AssertionError as soon as anything does not hold."""
        self.furnish()
        for name in PROCESSES:
            self.start(name)
        keeper = asyncio.create_task(self.keep())
        try:
            for entry in self.schedule.entries:
                await self._wait_until(entry.at)
                self.happen(entry)
            await self._wait_until(max(self.schedule.seconds, self.mishaps.last_ends))
            self._note("quiet from here on")
            self.mishaps.heal()
            await self._settle()
        finally:
            keeper.cancel()
            await self.end()

    async def _wait_until(self, at: float) -> None:
        while self.now < at:
            await asyncio.sleep(min(at - self.now, 0.5))
            self._judge()
        self._judge()

    def _judge(self) -> None:
        broken = self._broken()
        assert not broken, "\n".join(broken)

    def happen(self, entry: Entry) -> None:
        """What it draws, it draws from its number; what it makes is named after that."""
        self.dice = random.Random(f"{self.schedule.seed} entry {entry.number}")
        self._number, self._entry = 0, entry.number
        if self.mishaps.happen(entry):
            self._note(entry.told)
            return
        happening: Callable[[], None] = getattr(self, f"_{entry.what}")
        happening()
        self._log(entry.told)

    def furnish(self) -> None:
        """What there is before anything happens."""
        for name in NODES:
            self.server.put_node(self._node(name))
        self.server.put_node(node(ELSEWHERE).capacity(cpu=1000, memory="1000Gi").unschedulable().build())

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what, context=NOBODY)

    async def end(self) -> None:
        for hear in self.on_end:
            hear()
        for process in self.processes.values():
            process.kill()
        left = await end_all_tasks()
        assert not left, f"these were killed and have not ended: {left}"

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def leading(self, service: str) -> Process:
        """The one that leads, or is about to: of several, that of the latest term."""
        of_it = [each for each in self.processes.values() if each.service == service]
        return max(of_it, key=lambda each: (each.core is not None, getattr(each.core, "epoch", 0)))

    def next_name(self, prefix: str = "p") -> tuple[str, str]:
        """A name and a uid that only this entry gives."""
        self._number += 1
        part = f"{self._entry}" if self._number == 1 else f"{self._entry}-{self._number}"
        part = part if self._entry else f"{self._number}"
        return f"{prefix}{part}", f"u{part}"

    def pending(self) -> list[str]:
        return [each.name for each in self.server.pods.values() if not each.spec.node_name]

    def _note(self, text: str) -> None:
        self._log(text)
        for hear in self.on_note:
            hear(text)

    def _log(self, text: str) -> None:
        self.log.append(f"{self.now:8.3f} {text}")

    def start(self, name: str) -> None:
        self.processes[name] = Process(name, self.around)

    async def keep(self) -> None:
        """What has ended is started again."""
        while True:
            await asyncio.sleep(RESTART)
            for name, process in self.processes.items():
                if not process.running and self.now >= self.mishaps.restarts_from:
                    self._note(f"{name} starts again {process.ended_with}".rstrip())
                    self.start(name)

    # The cluster

    def _create(self) -> None:
        for _ in range(self.dice.choice((1, 1, 1, 4))):
            self.create()

    def create(self, name: str = "") -> None:
        new, uid = self.next_name()
        kind = self.dice.randrange(3)
        built = pod(name or new).uid(uid)
        built = built.request(cpu=("500m", "1", "1500m")[kind], memory="100Mi")
        self.server.put_pod(self._with_wishes(built).build())

    def _with_wishes(self, built: PodBuilder) -> PodBuilder:
        return with_a_wish(built, self.dice) if self._wishes and self.dice.random() < self._wishes else built

    def _any_of(self, things: Iterable[T], name: Callable[[T], str]) -> T | None:
        return self.around.dice.pick(self._entry, things, name)

    def _any_pod(self, *, bound: bool | None = None) -> Pod | None:
        pods = [p for p in self.server.pods.values() if bound is None or bool(p.spec.node_name) == bound]
        return self._any_of(pods, lambda each: each.uid)

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

    def _grow(self) -> None:
        """A pod, mostly one on a node, or a node is too large to be told whole for a while."""
        found = self._any_pod(bound=self.dice.random() < 0.7)
        if self.dice.random() < 0.3:
            self._oversized.enlarge_node(self.dice.choice(NODES), self.dice)
        elif found is not None:
            self._oversized.enlarge_pod(found.uid, self.dice)

    def _bind_elsewhere(self) -> None:
        if (found := self._any_pod(bound=False)) is not None:
            self.server.put_pod(
                msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, node_name=ELSEWHERE))
            )

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
        for each in [each for each in self.server.pods.values() if each.spec.node_name == name]:
            self.later(self.dice.uniform(0.0, 2.0), lambda uid=each.uid: self.server.delete_pod(uid))  # type: ignore[misc]
        self.later(self.dice.choice((0.001, 0.05, 1.0)), lambda: self.server.put_node(self._node(name)))

    def _change_node(self) -> None:
        """It grows, shrinks, or takes no new pods for a while."""
        if (found := self.server.nodes.get(self.dice.choice(NODES))) is None:
            return
        built = NodeBuilder(found.metadata, found.spec, found.status).capacity(
            cpu=self.dice.choice((2, 3, 4, 6)), memory="8Gi"
        )
        closed = self.dice.random() < 0.3
        self.server.put_node(built.unschedulable().build() if closed else built.build())
        self.later(self.dice.uniform(1.0, 5.0), lambda: self._restore(found.name))

    def _restore(self, name: str) -> None:
        if name in self.server.nodes:
            self.server.put_node(self._node(name))

    def _node(self, name: str) -> Node:
        zone = f"z{NODES.index(name) % 3}"
        return node(name).label({ZONE: zone, HOST: name}).capacity(cpu=4, memory="8Gi").build()

    # What must hold

    async def _settle(self) -> None:
        began = self.now
        within = SOON if self.is_calm else SETTLED_WITHIN + (PATIENCE if self.around.lied else 0.0)
        while self._is_unsettled() and not self._broken() and self.now < began + within:
            await asyncio.sleep(0.5)
        self.settled_after = self.now - began
        wrong = self.wrong()
        assert not wrong, "\n".join(wrong)

    def _is_unsettled(self) -> bool:
        """Looks at what is cheap to see first: mostly something is on its way still."""
        return any(check() for check in reversed(self.checks()))

    def wrong(self) -> list[str]:
        """What is not as it has to be in the end."""
        return [text for check in self.checks() for text in check()]

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return self._broken, self._left_over, self._not_alike, self._kept

    def _broken(self) -> list[str]:
        """What is wrong, whatever comes after it."""
        process = self.leading("queue")
        queue = process.core
        late = moved_by_time(queue, process.clock()) if self.is_calm and queue is not None else []
        return self.server.broken + self.redis.broken + self.auditor.broken + self.around.failures + late

    def _left_over(self) -> list[str]:
        """Pods that fit somewhere and are not bound."""
        free = [each for each in self.server.nodes.values() if not each.spec.unschedulable]
        left = [
            f"{each.name} ({each.uid}) fits and is not bound"
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
        snapshot = self.leading("snapshot").core
        if snapshot is None:
            return ["no snapshot"]
        truth = {
            each.uid: each.spec.node_name
            for each in self.server.pods.values()
            if each.spec.node_name and each.status.phase != "Succeeded"
        }
        found = {uid: place.node for uid, place in snapshot.cluster.pods.items()}
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
                objects = {(kind_of(obj), key_of(obj)): _unversioned(obj) for obj in core.table.objects.all()}
                truth = {
                    key: _unversioned(obj) for key, obj in self.server.objects.items() if not isinstance(obj, PodGroup)
                }
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
        snapshot, binders = self.leading("snapshot"), [self.processes[name] for name in ("b1", "b2")]
        wrong = []
        if snapshot.core is not None and snapshot.core.ledger:
            wrong.append(f"the ledger still has {sorted(snapshot.core.ledger)}")
        if snapshot.shell is not None:
            dispatcher = snapshot.shell._binders.dispatcher
            if dispatcher.held or dispatcher.waiting:
                wrong.append(f"{dispatcher.held} orders are held, {dispatcher.waiting} wait")
        cycle = self.leading("cycle").core
        if cycle is not None and cycle.pods_held:
            wrong.append(f"cycle holds {cycle.pods_held} pods")
        wrong += [f"{b.name} holds {b.core.held} orders" for b in binders if b.core is not None and b.core.held]
        return wrong


def _unversioned(obj: ClusterObject) -> ClusterObject:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=""))


def _service(name: str, value: str) -> Service:
    metadata = ObjectMeta(name=name, namespace="default")
    return Service(metadata=metadata, spec=MapSelectorSpec(selector={"v": value}))


def _volume(name: str, value: str) -> PersistentVolume:
    return PersistentVolume(metadata=ObjectMeta(name=name), spec=PersistentVolumeSpec(storage_class_name=value))
