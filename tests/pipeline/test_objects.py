"""Objects of every kind, from the API server by watcher, snapshot and Redis to the table that plugins read."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from services.snapshot.service import main as snapshot
from services.watcher.resources import RESOURCES
from services.watcher.service import main as watcher
from services.worker.core import WorkerCore
from services.worker.service import Shell as WorkerShell
from shared.bus import Bus
from shared.config.settings import ApiSettings, Settings
from shared.framework.loading import load_frameworks
from shared.messages.watch import Kind
from shared.messages.workers import Assign
from shared.model.kinds import UNPUBLISHED_KINDS
from shared.model.objects import ClusterObject, ObjectKind, is_namespaced, key_of, kind_of
from shared.runtime import Context, Health
from shared.store.link import connect
from testing.simulator.service import Simulator
from tests.bus.support import LOG, PREFIX, a_bus, a_telemetry
from tests.kube.support import api_server, raw_node, raw_pod, until
from tests.samples import Raw, an_object, raw_object
from tests.servers import nats_server, redis_server

pytestmark = pytest.mark.asyncio

SHARDS = 2
KINDS = [kind for kind in ObjectKind if kind not in UNPUBLISHED_KINDS]
STORAGE = "^/apis/storage.k8s.io/v1/"


class World:
    """Watcher, snapshot and one worker that holds all shards, each on a connection of its own."""

    def __init__(self, server: Simulator, settings: Settings, buses: list[Bus]) -> None:
        self.server = server
        self.health: dict[str, Health] = {}
        self.core = WorkerCore("w", frozenset(), SHARDS, load_frameworks(None))
        self._settings = settings
        self._buses = dict(zip(("watcher", "snapshot", "worker", "cycle"), buses, strict=True))
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str) -> None:
        services = {"watcher": watcher, "snapshot": snapshot, "worker": self._worker}
        life: Coroutine[Any, Any, None] = services[name](self._context(name))
        self._tasks[name] = asyncio.create_task(life)

    async def stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def end(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)

    async def _worker(self, context: Context) -> None:
        link = await connect(self._settings.redis_url, LOG)
        try:
            await WorkerShell(context, self.core, link).run()
        finally:
            await link.close()

    def _context(self, name: str) -> Context:
        self.health[name] = health = Health()
        return Context(
            service=name,
            name=f"{name}-1",
            settings=self._settings,
            bus=self._buses[name],
            telemetry=a_telemetry(),
            health=health,
            http_url="",
            validates=True,
        )

    async def assign(self) -> None:
        """As the cycle would; told again until it is heard."""

        def told() -> bool:
            self._buses["cycle"].post("worker.worker-1", Assign(1, 1, list(range(SHARDS)), SHARDS))
            return self.core.loaded

        await until(told)

    # The cluster

    def put(self, kind: ObjectKind, raw: Raw) -> None:
        plural, group = _place(kind)
        if is_namespaced(kind):
            raw["metadata"].setdefault("namespace", "default")
        self.server.store_raw(plural, raw, group=group)

    def known(self) -> dict[tuple[ObjectKind, str], ClusterObject]:
        """To the worker, but for the namespaces that every cluster has."""
        objects = {(kind_of(obj), key_of(obj)): obj for obj in self.core.table.objects.all()}
        return {slot: obj for slot, obj in objects.items() if slot[1].partition("/")[0] in ("x", "y", "default")}

    async def knows(self, *objects: ClusterObject) -> None:
        expected = {(kind_of(obj), key_of(obj)): obj for obj in objects}

        def others() -> dict[tuple[ObjectKind, str], ClusterObject]:
            return {slot: obj for slot, obj in self.known().items() if slot != (ObjectKind.NAMESPACE, "default")}

        try:
            await until(lambda: self.core.loaded and others() == expected)
        except TimeoutError:
            assert others() == expected
            raise


def _place(kind: ObjectKind) -> tuple[str, str]:
    path = RESOURCES[Kind(kind.value)].path.split("/")
    return path[-1], path[2] if path[1] == "apis" else ""


@asynccontextmanager
async def a_world(*, group_missing: str = "") -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(nats_server())
        redis = await stack.enter_async_context(redis_server())
        server = await stack.enter_async_context(api_server())
        buses = [await stack.enter_async_context(a_bus(nats)) for _ in range(4)]
        if group_missing:
            server.faults.fail("GET", group_missing, 404, times=10_000, reason="NotFound")
        api = ApiSettings(server=server.url)
        settings = Settings(prefix=PREFIX, redis_url=redis.url, api=api, shard_count=SHARDS)
        world = World(server, settings, buses)
        server.store_raw("nodes", raw_node("n"))
        try:
            for name in ("watcher", "snapshot", "worker"):
                world.start(name)
            yield world
        finally:
            await world.end()


async def test_every_kind_reaches_the_worker_as_it_comes_changes_and_goes() -> None:
    async with a_world() as world:
        world.server.serve("scheduling.k8s.io", "v1", "v1beta1", "v1alpha3")
        for kind in KINDS:
            world.put(kind, raw_object(kind))
        for kind in UNPUBLISHED_KINDS:
            world.put(kind, raw_object(kind))
        await world.assign()
        await world.knows(*map(an_object, KINDS))
        terminating = {"deletionTimestamp": "2024-01-01T00:00:00Z"}
        for kind in KINDS:
            world.put(kind, raw_object(kind, **terminating))
            world.put(kind, raw_object(kind, "y"))
        await world.knows(
            *(an_object(kind, **terminating) for kind in KINDS), *(an_object(kind, "y") for kind in KINDS)
        )


async def test_changes_during_an_outage_of_the_watch_are_known_afterwards() -> None:
    async with a_world() as world:
        world.put(ObjectKind.SERVICE, raw_object(ObjectKind.SERVICE))
        await world.assign()
        await world.knows(an_object(ObjectKind.SERVICE))
        await world.stop("snapshot")
        world.put(ObjectKind.STORAGE_CLASS, raw_object(ObjectKind.STORAGE_CLASS))
        world.start("snapshot")
        await world.knows(an_object(ObjectKind.SERVICE), an_object(ObjectKind.STORAGE_CLASS))
        await world.stop("watcher")
        world.put(ObjectKind.CSI_NODE, raw_object(ObjectKind.CSI_NODE))
        world.start("watcher")
        await world.knows(*map(an_object, (ObjectKind.SERVICE, ObjectKind.STORAGE_CLASS, ObjectKind.CSI_NODE)))


async def test_without_an_api_group_everything_else_goes_on_and_later_it_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("services.watcher.service.MISSING_PAUSE", 0.1)
    async with a_world(group_missing=STORAGE) as world:
        world.put(ObjectKind.STORAGE_CLASS, raw_object(ObjectKind.STORAGE_CLASS))
        world.put(ObjectKind.SERVICE, raw_object(ObjectKind.SERVICE))
        await world.assign()
        await world.knows(an_object(ObjectKind.SERVICE))
        await until(lambda: not world.health["watcher"].reasons())
        told = [record for record in caplog.records if "storageclasses" in record.getMessage()]
        assert len(told) == 1, "once, however often it is asked for"
        world.server.faults.clear()
        await world.knows(an_object(ObjectKind.SERVICE), an_object(ObjectKind.STORAGE_CLASS))


async def test_an_object_that_cannot_be_read_is_as_if_it_were_not_there_but_for_volumes() -> None:
    async with a_world() as world:
        volume, storage = an_object(ObjectKind.PERSISTENT_VOLUME), an_object(ObjectKind.STORAGE_CLASS)
        world.put(ObjectKind.PERSISTENT_VOLUME, raw_object(ObjectKind.PERSISTENT_VOLUME))
        world.put(ObjectKind.STORAGE_CLASS, raw_object(ObjectKind.STORAGE_CLASS))
        await world.assign()
        await world.knows(volume, storage)
        bad = raw_object(ObjectKind.PERSISTENT_VOLUME)
        bad["spec"]["capacity"]["storage"] = "much"
        world.put(ObjectKind.PERSISTENT_VOLUME, bad)
        world.put(ObjectKind.STORAGE_CLASS, raw_object(ObjectKind.STORAGE_CLASS) | {"provisioner": 5})
        await world.knows(volume)
        world.put(ObjectKind.STORAGE_CLASS, raw_object(ObjectKind.STORAGE_CLASS))
        await world.knows(volume, storage)


async def test_promises_and_shared_hostnames_reach_the_worker_and_outlive_the_snapshot() -> None:
    async with a_world() as world:
        pod = raw_pod("p")
        pod["status"]["nominatedNodeName"] = "n"
        world.server.store_raw("pods", pod)
        for name in ("m", "n"):
            node = raw_node(name)
            node["metadata"]["labels"] = {"kubernetes.io/hostname": "twin"}
            world.server.store_raw("nodes", node)
        await world.assign()

        def promised() -> bool:
            table = world.core.table
            return list(table.nominations.of("n")) == ["uid-p"] and table.shared_hostnames == {"twin"}

        await until(promised)
        table = world.core.table
        await world.stop("snapshot")
        world.start("snapshot")
        await until(lambda: world.core.table is not table and promised())
        pod["status"].pop("nominatedNodeName")
        world.server.store_raw("pods", pod)
        await until(lambda: not len(world.core.table.nominations))
