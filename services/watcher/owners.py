"""Tells the owners of pods that cannot be used, where owners look: by an Event and the pod's PodScheduled condition."""

import asyncio
from collections.abc import Callable

from services.watcher.events import Complain
from shared.kube.client import KubeClient
from shared.kube.notes import PodEvent, PodRef, PodScheduled
from shared.kube.outcome import Outcome
from shared.telemetry.logs import Repeated

MOST_WAITING = 1000
"""Owners who are still to be told; further ones are not."""
REASON = "SchedulerError"


class Owners:
    """One after the other, so that many bad pods at once do not keep the API server busy."""

    def __init__(
        self,
        client: KubeClient,
        schedulers: frozenset[str],
        instance: str,
        clock: Callable[[], float],
        sparingly: Repeated,
    ) -> None:
        self._client = client
        self._schedulers = schedulers
        self._instance = instance
        self._clock = clock
        self._sparingly = sparingly
        self._waiting: asyncio.Queue[Complain] = asyncio.Queue(MOST_WAITING)

    def tell(self, complaint: Complain) -> None:
        """If the pod is ours to schedule; soon, and once."""
        change = complaint.change
        if change.node or change.scheduler not in self._schedulers:
            return
        try:
            self._waiting.put_nowait(complaint)
        except asyncio.QueueFull:
            self._sparingly.warning("crowded", "more than %d pods are unusable; some owners are not told", MOST_WAITING)

    async def run(self) -> None:
        while True:
            await self._tell(await self._waiting.get())

    async def _tell(self, complaint: Complain) -> None:
        change, now = complaint.change, self._clock()
        pod = PodRef(change.namespace, change.name, change.uid)
        said = await self._client.create_event(
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
        patched = await self._client.patch_pod_condition(pod, condition)
        for what, result in (("Event", said), ("condition", patched)):
            if not result.ok and result.outcome not in (Outcome.NOT_FOUND, Outcome.CONFLICT):
                where = f"{change.namespace}/{change.name}"
                self._sparingly.warning(what, "pod %s: no %s could be written: %s", where, what, result.message)
