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
from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeVar

from testing.auditor.cluster import clock
from tools.faults.environment import Environment
from tools.supervisor.servers import Process

T = TypeVar("T")


class Fault(StrEnum):
    API_SLOW = "API server: slow"
    API_REFUSES = "API server: refuses connections"
    API_THROTTLES = "API server: answers 429"
    API_FAILS = "API server: answers 500"
    API_CONFLICTS = "API server: answers 409"
    API_MUTE = "API server: carries out requests, loses responses"
    WATCHES_END = "API server: drops all watches"
    API_RESTARTED = "API server: restarted with a compacted history"
    NATS_RESTARTED = "NATS: killed and restarted"
    NATS_DELAYED = "NATS: blocked, then delivered late"
    NATS_CUT = "NATS: blocked, then connections lost"
    REDIS_EMPTIED = "Redis: killed and restarted empty"
    REDIS_ROLLED_BACK = "Redis: killed and restarted with an earlier state"
    STATE_ROLLED_BACK = "Redis and snapshot: killed, Redis restarted with an earlier state"
    REDIS_HANGS = "Redis: hangs"
    KILLED = "killed"
    ENDED = "terminated"
    STOPPED = "paused"
    STALLED = "paused past its Lease"


class Kind(NamedTuple):
    """`cards`: how many are in the deck. Minimum and maximum seconds of faults that last."""

    cards: int
    shortest: float = 0.0
    longest: float = 0.0


KINDS = {
    Fault.API_SLOW: Kind(1, 1.0, 4.0),
    Fault.API_REFUSES: Kind(1, 0.5, 4.0),
    Fault.API_THROTTLES: Kind(1, 1.0, 4.0),
    Fault.API_FAILS: Kind(1, 1.0, 4.0),
    Fault.API_CONFLICTS: Kind(1, 1.0, 4.0),
    Fault.API_MUTE: Kind(1, 0.5, 2.0),
    Fault.WATCHES_END: Kind(1),
    Fault.API_RESTARTED: Kind(1, 0.2, 3.0),
    Fault.NATS_RESTARTED: Kind(1, 0.1, 2.0),
    Fault.NATS_DELAYED: Kind(1, 1.0, 6.0),
    Fault.NATS_CUT: Kind(1, 1.0, 6.0),
    Fault.REDIS_EMPTIED: Kind(1, 0.1, 2.0),
    Fault.REDIS_ROLLED_BACK: Kind(1, 0.5, 3.0),
    Fault.STATE_ROLLED_BACK: Kind(1, 0.5, 3.0),
    Fault.REDIS_HANGS: Kind(1, 1.0, 6.0),
    Fault.KILLED: Kind(6),
    Fault.ENDED: Kind(2),
    Fault.STOPPED: Kind(3, 0.5, 6.0),
    Fault.STALLED: Kind(2, 9.5, 13.0),
}
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
OF_CALLS = frozenset({Fault.API_SLOW, Fault.API_THROTTLES, Fault.API_FAILS, Fault.API_CONFLICTS, Fault.API_MUTE})
OF_SERVICES = frozenset({Fault.KILLED, Fault.ENDED, Fault.STOPPED, Fault.STALLED})
OF_LINKS = frozenset({Fault.NATS_DELAYED, Fault.NATS_CUT})
MAX_BLOCKED = 3
"""Services that lose NATS at the same time."""
MEAN_GAP = 1.25
"""Average seconds between faults; less in short runs, so that these meet some as well."""
MIN_GAP = 0.5
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
PAUSES = frozenset({Fault.STOPPED, Fault.STALLED})


@dataclass(frozen=True, slots=True)
class Injection:
    """`targets`: services, or calls; may be empty. `seconds`: 0 for a momentary fault."""

    at: float
    fault: Fault
    targets: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        targets = ", ".join(self.targets)
        if self.fault in OF_SERVICES:
            what = f"{targets}: {self.fault}"
        else:
            what = f"{self.fault} ({targets})" if targets else str(self.fault)
        return f"{what}, for {self.seconds:.1f} s" if self.seconds else what


def plan(seed: int, seconds: float, services: Sequence[str]) -> list[Injection]:
    """The injections in order of time. All faults are over after `seconds`, apart from restarts."""
    chance = Random(f"faults {seed}")
    deck = _deal(chance, [fault for fault, kind in KINDS.items() for _ in range(kind.cards)])
    calls, victims, cut = _deal(chance, list(CALLS)), _deal(chance, list(services)), _deal(chance, list(services))
    mean = max(MIN_GAP, min(MEAN_GAP, seconds / MIN_FAULTS))
    injections: list[Injection] = []
    at = _gap(chance, mean)
    while at < seconds - MIN_DURATION:
        fault = next(deck)
        lasts = round(min(chance.uniform(KINDS[fault].shortest, KINDS[fault].longest), seconds - at), 2)
        injections.append(Injection(round(at, 2), fault, _targets(chance, fault, (calls, victims, cut)), lasts))
        at += _gap(chance, mean)
    return injections


def _gap(chance: Random, mean: float) -> float:
    return chance.uniform(0.3, 1.7) * mean


def _targets(chance: Random, fault: Fault, dealt: tuple[Iterator[str], ...]) -> tuple[str, ...]:
    calls, victims, cut = dealt
    if fault in OF_CALLS:
        return (next(calls),)
    if fault in OF_SERVICES:
        return (next(victims),)
    if fault in OF_LINKS:
        return tuple(sorted({next(cut) for _ in range(chance.randint(1, MAX_BLOCKED))}))
    return ()


def _deal(chance: Random, cards: list[T]) -> Iterator[T]:
    """Endlessly; the deck is reshuffled whenever it is exhausted."""
    while True:
        yield from chance.sample(cards, len(cards))


class Injector:
    """Calls `say` with each fault as it is injected, and counts them in `injected`."""

    def __init__(self, environment: Environment, say: Callable[[str], None]) -> None:
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
                async with self._blocked(targets, cut=fault is Fault.NATS_CUT):
                    yield
            case Fault.KILLED | Fault.ENDED | Fault.STOPPED | Fault.STALLED:
                self._environment.pipeline.signal(targets[0], SIGNALS[fault])  # no effect if it is not running
                try:
                    yield
                finally:
                    if fault in PAUSES:
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
