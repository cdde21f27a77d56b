"""What owners of pods are told, by Events and conditions: best effort, beside the bindings and never in their way."""

import logging
from collections.abc import Callable

from services.binder.events import Record, Said, SetCondition
from services.binder.metrics import BinderMetrics
from services.binder.pool import Pool
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.notes import PodEvent, PodRef, PodScheduled
from shared.kube.outcome import Outcome
from shared.messages.binding import Notice
from shared.telemetry.logs import Repeated

MOST_TOLD_AT_ONCE = 8
MOST_WAITING = 1 << 14
NORMAL, WARNING = "Normal", "Warning"
BINDING, SCHEDULING = "Binding", "Scheduling"
"""kube-scheduler's name for what it was doing."""
NOT_THERE = (Outcome.NOT_FOUND, Outcome.CONFLICT)
"""The pod is gone, or another one has its name."""

Told = PodEvent | tuple[PodRef, PodScheduled]


class Telling:
    def __init__(
        self,
        client: KubeClient,
        instance: str,
        clock: Callable[[], float],
        metrics: BinderMetrics,
        log: logging.Logger,
    ) -> None:
        self._client = client
        self._instance = instance
        self._clock = clock
        self._metrics = metrics
        self._sparingly = Repeated(log)
        self._pool: Pool[Told] = Pool(
            self._tell, most_workers=MOST_TOLD_AT_ONCE, most_waiting=MOST_WAITING, failed=self._failed
        )

    @property
    def idle(self) -> bool:
        return self._pool.idle

    def record(self, record: Record) -> None:
        pod = PodRef(record.namespace, record.name, record.uid)
        scheduled = record.said is Said.SCHEDULED
        type_, action = (NORMAL, BINDING) if scheduled else (WARNING, SCHEDULING)
        self._event(pod, type_, record.said, action, record.message, record.scheduler)

    def condition(self, condition: SetCondition) -> None:
        pod = PodRef(condition.namespace, condition.name, condition.uid)
        self._put((pod, PodScheduled(condition.reason, condition.message, self._clock())))

    def notice(self, notice: Notice) -> None:
        pod = PodRef(notice.namespace, notice.name, notice.uid)
        if notice.event:
            self._event(pod, WARNING, Said.FAILED, SCHEDULING, notice.message, notice.scheduler)
        if notice.patch:
            self._put((pod, PodScheduled(notice.reason, notice.message, self._clock())))

    async def close(self) -> None:
        await self._pool.close()

    def _event(self, pod: PodRef, type_: str, reason: str, action: str, note: str, scheduler: str) -> None:
        instance = f"{scheduler}-{self._instance}"
        self._put(PodEvent(pod, type_, reason, action, note, scheduler, instance, self._clock()))

    def _put(self, told: Told) -> None:
        if not self._pool.put(told):
            self._metrics.events_dropped.inc()

    async def _tell(self, told: Told) -> None:
        try:
            if isinstance(told, PodEvent):
                what, pod = "an Event", told.pod
                result = await self._client.create_event(told)
            else:
                pod, condition = told
                what = "a condition"
                result = await self._client.patch_pod_condition(pod, condition)
        except FlotillaError as cause:
            self._failed(cause)
            return
        if not result.ok:
            self._metrics.events_failed.inc()
            if result.outcome not in NOT_THERE:
                name = f"{pod.namespace}/{pod.name}"
                self._sparingly.warning(f"{what} {result.status}", "%s: %s not written: %s", name, what, result.message)

    def _failed(self, cause: BaseException) -> None:
        self._metrics.events_failed.inc()
        self._sparingly.warning(type(cause).__name__, "an Event or condition is not written: %s", cause)
