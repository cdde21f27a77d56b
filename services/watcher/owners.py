"""Tells the owners of pods that cannot be used, where owners look: by an Event and the pod's PodScheduled condition."""

import asyncio
from collections.abc import Callable

from services.watcher.events import Complain
from shared.errors import UserError
from shared.kube.client import KubeClient
from shared.kube.eventmetrics import EventMetrics
from shared.kube.eventwriter import EventWriter
from shared.kube.notes import PodEvent, PodRef, PodScheduled
from shared.kube.outcome import Outcome, Result
from shared.telemetry.logs import Repeated
from shared.telemetry.metrics import Metrics

MOST_WAITING = 1000
"""Owners who are still to be told; further ones are not."""
REASON = "SchedulerError"


class Owners:
    """One condition after the other: many bad pods at once are not to keep the API server busy. Events come last."""

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
        self._sparingly = sparingly
        self._metrics = EventMetrics(metrics or Metrics())
        self._waiting: asyncio.Queue[Complain] = asyncio.Queue(MOST_WAITING)

    def tell(self, complaint: Complain) -> None:
        """If the pod is ours to schedule; soon, and once."""
        change = complaint.change
        if change.node or change.scheduler not in self._schedulers:
            return
        try:
            self._waiting.put_nowait(complaint)
        except asyncio.QueueFull:
            self._metrics.crowded.inc()
            self._sparingly.warning("crowded", "more than %d pods are unusable; some owners are not told", MOST_WAITING)

    async def run(self) -> None:
        events = EventWriter(self._client, self._metrics, self._sparingly, yields=lambda: not self._waiting.empty())
        try:
            while True:
                await self._tell(await self._waiting.get(), events)
        finally:
            await events.close()

    async def _tell(self, complaint: Complain, events: EventWriter) -> None:
        change, now = complaint.change, self._wall()
        pod = PodRef(change.namespace, change.name, change.uid)
        events.record(
            PodEvent(
                pod=pod,
                type="Warning",
                reason="FailedScheduling",
                action="Scheduling",
                note=change.problem,
                controller=change.scheduler,
                instance=self._instance,
                at=now,
            )
        )
        since = None if complaint.said_unscheduled else now
        condition = PodScheduled(REASON, change.problem, since, complaint.generation)
        try:
            patched = await self._client.patch_pod_condition(pod, condition)
        except UserError as cause:  # a name that no path can be made of
            patched = Result(Outcome.FAILED, message=str(cause))
        if not patched.ok and patched.outcome not in (Outcome.NOT_FOUND, Outcome.CONFLICT):
            where = f"{change.namespace}/{change.name}"
            self._metrics.failed.inc()
            self._sparingly.warning("condition", "pod %s: no condition could be written: %s", where, patched.message)
