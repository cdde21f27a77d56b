"""What users, nodes and other schedulers do: one method for each action of a schedule, named after it."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from shared.model.objects import (
    MapSelectorSpec,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeSpec,
    Pod,
    Service,
    Toleration,
    key_of,
    kind_of,
)
from testing.builders import NodeBuilder, PodBuilder, node, pod, selector
from testing.simulation.apiserver import FINISHED
from testing.simulation.drawing import NODES
from testing.simulation.loop import WORLD
from testing.simulation.processes import Surroundings
from testing.simulation.schedule import Entry, Schedule

ZONE, HOST, APP = "zone", "kubernetes.io/hostname", "app"
ELSEWHERE = "elsewhere"
"""A large unschedulable node, to which another scheduler binds pods."""
CONSTRAINED = 0.6
"""The share of pods with constraints on other pods, a host port or a priority, in scenes that have such pods."""
CONSTRAINTS = ("spread", "spread softly", "near", "alone in zone", "alone on node", "first", "host port")
TOO_LARGE = "x" * 600_000
"""Longer than what services say of one object (512 KiB). As an annotation or toleration it is left out of messages; as
a label it closes the node."""
LARGE = "simulation/large"
LARGE_SECONDS = (1.0, 5.0, 15.0)
MAX_LARGE = 2
"""Large objects at a time: each change of one costs milliseconds."""

T = TypeVar("T")


class Actions:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.around = Surroundings(schedule.seed, schedule.round_size)
        self.server, self.redis, self.network = self.around.server, self.around.redis, self.around.network
        self.log: list[str] = []
        self.on_note: list[Callable[[str], None]] = []
        """Called with mishaps and restarts of processes."""
        self.dice = random.Random(schedule.seed)
        """Of the current entry."""
        self._constrained = CONSTRAINED if schedule.scene.startswith("wishes") else 0.0
        self._large = 0
        self._number = 0
        self._entry = 0

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what, context=WORLD)

    def furnish(self) -> None:
        """Create the initial objects."""
        for name in NODES:
            self.server.put_node(self._node(name))
        self.server.put_node(node(ELSEWHERE).capacity(cpu=1000, memory="1000Gi").unschedulable().build())

    def act(self, entry: Entry) -> None:
        method: Callable[[], None] = getattr(self, f"_{entry.what}")
        method()
        self._log(entry.told)

    def _begin(self, entry: Entry) -> None:
        """Draws are seeded by the entry's number, and new objects are named after it."""
        self.dice = random.Random(f"{self.schedule.seed} entry {entry.number}")
        self._number, self._entry = 0, entry.number

    def next_name(self, prefix: str = "p") -> tuple[str, str]:
        """A name and a uid that only this entry gives."""
        self._number += 1
        part = f"{self._entry}" if self._number == 1 else f"{self._entry}-{self._number}"
        part = part if self._entry else f"{self._number}"
        return f"{prefix}{part}", f"u{part}"

    def _note(self, text: str) -> None:
        self._log(text)
        for on_note in self.on_note:
            on_note(text)

    def _log(self, text: str) -> None:
        self.log.append(f"{self.now:8.3f} {text}")

    def _any_of(self, things: Iterable[T], name: Callable[[T], str]) -> T | None:
        return self.around.dice.pick(self._entry, things, name)

    def _any_pod(self, *, bound: bool | None = None) -> Pod | None:
        pods = [p for p in self.server.pods.values() if bound is None or bool(p.spec.node_name) == bound]
        return self._any_of(pods, lambda each: each.uid)

    # Pods

    def _create(self) -> None:
        for _ in range(self.dice.choice((1, 1, 1, 4))):
            self.create()

    def create(self, name: str = "") -> None:
        new, uid = self.next_name()
        cpu = ("500m", "1", "1500m")[self.dice.randrange(3)]
        built = pod(name or new).uid(uid).request(cpu=cpu, memory="100Mi")
        if self._constrained and self.dice.random() < self._constrained:
            built = _constrained(built, self.dice)
        self.server.put_pod(built.build())

    def _crowd(self) -> None:
        """Create small pods that want the same host port."""
        for _ in range(4):
            name, uid = self.next_name()
            built = pod(name).uid(uid).label({APP: "ported"}).request(cpu="100m", memory="100Mi").host_port(80)
            self.server.put_pod(built.build())

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
            self.server.put_pod(replace(found, metadata=replace(found.metadata, labels=labels)))

    def _bind_elsewhere(self) -> None:
        if (found := self._any_pod(bound=False)) is not None:
            self.server.put_pod(replace(found, spec=replace(found.spec, node_name=ELSEWHERE)))

    def _finish(self) -> None:
        if (found := self._any_pod(bound=True)) is not None and found.status.phase != FINISHED:
            self.server.put_pod(replace(found, status=replace(found.status, phase=FINISHED)))

    def _nominate(self) -> None:
        """Set or clear the nomination of a pod."""
        if (found := self._any_pod(bound=False)) is not None:
            where = self.dice.choice(("", self.dice.choice(NODES)))
            self.server.put_pod(replace(found, status=replace(found.status, nominated_node_name=where)))

    def _grow(self) -> None:
        """Enlarge a pod, mostly a bound one, or a node, for a while."""
        found = self._any_pod(bound=self.dice.random() < 0.7)
        if self.dice.random() < 0.3:
            name = self.dice.choice(NODES)
            self._enlarge(lambda: self.server.nodes.get(name), self.server.put_node)
        elif found is not None:
            self._enlarge(lambda: self.server.pods.get(found.uid), self.server.put_pod)

    def _enlarge(self, find: Callable[[], Any], put: Callable[[Any], None]) -> None:
        field = "labels" if self.dice.random() < 0.3 else "annotations"
        if self._large == MAX_LARGE:
            return

        def resize(more: dict[str, str]) -> None:
            if (found := find()) is None:
                return
            if isinstance(found, Pod) and field == "annotations":  # which nobody reads of pods on nodes
                tolerations = [each for each in found.spec.tolerations if each.key != LARGE]
                tolerations += [Toleration(key=key, value=text) for key, text in more.items()]
                put(replace(found, spec=replace(found.spec, tolerations=tolerations)))
            else:
                texts = {key: text for key, text in getattr(found.metadata, field).items() if key != LARGE}
                put(replace(found, metadata=replace(found.metadata, **{field: texts | more})))

        def end() -> None:
            self._large -= 1
            resize({})

        self._large += 1
        resize({LARGE: TOO_LARGE})
        self.later(self.dice.choice(LARGE_SECONDS), end)

    # Nodes and other objects

    def _change_object(self) -> None:
        name, value = self.dice.choice("abcd"), str(self.dice.randrange(3))
        obj = self.dice.choice((_service, _volume))(name, value)
        if self.dice.random() < 0.3:
            self.server.delete_object(kind_of(obj), key_of(obj))
        else:
            self.server.put_object(obj)

    def _renew(self) -> None:
        """Replace a node by one of the same name; its pods are deleted."""
        name = self.dice.choice(NODES)
        self._note(f"node {name} is another one")
        self.server.delete_node(name)
        for each in [each for each in self.server.pods.values() if each.spec.node_name == name]:
            self.later(self.dice.uniform(0.0, 2.0), lambda uid=each.uid: self.server.delete_pod(uid))  # type: ignore[misc]
        self.later(self.dice.choice((0.001, 0.05, 1.0)), lambda: self.server.put_node(self._node(name)))

    def _change_node(self) -> None:
        """Change a node's capacity, and perhaps cordon it, for a while."""
        if (found := self.server.nodes.get(self.dice.choice(NODES))) is None:
            return
        built = NodeBuilder(found.metadata, found.spec, found.status)
        built = built.capacity(cpu=self.dice.choice((2, 3, 4, 6)), memory="8Gi")
        closed = self.dice.random() < 0.3
        self.server.put_node(built.unschedulable().build() if closed else built.build())
        self.later(self.dice.uniform(1.0, 5.0), lambda: self._restore(found.name))

    def _restore(self, name: str) -> None:
        if name in self.server.nodes:
            self.server.put_node(self._node(name))

    def _node(self, name: str) -> Node:
        zone = f"z{NODES.index(name) % 3}"
        return node(name).label({ZONE: zone, HOST: name}).capacity(cpu=4, memory="8Gi").build()


def _constrained(built: PodBuilder, dice: random.Random) -> PodBuilder:
    labels = {APP: dice.choice("xyz")}
    built, alike = built.label(labels), selector(labels)
    match dice.choice(CONSTRAINTS):
        case "spread":
            return built.spread_hard(ZONE, alike)
        case "spread softly":
            return built.spread_soft(HOST, alike)
        case "near":
            return built.require_pods(ZONE, alike)
        case "alone in zone":
            return built.require_no_pods(ZONE, alike)
        case "alone on node":
            return built.require_no_pods(HOST, alike)
        case "first":
            return built.priority(100)
    return built.host_port(8080)


def _service(name: str, value: str) -> Service:
    metadata = ObjectMeta(name=name, namespace="default")
    return Service(metadata=metadata, spec=MapSelectorSpec(selector={"v": value}))


def _volume(name: str, value: str) -> PersistentVolume:
    return PersistentVolume(metadata=ObjectMeta(name=name), spec=PersistentVolumeSpec(storage_class_name=value))
