"""Which faults are injected when, a pure function of the seed, the duration and the services; and their injection.

Faults are dealt from a shuffled deck that holds every kind, so a run of some length meets all of them. Targets are
dealt likewise. Faults may overlap.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import NamedTuple, TypeVar

from testing.auditor.cluster import clock
from tools.faults.environment import Environment
from tools.supervisor.servers import Process

T = TypeVar("T")


class Affects(Enum):
    """What the targets of a fault are."""

    CALLS = auto()
    SERVICES = auto()
    LINKS = auto()


class Kind(NamedTuple):
    """`cards`: how many are in the deck. Minimum and maximum seconds of faults that last."""

    text: str
    cards: int
    shortest: float = 0.0
    longest: float = 0.0
    affects: Affects | None = None


class Fault(Enum):
    API_SLOW = Kind("API server: slow", 1, 1.0, 4.0, Affects.CALLS)
    API_REFUSES = Kind("API server: refuses connections", 1, 0.5, 4.0)
    API_THROTTLES = Kind("API server: answers 429", 1, 1.0, 4.0, Affects.CALLS)
    API_FAILS = Kind("API server: answers 500", 1, 1.0, 4.0, Affects.CALLS)
    API_CONFLICTS = Kind("API server: answers 409", 1, 1.0, 4.0, Affects.CALLS)
    API_MUTE = Kind("API server: carries out requests, loses responses", 1, 0.5, 2.0, Affects.CALLS)
    WATCHES_END = Kind("API server: drops all watches", 1)
    API_RESTARTED = Kind("API server: restarted with a compacted history", 1, 0.2, 3.0)
    NATS_RESTARTED = Kind("NATS: killed and restarted", 1, 0.1, 2.0)
    NATS_DELAYED = Kind("NATS: blocked, then delivered late", 1, 1.0, 6.0, Affects.LINKS)
    NATS_CUT = Kind("NATS: blocked, then connections lost", 1, 1.0, 6.0, Affects.LINKS)
    REDIS_EMPTIED = Kind("Redis: killed and restarted empty", 1, 0.1, 2.0)
    REDIS_ROLLED_BACK = Kind("Redis: killed and restarted with an earlier state", 1, 0.5, 3.0)
    STATE_ROLLED_BACK = Kind("Redis and snapshot: killed, Redis restarted with an earlier state", 1, 0.5, 3.0)
    REDIS_HANGS = Kind("Redis: hangs", 1, 1.0, 6.0)
    KILLED = Kind("killed", 6, affects=Affects.SERVICES)
    ENDED = Kind("terminated", 2, affects=Affects.SERVICES)
    STOPPED = Kind("paused", 3, 0.5, 6.0, Affects.SERVICES)
    STALLED = Kind("paused past its Lease", 2, 9.5, 13.0, Affects.SERVICES)


CALLS = {
    "all calls": ("*", ""),
    "bindings": ("POST", r"/binding$"),
    "half of the bindings": ("POST", r"[13579bdf]/binding$"),
    "pods' statuses": ("PATCH", r"/pods/[^/]+/status$"),
    "Leases": ("*", r"/leases(/|$)"),
    "Events": ("*", r"/events(/|$)"),
    "lists and watches": ("GET", r"/[a-z]+$"),
    "evictions": ("*", r"/eviction$|/pods/[^/]+$"),
}
"""Method and path (a regular expression) of the calls that a fault of the API server may affect."""
MAX_BLOCKED = 3
"""Services that lose NATS at the same time."""
MEAN_GAP = 1.25
"""Average seconds between faults; less in short runs, so that these meet some as well."""
MIN_GAP = 0.5
GAPS = (0.3, 1.7)
"""Shortest and longest gap, as shares of the mean."""
MIN_FAULTS = 48
"""Faults in every run that is long enough for them at the minimum gap."""
MIN_DURATION = 0.1
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


@dataclass(frozen=True, slots=True)
class Injection:
    """`targets`: services, or calls; may be empty. `seconds`: 0 for a momentary fault."""

    at: float
    fault: Fault
    targets: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        targets, what = ", ".join(self.targets), self.fault.value.text
        if self.fault.value.affects is Affects.SERVICES:
            what = f"{targets}: {what}"
        elif targets:
            what = f"{what} ({targets})"
        return f"{what}, for {self.seconds:.1f} s" if self.seconds else what


def plan(seed: int, seconds: float, services: Sequence[str]) -> list[Injection]:
    """The injections in order of time. All faults are over after `seconds`, apart from restarts."""
    chance = Random(f"faults {seed}")
    deck = _deal(chance, [fault for fault in Fault for _ in range(fault.value.cards)])
    calls, victims, cut = _deal(chance, list(CALLS)), _deal(chance, list(services)), _deal(chance, list(services))
    mean = max(MIN_GAP, min(MEAN_GAP, seconds / MIN_FAULTS))
    injections: list[Injection] = []
    at = chance.uniform(*GAPS) * mean
    while at < seconds - MIN_DURATION:
        fault = next(deck)
        kind = fault.value
        lasts = round(min(chance.uniform(kind.shortest, kind.longest), seconds - at), 2)
        targets: tuple[str, ...] = ()
        match kind.affects:
            case Affects.CALLS:
                targets = (next(calls),)
            case Affects.SERVICES:
                targets = (next(victims),)
            case Affects.LINKS:
                targets = tuple(sorted({next(cut) for _ in range(chance.randint(1, MAX_BLOCKED))}))
        injections.append(Injection(round(at, 2), fault, targets, lasts))
        at += chance.uniform(*GAPS) * mean
    return injections


def _deal(chance: Random, cards: list[T]) -> Iterator[T]:
    """Endlessly; the deck is reshuffled whenever it is exhausted."""
    while True:
        yield from chance.sample(cards, len(cards))


class Injector:
    """Calls `report` with each fault as it is injected, and collects them in `injected`."""

    def __init__(self, environment: Environment, report: Callable[[str], None]) -> None:
        self.injected: set[Fault] = set()
        self._environment = environment
        self._report = report
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
        self.injected.add(injection.fault)
        self._report(f"{clock(time.time())} {time.monotonic() - self._began:6.2f} s  {injection}")
        async with self._active(injection):
            await asyncio.sleep(injection.seconds)

    @asynccontextmanager
    async def _active(self, injection: Injection) -> AsyncIterator[None]:
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
                links = [self._environment.links[name] for name in targets]
                for link in links:
                    link.block()
                try:
                    yield
                finally:
                    for link in links:
                        if fault is Fault.NATS_CUT:
                            link.cut()
                        link.unblock()
            case Fault.KILLED | Fault.ENDED | Fault.STOPPED | Fault.STALLED:
                self._environment.pipeline.signal(targets[0], SIGNALS[fault])  # no effect if it is not running
                try:
                    yield
                finally:
                    if SIGNALS[fault] is signal.SIGSTOP:
                        self._environment.pipeline.signal(targets[0], signal.SIGCONT)  # harmless to its successor
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
