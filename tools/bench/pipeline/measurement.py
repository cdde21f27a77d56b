"""Measures one case on its own pipeline: pods are queued, the cycle is released, and its decisions are timed.

The times come from messages of cycle and binders, which the benchmark listens to at no cost to them.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from urllib.parse import urlsplit

import msgspec

from services.binder.__main__ import WITHOUT_API_CALLS
from shared.bus import Bus, Envelope
from shared.bus.subjects import QUEUE_OUTCOMES, SNAPSHOT_BOUND
from shared.errors import ClusterError
from shared.messages.binding import BindingOutcomes
from shared.messages.queue import Outcomes, Verdict
from testing.inprocess.workloads import NAMESPACE
from tools.api_objects import ObjectWriter
from tools.bench.pipeline.cases import Case, Figures
from tools.cli.processes import connected_bus
from tools.demo.progress import pods_by_place
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.probe import get

CYCLE = "cycle"
OK = 200
POLL = 0.1
STATUS_INTERVAL = 1.0
STALL_TIMEOUT = 30.0
"""Seconds without progress that end a run."""
MAX_WITHOUT_API_CALLS = 25.0
"""Seconds after which such a run stops: after 30 the snapshot looks up assumed pods that are not bound."""
METRICS_DELAY = 0.3
"""Seconds until the queue's metrics are current."""
_ASKS = re.compile(r'^flotilla_bus_messages_total\{direction="out",subject="worker\.\*"\} (\S+)$', re.MULTILINE)
Say = Callable[[str], None]


