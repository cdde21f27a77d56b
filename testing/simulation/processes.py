"""The services as processes: each runs its real `main` over simulated transports, and may be killed or paused."""

import asyncio
import logging
import traceback
from collections.abc import Iterator
from importlib import import_module
from typing import Any, cast

from shared.config.settings import Settings
from shared.errors import ClusterError, Unexpected, UserError
from shared.runtime import Context, Health
from shared.store.link import RedisLink
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from shared.tls import TlsFiles
from testing.simulation.apiserver import ApiServer
from testing.simulation.client import SimClient, Transport
from testing.simulation.drawing import SHARDS
from testing.simulation.loop import Dice, Gate, VirtualLoop
from testing.simulation.lying import Liar
from testing.simulation.network import Network, SimBus
from testing.simulation.redis import Connection, Redis
from testing.simulation.releases import translation

RESTART = 0.5
NAME_TAKEN = "names must be unique"
"""In the error of a process that a late heartbeat of its predecessor ended; it is restarted."""
PREFIX_TAKEN = "is used by the pipeline of cluster"
"""In the error of a process that was lied to about the owner of its prefix; it is restarted."""
WALL_BEGINS = 1_767_225_600.0
"""Unix time from which terms count."""
UPTIME = 10_000.0
"""The highest monotonic clock of a machine at the start."""


class Surroundings:
    """What all processes share. `failures`: errors of services."""

    def __init__(self, seed: int, round_size: int) -> None:
        self.dice = Dice(seed)
        self.failures: list[str] = []
        self.network = Network(self.dice, self.failures.append)
        self.server = ApiServer(self.dice)
        self.transport = Transport(self.server, self.dice)
        self.redis = Redis(lambda: asyncio.get_running_loop().time())
        self.skews: dict[str, float] = {}
        """By process: seconds by which its wall clock is ahead."""
        self.round_size = round_size
        self.hints = "none"
        """The setting."""
        self.validates = True
        """Whether cores check their invariants."""
        self.releases: dict[str, str] = {}
        """By process: its release, if not this one."""
        self.lied = False
        """Whether any process has lied."""
        self.lost_terms = False
        """Whether a Lease was deleted: if Redis is emptied too, a term may be lower than the one before."""


EXPLAINED = ("gets no further pod",)
"""In log messages that report problems of the cluster, not of the process."""
BLAMED = ("is at fault (", "gets no shards until it", "where the snapshot wrote the state", "an attempt failed: ")
"""In log messages that blame another process, or report a failure it caused: expected after a lie, or a lost term."""


class Injected(Exception):
    """Raised by a core on purpose."""


