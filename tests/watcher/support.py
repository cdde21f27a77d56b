"""A watcher between a simulated API server and a real NATS server, with a follower of its stream."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from services.watcher.service import main
from shared.bus import Bus, Envelope
from shared.config.settings import ApiSettings, Settings
from shared.messages.watch import (
    AlikePods,
    Kind,
    NodeChange,
    ObjectChange,
    PodChange,
    Relist,
    Unreadable,
    WatchBeat,
    Watched,
)
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, dec_hook, object_from_msgpack
from shared.runtime import Context, Health
from shared.watch import Effect, WatchReader
from shared.watch_progress import Progress
from testing.simulator.service import Simulator, SimulatorOptions
from tests.bus.support import PATIENCE, PREFIX, a_bus, a_telemetry
from tests.kube.support import api_server
from tests.servers import nats_server

_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)
LOOK = 0.05


class Follower:
    """A consumer: its world, as versions of objects by kind and name, and how often it was told each version."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.reader = WatchReader("follower")
        self.world: dict[tuple[Kind, str], str] = {}
        self._names: dict[str, str] = {}
        """Of pods, by uid."""
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.told: Counter[tuple[str, str]] = Counter()
        self.unreadable: list[Unreadable] = []
        self.relists = 0
        self.deaf = False
        self.silent = False
        """It hears all, and does not say so."""
        self.by_name: dict[str, str] = {}
        """The nodes of pods that were told as AlikePods."""
        self._progress = Progress("follower")
        self.missed = 0
        self.largest = 0

    async def follow(self) -> None:
        await self.bus.subscribe("watch", (Watched, WatchBeat), self._on_message)
        self.carry_out(self.reader.start(self.now()))
        while True:
            await asyncio.sleep(LOOK)
            self.carry_out(self.reader.tick(self.now()))

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _on_message(self, message: Watched | WatchBeat, envelope: Envelope) -> None:
        if isinstance(message, Watched):
            self.largest = max(self.largest, len(message.changes))
        if self.deaf:
            self.missed += isinstance(message, Watched)
        else:
            self.carry_out(self.reader.take(message, self.now()))
            self.reader.validate()
            self.say_how_far(message)

    def read_alike(self) -> None:
        """From now on it says that it reads AlikePods, as this release's followers do."""
        self._progress = Progress("follower", alike=True)

    def say_how_far(self, message: Watched | WatchBeat) -> None:
        seen = None if self.silent else self._progress.due(self.reader, message)
        if seen is not None:
            self.bus.post("watcher.seen", seen)

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Relist():
                    self.relists += 1
                    self.bus.post("watcher.relist", effect)
                case Unreadable(kind=kind, name=name):
                    self.unreadable.append(effect)
                    self.world.pop((kind, name), None)
                case AlikePods(pods=pods):
                    self.by_name |= {pod.name: pod.node for pod in pods}
                case PodChange(uid=uid, name=name):
                    name = self._names.setdefault(uid, name)  # a listing says of pods that are gone only the uid
                    self.put(Kind.POD, name, None if effect.gone or effect.finished else _POD.decode(effect.body))
                case NodeChange(name=name):
                    self.put(Kind.NODE, name, None if effect.gone else _NODE.decode(effect.body))

                case ObjectChange(kind=object_kind, key=key, gone=True):
                    self.objects.pop((object_kind, key), None)
                case ObjectChange(kind=object_kind, key=key, body=body):
                    self.objects[object_kind, key] = object_from_msgpack(body)

    def put(self, kind: Kind, name: str, obj: Pod | Node | None) -> None:
        if obj is None:
            self.world.pop((kind, name), None)
            return
        version = obj.metadata.resource_version
        self.world[kind, name] = version
        self.told[name, version] += 1


class World:
    def __init__(self, server: Simulator, watchers: Bus, followers: Bus, settings: Settings) -> None:
        self.server = server
        self.follower = Follower(followers)
        self.health = Health()
        self.telemetry = a_telemetry()
        self._settings = settings
        self._bus = watchers
        self._watcher: asyncio.Task[None] | None = None

    def start(self) -> None:
        """As a new process would."""
        self.health, self.telemetry = Health(), a_telemetry()
        context = Context(
            service="watcher",
            name="watcher-1",
            settings=self._settings,
            bus=self._bus,
            telemetry=self.telemetry,
            health=self.health,
            http_url="",
            validates=True,
        )
        self._watcher = asyncio.create_task(main(context))

    async def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None

    async def ended(self) -> None:
        """Raise what the watcher has ended with."""
        assert self._watcher is not None
        async with asyncio.timeout(PATIENCE):
            watcher, self._watcher = self._watcher, None
            await watcher

    def actual(self) -> dict[tuple[Kind, str], str]:
        """The API server's world, as a follower should know it: what can be read and is not finished."""
        world = {}
        for kind, plural in ((Kind.POD, "pods"), (Kind.NODE, "nodes")):
            bucket = self.server.cluster.store.bucket(self.server.cluster.catalog.find("", "v1", plural))  # type: ignore[arg-type]
            for item in bucket.in_order():
                world[kind, item.name] = str(item.version)
        return world


@asynccontextmanager
async def a_world(options: SimulatorOptions | None = None, token: str | None = None) -> AsyncIterator[World]:
    async with (
        nats_server() as nats,
        api_server(options) as server,
        a_bus(nats) as watchers,
        a_bus(nats) as followers,
    ):
        settings = Settings(prefix=PREFIX, api=ApiSettings(server=server.url, token=token))
        world = World(server, watchers, followers, settings)
        following = asyncio.create_task(world.follower.follow())
        world.start()
        try:
            yield world
        finally:
            await world.stop()
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