class Measurement:
    """Calls `opened` and `closed` when the clock starts and stops, and `say` with the status."""

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
        prefix = self._pipeline.options.settings.prefix
        async with connected_bus(self._pipeline.nats_url, prefix, "bench") as bus:
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
        answer = await self._pipeline.ask(CYCLE, "/metrics")
        asks = None if answer is None else _ASKS.search(answer.body)
        if not self._window.pods:
            raise ClusterError("all pods were decided before the clock could start")
        return Figures(
            decided=len(self._window.decided),
            pods=self._window.pods,
            seconds=self._window.seconds,
            bound_seconds=self._window.bound_seconds if self._case.api_calls else None,
            cpu=cpu,
            asks=(float(asks[1]) if asks else 0.0) / max(1, len(self._window.decided)),
        )

    async def _fill(self) -> None:
        """Create all nodes and pods, and wait until the queue has the pods."""
        case = self._case
        creator = ObjectWriter(self._pipeline.api_url or "")
        self._say(f"creating {case.nodes:,} nodes")
        await creator.create("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        await creator.create("/api/v1/nodes", case.make_nodes())
        for path, objects in groupby(sorted(case.make_objects(), key=itemgetter(0)), key=itemgetter(0)):
            self._say(f"creating objects at {path}")
            await creator.create(path, (obj for _, obj in objects))
        self._say(f"creating {case.pods:,} pods")
        await creator.create(f"/api/v1/namespaces/{NAMESPACE}/pods", case.make_pods())
        await self._until(lambda queues: queues.get("active", 0) == case.pods)

    async def _until_decided(self) -> None:
        longest = float("inf") if self._case.api_calls else MAX_WITHOUT_API_CALLS
        watch = _StallDetector(lambda: len(self._window.decided))
        while not self._window.closed.is_set():
            await self._pause(watch, "decided")
            began = self._window.began
            if began is not None and time.monotonic() - began > longest:
                self._window.close()

    async def _until_bound(self) -> None:
        watch = _StallDetector(lambda: len(self._window.bound))
        while len(self._window.bound) < self._case.pods:
            await self._pause(watch, "bound")
        await self._until(lambda queues: not queues)
        before, events = -1, await self._events()
        while events > before:
            await asyncio.sleep(METRICS_DELAY)
            before, events = events, await self._events()

    async def _events(self) -> int:
        """The number of Events so far: they follow the bindings, and some may have been dropped."""
        path = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events?limit=1"
        answer = await get(urlsplit(self._pipeline.api_url or "").port or 0, path)
        if answer is None or answer.status != OK:
            raise ClusterError("the simulator does not list Events")
        return int(msgspec.json.decode(answer.body)["metadata"].get("remainingItemCount", 0))

    def _tell(self, text: str) -> None:
        """Show a status, but not too often."""
        if time.monotonic() >= self._next_tell:
            self._next_tell = time.monotonic() + STATUS_INTERVAL
            self._say(text)

    async def _pause(self, watch: "_StallDetector", what: str) -> None:
        """ClusterError without progress."""
        self._tell(f"{watch.count():,} of {self._case.pods:,} {what}")
        await asyncio.sleep(POLL)
        if watch.stalled():
            refusal = next(iter(self._window.refusals.values()), "")
            raise ClusterError(
                f"no pod was {what} for {STALL_TIMEOUT:g} s ({watch.count()} of {self._case.pods}); "
                + (f"{len(self._window.refusals)} were rejected: {refusal}" if refusal else "none was rejected")
            )
        self._check()

    async def _until(self, wanted: Callable[[dict[str, int]], bool]) -> None:
        """Wait until the queue's pods by place are as wanted."""
        deadline = time.monotonic() + STALL_TIMEOUT
        while not wanted(queues := await self._queues()):
            if time.monotonic() > deadline:
                raise ClusterError(f"the queue remains at {queues}")
            self._check()
            await asyncio.sleep(METRICS_DELAY)

    async def _queues(self) -> dict[str, int]:
        answer = await self._pipeline.ask("queue", "/metrics")
        return {} if answer is None else pods_by_place(answer.body)

    def _check(self) -> None:
        """Raise if the pipeline has failed."""
        if self._pipeline.failure.done():
            self._pipeline.failure.result()


class _StallDetector:
    def __init__(self, count: Callable[[], int]) -> None:
        self.count = count
        self._last = (count(), time.monotonic())

    def stalled(self) -> bool:
        """Whether the count has not changed for too long."""
        now, count = time.monotonic(), self.count()
        if count != self._last[0]:
            self._last = (count, now)
        return now - self._last[1] > STALL_TIMEOUT


def options_of(case: Case, base: PipelineOptions) -> PipelineOptions:
    """The cycle is held back; binders make API calls or not."""
    binders = [name for name, kind in base.services().items() if kind == "binder" and not case.api_calls]
    added = {name: {WITHOUT_API_CALLS: "1"} for name in binders}
    return replace(
        base,
        settings=replace(base.settings, round_size=case.round_size),
        held=frozenset({CYCLE}),
        variables={name: {**base.variables.get(name, {}), **added.get(name, {})} for name in base.services()},
    )


class Window:
    """The measured period. Opens when `warm_up` pods are decided; closes when all are decided, or by `close`."""

    def __init__(
        self, pods: int, warm_up: int, cpu: Callable[[], Mapping[str, float]], opened: Callable[[], None]
    ) -> None:
        """Calls `opened` when the clock starts."""
        self.decided: set[str] = set()
        self.bound: set[str] = set()
        self.refusals: dict[str, str] = {}
        self.closed = asyncio.Event()
        self.began: float | None = None
        self.seconds = 0.0
        self.bound_seconds = 0.0
        self.pods = 0
        self.cpu_when_closed: Mapping[str, float] = {}
        self._all = pods
        self._warm_up = warm_up
        self._read_cpu = cpu
        self._opened = opened
        self._before = 0
        self._cpu: Mapping[str, float] = {}

    async def listen(self, bus: Bus, *, to_binders: bool) -> None:
        await bus.subscribe(QUEUE_OUTCOMES, Outcomes, self._on_outcomes)
        if to_binders:
            await bus.subscribe(SNAPSHOT_BOUND, BindingOutcomes, self._on_bound)

    def cpu(self) -> dict[str, float]:
        """CPU seconds by process since the clock started."""
        return {name: seconds - self._cpu.get(name, 0.0) for name, seconds in self._read_cpu().items()}

    def close(self) -> None:
        if self.began is not None and not self.closed.is_set():
            self.seconds = time.monotonic() - self.began
            self.pods = len(self.decided) - self._before
            self.cpu_when_closed = self.cpu()
            self.closed.set()

    def _on_outcomes(self, message: Outcomes, envelope: Envelope) -> None:
        for outcome in message.outcomes:
            if outcome.verdict in (Verdict.DECIDED, Verdict.SUPERSEDED):
                self.decided.add(outcome.uid)
            else:
                self.refusals[outcome.uid] = outcome.message
        if self.began is None and len(self.decided) >= self._warm_up:
            self._opened()
            self._cpu = self._read_cpu()
            self._before = len(self.decided)
            self.began = time.monotonic()
        if len(self.decided) >= self._all:
            self.close()

    def _on_bound(self, message: BindingOutcomes, envelope: Envelope) -> None:
        before = len(self.bound)
        self.bound.update(outcome.uid for outcome in message.outcomes if outcome.bound)
        if len(self.bound) > before and self.began is not None:
            self.bound_seconds = time.monotonic() - self.began
