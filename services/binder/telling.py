"""What owners of pods are told, by Events and in the pod's status: best effort, and never in the way of a binding."""

import logging
from collections.abc import Callable

import msgspec

from services.binder.events import Record, Said, SetCondition
from services.binder.eviction import Preempted, Unnominate
from services.binder.metrics import BinderMetrics
from services.binder.pool import Pool
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.notes import PodEvent, PodRef, PodScheduled
from shared.kube.outcome import Outcome, Result
from shared.messages.binding import Displaced, Notice
from shared.telemetry.logs import Repeated

MOST_TOLD_AT_ONCE = 8
MOST_WAITING = 1 << 14
NORMAL, WARNING = "Normal", "Warning"
BINDING, SCHEDULING = "Binding", "Scheduling"
"""kube-scheduler's name for what it was doing."""
PREEMPTED, PREEMPTING = "Preempted", "Preempting"
IN_MEMORY = " (in kube-scheduler memory)."
"""As kube-scheduler words it of a pod that was kept from being bound."""
NOT_THERE = (Outcome.NOT_FOUND, Outcome.CONFLICT)
"""The pod is gone, or another one has its name."""

NOT_SO = 422
"""What the API server says where the nomination that is to be cleared does not stand there."""


class _Status(msgspec.Struct, frozen=True, gc=False):
    """What a pod's status is to say. `nominated`: empty for nobody, None where nothing is said about it."""

    pod: PodRef
    condition: PodScheduled | None
    nominated: str | None = None


class _Unnominated(msgspec.Struct, frozen=True, gc=False):
    pod: PodRef
    node: str


Told = PodEvent | _Status | _Unnominated
NAMES: dict[type[Told], str] = {PodEvent: "an Event", _Status: "a condition", _Unnominated: "a nomination"}


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
        """Of a pod that is not bound. It had its chance at the node that it was nominated to."""
        pod = PodRef(condition.namespace, condition.name, condition.uid)
        self._put(_Status(pod, PodScheduled(condition.reason, condition.message, self._clock()), ""))

    def notice(self, notice: Notice) -> None:
        pod = PodRef(notice.namespace, notice.name, notice.uid)
        if notice.event:
            self._event(pod, WARNING, Said.FAILED, SCHEDULING, notice.message, notice.scheduler)
        condition = PodScheduled(notice.reason, notice.message, self._clock()) if notice.patch else None
        if condition is not None or notice.nominated is not None:
            self._put(_Status(pod, condition, notice.nominated))

    def preempted(self, preempted: Preempted) -> None:
        evict = preempted.evict
        note = f"Preempted by pod {evict.uid} on node {evict.node}"
        if preempted.in_memory:
            note += IN_MEMORY
        preemptor = PodRef(evict.namespace, evict.name, evict.uid)
        self._event(_ref(preempted.victim), NORMAL, PREEMPTED, PREEMPTING, note, evict.profile, preemptor)

    def unnominate(self, unnominate: Unnominate) -> None:
        self._put(_Unnominated(_ref(unnominate.pod), unnominate.node))

    async def close(self) -> None:
        await self._pool.close()

    def _event(
        self,
        pod: PodRef,
        type_: str,
        reason: str,
        action: str,
        note: str,
        scheduler: str,
        related: PodRef | None = None,
    ) -> None:
        instance = f"{scheduler}-{self._instance}"
        self._put(PodEvent(pod, type_, reason, action, note, scheduler, instance, self._clock(), related))

    def _put(self, told: Told) -> None:
        if not self._pool.put(told):
            self._metrics.events_dropped.inc()

    async def _tell(self, told: Told) -> None:
        try:
            result = await self._write(told)
        except FlotillaError as cause:
            self._failed(cause)
            return
        if result.ok or (isinstance(told, _Unnominated) and result.status == NOT_SO):
            return
        self._metrics.events_failed.inc()
        if result.outcome not in NOT_THERE:
            what, name = NAMES[type(told)], f"{told.pod.namespace}/{told.pod.name}"
            self._sparingly.warning(f"{what} {result.status}", "%s: %s not written: %s", name, what, result.message)

    async def _write(self, told: Told) -> Result:
        match told:
            case PodEvent():
                return await self._client.create_event(told)
            case _Status(nominated=None):
                return await self._client.patch_pod_condition(told.pod, told.condition)
            case _Status():
                return await self._client.patch_pod_condition(told.pod, told.condition, told.nominated)
            case _Unnominated():
                return await self._client.clear_nomination(told.pod, told.node)

    def _failed(self, cause: BaseException) -> None:
        self._metrics.events_failed.inc()
        self._sparingly.warning(type(cause).__name__, "an Event or condition is not written: %s", cause)


def _ref(pod: Displaced) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
