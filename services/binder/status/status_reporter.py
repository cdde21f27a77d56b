"""Tells owners of pods, by Events and conditions, what becomes of them. Best effort, and never before a binding."""

import logging
from collections.abc import Callable

from services.binder.events import EventReason, RecordEvent, SetCondition
from services.binder.eviction.eviction_state import ClearNomination, RecordPreempted
from services.binder.metrics import BinderMetrics
from services.binder.status.status_writer import NominationCleared, StatusWrite, StatusWriter
from shared.kube.client import KubeClient
from shared.kube.event_writer import EventWriter
from shared.kube.events_and_conditions import PodEvent, PodRef, PodScheduled
from shared.messages.binding import Displaced, Notice
from shared.telemetry.logs import Repeated

NORMAL, WARNING = "Normal", "Warning"
BINDING, SCHEDULING = "Binding", "Scheduling"
PREEMPTED, PREEMPTING = "Preempted", "Preempting"
IN_MEMORY = " (in kube-scheduler memory)."
"""As kube-scheduler says of a victim that was kept from being bound."""


class StatusReporter:
    """`bindings_wait`: whether more bindings wait than are made at a time; most Events are held back then."""

    def __init__(
        self,
        client: KubeClient,
        instance: str,
        wall: Callable[[], float],
        metrics: BinderMetrics,
        log: logging.Logger,
        bindings_wait: Callable[[], bool],
    ) -> None:
        self._instance = instance
        self._wall = wall
        self._events = EventWriter(client, metrics.events, Repeated(log), yields=bindings_wait)
        self._statuses = StatusWriter(client, metrics, log)

    @property
    def idle(self) -> bool:
        return self._events.idle and self._statuses.idle

    def record(self, record: RecordEvent) -> None:
        pod = PodRef(record.namespace, record.name, record.uid)
        if record.reason is EventReason.SCHEDULED:
            self._statuses.forget(record.uid)
            type_, action = NORMAL, BINDING
        else:
            type_, action = WARNING, SCHEDULING
        self._event(pod, type_, record.reason, action, record.message, record.scheduler)

    def condition(self, condition: SetCondition) -> None:
        pod = PodRef(condition.namespace, condition.name, condition.uid)
        self._statuses.put(StatusWrite(pod, PodScheduled(condition.reason, condition.message, self._wall()), ""))

    def notice(self, notice: Notice) -> None:
        pod = PodRef(notice.namespace, notice.name, notice.uid)
        if notice.event:
            self._event(pod, WARNING, EventReason.FAILED, SCHEDULING, notice.message, notice.scheduler)
        condition = PodScheduled(notice.reason, notice.message, self._wall()) if notice.patch else None
        if condition is not None or notice.nominated is not None:
            self._statuses.put(StatusWrite(pod, condition, notice.nominated, notice.version))

    def preempted(self, preempted: RecordPreempted) -> None:
        evict = preempted.evict
        note = f"Preempted by pod {evict.uid} on node {evict.node}{IN_MEMORY if preempted.in_memory else ''}"
        preemptor = PodRef(evict.namespace, evict.name, evict.uid)
        self._event(_ref(preempted.victim), NORMAL, PREEMPTED, PREEMPTING, note, evict.profile, preemptor)

    def clear_nomination(self, cleared: ClearNomination) -> None:
        self._statuses.put(NominationCleared(_ref(cleared.pod), cleared.node))

    async def close(self) -> None:
        await self._events.close()
        await self._statuses.close()

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
        self._events.record(PodEvent(pod, type_, reason, action, note, scheduler, instance, self._wall(), related))


def _ref(pod: Displaced) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
