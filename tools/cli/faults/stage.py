"""A whole pipeline whose every part can be struck, beside which there is a way to the cluster that never fails.

The API server has two doors to one cluster: services come by the one that faults are about, and whoever makes pods and
judges comes by the other. So what is judged is what happened, not what could be seen through the faults.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shared.bus import Bus
from shared.config.settings import ApiSettings, Settings
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.auditor.service import Auditor
from testing.auditor.violations import Limits
from testing.simulator.service import Simulator, SimulatorOptions
from tools.cli.faults.attendants import Approver, ClaimController
from tools.cli.faults.links import LOOPBACK, Link
from tools.cli.faults.scheduler import configured
from tools.cli.faults.servers import RewindingRedis
from tools.cli.faults.witness import Witness
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.servers import NatsServer, temporary_folder

WORKERS, BINDERS = 2, 2
LIMITS = Limits(patience=60.0)
"""Longer than the longest failover: that of Redis and the snapshot together, which takes 37 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`door`: the API server as the services see it; `cluster`: as it is. `links`: the services' ways to NATS."""

    cluster: Simulator
    door: Simulator
    nats: NatsServer
    redis: RewindingRedis
    links: dict[str, Link]
    pipeline: Pipeline
    auditor: Auditor
    witness: Witness
    approver: Approver
    bus: Bus

    @property
    def processes(self) -> dict[str, int]:
        """Pids by name: services, and the two servers."""
        servers = {each.name: each.process for each in (self.nats, self.redis)}
        running = {name: process.pid for name, process in servers.items() if process and process.returncode is None}
        return running | self.pipeline.processes


@asynccontextmanager
async def on_stage(seed: int, logs: Path, limits: Limits = LIMITS) -> AsyncIterator[Stage]:
    """Everything is ready inside, and the cluster is empty. What the processes say goes to files in `logs`."""
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(temporary_folder())
        nats, redis = NatsServer(folder), RewindingRedis(folder)
        for server in (nats, redis):
            stack.push_async_callback(server.stop)
            await server.start()
        cluster = await stack.enter_async_context(_running(Simulator()))
        port = stack.enter_context(_reserved_port())
        door = await stack.enter_async_context(
            _running(Simulator(SimulatorOptions(port=port, kubelet=False), cluster=cluster.cluster))
        )
        config = stack.enter_context(configured(folder))
        settings = Settings(seed=seed, api=ApiSettings(server=door.url), config=str(config))
        members = PipelineOptions(workers=WORKERS, binders=BINDERS, standbys=True).services()
        links = {name: Link(lambda: nats.url) for name in members}
        for link in links.values():
            stack.push_async_callback(link.stop)
            await link.start()
        options = PipelineOptions(
            workers=WORKERS,
            binders=BINDERS,
            standbys=True,
            settings=settings,
            nats_url=nats.url,
            redis_url=redis.url,
            api=settings.api,
            output=stack.enter_context((logs / "services.log").open("w")),
            variables={name: {"FLOTILLA_NATS_URL": link.url} for name, link in links.items()},
        )
        pipeline = await stack.enter_async_context(Pipeline.running(options))
        telemetry = Telemetry(Metrics(), Tracer("faults", "faults", ids=Random()), logger("faults"))
        bus = await Bus.connect(nats.url, settings.prefix, "faults", telemetry)
        stack.push_async_callback(bus.close)
        auditor = await stack.enter_async_context(
            Auditor.watching(
                ApiSettings(server=cluster.url),
                redis_url=redis.url,
                bus=bus,
                prefix=settings.prefix,
                limits=limits,
            )
        )
        approver = Approver(bus)
        for work in (approver.run(bus), ClaimController(cluster.cluster).run()):
            stack.push_async_callback(cancelled, asyncio.create_task(work))
        yield Stage(
            cluster=cluster,
            door=door,
            nats=nats,
            redis=redis,
            links=links,
            pipeline=pipeline,
            auditor=auditor,
            witness=Witness(cluster.cluster),
            approver=approver,
            bus=bus,
        )


async def cancelled(task: asyncio.Task[None]) -> None:
    """It has ended; what it failed of is raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def _running(simulator: Simulator) -> AsyncIterator[Simulator]:
    try:
        await simulator.start()
        yield simulator
    finally:
        await simulator.stop()


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A port that nobody else gets while nobody listens there: who connects then is refused."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, 0))
        yield holder.getsockname()[1]
