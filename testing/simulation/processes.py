"""The services as processes: each is started, may be killed at any moment, and is started again."""

import asyncio
import logging
import random
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from services.binder.core import BinderCore
from services.binder.service import Shell as BinderShell
from services.cycle.core import CycleCore
from services.cycle.service import Shell as CycleShell
from services.queue.core import QueueCore
from services.queue.service import Shell as QueueShell
from services.snapshot.core import SnapshotCore
from services.snapshot.service import Shell as SnapshotShell
from services.worker.core import WorkerCore
from services.worker.service import Shell as WorkerShell
from shared.config.settings import Settings
from shared.errors import Unexpected
from shared.extenders.client import ExtenderClient
from shared.framework.tiebreak import Ties
from shared.plugins.frameworks import load_frameworks
from shared.runtime import Context, Health
from shared.store.errors import Deposed
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.simulation.apiserver import ApiServer
from testing.simulation.client import SimClient
from testing.simulation.network import Network, SimBus
from testing.simulation.store import SimReader, SimRemembering, SimTerms, Store
from testing.simulation.watcher import Watcher

FRAMEWORKS = load_frameworks(None)
SHARDS = 4
RESTART = 0.5
WALL_BEGINS = 1_767_225_600.0
"""Unix time."""
ORIGIN = 1000.0
"""What monotonic clocks begin with."""


class Surroundings:
    """What all processes share. `failures`: what a service has failed on, in its own words."""

    def __init__(self, seed: int, round_size: int) -> None:
        self.dice = random.Random(seed)
        self.failures: list[str] = []
        self.network = Network(self.dice, self.failures.append)
        self.server = ApiServer(self.dice)
        self.store = Store()
        self.round_size = round_size


class Injected(Exception):
    """What a core raises because the simulation wants it to."""


class FailingCore:
    """Handles one more event, half: its effects are lost, and it raises."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def handle(self, event: Any, now: float) -> Any:
        self._core.handle(event, now)
        raise Injected(type(event).__name__)

    def next_deadline(self) -> float | None:
        deadline: float | None = self._core.next_deadline()
        return deadline


class _Failures(logging.Handler):
    def __init__(self, name: str, failures: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._name, self._failures = name, failures

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is None or not isinstance(record.exc_info[1], Injected):
            self._failures.append(f"{self._name}: {record.getMessage()}")


class Process:
    """`shell` and `core` are there while it runs."""

    def __init__(
        self, service: str, name: str, around: Surroundings, skew: float = 0.0, origin: float = ORIGIN
    ) -> None:
        """`skew`: its wall clock is so much ahead of the others'. `origin`: what its monotonic clock began with."""
        self.service = service
        self.name = name
        self.shell: Any = None
        self.core: Any = None
        self._around = around
        self.skew = skew
        self._origin = origin
        self._bus = SimBus(around.network, name)
        self._terms = SimTerms(around.server, around.store)
        self._memory = SimRemembering(around.store, self.clock, self.wall)
        self._task = asyncio.create_task(self._run())

    def clock(self) -> float:
        """Its monotonic clock: seconds since it was started, as it were; nobody else's are the same."""
        return self._origin + asyncio.get_running_loop().time()

    def wall(self) -> float:
        """`skew` may be set while it runs: somebody has set the clock."""
        return WALL_BEGINS + self.skew + asyncio.get_running_loop().time()

    @property
    def running(self) -> bool:
        return not self._task.done()

    def inject_fault(self) -> None:
        """The core fails on the next event."""
        runner = self.shell._runner
        runner._core = FailingCore(runner._core)

    def kill(self) -> None:
        """What it has sent is on its way; nothing more comes from it, and what it asked for may still be done."""
        self._bus.die()
        self._terms.alive = self._memory.alive = False
        self._task.cancel()

    async def ended(self) -> None:
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._life()
        except* Deposed:
            pass
        except* Unexpected as found:
            if not all(isinstance(each.__cause__, Injected) for each in _leaves(found)):
                self._around.failures.append(f"{self.name} has failed: {found.exceptions!r}")
        except* Exception as cause:
            told = "".join(traceback.format_exception(cause)[-6:])
            self._around.failures.append(f"{self.name} has failed: {cause.exceptions!r}\n{told}")
        finally:
            self._bus.die()
            self._terms.alive = self._memory.alive = False

    def _life(self) -> Coroutine[Any, Any, None]:
        lives: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "watcher": lambda: Watcher(self._bus, self._around.server).run(),
            "queue": self._queue,
            "cycle": self._cycle,
            "snapshot": self._snapshot,
            "worker": self._worker,
            "binder": self._binder,
        }
        return lives[self.service]()

    async def _queue(self) -> None:
        remembering: Any = self._memory
        kept = await self._memory.recall()
        self.core = QueueCore(FRAMEWORKS, epoch=self._around.server.term("queue"), kept=kept)
        self.shell = QueueShell(self._context(), self.core, remembering)
        await self.shell.run()

    async def _cycle(self) -> None:
        epoch = self._around.server.term("cycle")
        self.core = CycleCore(epoch, FRAMEWORKS, round_size=self._around.round_size, ties=Ties(seed=1), pace=0.01)
        client: Any = SimClient(self._around.server)
        extenders = ExtenderClient(())
        try:
            self.shell = CycleShell(self._context(), self.core, extenders, client)
            await self.shell.run()
        finally:
            await extenders.close()

    async def _snapshot(self) -> None:
        recovered = await self._terms.take()
        core = self.core = SnapshotCore(self._terms.epoch, recovered.ledger, recovered.answer)
        lost = recovered.lost and self._terms.epoch > 1
        client: Any = SimClient(self._around.server)
        terms: Any = self._terms
        self.shell = SnapshotShell(self._context(), client, terms, core, frozenset(FRAMEWORKS), ledger_lost=lost)
        await self.shell.run()

    async def _worker(self) -> None:
        self.core = WorkerCore(self.name, frozenset(), SHARDS, FRAMEWORKS)
        link: Any = None
        self.shell = WorkerShell(self._context(), self.core, link)
        self.shell._reader = SimReader(self._around.store)
        await self.shell.run()

    async def _binder(self) -> None:
        self.core = BinderCore(
            self.name, FRAMEWORKS, clock=time.perf_counter, incarnation=str(self._around.dice.random())
        )
        client: Any = SimClient(self._around.server)
        no_extenders: Any = None
        self.shell = BinderShell(self._context(), self.core, client, no_extenders)
        await self.shell.run()

    def _context(self) -> Context:
        log = logging.Logger(self.name)
        log.addHandler(_Failures(self.name, self._around.failures))
        tracer = Tracer(self.service, self.name, ids=self._around.dice)
        telemetry = Telemetry(Metrics(), tracer, log)
        self._bus.fault = telemetry.fault
        bus: Any = self._bus
        return Context(
            service=self.service,
            name=self.name,
            settings=Settings(round_size=self._around.round_size, shard_count=SHARDS),
            bus=bus,
            telemetry=telemetry,
            health=Health(),
            http_url="",
            validates=True,
            clock=self.clock,
            wall=self.wall,
        )


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each
