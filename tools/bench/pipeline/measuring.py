"""One case, on a pipeline of its own: pods wait in the queue, cycle is let go, and the time it takes is measured."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from random import Random
from urllib.parse import urlsplit

import msgspec

from services.binder.__main__ import WITHOUT_API_CALLS
from shared.bus import Bus
from shared.errors import ClusterError
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.inprocess.workloads import NAMESPACE
from tools.api_objects import ObjectWriter
from tools.bench.pipeline.cases import Case, Figures
from tools.bench.pipeline.window import Window
from tools.demo.progress import pods_by_place
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.probe import get

CYCLE = "cycle"
OK = 200
POLL = 0.1
TELL_EVERY = 1.0
STALLED_AFTER = 30.0
"""Seconds without any progress that end a run."""
LONGEST_WITHOUT_API_CALLS = 25.0
"""Seconds after which such a run stops: assumptions that nobody has seen bound are looked up after 30."""
SETTLED = 0.3
"""Seconds in which the queue has its metrics up to date."""
_ASKS = re.compile(r'^flotilla_bus_messages_total\{direction="out",subject="worker\.\*"\} (\S+)$', re.MULTILINE)

Say = Callable[[str], None]


class Measuring:
    """`say`: what is going on. `opened` and `closed` are called when the clock starts and when it stops."""

    def __init__(
        self, case: Case, pipeline: Pipeline, say: Say, opened: Callable[[], None], closed: Callable[[], None]
    ) -> None:
        self._case = case
        self._pipeline = pipeline
        self._say = say
        self._closed = closed
        self._next_tell = 0.0
        self._window = Window(case.pods, case.classes, pipeline.cpu, opened)

    async def run(self) -> Figures:
        async with listening(self._pipeline) as bus:
            await self._fill()
            await self._window.listen(bus, to_binders=self._case.api_calls)
            self._say("cycle starts")
            await self._pipeline.release()
            await self._until_decided()
            cpu = self._window.cpu_when_closed
            if self._case.api_calls:
                await self._until_bound()
                cpu = self._window.cpu()
            self._closed()
        asks = await self._asks()
        if not self._window.pods:
            raise ClusterError("all pods were decided before the clock could start")
        return Figures(
            decided=len(self._window.decided),
            pods=self._window.pods,
            seconds=self._window.seconds,
            bound_seconds=self._window.bound_seconds if self._case.api_calls else None,
            cpu=cpu,
            asks=asks / max(1, len(self._window.decided)),
        )

    async def _fill(self) -> None:
        """All nodes and pods exist, and the queue has them."""
        case = self._case
        creator = ObjectWriter(self._pipeline.api_url or "")
        self._say(f"creating {case.nodes:,} nodes")
        await creator.create("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        await creator.create("/api/v1/nodes", case.make_nodes())
        for path, objects in groupby(sorted(case.make_objects(), key=itemgetter(0)), key=itemgetter(0)):
            self._say(f"creating what is at {path}")
            await creator.create(path, (obj for _, obj in objects))
        self._say(f"creating {case.pods:,} pods")
        await creator.create(f"/api/v1/namespaces/{NAMESPACE}/pods", case.make_pods())
        await self._until(lambda queues: queues.get("active", 0) == case.pods)

    async def _until_decided(self) -> None:
        longest = float("inf") if self._case.api_calls else LONGEST_WITHOUT_API_CALLS
        watch = _Progress(lambda: len(self._window.decided))
        while not self._window.closed.is_set():
            await self._pause(watch, "decided")
            began = self._window.began
            if began is not None and time.monotonic() - began > longest:
                self._window.close()

    async def _until_bound(self) -> None:
        watch = _Progress(lambda: len(self._window.bound))
        while len(self._window.bound) < self._case.pods:
            await self._pause(watch, "bound")
        await self._until(lambda queues: not queues)
        before, events = -1, await self._events()
        while events > before:
            await asyncio.sleep(SETTLED)
            before, events = events, await self._events()

    async def _events(self) -> int:
        """How many have been written so far: they come after the bindings, and some may have been dropped."""
        path = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events?limit=1"
        answer = await get(urlsplit(self._pipeline.api_url or "").port or 0, path)
        if answer is None or answer.status != OK:
            raise ClusterError("the simulator does not tell how many Events there are")
        return msgspec.json.decode(answer.body, type=_Listing).metadata.remaining

    def _tell(self, text: str) -> None:
        """Not too often."""
        if time.monotonic() >= self._next_tell:
            self._next_tell = time.monotonic() + TELL_EVERY
            self._say(text)

    async def _pause(self, watch: "_Progress", what: str) -> None:
        """ClusterError if it does not go on."""
        self._tell(f"{watch.count():,} of {self._case.pods:,} {what}")
        await asyncio.sleep(POLL)
        if watch.stalled():
            refusal = next(iter(self._window.refusals.values()), "")
            raise ClusterError(
                f"no pod was {what} for {STALLED_AFTER:g} s, {watch.count()} of {self._case.pods} are; "
                + (f"{len(self._window.refusals)} were refused: {refusal}" if refusal else "none was refused")
            )
        self._check()

    async def _until(self, wanted: Callable[[dict[str, int]], bool]) -> None:
        """The queue's pods, by place, are as wanted."""
        deadline = time.monotonic() + STALLED_AFTER
        while not wanted(queues := await self._queues()):
            if time.monotonic() > deadline:
                raise ClusterError(f"the queue holds {queues} and does not change")
            self._check()
            await asyncio.sleep(SETTLED)

    async def _queues(self) -> dict[str, int]:
        answer = await self._pipeline.ask("queue", "/metrics")
        return {} if answer is None else pods_by_place(answer.body)

    async def _asks(self) -> float:
        answer = await self._pipeline.ask(CYCLE, "/metrics")
        found = None if answer is None else _ASKS.search(answer.body)
        return float(found[1]) if found else 0.0

    def _check(self) -> None:
        """What has ended the pipeline."""
        if self._pipeline.failure.done():
            self._pipeline.failure.result()


class _Rest(msgspec.Struct):
    remaining: int = msgspec.field(name="remainingItemCount", default=0)


class _Listing(msgspec.Struct):
    """The beginning of a list."""

    metadata: _Rest


class _Progress:
    def __init__(self, count: Callable[[], int]) -> None:
        self.count = count
        self._last = (count(), time.monotonic())

    def stalled(self) -> bool:
        """Whether the count has stayed for too long."""
        now, count = time.monotonic(), self.count()
        if count != self._last[0]:
            self._last = (count, now)
        return now - self._last[1] > STALLED_AFTER


def options_of(case: Case, base: PipelineOptions) -> PipelineOptions:
    """Cycle is held; binders make API calls or not."""
    binders = [name for name, kind in base.services().items() if kind == "binder" and not case.api_calls]
    added = {name: {WITHOUT_API_CALLS: "1"} for name in binders}
    return replace(
        base,
        settings=replace(base.settings, round_size=case.round_size),
        held=frozenset({CYCLE}),
        variables={name: {**base.variables.get(name, {}), **added.get(name, {})} for name in base.services()},
    )


@asynccontextmanager
async def listening(pipeline: Pipeline) -> AsyncIterator[Bus]:
    telemetry = Telemetry(Metrics(), Tracer("bench", "bench", ids=Random()), logger("bench"))
    bus = await Bus.connect(pipeline.nats_url, pipeline.options.settings.prefix, "bench", telemetry)
    try:
        yield bus
    finally:
        await bus.close()
