"""Tells owners of pods, by Events and conditions, what becomes of them. Best effort, and never before a binding.

Conditions and nominations go into pods' statuses: of each pod one write at a time, in order. Autoscalers go by these
conditions, so they are no Events: their only limit is how many pods may wait, and the latest of several writes for a
pod replaces the earlier ones.

A write never overtakes a binding: it names the version of the pod that it is about. If the pod has changed since, or
its version is unknown, the pod is looked up first; nothing is written to one that is bound or gone. A changed pod gets
no nomination either, as that may have been revoked; the queue re-sends one that still stands.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from services.binder.delayed_conditions import DelayedConditions
from services.binder.events import TellDevicesAwaited, TellOwner
from services.binder.eviction_state import ClearNomination, RecordPreempted, RecordPreemption
from services.binder.metrics import BinderMetrics
from services.binder.status_queue import MAX_PODS, NominationCleared, Queued, StatusQueue, StatusWrite, Write
from services.binder.unwritten_conditions import UnwrittenConditions, says
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.event_writer import EventWriter
from shared.kube.events_and_conditions import ObservedPod, PodEvent, PodRef, PodScheduled
from shared.kube.outcome import CallOutcome, CallResult
from shared.messages.binding import Displaced, EvictedPod, Notice
from shared.messages.queue import name_of_gang
from shared.telemetry.logs import Repeated

NORMAL, WARNING = "Normal", "Warning"
SCHEDULED, FAILED_SCHEDULING = "Scheduled", "FailedScheduling"
BINDING, SCHEDULING = "Binding", "Scheduling"
PREEMPTED, PREEMPTING = "Preempted", "Preempting"
BINDING_CONDITIONS_PENDING = "BindingConditionsPending"
IN_MEMORY = " (in kube-scheduler memory)."
"""As kube-scheduler says of a victim that was kept from being bound."""
MAX_NAMED = 8
"""Victims that are named in the preemptor's Event."""
MAX_BUDGETS_NAMED = 3
"""Violated PodDisruptionBudgets that are named there: their names must fit into its note."""
MAX_WORKERS = 8
"""Statuses that are written at the same time."""

POD_GONE = (CallOutcome.NOT_FOUND, CallOutcome.CONFLICT)
"""The pod is gone, or another one has its name."""
TOO_MANY_REQUESTS = 429
NOT_NOMINATED = 422
"""The API server's answer if the nomination to clear is not set."""

RETRIABLE = (CallOutcome.THROTTLED, CallOutcome.UNREACHABLE, CallOutcome.UNKNOWN)
"""As far as is known the write was not made; a second one does no harm."""
MAX_TRIES = 4
"""After some seconds the status may be out of date; the queue re-sends what the pod does not show."""
MAX_LOOK_UPS = 3
"""Look-ups of a pod that changed before its status was written."""
OK = CallResult(CallOutcome.OK)
FIRST_PAUSE = 0.25
"""Seconds until the first retry unless the server names a time; doubled each time."""
MAX_PAUSE = 5.0
"""Seconds between two tries, at most."""


