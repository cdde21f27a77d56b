"""Tells the owners of objects that cannot be read, where owners look.

A pod that waits gets an Event and its PodScheduled condition. A pod on a node, and a node, get an Event: the node takes
no further pod for it.
"""

import asyncio
from collections.abc import Callable

from services.watcher.events import Complain
from shared.errors import UserError
from shared.kube.client import KubeClient
from shared.kube.eventmetrics import EventMetrics
from shared.kube.eventwriter import EventWriter
from shared.kube.notes import PodEvent, PodRef, PodScheduled
from shared.kube.outcome import Outcome, Result
from shared.messages.watch import Kind, Unreadable
from shared.model.objects import DEFAULT_SCHEDULER
from shared.telemetry.logs import Repeated
from shared.telemetry.metrics import Metrics

MOST_WAITING = 1000
"""Owners who are still to be told; further ones are not."""
REASON = "SchedulerError"
UNREADABLE = "UnreadableForScheduler"
"""Of Events about pods on nodes, and nodes."""


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
        """If it is a node, a pod on a node, or a pod that is ours to schedule; soon, and once."""
        change = complaint.change
        if change.kind not in (Kind.POD, Kind.NODE):
            return
        if change.kind is Kind.POD and not change.node and change.scheduler not in self._schedulers:
            return
        try:
            self._waiting.put_nowait(complaint)
        except asyncio.QueueFull:
            self._metrics.crowded.inc()
            self._sparingly.warning(
                "crowded", "more than %d objects are unreadable; some owners are not told", MOST_WAITING
            )

    async def run(self) -> None:
        events = EventWriter(self._client, self._metrics, self._sparingly, yields=lambda: not self._waiting.empty())
        try:
            while True:
                await self._tell(await self._waiting.get(), events)
        finally:
            await events.close()

    async def _tell(self, complaint: Complain, events: EventWriter) -> None:
        change = complaint.change
        if change.kind is Kind.NODE:
            node = PodRef("", change.name, change.name, "Node")  # kubelets put the name there, too
            events.record(self._event(change, node, UNREADABLE, DEFAULT_SCHEDULER))
        elif change.node:
            pod = PodRef(change.namespace, change.name, change.uid)
            events.record(self._event(change, pod, UNREADABLE, change.scheduler))
        else:
            await self._tell_waiting(complaint, events)

    async def _tell_waiting(self, complaint: Complain, events: EventWriter) -> None:
        change = complaint.change
        pod = PodRef(change.namespace, change.name, change.uid)
        events.record(self._event(change, pod, "FailedScheduling", change.scheduler))
        since = None if complaint.said_unscheduled else self._wall()
        condition = PodScheduled(REASON, change.problem, since, complaint.generation)
        try:
            patched = await self._client.patch_pod_condition(pod, condition)
        except UserError as cause:  # a name that no path can be made of
            patched = Result(Outcome.FAILED, message=str(cause))
        if not patched.ok and patched.outcome not in (Outcome.NOT_FOUND, Outcome.CONFLICT):
            where = f"{change.namespace}/{change.name}"
            self._metrics.failed.inc()
            self._sparingly.warning("condition", "pod %s: no condition could be written: %s", where, patched.message)

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
