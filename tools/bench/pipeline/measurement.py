"""Measures one case on its own pipeline: pods are queued, the cycle is released, and its decisions are timed.

If the cycle shares a process, it is held back by its Lease, which the benchmark holds.

The times come from messages of snapshot and binders, which the benchmark listens to at no cost to them.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from services.binder.__main__ import WITHOUT_API_CALLS
from shared.bus.subjects import QUEUE_OUTCOMES, QUEUE_TAKE, SNAPSHOT_BOUND, SNAPSHOT_DELTAS
from shared.errors import ClusterError
from shared.kube.event_series import REFILL_POLL
from shared.messages.binding import BindingOutcomes
from shared.messages.queue import Outcomes, Take, Verdict
from shared.messages.state import Delta, Heartbeat, PodPlaced
from testing.inprocess.workloads import NAMESPACE, Object
from tools.api_objects import ObjectWriter
from tools.bench.memory import PeakMemory
from tools.bench.pipeline.cases import PLAIN, Case, Figures
from tools.bench.pipeline.confirming import Confirmations
from tools.cli.processes import connected_bus
from tools.demo.progress import queued_pods
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.probe import get

CYCLE = "cycle"
KEY = f"{NAMESPACE}/pod-"
"""Begins the keys of the pods that are decided; fillers have other names."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE_SECONDS = 3600
LEASE_TIMEOUT = 10.0
JSON = {"Content-Type": "application/json"}
OK = 200
POLL = 0.1
STATUS_INTERVAL = 1.0
STALL_TIMEOUT = 30.0
"""Seconds without progress that end a run."""
EVENTS_DELAY = 3 * REFILL_POLL
"""Seconds without a new Event after which all are written."""
METRICS_DELAY = 0.3
"""Seconds until the queue's metrics are current."""
STALL_SECONDS_A_NODE = 2e-4
"""How much longer pods may take to be decided: their classes are new on every node."""
_ASKS = re.compile(r'^flotilla_bus_messages_total\{direction="out",subject="worker\.\*"\} (\S+)$', re.MULTILINE)
Report = Callable[[str], None]