class StatusWriter:
    def __init__(self, client: KubeClient, metrics: BinderMetrics, log: logging.Logger) -> None:
        self._client = client
        self._metrics = metrics
        self._limited_log = Repeated(log)
        self._queue = StatusQueue(MAX_PODS)
        self._unwritten = UnwrittenConditions()
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def idle(self) -> bool:
        return not self._workers

    def put(self, write: Write) -> None:
        match self._queue.put(write):
            case Queued.JOINED:
                self._metrics.statuses_joined.inc()
            case Queued.DROPPED:
                self._on_unwritten(write)
                self._metrics.events.crowded.inc()
                self._limited_log.warning("crowded", "too many pods wait for their conditions: one is dropped")
        if len(self._workers) < MAX_WORKERS:
            self._start()

    def forget(self, uid: str) -> None:
        """The pod is bound: drops what waits to be written to it."""
        self._queue.forget(uid)
        self._unwritten.forget(uid)

    async def close(self) -> None:
        """Drops what waits, and cancels what is under way."""
        self._closed = True
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _start(self) -> None:
        worker = asyncio.create_task(self._work())
        self._workers.add(worker)
        worker.add_done_callback(self._ended)

    async def _work(self) -> None:
        tries = 0
        while (write := self._queue.take()) is not None:
            try:
                result = await self._write(write)
            except Exception:
                self._on_unwritten(write)
                self._queue.done(write)  # later ones for the pod do not wait for it
                raise
            if result.outcome in RETRIABLE and tries < MAX_TRIES - 1:
                self._queue.retry(write)
                await asyncio.sleep(min(result.retry_after or FIRST_PAUSE * 2**tries, MAX_PAUSE))
                tries += 1
                continue
            tries = 0
            self._queue.done(write)
            if not (result.ok or (result.status == NOT_NOMINATED and isinstance(write, NominationCleared))):
                self._on_failure(write, result)

    async def _write(self, write: Write) -> CallResult:
        try:
            if isinstance(write, NominationCleared):
                return await self._client.clear_nomination(write.pod, write.node)
            return await self._write_status(write)
        except Unreachable as cause:
            return CallResult(CallOutcome.UNREACHABLE, message=str(cause))
        except Refused as cause:
            retriable = cause.status == TOO_MANY_REQUESTS or cause.status >= 500
            outcome = CallOutcome.THROTTLED if retriable else CallOutcome.FAILED
            return CallResult(outcome, cause.status, cause.message, cause.retry_after)
        except FlotillaError as cause:
            return CallResult(CallOutcome.FAILED, message=str(cause))

    async def _write_status(self, write: StatusWrite) -> CallResult:
        """OK also if there is nothing to write any more. Raises what a look-up of the pod raises."""
        result, version = OK, write.version
        for looks in range(MAX_LOOK_UPS + 1):
            if version:
                result = await self._client.patch_pod_condition(write.pod, write.condition, write.nominated, version)
                if result.outcome is not CallOutcome.CONFLICT or looks == MAX_LOOK_UPS:
                    break
            pod = await self._client.observe_pod(write.pod.namespace, write.pod.name)
            if pod is None or pod.uid != write.pod.uid or pod.node:
                self._unwritten.forget(write.pod.uid)
                return OK
            if write.condition is not None:
                self._unwritten.read(pod)
            if write.after is not None and not self._unwritten.is_still_at(write.after, pod):
                self._on_unwritten(write)
                return OK
            if write.nominated and pod.version != write.version:
                write = msgspec.structs.replace(write, nominated=None)
            if _shows(pod, write):
                result = OK
                break
            version = pod.version
        if result.ok and write.condition is not None:
            self._unwritten.forget(write.pod.uid)
        return result

    def _on_unwritten(self, write: Write) -> None:
        if isinstance(write, StatusWrite) and write.condition is not None:
            self._unwritten.not_written(write.pod.uid, write.condition)

    def _on_failure(self, write: Write, result: CallResult) -> None:
        self._on_unwritten(write)
        self._metrics.events.failed.inc()
        if result.outcome not in POD_GONE:
            what = "a condition" if isinstance(write, StatusWrite) else "a nomination"
            name = f"{write.pod.namespace}/{write.pod.name}"
            self._limited_log.warning(f"{what} {result.status}", "%s: %s not written: %s", name, what, result.message)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        cause = None if worker.cancelled() else worker.exception()
        if cause is not None:
            self._metrics.events.failed.inc()
            self._limited_log.error(type(cause).__name__, "a condition is not written: %r", cause, exc_info=cause)
        if self._queue.has_turns and not self._closed:  # since its last look, or because it has failed
            self._start()


