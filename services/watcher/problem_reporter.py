"""Reports unreadable objects to their owners, where owners look.

A pending pod gets an Event and its PodScheduled condition. A bound pod and a node get an Event, because the node takes
no more pods.
"""

import asyncio
from collections.abc import Callable

from services.watcher.events import ReportProblem
from shared.errors import UserError
from shared.kube.client import KubeClient
from shared.kube.event_writer import EventMetrics, EventWriter
from shared.kube.events_and_conditions import PodEvent, PodRef, PodScheduled
from shared.kube.outcome import CallOutcome, CallResult
from shared.messages.watch import Kind, Unreadable
from shared.model.objects import DEFAULT_SCHEDULER
from shared.telemetry.logs import Repeated
from shared.telemetry.metrics import Metrics

MAX_WAITING = 1000
"""Reports that may wait; further ones are dropped."""
REASON = "SchedulerError"
UNREADABLE = "UnreadableForScheduler"
"""The reason of Events about bound pods and nodes."""


class ProblemReporter:
    """Writes one condition at a time, so that many bad pods do not load the API server; Events yield to conditions."""

    def __init__(
        self,
        client: KubeClient,
        schedulers: frozenset[str],
        instance: str,
        wall: Callable[[], float],
        sparingly: Repeated,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._schedulers = schedulers
        self._instance = instance
        self._wall = wall
        self._repeated = sparingly
        self._metrics = EventMetrics(metrics or Metrics())
        self._waiting: asyncio.Queue[ReportProblem] = asyncio.Queue(MAX_WAITING)

    def report(self, problem: ReportProblem) -> None:
        """Queue a report about a node, a bound pod, or a pending pod of our schedulers."""
        change = problem.change
        if change.kind not in (Kind.POD, Kind.NODE):
            return
        if change.kind is Kind.POD and not change.node and change.scheduler not in self._schedulers:
            return
        try:
            self._waiting.put_nowait(problem)
        except asyncio.QueueFull:
            self._metrics.crowded.inc()
            self._repeated.warning(
                "crowded", "more than %d objects are unreadable; some owners get no report", MAX_WAITING
            )

    async def run(self) -> None:
        events = EventWriter(self._client, self._metrics, self._repeated, yields=lambda: not self._waiting.empty())
        try:
            while True:
                await self._report(await self._waiting.get(), events)
        finally:
            await events.close()

    async def _report(self, problem: ReportProblem, events: EventWriter) -> None:
        change = problem.change
        if change.kind is Kind.NODE:
            node = PodRef("", change.name, change.name, "Node")  # kubelets set the name there as well
            events.record(self._event(change, node, UNREADABLE, DEFAULT_SCHEDULER))
        elif change.node:
            pod = PodRef(change.namespace, change.name, change.uid)
            events.record(self._event(change, pod, UNREADABLE, change.scheduler))
        else:
            await self._report_waiting(problem, events)

    async def _report_waiting(self, problem: ReportProblem, events: EventWriter) -> None:
        change = problem.change
        pod = PodRef(change.namespace, change.name, change.uid)
        events.record(self._event(change, pod, "FailedScheduling", change.scheduler))
        since = None if problem.said_unscheduled else self._wall()
        condition = PodScheduled(REASON, change.problem, since, problem.generation)
        try:
            patched = await self._client.patch_pod_condition(pod, condition)
        except UserError as cause:  # no path can be built from its name
            patched = CallResult(CallOutcome.FAILED, message=str(cause))
        if not patched.ok and patched.outcome not in (CallOutcome.NOT_FOUND, CallOutcome.CONFLICT):
            where = f"{change.namespace}/{change.name}"
            self._metrics.failed.inc()
            self._repeated.warning(
                "condition", "pod %s: its condition could not be written: %s", where, patched.message
            )

    def _event(self, change: Unreadable, about: PodRef, reason: str, controller: str) -> PodEvent:
        return PodEvent(
            pod=about,
            type="Warning",
            reason=reason,
            action="Scheduling",
            note=change.problem,
            controller=controller,
            instance=self._instance,
            at=self._wall(),
        )
