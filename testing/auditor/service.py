"""The auditor's shell: watches a cluster while Flotilla schedules it.

    async with Auditor.watching(api, redis_url=url, bus=bus) as auditor:
        ...
        await auditor.wait_until(lambda a: a.counts().bound == 1000, timeout=60)
        assert not await auditor.finish()

It only reads. Its connections may break and recover at any time; that is no violation.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NoReturn

import msgspec

from shared.bus import Bus
from shared.bus.subjects import QUEUE_INSPECT, SNAPSHOT_BOUND
from shared.config.settings import ApiSettings, Settings
from shared.errors import ClusterError, FlotillaError, InvalidObject
from shared.kube.client import KubeClient
from shared.kube.listwatch import (
    Interruption,
    ListDone,
    ListPage,
    ListStarted,
    ListWatch,
    ListWatchEvent,
    ObjectEvents,
    WatchStarted,
)
from shared.messages.binding import BindingOutcomes
from shared.messages.queue import Inspect, QueueContents
from shared.messages.watch import Kind
from shared.model.objects import DEFAULT_SCHEDULER, Node, Pod, decode_node
from shared.runtime.corerunner import every
from shared.store.link import RedisLink, connect
from shared.store.schema import Keys, decode_entry
from shared.telemetry.logs import Repeated, logger
from testing.auditor.cluster import Counts
from testing.auditor.core import (
    AuditorCore,
    Event,
    Expected,
    Gone,
    LedgerRead,
    Listed,
    QueueRead,
    Seen,
    Tick,
    Unreadable,
    WatchLost,
    WatchResumed,
)
from testing.auditor.usage import decode_audited_pod
from testing.auditor.violations import Limits, Violation

Emit = Callable[[Event], None]
ANSWER_PATIENCE = 2.0
"""Seconds for the queue to answer."""
BATCH = 256
"""Objects handled before yielding to the event loop."""
SOURCES: dict[Kind, tuple[str, Callable[[msgspec.Raw], Pod | Node]]] = {
    Kind.POD: ("/api/v1/pods", decode_audited_pod),
    Kind.NODE: ("/api/v1/nodes", decode_node),
}
"""Where the objects of a kind are listed, and how they are decoded."""
_AHEAD = time.time() - time.monotonic()


class _Meta(msgspec.Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


_OBJECT = msgspec.json.Decoder(_Object)


class ClusterFeed:
    """Watches one kind of object. Reports a listing as a whole, when it is complete."""

    def __init__(self, client: KubeClient, kind: Kind, emit: Emit, log: logging.Logger) -> None:
        path, self._decode = SOURCES[kind]
        self._kind = kind
        self._emit = emit
        self._log = Repeated(log)
        self._listing: list[Pod | Node] = []
        self._unreadable: list[str] = []
        self._lost = False
        self._list_watch = ListWatch(client, path, self._handle, random.Random())

    async def run(self) -> NoReturn:
        await self._list_watch.run()

    async def _handle(self, event: ListWatchEvent) -> None:
        match event:
            case ListStarted():
                self._listing, self._unreadable = [], []
            case ListPage(objects=objects):
                for number, raw in enumerate(objects):
                    try:
                        self._listing.append(self._decode(raw))
                    except InvalidObject:
                        self._unreadable.append(self._id(raw))
                    await _give_way(number)
            case ListDone():
                self._emit(Listed(self._kind, self._listing, self._unreadable))
                self._listing, self._unreadable, self._lost = [], [], False
            case WatchStarted():
                if self._lost:
                    self._lost = False
                    self._emit(WatchResumed(self._kind))
            case ObjectEvents(events=seen):
                for number, change in enumerate(seen):
                    self._emit(self._seen(change.object, change.type == "DELETED"))
                    await _give_way(number)
            case Interruption(cause=cause):
                self._log.warning("lost", "the watch of %ss is interrupted: %s", self._kind, cause)
                self._lost = True
                self._emit(WatchLost(self._kind))

    def _seen(self, raw: msgspec.Raw, gone: bool) -> Event:
        if gone:
            return Gone(self._kind, self._id(raw))
        try:
            return Seen(self._decode(raw))
        except InvalidObject as cause:
            self._log.warning("unreadable", "%s", cause)
            return Unreadable(self._kind, self._id(raw))

    def _id(self, raw: msgspec.Raw) -> str:
        """The id that decoding would give; empty if this is not an object."""
        with suppress(msgspec.DecodeError):
            meta = _OBJECT.decode(raw).metadata
            return meta.name if self._kind is Kind.NODE else meta.uid or f"{meta.namespace or 'default'}/{meta.name}"
        return ""


async def _give_way(number: int) -> None:
    if number % BATCH == BATCH - 1:
        await asyncio.sleep(0)


def now() -> float:
    """Unix time at the start of the process plus monotonic seconds since: readable, and immune to clock steps."""
    return time.monotonic() + _AHEAD


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
                auditor._looks.append(partial(auditor._look_at_ledger, link, Keys(prefix).ledger))
            if bus is not None:
                # Binders' reports to the snapshot, which alone replies.
                listening = await bus.subscribe(
                    SNAPSHOT_BOUND, BindingOutcomes, lambda message, _: auditor.handle(message)
                )
                closing.push_async_callback(listening.close)
                auditor._looks.append(partial(auditor._look_at_queue, bus))
            failure: Exception | None = None
            async with asyncio.TaskGroup() as group:
                work: list[Coroutine[object, object, None]] = [
                    ClusterFeed(client, kind, auditor.handle, log).run() for kind in (Kind.NODE, Kind.POD)
                ]
                work += [every(LOOK_EVERY, auditor._look), every(TICK_EVERY, lambda: auditor.handle(Tick()))]
                tasks = [group.create_task(each) for each in work]
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

    def counts(self) -> Counts:
        return self._core.counts()

    def latency(self, quantile: float) -> float:
        """Seconds from first seeing a pod to seeing it bound, at this quantile."""
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

    async def _look_at_ledger(self, link: RedisLink, key: str) -> None:
        asked_at, entries = now(), None
        try:
            values: Sequence[bytes] = await link.call("HVALS", key)
            entries = [decode_entry(value) for value in values]
        except FlotillaError as cause:
            self._log.warning("ledger", "the ledger cannot be read: %s", cause)
        self.handle(LedgerRead(entries, asked_at))

    async def _look_at_queue(self, bus: Bus) -> None:
        asked_at, contents = now(), None
        try:
            contents = await bus.request(QUEUE_INSPECT, Inspect(), QueueContents, timeout=ANSWER_PATIENCE)
        except FlotillaError as cause:
            self._log.warning("queue", "the queue does not answer: %s", cause)
        self.handle(QueueRead(contents, asked_at))

    async def _look(self) -> None:
        async with self._looking:  # so that the last event has the newest state
            for look in self._looks:
                await look()

    def _keep(self, found: list[Violation]) -> None:
        for violation in found:
            self._log.error(violation.invariant, "%s", violation)
        self.violations += found[: MAX_VIOLATIONS - len(self.violations)]
