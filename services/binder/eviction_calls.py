"""Carries out the effects of evictions: calls to the API server, messages to binders, queue and snapshot."""

import asyncio
import math
from collections.abc import Callable

from msgspec.structs import replace

from services.binder.eviction_core import MAX_CALLS, MAX_ENDED, MAX_RUNNING, REPEAT_SECONDS, Effect
from services.binder.eviction_state import (
    Answered,
    ClearNomination,
    Done,
    EvictedAcknowledged,
    EvictionBegan,
    EvictionCall,
    EvictionEnded,
    Failed,
    Found,
    Gone,
    Key,
    RecordPreempted,
    RecordPreemption,
    Reply,
    Step,
)
from services.binder.group_reader import GroupReader
from services.binder.metrics import BinderMetrics
from services.binder.nomination_checks import NominationChecks
from services.binder.status_reporter import StatusReporter
from services.binder.worker_pool import WorkerPool
from shared.bounded import BoundedDict
from shared.bus import NoAnswer
from shared.bus.subjects import BINDER_WITHDRAWALS, QUEUE_EVICTED
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.events_and_conditions import DisruptionTarget, ObservedPod, PodRef
from shared.kube.outcome import CallOutcome, CallResult
from shared.messages.binding import Evict, Evicted, Withdraw
from shared.messages.queue import Received
from shared.runtime import Context
from shared.telemetry.logs import Repeated

RETRIABLE = (CallOutcome.CONFLICT, CallOutcome.THROTTLED, CallOutcome.UNREACHABLE)
"""The call was not carried out, and may be the next time."""
MAX_REPORTS = 16
"""Ends that are reported at the same time: no more pile up at a queue that is slow to acknowledge them."""
CHECKED_SECONDS = 1.0
"""For so long no further victim needs another look-up of the preemptor at the API server."""
GONE = "is gone"
NEVER = "Never"
NOT_NOMINATED = "the snapshot does not know this nomination with these victims"