class FailingCore:
    """Handles one more event, loses its effects and raises."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def handle(self, event: Any, now: float) -> Any:
        self._core.handle(event, now)
        raise Injected(type(event).__name__)

    def next_deadline(self) -> float | None:
        return cast(float | None, self._core.next_deadline())


class _Failures(logging.Handler):
    def __init__(self, process: "Process", around: Surroundings) -> None:
        super().__init__(logging.ERROR)
        self._process, self._around = process, around

    def emit(self, record: logging.LogRecord) -> None:
        injected = record.exc_info is not None and isinstance(record.exc_info[1], Injected)
        parts = (*EXPLAINED, *BLAMED) if self._around.lied or self._around.lost_terms else EXPLAINED
        explained = any(part in record.getMessage() for part in parts)
        if not self._process.dead and not injected and not explained:
            told = "" if record.exc_info is None else "".join(traceback.format_exception(record.exc_info[1])[-4:])
            self._around.failures.append(f"{self._process.name}: {record.getMessage()}\n{told}".rstrip())


class Process:
    """`shell` is None before the service has started, and on standbys."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.service = service_of(name)
        self.name = name
        self.shell: Any = None
        self.dead = False
        self.resumed_at: float | None = None
        self.ended_with = ""
        self.gate = Gate(self)
        self._around = around
        self._loop = asyncio.get_running_loop()
        self._origin = around.dice.of("origin", name).uniform(0.0, UPTIME)
        self._bus = SimBus(around.network, name, self.gate)
        if (release := around.releases.get(name)) is not None:
            self._bus.hears = self._bus.says = translation(release)
        self._transports: list[SimClient | Connection] = []
        self._task = self._loop.create_task(self._run(), context=self.gate.context)

    @property
    def core(self) -> Any:
        return None if self.shell is None or not self.running else self.shell._core

    @property
    def running(self) -> bool:
        return not self._task.done()

    @property
    def paused(self) -> bool:
        return self.gate.paused

    def client(self) -> SimClient:
        client = SimClient(self._around.transport, self.name)
        self._transports.append(client)
        return client

    def link(self) -> RedisLink:
        connection: Any = Connection(self._around.redis, self.name)
        self._transports.append(connection)
        return RedisLink(connection, "simulated", TlsFiles())

    def clock(self) -> float:
        return self._origin + self._loop.time()

    def wall(self) -> float:
        return WALL_BEGINS + self._around.skews.get(self.name, 0.0) + self._loop.time()

    def pause(self) -> None:
        self.gate.paused = True

    def resume(self) -> None:
        loop = self._loop
        assert isinstance(loop, VirtualLoop)
        self.resumed_at = loop.time()
        self.gate.resume(loop)

    def inject_fault(self) -> None:
        """Make the core fail on the next event."""
        runner = self.shell._runner
        runner._core = FailingCore(runner._core)

    def lie(self, liar: Liar) -> None:
        self._bus.says = liar

    def kill(self) -> None:
        """Messages and calls that it has sent are still delivered."""
        self._die()
        self.resume()
        self._task.cancel()

    def stop(self) -> None:
        """End gracefully."""
        self._task.cancel()

    def _die(self) -> None:
        self.dead = True
        self._bus.die()
        for transport in self._transports:
            transport.dead = True

    async def _run(self) -> None:
        main = import_module(f"services.{self.service}.service").main
        try:
            await main(self._context())
        except* ClusterError as cause:
            self.ended_with = str(next(_leaves(cause)))
        except* UserError as cause:
            self.ended_with = str(next(_leaves(cause)))
            borne = (NAME_TAKEN, PREFIX_TAKEN) if self._around.lied else (NAME_TAKEN,)
            if not any(part in self.ended_with for part in borne):
                self._around.failures.append(f"{self.name} was told to end: {self.ended_with}")
        except* Unexpected as found:
            self.ended_with = str(next(_leaves(found)))
            if not all(isinstance(each.__cause__, Injected) for each in _leaves(found)):
                self._around.failures.append(f"{self.name} has failed: {found.exceptions!r}")
        except* Exception as cause:
            if not self.dead:
                told = "".join(traceback.format_exception(cause)[-8:])
                self._around.failures.append(f"{self.name} has failed: {cause.exceptions!r}\n{told}")
        finally:
            self._die()

    def _context(self) -> Context:
        log = logging.Logger(self.name)
        log.addHandler(_Failures(self, self._around))
        tracer = Tracer(self.service, self.name, ids=self._around.dice.of("trace", self.name))
        telemetry = Telemetry(Metrics(), tracer, log)
        self._bus.fault = telemetry.fault
        bus: Any = self._bus
        return Context(
            service=self.service,
            name=self.name,
            settings=Settings(
                identity=self.name,
                round_size=self._around.round_size,
                shard_count=SHARDS,
                hints=self._around.hints,
            ),
            bus=bus,
            telemetry=telemetry,
            health=Health(),
            http_url="",
            validates=self._around.validates,
            clock=self.clock,
            wall=self.wall,
        )


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def service_of(name: str) -> str:
    return {"w": "worker", "b": "binder"}.get(name[:-1], name.partition("-")[0])
