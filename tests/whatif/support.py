"""A pipeline of the parts that tell its live state: a snapshot that writes and publishes, a worker, and a queue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Event
from services.worker.core import WorkerCore
from services.worker.service import Shell
from shared.bus import Bus, Envelope
from shared.bus.subjects import QUEUE_LIST, SNAPSHOT_DELTAS
from shared.framework.loading import load_frameworks
from shared.messages.inspection import DescribedGroup, DescribedPod, GroupsListed, ListGroups, ListQueue, QueueListed
from shared.messages.state import Delta
from shared.store.link import RedisLink
from shared.store.schema import Persist
from shared.store.writer import Writer
from tests.bus.support import a_bus
from tests.servers import nats_server, redis_server
from tests.store.support import SHARDS, begin, linked
from tests.worker.test_shell import Clock, a_worker
from tools.supervisor.servers import NatsServer

GROUP = DescribedGroup("scheduling.k8s.io", "shop", "gang", False, 2, {}, placed={"uid-member": "member"})


class Snapshot:
    """Publishes a delta before Redis has it, as the service does."""

    def __init__(self, core: SnapshotCore, writer: Writer, bus: Bus) -> None:
        self.core = core
        self._writer = writer
        self._bus = bus

    async def handle(self, event: Event) -> None:
        effects = self.core.handle(event, 0.0)
        for effect in effects:
            if isinstance(effect, Delta):
                self._bus.post(SNAPSHOT_DELTAS, effect)
        await self._writer.write([effect for effect in effects if isinstance(effect, Persist)])

    def beat(self) -> None:
        self._bus.post(SNAPSHOT_DELTAS, self.core.heartbeat())


@asynccontextmanager
async def a_pipeline(
    core: SnapshotCore, *pending: DescribedPod, config: str = ""
) -> AsyncIterator[tuple[NatsServer, Snapshot]]:
    async with (
        nats_server() as nats,
        redis_server() as redis,
        linked(redis) as link,
        a_bus(nats) as ours,
        a_bus(nats) as bus,
    ):
        snapshot = Snapshot(core, await begin(link, core), ours)
        tasks = [asyncio.create_task(_work(bus, link, config)), asyncio.create_task(_beat(snapshot))]
        try:
            await ours.subscribe(QUEUE_LIST, (ListQueue, ListGroups), lambda asked, to: _list(asked, to, pending))
            yield nats, snapshot
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _work(bus: Bus, link: RedisLink, config: str) -> None:
    context = a_worker(bus, Clock())
    await Shell(context, WorkerCore("worker-1", frozenset(), SHARDS, load_frameworks(None)), link, config).run()


async def _beat(snapshot: Snapshot) -> None:
    while True:
        snapshot.beat()
        await asyncio.sleep(0.05)


def _list(asked: ListQueue | ListGroups, to: Envelope, pods: tuple[DescribedPod, ...]) -> None:
    if isinstance(asked, ListGroups):
        to.respond(GroupsListed("groups", 1000.0, 1, [GROUP] if asked.bodies else []))
        return
    to.respond(QueueListed("listing", 1000.0, {}, len(pods), list(pods) if asked.bodies else []))