class EvictionCalls:
    def __init__(
        self,
        context: Context,
        client: KubeClient,
        groups: GroupReader,
        status: StatusReporter,
        metrics: BinderMetrics,
        feed: Callable[[Answered | EvictedAcknowledged], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._bus = context.bus
        self._limited_log = Repeated(context.log)
        self._client = client
        self._groups = groups
        self._status = status
        self._metrics = metrics
        self._feed = feed
        self._clock = context.clock
        self._date = context.date
        self._nominations = NominationChecks(context.bus, failed)
        self._checked: BoundedDict[Key, tuple[float, int]] = BoundedDict(MAX_RUNNING)
        """When each preemptor was last known to wait for its eviction, and its priority."""
        self._calls: WorkerPool[EvictionCall] = WorkerPool(
            self._make, max_workers=MAX_CALLS, max_waiting=MAX_CALLS, failed=failed
        )
        self._reports: WorkerPool[Evicted] = WorkerPool(
            self._report, max_workers=MAX_REPORTS, max_waiting=MAX_ENDED, failed=failed
        )
        self._reporting: set[Key] = set()
        """Ends whose report waits or is under way."""

    async def close(self) -> None:
        await self._calls.close()
        await self._nominations.close()
        await self._reports.close()

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case EvictionCall():
                if not self._calls.put(effect):
                    self._feed(Answered(effect, Failed("too many calls are under way")))
            case Withdraw():
                self._bus.post(BINDER_WITHDRAWALS, effect)
            case Evicted(uid=uid, attempt=attempt, failure=failure):
                if (uid, attempt) not in self._reporting and self._reports.put(effect):
                    self._reporting.add((uid, attempt))
                if failure:
                    self._limited_log.warning(f"{uid} {attempt}", "preemption for pod %s failed: %s", uid, failure)
            case RecordPreempted():
                self._status.preempted(effect)
            case RecordPreemption():
                self._status.preempts(effect)
            case ClearNomination():
                self._status.clear_nomination(effect)
            case EvictionBegan(victims=victims):
                self._metrics.victims.observe(victims)
            case EvictionEnded():
                self._metrics.eviction_ended(effect)

    async def _report(self, evicted: Evicted) -> None:
        """Without an acknowledgement the core has it sent again."""
        try:
            await self._bus.request(QUEUE_EVICTED, evicted, Received, timeout=REPEAT_SECONDS)
        except NoAnswer as none:
            self._limited_log.warning(none.silence, "the end of an eviction is not acknowledged: %s", none)
        except FlotillaError as cause:
            self._limited_log.warning(type(cause).__name__, "the end of an eviction cannot be reported: %s", cause)
        else:
            self._feed(EvictedAcknowledged(evicted.uid, evicted.attempt))
        finally:
            self._reporting.discard((evicted.uid, evicted.attempt))

    async def _make(self, call: EvictionCall) -> None:
        try:
            async with asyncio.timeout(max(call.deadline - self._clock(), 0.0)):
                reply = await self._reply(call)
        except TimeoutError:
            reply = Failed("there was no time left for it", maybe_done=True)
        except FlotillaError as cause:
            reply = Failed(str(cause), final=True)
        self._feed(Answered(call, reply))

    async def _reply(self, call: EvictionCall) -> Reply:
        victim = call.victim
        pod = PodRef(victim.namespace, victim.name, victim.uid)
        if call.step in (Step.MARK, Step.DELETE) and (failed := await self._check(call)) is not None:
            return failed
        match call.step:
            case Step.LOOK_UP:
                return await self._victim(pod)
            case Step.MARK | Step.CANCEL:
                assert call.condition is not None
                return await self._mark(pod, self._dated(call.condition))
            case Step.DELETE:
                return reply_of(await self._client.delete_pod(pod, call.version))

    async def _mark(self, pod: PodRef, condition: DisruptionTarget) -> Reply:
        try:
            marked = await self._client.patch_and_observe(pod, condition)
        except Unreachable as cause:
            return Failed(str(cause))
        except Refused as cause:
            return Failed(cause.message, final=_is_final(cause.status))
        return Gone() if marked is None else Done(marked.version)

    def _dated(self, condition: DisruptionTarget) -> DisruptionTarget:
        """By the wall clock, which the core does not know."""
        if condition.since is None:
            return condition
        return replace(condition, since=self._date(condition.since))

    async def _check(self, call: EvictionCall) -> Failed | None:
        """Why the victim must not go; None if it must.

        The snapshot is asked each time: another binder may carry out the same eviction, and may have ended it.
        """
        if (failed := await self._check_nomination(call.evict)) is not None:
            return failed
        now = self._clock()
        at, priority = self._checked.get(call.key, (-math.inf, 0))
        if at + CHECKED_SECONDS <= now:
            preemptor = await self._preemptor(call.evict)
            if isinstance(preemptor, Failed):
                return preemptor
            priority = preemptor.priority
            self._checked[call.key] = now, priority
        if priority <= call.priority:
            return Failed(f"the preemptor has priority {priority}, and the victim {call.priority}", final=True)
        return None

    async def _preemptor(self, evict: Evict) -> ObservedPod | Failed:
        """The preemptor, if it still waits for this eviction."""
        reply = await self._look_up(PodRef(evict.namespace, evict.name, evict.uid))
        if isinstance(reply, Failed):
            return reply
        pod = reply.pod if isinstance(reply, Found) else None
        if pod is not None and pod.group:
            *_, root = [None, *await self._groups.path(evict.namespace, pod.group)]
            if root is not None and root.never_preempts:
                pod = replace(pod, policy=NEVER)
            if root is not None and root.priority is not None:
                pod = replace(pod, priority=root.priority)
        if pod is None or (why := _why_not(pod, evict)):
            return Failed(f"the preemptor {GONE if pod is None else why}", final=True)
        return pod

    async def _victim(self, pod: PodRef) -> Reply:
        """Looks it up; it is as important as its group, or the root of its tree, if this has a priority.

        Nobody protects a pod by a group that cannot be read: while others go in vain, it would stay.
        """
        reply = await self._look_up(pod)
        if not isinstance(reply, Found) or not reply.pod.group:
            return reply
        path = await self._groups.path_as_watched(pod.namespace, reply.pod.group)
        priority = path[-1].priority if path else None
        return reply if priority is None else Found(replace(reply.pod, priority=priority))

    async def _check_nomination(self, evict: Evict) -> Failed | None:
        """Asks the snapshot, which owns nominations, whether this one stands, and its eviction has not ended."""
        try:
            nominated = await self._nominations.ask(evict)
        except FlotillaError as cause:
            return Failed(f"the snapshot does not say whether the nomination stands: {cause}")
        if nominated.epoch < evict.epoch:
            return Failed(f"a snapshot of epoch {nominated.epoch} answers, not of {evict.epoch}")
        return None if nominated.stands else Failed(NOT_NOMINATED, final=True)

    async def _look_up(self, pod: PodRef) -> Reply:
        try:
            standing = await self._client.observe_pod(pod.namespace, pod.name)
        except Unreachable as cause:
            return Failed(str(cause))
        except Refused as cause:
            return Failed(cause.message, final=_is_final(cause.status))
        return Gone() if standing is None else Found(standing)


def _why_not(pod: ObservedPod, evict: Evict) -> str:
    """Empty if the pod still waits for the node. Its status may not show the nomination yet."""
    if pod.uid != evict.uid or pod.terminating:
        return GONE
    if pod.policy == NEVER:
        return "may not preempt: its preemptionPolicy is Never"
    if pod.node:
        return f"is on node {pod.node}"
    if pod.nominated not in ("", evict.node):
        return f"is nominated to node {pod.nominated} now"
    return ""


def reply_of(result: CallResult) -> Reply:
    """A 5xx answer, or none, leaves open whether the call was carried out."""
    if result.ok:
        return Done()
    if result.outcome is CallOutcome.NOT_FOUND:
        return Gone()
    if result.outcome in RETRIABLE:
        return Failed(result.message)
    return Failed(result.message, final=_is_final(result.status), maybe_done=not _is_final(result.status))


def _is_final(status: int) -> bool:
    """Whether the same request would be refused again."""
    return 400 <= status < 500 and status not in (409, 429)