class Measurement:
    """The clock starts when as many pods are decided as there are classes, or with the cycle where pods preempt others;
    it stops when all are.

    Calls `toggle` when measuring starts and when it ends, and `report` with the status.
    """

    def __init__(self, case: Case, pipeline: Pipeline, report: Report, toggle: Callable[[], None]) -> None:
        self._case = case
        self._pipeline = pipeline
        self._report = report
        self._toggle = toggle
        self._next_status = 0.0
        self._writer = ObjectWriter(pipeline.api_url or "")
        self._confirmations = Confirmations(pipeline.api_url or "")
        self._decided_early = 0
        """While the clock ran, before the first confirmation."""
        self._decided: set[str] = set()
        self._bound: set[str] = set()
        self._rejected: dict[str, str] = {}
        self._unbound: dict[str, str] = {}
        """Why binders failed, by pod."""
        self._began: float | None = None
        self._stopped = False
        self._pods = self._decided_before = 0
        self._seconds = self._bound_seconds = 0.0
        self._cpu_before: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._own_cpu = 0.0

    async def run(self) -> Figures:
        api_calls, prefix = self._case.api_calls, self._pipeline.options.settings.prefix
        memory, began = PeakMemory(), time.monotonic()
        async with connected_bus(self._pipeline.nats_url, prefix, "bench") as bus, memory.watching(self._pipeline):
            await self._fill()
            await bus.subscribe(SNAPSHOT_DELTAS, (Delta, Heartbeat), lambda message, _: self._on_delta(message))
            await bus.subscribe(QUEUE_OUTCOMES, Outcomes, lambda message, _: self._on_outcomes(message))
            await bus.subscribe(QUEUE_TAKE, Take, lambda message, _: self._on_outcomes(message))
            await bus.subscribe(SNAPSHOT_BOUND, BindingOutcomes, lambda message, _: self._on_bound(message))
            self._report("cycle starts")
            if shares(self._pipeline.options):
                await self._writer.delete([f"{LEASES}/{lease_of_cycle(self._pipeline)}"])
            else:
                await self._pipeline.release()
            if self._case.preempts:
                self._start_clock()
            loading, loading_cpu = time.monotonic() - began, self._pipeline.cpu()
            async with self._confirming():
                await self._follow(self._decided, "decided", lambda: self._stopped)
            if api_calls:
                await self._follow(self._bound, "bound", lambda: len(self._bound) >= self._case.pods)
                await self._until(lambda queues: not queues)
                before, events = -1, await self._events()
                while events > before:
                    await asyncio.sleep(EVENTS_DELAY)
                    before, events = events, await self._events()
                self._cpu = self._cpu_used()
            self._toggle()
        answer = await self._pipeline.ask(CYCLE, "/metrics")
        asks = None if answer is None else _ASKS.search(answer.body)
        if not self._pods:
            raise ClusterError("all pods were decided before the clock could start")
        return Figures(
            decided=len(self._decided),
            pods=self._pods,
            seconds=self._seconds,
            bound_seconds=self._bound_seconds if api_calls else None,
            cpu=self._cpu,
            asks=(float(asks[1]) if asks else 0.0) / max(1, len(self._decided)),
            loading=loading,
            loading_cpu=loading_cpu,
            early_rate=self._early_rate(),
            own_cpu=self._own_cpu,
            memory=memory.most,
            total_memory=memory.total,
        )

    async def _fill(self) -> None:
        """Create all nodes and pods, and wait until the queue has the pods."""
        case = self._case
        await self._writer.create("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        await self._create("nodes", "/api/v1/nodes", case.make_nodes(), case.nodes)
        for path, objects in groupby(sorted(case.make_objects(), key=itemgetter(0)), key=itemgetter(0)):
            await self._create(f"objects at {path}", path, (obj for _, obj in objects))
        await self._create("pods in place", PODS, case.make_fillers())
        await self._create("pods", PODS, case.make_pods(), case.pods)
        await self._until(lambda queues: queues.get("active", 0) == case.pods)

    async def _create(self, what: str, path: str, objects: Iterator[Object], count: int | None = None) -> None:
        """Create all of these objects, and show the progress; `count`: how many they are."""
        before = self._writer.created
        creating = asyncio.create_task(self._writer.create_in_bulk(path, objects))
        try:
            while not creating.done():
                of = "" if count is None else f" of {count:,}"
                self._report(f"{self._writer.created - before:,}{of} {what} created")
                self._check()
                await asyncio.wait({creating}, timeout=STATUS_INTERVAL)
            await creating
        finally:
            creating.cancel()

    @asynccontextmanager
    async def _confirming(self) -> AsyncIterator[None]:
        """Inside, decided pods are bound for binders that make no API calls."""
        if self._case.api_calls:
            yield
            return
        task = asyncio.create_task(self._confirmations.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _follow(self, done: set[str], what: str, is_over: Callable[[], bool]) -> None:
        """Show the progress until it is over; ClusterError without progress."""
        count, progressed = len(done), time.monotonic()
        while not is_over():
            if time.monotonic() >= self._next_status:
                self._next_status = time.monotonic() + STATUS_INTERVAL
                self._report(f"{len(done):,} of {self._case.pods:,} {what}")
            await asyncio.sleep(POLL)
            if len(done) != count:
                count, progressed = len(done), time.monotonic()
            if time.monotonic() - progressed > STALL_TIMEOUT + self._case.nodes * STALL_SECONDS_A_NODE:
                reason = next(iter(self._rejected.values()), "")
                raise ClusterError(
                    f"no pod was {what} for {time.monotonic() - progressed:.0f} s ({count} of {self._case.pods}); "
                    + (f"{len(self._rejected)} were rejected: {reason}" if reason else "none was rejected")
                )
            self._check()

    async def _until(self, wanted: Callable[[dict[str, int]], bool]) -> None:
        """Wait until the queue's pods by place are as wanted; ClusterError if they no longer change."""
        before, deadline = dict[str, int](), time.monotonic() + STALL_TIMEOUT
        while not wanted(queues := await queued_pods(self._pipeline)):
            if queues != before:
                before, deadline = queues, time.monotonic() + STALL_TIMEOUT
            if time.monotonic() > deadline:
                raise ClusterError(f"the queue remains at {queues}")
            self._check()
            await asyncio.sleep(METRICS_DELAY)

    async def _events(self) -> int:
        """The number of Events so far: they follow the bindings, and some may have been dropped."""
        path = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events?limit=1"
        answer = await get(urlsplit(self._pipeline.api_url or "").port or 0, path)
        if answer is None or answer.status != OK:
            raise ClusterError("the simulator does not list Events")
        return int(msgspec.json.decode(answer.body)["metadata"].get("remainingItemCount", 0))

    def _check(self) -> None:
        """Raise if the pipeline has failed, or a binding: it would cost other work than a binding that succeeds."""
        if self._pipeline.failure.done():
            self._pipeline.failure.result()
        if self._unbound:
            raise ClusterError(f"{len(self._unbound)} bindings failed: {next(iter(self._unbound.values()))}")

    def _early_rate(self) -> float | None:
        """Decisions per second before the first confirmation; None if there was none while the clock ran."""
        if self._began is None or self._confirmations.began is None:
            return None
        return self._decided_early / (self._confirmations.began - self._began)

    def _cpu_used(self) -> dict[str, float]:
        """CPU seconds by process since the clock started."""
        return {name: spent - self._cpu_before.get(name, 0.0) for name, spent in self._pipeline.cpu().items()}

    def _start_clock(self) -> None:
        self._toggle()
        self._cpu_before, self._own_cpu = self._pipeline.cpu(), time.process_time()
        self._decided_before = len(self._decided)
        self._began = time.monotonic()

    def _stop_clock(self) -> None:
        if self._began is not None and not self._stopped:
            self._seconds = time.monotonic() - self._began
            self._pods = len(self._decided) - self._decided_before
            self._cpu = self._cpu_used()
            self._own_cpu = time.process_time() - self._own_cpu
            self._stopped = True

    def _on_outcomes(self, message: Outcomes | Take) -> None:
        """Not heard where cycle and queue share a process."""
        for outcome in message.outcomes:
            if outcome.verdict not in (Verdict.DECIDED, Verdict.SUPERSEDED):
                self._rejected[outcome.uid] = outcome.message

    def _on_delta(self, message: Delta | Heartbeat) -> None:
        if isinstance(message, Heartbeat):
            return
        now = time.monotonic()
        for change in message.changes:
            if isinstance(change, PodPlaced) and change.uid not in self._decided and change.key.startswith(KEY):
                self._decided.add(change.uid)
                self._confirmations.add(change.key.removeprefix(f"{NAMESPACE}/"), change.node, now)
        if self._began is None and len(self._decided) >= self._case.classes:
            self._start_clock()
        if self._confirmations.began is None:
            self._decided_early = len(self._decided) - self._decided_before
        if len(self._decided) >= self._case.pods:
            self._stop_clock()

    def _on_bound(self, message: BindingOutcomes) -> None:
        before = len(self._bound)
        self._unbound |= {outcome.uid: outcome.reason for outcome in message.outcomes if outcome.failed}
        self._bound.update(outcome.uid for outcome in message.outcomes if outcome.bound)
        if len(self._bound) > before and self._began is not None:
            self._bound_seconds = time.monotonic() - self._began


def options_of(case: Case, base: PipelineOptions) -> PipelineOptions:
    """The cycle is held back; binders make API calls or not."""
    kinds = base.services()
    binders = [name for name, kind in kinds.items() if kind == "binder" and not case.api_calls]
    added = {name: {WITHOUT_API_CALLS: "1"} for name in binders}
    return replace(
        base,
        settings=replace(base.settings, round_size=case.round_size),
        held=frozenset() if shares(base) else frozenset({CYCLE}),
        simulated_kubelets=case.api_calls or case.workload != PLAIN,
        variables={name: {**base.variables.get(name, {}), **added.get(name, {})} for name in kinds},
    )


def shares(options: PipelineOptions) -> bool:
    """Whether the cycle shares a process, which cannot be held back without other services."""
    return (CYCLE,) not in options.processes().values()


def take_lease(pipeline: Pipeline) -> None:
    """Before the services start: a cycle that shares a process stands by until the Lease is deleted."""
    if shares(pipeline.options):
        spec = {"holderIdentity": "bench", "leaseDurationSeconds": LEASE_SECONDS, "leaseTransitions": 1}
        lease = {"metadata": {"name": lease_of_cycle(pipeline)}, "spec": spec}
        request = Request(f"{pipeline.api_url}{LEASES}", msgspec.json.encode(lease), JSON, method="POST")
        urlopen(request, timeout=LEASE_TIMEOUT).close()


def lease_of_cycle(pipeline: Pipeline) -> str:
    return f"{pipeline.options.settings.prefix}-{CYCLE}"