def _shows(pod: ObservedPod, write: StatusWrite) -> bool:
    """Whether the pod's status shows all of this already."""
    if write.nominated not in (None, pod.nominated):
        return False
    return write.condition is None or says(pod, write.condition)


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
        clock: Callable[[], float],
    ) -> None:
        self._instance = instance
        self._wall = wall
        self._events = EventWriter(client, metrics.events, Repeated(log), yields=bindings_wait)
        self._statuses = StatusWriter(client, metrics, log)
        self._delayed = DelayedConditions(self._statuses.put, clock)

    @property
    def idle(self) -> bool:
        return self._events.idle and self._statuses.idle

    def tell(self, told: TellOwner) -> None:
        of = told.order.assignment
        pod = PodRef(of.namespace, of.name, of.uid)
        if told.failure:
            self._event(pod, WARNING, FAILED_SCHEDULING, SCHEDULING, told.message, of.profile)
            condition = PodScheduled(told.failure, told.message, self._wall())
            self._statuses.put(self._delayed.write_now(StatusWrite(pod, condition, "")))
        else:
            self._delayed.forget(of.uid)
            self._statuses.forget(of.uid)
            self._event(pod, NORMAL, SCHEDULED, BINDING, told.message, of.profile)

    def tell_devices_awaited(self, awaited: TellDevicesAwaited) -> None:
        of = awaited.order.assignment
        pod = PodRef(of.namespace, of.name, of.uid)
        note = f"waiting for binding conditions for device on node {of.node}"
        self._event(pod, NORMAL, BINDING_CONDITIONS_PENDING, SCHEDULING, note, of.profile)

    def notice(self, notice: Notice) -> None:
        pod = PodRef(notice.namespace, notice.name, notice.uid)
        if notice.event:
            type_, reason = (NORMAL, notice.told_as) if notice.told_as else (WARNING, FAILED_SCHEDULING)
            self._event(pod, type_, reason, SCHEDULING, notice.message, notice.scheduler)
        condition = PodScheduled(notice.reason, notice.message, self._wall()) if notice.patch else None
        if condition is not None:
            self._delayed.wrote(notice.uid, condition)
        if condition is not None or notice.nominated is not None:
            self._statuses.put(StatusWrite(pod, condition, notice.nominated, notice.version))

    def preempted(self, preempted: RecordPreempted) -> None:
        evict = preempted.evict
        preemptor = f"podgroup {name_of_gang(evict.gang)}" if evict.gang else f"pod {evict.uid}"
        note = (
            f"Preempted by {preemptor} on node {preempted.node or evict.node}{IN_MEMORY if preempted.in_memory else ''}"
        )
        related = PodRef(evict.namespace, evict.name, evict.uid)
        self._event(_ref(preempted.victim), NORMAL, PREEMPTED, PREEMPTING, note, evict.profile, related)

    def preempts(self, preemption: RecordPreemption) -> None:
        """An Event that kube-scheduler does not have: its preemptors do not say whom they preempt."""
        evict, victims = preemption.evict, preemption.victims
        names = [f"{victim.namespace}/{victim.name}" for victim in victims[:MAX_NAMED]]
        more = f" and {len(victims) - MAX_NAMED} more" if len(victims) > MAX_NAMED else ""
        nodes = list(dict.fromkeys(victim.node or evict.node for victim in victims))
        where = f"node {nodes[0]}" if len(nodes) == 1 else f"{len(nodes)} nodes"
        despite = _despite(victims)
        note = f"evicted {len(victims)} pod(s) of lower priority from {where}{despite}: {', '.join(names)}{more}"
        if evict.gang:
            note = f"for podgroup {name_of_gang(evict.gang)}: {note}"
        pod = PodRef(evict.namespace, evict.name, evict.uid)
        self._event(pod, NORMAL, PREEMPTING, PREEMPTING, note, evict.profile)

    def clear_nomination(self, cleared: ClearNomination) -> None:
        self._statuses.put(NominationCleared(_ref(cleared.pod), cleared.node))

    def leave(self) -> None:
        """No condition is delayed from now on."""
        self._delayed.flush()

    async def close(self) -> None:
        self._delayed.close()
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


def _despite(victims: Sequence[EvictedPod]) -> str:
    """The PodDisruptionBudgets that did not allow these evictions; before the names of pods, which may be cut."""
    budgets = sorted({f"{victim.namespace}/{name}" for victim in victims for name in victim.violates})
    if not budgets:
        return ""
    more = f" and {len(budgets) - MAX_BUDGETS_NAMED} more" if len(budgets) > MAX_BUDGETS_NAMED else ""
    plural = "s" if len(budgets) > 1 else ""
    return f", in spite of PodDisruptionBudget{plural} {', '.join(budgets[:MAX_BUDGETS_NAMED])}{more}"


def _ref(pod: Displaced) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
