"""The auditor's shell: watches a cluster while Flotilla schedules it.

    async with Auditor.watching(api, redis_url=url, bus=bus) as auditor:
        ...
        await auditor.wait_until(lambda a: a.counts().bound == 1000, timeout=60)
        assert not await auditor.finish()

It only reads. Its connections may break and recover at any time; that is no violation.
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
from testing.auditor.core import AuditorCore, Expected
from testing.auditor.events import Event, Tick
from testing.auditor.feeds import ClusterFeed, LedgerFeed, QueueFeed, now
from testing.auditor.pods import Counts, Statistics
from testing.auditor.violations import Limits, Violation

DEFAULT_PREFIX = Settings().prefix
LOOK_EVERY = 1.0
"""Seconds between polls of the ledger and the queue."""
TICK_EVERY = 0.25
PAUSE = 0.02
"""Seconds between two evaluations of a condition."""
LISTING_PATIENCE = 60.0
MAX_VIOLATIONS = 1000
"""Violations kept; `counts` covers all."""

Look = Callable[[], Awaitable[None]]


class Auditor:
    """Created by `Auditor.watching`. `violations`: the first ones."""

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
        """Yields once all objects are listed. `redis_url` is needed to check the ledger, `bus` to check the queue."""
        limits = limits or Limits()
        auditor = cls(AuditorCore(schedulers, limits), limits)
        async with AsyncExitStack() as closing:
            client = await KubeClient.open(api)
            closing.push_async_callback(client.close)
            log = logger("auditor")
            if redis_url is not None:
                link = await connect(redis_url, log)
                closing.push_async_callback(link.close)
                auditor._looks.append(LedgerFeed(link, prefix, auditor.handle, log).look)
            if bus is not None:
                queue = QueueFeed(bus, auditor.handle, log)
                listening = await queue.listen()
                closing.push_async_callback(listening.close)
                auditor._looks.append(queue.look)
            failure: Exception | None = None
            async with asyncio.TaskGroup() as group:
                work = [ClusterFeed(client, kind, auditor.handle, log).run() for kind in (Kind.NODE, Kind.POD)]
                tasks = [group.create_task(each) for each in (*work, auditor._look_on(), auditor._tick_on())]
                try:
                    await auditor.wait_until(lambda a: a._core.is_listed, LISTING_PATIENCE)
                    yield auditor
                except Exception as cause:
                    failure = cause  # raise the caller's exception outside the group
                finally:
                    for task in tasks:
                        task.cancel()
            if failure is not None:
                raise failure

    @property
    def progress(self) -> float:
        """The share of our pods that are bound."""
        return self._core.progress

    @property
    def statistics(self) -> Statistics:
        return self._core.statistics

    def counts(self) -> Counts:
        return self._core.counts()

    def latency(self, quantile: float) -> float:
        """Seconds from first seeing a pod to seeing it bound."""
        return self._core.latency(quantile)

    def handle(self, event: Event) -> None:
        self._keep(self._core.handle(event, now()))
        self._changed.set()

    async def wait_until(self, condition: Callable[["Auditor"], bool], timeout: float) -> None:
        """ClusterError, with the counts, if the condition is not met in time."""
        try:
            async with asyncio.timeout(timeout):
                while not condition(self):
                    self._changed.clear()
                    await self._changed.wait()
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise ClusterError(f"condition not met within {timeout:g} s: {self.counts()}") from None

    async def finish(self, unbound: Expected = 0) -> list[Violation]:
        """Wait for the scheduler to become idle, at most `patience` and `lag`; return all violations.

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
        await every(TICK_EVERY, lambda: self.handle(Tick()))

    async def _look(self) -> None:
        async with self._looking:  # so that the last event has the newest state
            for look in self._looks:
                await look()

    def _keep(self, found: list[Violation]) -> None:
        for violation in found:
            self._log.error(violation.invariant, "%s", violation)
        self.violations += found[: MAX_VIOLATIONS - len(self.violations)]
