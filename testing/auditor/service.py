"""Auditor: watches a cluster while Flotilla schedules it.

    async with Auditor.watching(api, redis_url=url, bus=bus) as auditor:
        ...
        await auditor.wait_until(lambda a: a.counts().bound == 1000, timeout=60)
        assert not await auditor.finish()

It only reads. What it hears may break off and come back at any time; that is no violation.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from shared.bus import Bus
from shared.config.settings import ApiSettings, Settings
from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.messages.watch import Kind
from shared.model.objects import DEFAULT_SCHEDULER
from shared.runtime.corerunner import every
from shared.store.link import connect
from shared.telemetry.logs import Repeated, logger
from testing.auditor.clock import now
from testing.auditor.core import AuditorCore, Expected
from testing.auditor.events import Event, Tick
from testing.auditor.feeds import ClusterFeed, LedgerFeed, QueueFeed
from testing.auditor.limits import Limits
from testing.auditor.statistics import Counts, Statistics
from testing.auditor.violations import Violation

DEFAULT_PREFIX = Settings().prefix
LOOK_EVERY = 1.0
"""Seconds between two looks at the ledger and the queue."""
TICK_EVERY = 0.25
PAUSE = 0.02
"""Seconds between two looks at a condition while much is happening."""
LISTING_PATIENCE = 60.0
MOST_KEPT = 1000
"""So many violations are kept; `counts` knows of all."""

Look = Callable[[], Awaitable[None]]


class Auditor:
    """Made by `Auditor.watching`. `violations`: the first ones."""

    def __init__(self, core: AuditorCore, limits: Limits) -> None:
        self.violations: list[Violation] = []
        self._core = core
        self._limits = limits
        self._looks: list[Look] = []
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._log = Repeated(logger("auditor"))

    @classmethod
    @asynccontextmanager
    async def watching(
        cls,
        api: ApiSettings,
        *,
        redis_url: str | None = None,
        bus: Bus | None = None,
        prefix: str = DEFAULT_PREFIX,
        schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER}),
        limits: Limits | None = None,
    ) -> AsyncIterator["Auditor"]:
        """It has seen all there is. Without `redis_url` the ledger is not judged, without `bus` the queue is not."""
        limits = limits or Limits()
        auditor = cls(AuditorCore(schedulers, limits), limits)
        async with AsyncExitStack() as closing:
            client = await KubeClient.open(api)
            closing.push_async_callback(client.close)
            log = logger("auditor")
            if redis_url is not None:
                link = await connect(redis_url, log)
                closing.push_async_callback(link.close)
                auditor._looks.append(LedgerFeed(link, prefix, auditor.tell, log).look)
            if bus is not None:
                queue = QueueFeed(bus, auditor.tell, log)
                overhearing = await queue.overhear()
                closing.push_async_callback(overhearing.close)
                auditor._looks.append(queue.look)
            failure: Exception | None = None
            async with asyncio.TaskGroup() as group:
                work = [ClusterFeed(client, kind, auditor.tell, log).run() for kind in (Kind.NODE, Kind.POD)]
                tasks = [group.create_task(each) for each in (*work, auditor._look_on(), auditor._tick_on())]
                try:
                    await auditor.wait_until(lambda a: a._core.is_listed, LISTING_PATIENCE)
                    yield auditor
                except Exception as cause:
                    failure = cause  # the caller's own, so not one of a group
                finally:
                    for task in tasks:
                        task.cancel()
            if failure is not None:
                raise failure

    @property
    def progress(self) -> float:
        """The share of our pods that do not wait any more."""
        return self._core.progress

    @property
    def statistics(self) -> Statistics:
        return self._core.statistics

    def counts(self) -> Counts:
        return self._core.counts()

    def latency(self, quantile: float) -> float:
        """Seconds from a pod's first sight to the sight of its binding."""
        return self._core.latency(quantile)

    def tell(self, event: Event) -> None:
        self._keep(self._core.handle(event, now()))
        self._changed.set()

    async def wait_until(self, condition: Callable[["Auditor"], bool], timeout: float) -> None:
        """ClusterError, with the counts, if it does not come true in time."""
        try:
            async with asyncio.timeout(timeout):
                while not condition(self):
                    self._changed.clear()
                    await self._changed.wait()
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise ClusterError(f"what was waited for did not come within {timeout:g} s; {self.counts()}") from None

    async def finish(self, unbound: Expected = 0) -> list[Violation]:
        """Everything is done: gives the scheduler its patience to clear up, and says all that is or was wrong.

        `unbound`: how many pods may be left, or which.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.patience + self._limits.lag
        await self._look()
        while not self._core.is_done(unbound) and loop.time() < deadline:
            await asyncio.sleep(min(LOOK_EVERY, self._limits.lag) / 4)
            await self._look()
        self._keep(self._core.finish(now(), unbound))
        return self.violations

    def validate(self) -> None:
        self._core.validate()

    async def _look_on(self) -> None:
        await every(LOOK_EVERY, self._look)

    async def _tick_on(self) -> None:
        await every(TICK_EVERY, lambda: self.tell(Tick()))

    async def _look(self) -> None:
        async with self._looking:  # so that what is told last is the newest
            for look in self._looks:
                await look()

    def _keep(self, found: list[Violation]) -> None:
        for violation in found:
            self._log.error(violation.invariant, "%s", violation)
        self.violations += found[: MOST_KEPT - len(self.violations)]
