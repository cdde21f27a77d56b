"""Injects the faults of a plan, each at its time; faults may overlap."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from testing.auditor.pods import clock
from tools.faults.environment import Environment
from tools.faults.plan import CALLS, Fault, Injection
from tools.supervisor.servers import Process

UNLIMITED = 1 << 62
API_DELAY = 0.5
"""Seconds of delay of each call while the API server is slow."""
STATUSES = {
    Fault.API_THROTTLES: (429, "TooManyRequests"),
    Fault.API_FAILS: (500, "InternalError"),
    Fault.API_CONFLICTS: (409, "Conflict"),
}

SNAPSHOTS = ("snapshot", "snapshot-standby")
SIGNALS = {
    Fault.KILLED: signal.SIGKILL,
    Fault.ENDED: signal.SIGTERM,
    Fault.STOPPED: signal.SIGSTOP,
    Fault.STALLED: signal.SIGSTOP,
}
PAUSES = frozenset({Fault.STOPPED, Fault.STALLED})

Say = Callable[[str], None]


class Injector:
    """Calls `say` with each fault as it is injected, and counts them in `injected`."""

    def __init__(self, environment: Environment, say: Say) -> None:
        self.injected: dict[Fault, int] = {}
        self._environment = environment
        self._say = say
        self._began = 0.0
        self._api = asyncio.Lock()
        self._nats = asyncio.Lock()
        self._redis = asyncio.Lock()

    async def run(self, plan: Sequence[Injection]) -> None:
        """Returns when the last fault is over. Every fault is undone, also after an error."""
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for injection in plan:
                group.create_task(self._inject(injection))

    async def _inject(self, injection: Injection) -> None:
        await asyncio.sleep(max(0.0, self._began + injection.at - time.monotonic()))
        self.injected[injection.fault] = self.injected.get(injection.fault, 0) + 1
        self._say(f"{clock(time.time())} {time.monotonic() - self._began:6.2f} s  {injection}")
        async with self._struck(injection):
            await asyncio.sleep(injection.seconds)

    @asynccontextmanager
    async def _struck(self, injection: Injection) -> AsyncIterator[None]:
        fault, targets = injection.fault, injection.targets
        match fault:
            case Fault.API_REFUSES:
                async with self._api_stopped():
                    yield
            case Fault.API_RESTARTED:
                async with self._api_stopped():
                    self._environment.faulty_api.compact()
                    yield
                    self._environment.faulty_api.compact()
            case Fault.WATCHES_END:
                self._environment.faulty_api.close_watches()
                yield
            case Fault.NATS_RESTARTED:
                async with self._nats:
                    await self._environment.nats.kill()
                    yield
                    await self._environment.nats.start()
            case Fault.REDIS_EMPTIED:
                async with self._redis:
                    await self._environment.redis.kill()
                    yield
                    await self._environment.redis.start()
            case Fault.REDIS_ROLLED_BACK | Fault.STATE_ROLLED_BACK:
                async with self._redis:
                    await self._environment.redis.back_up()
                    yield
                    if fault is Fault.STATE_ROLLED_BACK:
                        for name in SNAPSHOTS:
                            self._environment.pipeline.kill(name)
                    await self._environment.redis.roll_back()
            case Fault.REDIS_HANGS:
                async with self._redis, stopped(self._environment.redis.process):
                    yield
            case Fault.NATS_DELAYED | Fault.NATS_CUT:
                async with self._blocked(targets, cut=fault is Fault.NATS_CUT):
                    yield
            case Fault.KILLED | Fault.ENDED | Fault.STOPPED | Fault.STALLED:
                async with self._service_signalled(fault, targets[0]):
                    yield
            case _:
                async with self._calls_failing(fault, targets[0]):
                    yield

    @asynccontextmanager
    async def _calls_failing(self, fault: Fault, calls: str) -> AsyncIterator[None]:
        faults, (method, path) = self._environment.faulty_api.faults, CALLS[calls]
        if fault is Fault.API_SLOW:
            injected = faults.delay(method, path, API_DELAY, times=UNLIMITED)
        elif fault is Fault.API_MUTE:
            injected = faults.drop(method, path, times=UNLIMITED, after=True)
        else:
            code, reason = STATUSES[fault]
            injected = faults.fail(method, path, code, times=UNLIMITED, reason=reason)
        try:
            yield
        finally:
            faults.end(injected)

    @asynccontextmanager
    async def _api_stopped(self) -> AsyncIterator[None]:
        async with self._api:
            await self._environment.faulty_api.stop()
            try:
                yield
            finally:
                await self._environment.faulty_api.start()

    @asynccontextmanager
    async def _blocked(self, names: Sequence[str], *, cut: bool) -> AsyncIterator[None]:
        links = [self._environment.links[name] for name in names]
        for link in links:
            link.block()
        try:
            yield
        finally:
            for link in links:
                if cut:
                    link.cut()
                link.unblock()

    @asynccontextmanager
    async def _service_signalled(self, fault: Fault, name: str) -> AsyncIterator[None]:
        """No effect if the service is not running at that moment."""
        pipeline = self._environment.pipeline
        pipeline.signal(name, SIGNALS[fault])
        try:
            yield
        finally:
            if fault in PAUSES:
                pipeline.signal(name, signal.SIGCONT)  # harmless to its successor


@asynccontextmanager
async def stopped(process: Process | None) -> AsyncIterator[None]:
    """Pause the process."""
    if process is None or process.returncode is not None:
        yield
        return
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
