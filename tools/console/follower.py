"""Keeps the console's model current while a page is open, and asks for nothing otherwise."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from shared.bus import Bus
from shared.bus.subjects import QUEUE_LIST, SNAPSHOT_DELTAS
from shared.config.settings import Settings
from shared.errors import ClusterError, FlotillaError
from shared.messages.inspection import MAX_PODS, DescribedPod, ListQueue, QueueListed
from shared.messages.state import Delta, Heartbeat
from tools.cli.service_client import ServiceClient
from tools.console.cluster import Changes, ClusterModel, NodeEntry
from tools.console.overview import Sample, Services, sample
from tools.console.pending import MAX_PODS as MAX_PENDING
from tools.console.pending import PendingPods
from tools.live_state import Follower as StateFollower
from tools.live_state import Gap, StateBuilder, read_pages
from tools.status import asking

TICK = 0.5
"""Seconds between two messages to the page."""
SAMPLE_TICKS = 2
"""Ticks between two samples of figures."""
KEPT_SAMPLES = 180
"""Samples for a page that has just been opened: three minutes."""
UNWATCHED = 15.0
"""Seconds after the last request after which nobody looks any more."""
COUNT_INTERVAL = 1.0
"""Seconds between two questions to the queue how many pods wait."""
STATUS_INTERVAL = 3.0
"""Seconds between two questions to all processes about themselves."""
LIST_INTERVAL = 2.0
"""Seconds between two lists of the queue, at least."""
LIST_SHARE = 0.02
"""Share of the time that the queue may spend on lists: a long queue is listed less often."""
REPLY_TIMEOUT = 5.0
RETRY = 1.0
MAX_VIEWERS = 32
MAX_BACKLOG = 64
"""Messages that wait for a slow page; with more, it gets everything again."""
NO_STATE = ("none",)
"""Asks for the queue's counts, and for no pod."""


