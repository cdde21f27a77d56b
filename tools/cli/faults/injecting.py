"""Carries out what the plan says: every fault at its time, beside those that are not over yet."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from testing.auditor.pods import clock
from tools.cli.faults.plan import CALLS, Fault, Injection
from tools.cli.faults.stage import Stage
from tools.supervisor.servers import Process

UNTIL_ENDED = 1 << 62
SLOWNESS = 0.5
"""Seconds by which each call is late while the API server is slow."""
ANSWERS = {
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
    """`say` is told of each fault when it strikes. `injected` counts them."""

    def __init__(self, stage: Stage, say: Say) -> None:
        self.injected: dict[Fault, int] = {}
        self._stage = stage
        self._say = say
        self._began = 0.0
        self._door = asyncio.Lock()
        self._nats = asyncio.Lock()
        self._redis = asyncio.Lock()

    async def run(self, plan: Sequence[Injection]) -> None:
        """Returns when the last one is over; whatever happens, nothing stays broken that was not killed."""
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
                async with self._closed_door():
                    yield
            case Fault.API_RESTARTED:
                async with self._closed_door():
                    self._stage.door.compact()
                    yield
                    self._stage.door.compact()
            case Fault.WATCHES_END:
                self._stage.door.close_watches()
                yield
            case Fault.NATS_RESTARTED:
                async with self._nats:
                    await self._stage.nats.kill()
                    yield
                    await self._stage.nats.start()
            case Fault.REDIS_EMPTIED:
                async with self._redis:
                    await self._stage.redis.kill()
                    yield
                    await self._stage.redis.start()
            case Fault.REDIS_ROLLED_BACK | Fault.STATE_ROLLED_BACK:
                async with self._redis:
                    await self._stage.redis.keep()
                    yield
                    if fault is Fault.STATE_ROLLED_BACK:
                        for name in SNAPSHOTS:
                            self._stage.pipeline.kill(name)
                    await self._stage.redis.roll_back()
            case Fault.REDIS_HANGS:
                async with self._redis, stopped(self._stage.redis.process):
                    yield
            case Fault.NATS_DELAYED | Fault.NATS_CUT:
                async with self._blocked(targets, cut=fault is Fault.NATS_CUT):
                    yield
            case Fault.KILLED | Fault.ENDED | Fault.STOPPED | Fault.STALLED:
                async with self._service_struck(fault, targets[0]):
                    yield
            case _:
                async with self._calls_struck(fault, targets[0]):
                    yield

    @asynccontextmanager
    async def _calls_struck(self, fault: Fault, calls: str) -> AsyncIterator[None]:
        faults, (method, path) = self._stage.door.faults, CALLS[calls]
        if fault is Fault.API_SLOW:
            struck = faults.delay(method, path, SLOWNESS, times=UNTIL_ENDED)
        elif fault is Fault.API_MUTE:
            struck = faults.drop(method, path, times=UNTIL_ENDED, after=True)
        else:
            code, reason = ANSWERS[fault]
            struck = faults.fail(method, path, code, times=UNTIL_ENDED, reason=reason)
        try:
            yield
        finally:
            faults.end(struck)

    @asynccontextmanager
    async def _closed_door(self) -> AsyncIterator[None]:
        async with self._door:
            await self._stage.door.stop()
            try:
                yield
            finally:
                await self._stage.door.start()

    @asynccontextmanager
    async def _blocked(self, names: Sequence[str], *, cut: bool) -> AsyncIterator[None]:
        links = [self._stage.links[name] for name in names]
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
    async def _service_struck(self, fault: Fault, name: str) -> AsyncIterator[None]:
        """Nothing happens to one that is away just then."""
        pipeline = self._stage.pipeline
        pipeline.signal(name, SIGNALS[fault])
        try:
            yield
        finally:
            if fault in PAUSES:
                pipeline.signal(name, signal.SIGCONT)  # to its successor it means nothing


@asynccontextmanager
async def stopped(process: Process | None) -> AsyncIterator[None]:
    """It hangs meanwhile."""
    if process is None or process.returncode is not None:
        yield
        return
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