class Viewer:
    """An open page."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.behind = True
        """Whether it gets everything, instead of changes."""
        self.news = asyncio.Event()

    def put(self, message: bytes) -> None:
        if len(self.messages) >= MAX_BACKLOG:
            self.messages.clear()
            self.behind = True
        self.messages.append(message)
        self.news.set()


class Follower:
    def __init__(self) -> None:
        self.cluster = ClusterModel()
        self.pending = PendingPods()
        self.services = Services()
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.problems: dict[str, str] = {}
        """By what is asked for: why it is not current."""
        self._client: ServiceClient | None = None
        self._loading: StateFollower | None = None
        """Keeps deltas while the state is loading."""
        self._viewers: set[Viewer] = set()
        self._looked_at = 0.0
        self._looking = asyncio.Event()

    # Those who look

    def touch(self) -> None:
        """A page is open."""
        self._looked_at = time.monotonic()
        self._looking.set()

    def open(self) -> Viewer | None:
        """None if there are too many pages."""
        if len(self._viewers) >= MAX_VIEWERS:
            return None
        viewer = Viewer()
        self._viewers.add(viewer)
        self.touch()
        return viewer

    def close(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        self.touch()

    @property
    def watched(self) -> bool:
        return bool(self._viewers) or time.monotonic() - self._looked_at < UNWATCHED

    # Following

    @property
    def client(self) -> ServiceClient:
        """ClusterError before NATS is connected."""
        if self._client is None:
            raise ClusterError("the console is not connected to NATS yet")
        return self._client

    async def run(self, bus: Bus, settings: Settings) -> None:
        self._client = ServiceClient(bus, settings)
        while True:
            await self._looking.wait()
            bus.pipeline.id = ""  # it may be another one by now
            await self._follow(bus)
            self._looking.clear()
            self.cluster, self.pending, self.services, self.problems = ClusterModel(), PendingPods(), Services(), {}
            self.samples.clear()

    async def _follow(self, bus: Bus) -> None:
        """Until nobody looks."""
        subscription = await bus.subscribe(SNAPSHOT_DELTAS, (Delta, Heartbeat), self._on_state)
        loops = (self._load_forever, self._list_forever, self._count_forever, self._ask_forever, self._tick_forever)
        work = [asyncio.create_task(loop()) for loop in loops]
        try:
            while self.watched:
                done, _ = await asyncio.wait(work, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await subscription.close()

    def _on_state(self, message: Delta | Heartbeat, envelope: object) -> None:
        if self._loading is not None:
            self._loading.hear(message)
        else:
            self.cluster.take(message, time.monotonic())

    async def _load_forever(self) -> None:
        while True:
            if self.cluster.stale:
                await self._attempt("cluster", self._load)
            await asyncio.sleep(RETRY)

    async def _load(self) -> None:
        """What Redis holds comes from a worker, what has changed since from the deltas: the snapshot does nothing."""
        self._loading, builder = StateFollower(), StateBuilder()
        try:
            await self._loading.until(0)
            _, until = await read_pages(self.client, self._loading, builder)
            await self._loading.until(until)
            now = time.monotonic()
            self.cluster.load(builder, self._loading.epoch, self._loading.first, now)
            for delta in self._loading.deltas:
                self.cluster.take(delta, now)
        except Gap as gap:
            raise ClusterError(f"the cluster is read again: {gap}") from gap
        finally:
            self._loading = None

    async def _list_forever(self) -> None:
        while True:
            began = time.monotonic()
            await self._attempt("pods", self._list)
            await asyncio.sleep(max(LIST_INTERVAL, (time.monotonic() - began) / LIST_SHARE))

    async def _list(self) -> None:
        pods: dict[str, DescribedPod] = {}
        total = 0
        async for page in self.client.pages("queue", QUEUE_LIST, ListQueue(limit=MAX_PODS), QueueListed):
            total, self.pending.counts, self.pending.at = page.total, page.counts, page.now
            pods |= {pod.uid: pod for pod in page.pods}
            if len(pods) >= MAX_PENDING:
                break
        self.pending.take(pods, total)

    async def _ask_forever(self) -> None:
        async with asking(self.client.bus) as asker:
            while True:
                self.services.take(await asker.ask(), time.monotonic())
                await asyncio.sleep(STATUS_INTERVAL)

    async def _tick_forever(self) -> None:
        tick, before = 0, (time.monotonic(), self.cluster.placed)
        while True:
            await asyncio.sleep(TICK)
            tick += 1
            news: dict[str, Any] = {}
            if tick % SAMPLE_TICKS == 0:
                now = (time.monotonic(), self.cluster.placed)
                self.samples.append(sample(self.cluster, self.pending, now[1] - before[1], now[0] - before[0]))
                before = now
                news = self.overview()
            changes = self.cluster.take_changes()
            if changes or news:
                self._publish({**news, **self._changes(changes)})

    async def _count_forever(self) -> None:
        while True:
            await self._attempt("counts", self._count)
            await asyncio.sleep(COUNT_INTERVAL)

    async def _count(self) -> None:
        asked = ListQueue(limit=1, states=NO_STATE)
        page = await self.client.request("queue", QUEUE_LIST, asked, QueueListed, REPLY_TIMEOUT)
        self.pending.counts = page.counts

    async def _attempt(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            self.problems.pop(what, None)
        except FlotillaError as cause:
            self.problems[what] = str(cause)

    # The stream

    def overview(self) -> dict[str, Any]:
        return {
            "sample": self.samples[-1] if self.samples else None,
            "counts": self.pending.counts,
            "listed": [len(self.pending.pods), self.pending.total],
            "reasons": self.pending.reasons,
            "totals": list(self.cluster.totals()),
            "nominated": len(self.cluster.nominations),
            "loaded": not self.cluster.stale,
            "problems": self.problems,
            **self.services.shown,
        }

    def everything(self) -> bytes:
        """The first message for a page."""
        nodes = self.cluster.nodes.values()
        full = {
            **self.overview(),
            "samples": list(self.samples),
            "labels": self.cluster.label_keys(),
            "resources": self.cluster.resources,
            "full": True,
            "nodes": [self._node(entry) for entry in nodes],
        }
        return msgspec.json.encode(full) + b"\n"

    def _changes(self, changes: Changes) -> dict[str, Any]:
        if not changes:
            return {}
        found: dict[str, Any] = {
            "used": [[entry.id, entry.flags, self.cluster.amounts(entry)] for entry in changes.used],
            "gone": changes.gone,
        }
        if changes.added:
            found |= {
                "nodes": [self._node(entry) for entry in changes.added],
                "labels": self.cluster.label_keys(),
                "resources": self.cluster.resources,
            }
        return found

    def _node(self, entry: NodeEntry) -> list[Any]:
        return [entry.id, entry.flags, self.cluster.amounts(entry), entry.name, self.cluster.capacity(entry)]

    def _publish(self, message: dict[str, Any]) -> None:
        if self._viewers:
            encoded = msgspec.json.encode(message) + b"\n"
            for viewer in self._viewers:
                viewer.put(encoded)

    async def stream(self, viewer: Viewer) -> AsyncIterator[bytes]:
        """Everything first, then what changes, a line each."""
        while True:
            if viewer.behind:
                viewer.behind = False
                viewer.messages.clear()
                yield self.everything()
            while viewer.messages and not viewer.behind:
                yield viewer.messages.popleft()
            viewer.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(UNWATCHED):
                    await viewer.news.wait()
            self.touch()
