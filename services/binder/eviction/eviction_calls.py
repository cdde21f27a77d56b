"""Evictor: carries out what `evicting` wants: calls to the API server, and words to binders, queue and owners."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from services.binder.eviction.eviction_core import MOST_ASKED, MOST_TOLD, REPEAT, Effect
from services.binder.eviction.eviction_state import (
    Answered,
    Ask,
    Began,
    Done,
    Failed,
    Found,
    Gone,
    Heard,
    Over,
    Preempted,
    Reply,
    Step,
    Unnominate,
)
from services.binder.metrics import BinderMetrics
from services.binder.status.status_reporter import Telling
from services.binder.worker_pool import Pool
from shared.bus import NoAnswer
from shared.bus.subjects import BINDER_WITHDRAWALS, QUEUE_EVICTED, SNAPSHOT_NOMINATED
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.notes import DisruptionTarget, PodRef, PodStanding
from shared.kube.outcome import Outcome, Result
from shared.messages.binding import Evict, Evicted, IsNominated, Nominated, Withdraw
from shared.messages.queue import Received
from shared.runtime import Context
from shared.telemetry.logs import Repeated

TRANSIENT = (Outcome.CONFLICT, Outcome.THROTTLED, Outcome.UNREACHABLE)
"""It was not done, and may well be the next time."""
MOST_TOLD_AT_ONCE = 64
GONE = "is gone"
NEVER = "Never"
NOT_NOMINATED = "the snapshot knows of no such nomination with these victims, or not any more"
ANSWER_PATIENCE = 1.0
"""Seconds for the snapshot to say whether a nomination stands; after that it is asked again, as is all that fails."""
SEEN_LATELY = 1.0
"""Seconds after which the pod that others make way for is looked at again before the next of them is touched."""


class Evictor:
    def __init__(
        self,
        context: Context,
        client: KubeClient,
        telling: Telling,
        metrics: BinderMetrics,
        feed: Callable[[Answered | Heard], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._bus = context.bus
        self._sparingly = Repeated(context.log)
        self._client = client
        self._telling = telling
        self._metrics = metrics
        self._feed = feed
        self._clock = context.clock
        self._seen: OrderedDict[tuple[str, int], tuple[float, int]] = OrderedDict()
        """When the preemptor of an eviction was last known to wait for it, and its priority; the latest last."""
        self._date = context.date
        self._calls: Pool[Ask] = Pool(self._ask, most_workers=MOST_ASKED, most_waiting=MOST_ASKED, failed=failed)
        self._ends: Pool[Evicted] = Pool(
            self._tell, most_workers=MOST_TOLD_AT_ONCE, most_waiting=MOST_TOLD, failed=failed
        )

    async def close(self) -> None:
        await self._calls.close()
        await self._ends.close()

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Ask():
                if not self._calls.put(effect):
                    self._feed(Answered(effect, Failed("too many calls are under way")))
            case Withdraw():
                self._bus.post(BINDER_WITHDRAWALS, effect)
            case Evicted(uid=uid, attempt=attempt, failure=failure):
                self._ends.put(effect)
                if failure:
                    self._sparingly.warning(f"{uid} {attempt}", "not all make way for pod %s: %s", uid, failure)
            case Preempted():
                self._telling.preempted(effect)
            case Unnominate():
                self._telling.unnominate(effect)
            case Began(victims=victims):
                self._metrics.victims.observe(victims)
            case Over():
                self._metrics.evicted(effect)

    async def _tell(self, evicted: Evicted) -> None:
        """If nothing comes back, the core has it told again."""
        try:
            await self._bus.request(QUEUE_EVICTED, evicted, Received, timeout=REPEAT)
        except NoAnswer as none:
            self._sparingly.warning(none.silence, "the end of an eviction is not acknowledged: %s", none)
        except FlotillaError as cause:
            self._sparingly.warning(type(cause).__name__, "the end of an eviction cannot be told: %s", cause)
        else:
            self._feed(Heard(evicted.uid, evicted.attempt))

    async def _ask(self, ask: Ask) -> None:
        try:
            async with asyncio.timeout(max(ask.deadline - self._clock(), 0.0)):
                reply = await self._reply(ask)
        except TimeoutError:
            reply = Failed("there was no time left for it", maybe_done=True)
        except FlotillaError as cause:
            reply = Failed(str(cause), final=True)
        self._feed(Answered(ask, reply))

    async def _reply(self, ask: Ask) -> Reply:
        victim = ask.victim
        pod = PodRef(victim.namespace, victim.name, victim.uid)
        if ask.step is not Step.LOOK and (void := await self._why_void(ask)) is not None:
            return void
        match ask.step:
            case Step.LOOK:
                return await self._look(pod)
            case Step.MARK:
                return reply_of(await self._client.patch_pod_condition(pod, self._dated(ask.condition)))
            case Step.DELETE:
                return reply_of(await self._client.delete_pod(pod))

    def _dated(self, condition: DisruptionTarget | None) -> DisruptionTarget | None:
        """By the wall clock; the core knows only its own."""
        if condition is None or condition.since is None:
            return condition
        return replace(condition, since=self._date(condition.since))

    async def _why_void(self, ask: Ask) -> Failed | None:
        """Why the victim is not to go. None: it is, by what snapshot and API server said less than a second ago."""
        now = self._clock()
        at, priority = self._seen.get(ask.key, (-math.inf, 0))
        if at + SEEN_LATELY <= now:
            preemptor = await self._preemptor(ask.evict)
            if isinstance(preemptor, Failed):
                return preemptor
            priority = preemptor.priority
            self._remember(ask.key, now, priority)
        if priority <= ask.priority:
            why = f"is of priority {priority}, and the victim of {ask.priority}"
            return Failed(f"the pod they make way for {why}", final=True)
        return None

    async def _preemptor(self, evict: Evict) -> PodStanding | Failed:
        """The pod that others make way for, if there is still a reason for that."""
        if (refusal := await self._why_not_nominated(evict)) is not None:
            return refusal
        reply = await self._look(PodRef(evict.namespace, evict.name, evict.uid))
        if isinstance(reply, Failed):
            return reply
        pod = reply.pod if isinstance(reply, Found) else None
        if pod is None or (why := _why_not(pod, evict)):
            return Failed(f"the pod they make way for {GONE if pod is None else why}", final=True)
        return pod

    async def _why_not_nominated(self, evict: Evict) -> Failed | None:
        """None: the snapshot, which owns nominations, says that this one stands, for these victims."""
        victims = [victim.uid for victim in evict.victims]
        asked = IsNominated(evict.uid, evict.attempt, evict.node, victims)
        try:
            nominated = await self._bus.request(SNAPSHOT_NOMINATED, asked, Nominated, timeout=ANSWER_PATIENCE)
        except FlotillaError as cause:
            return Failed(f"the snapshot does not say whether the nomination stands: {cause}")
        if nominated.epoch < evict.epoch:
            return Failed(f"a snapshot of epoch {nominated.epoch} answers, not of {evict.epoch}")
        return None if nominated.stands else Failed(NOT_NOMINATED, final=True)

    def _remember(self, key: tuple[str, int], now: float, priority: int) -> None:
        self._seen[key] = now, priority
        self._seen.move_to_end(key)
        while next(iter(self._seen.values()))[0] + SEEN_LATELY <= now:
            self._seen.popitem(last=False)

    async def _look(self, pod: PodRef) -> Reply:
        try:
            standing = await self._client.pod_standing(pod.namespace, pod.name)
        except Unreachable as cause:
            return Failed(str(cause))
        except Refused as cause:
            return Failed(cause.message, final=_is_final(cause.status))
        return Gone() if standing is None else Found(standing)


def _why_not(pod: PodStanding, evict: Evict) -> str:
    """Empty where it still waits for room there. The status may not show its nomination yet."""
    if pod.uid != evict.uid or pod.terminating:
        return GONE
    if pod.policy == NEVER:
        return "may not preempt: its preemptionPolicy is Never"
    if pod.node:
        return f"is on node {pod.node}"
    if pod.nominated not in ("", evict.node):
        return f"is nominated to node {pod.nominated} by now"
    return ""


def reply_of(result: Result) -> Reply:
    """An answer of 5xx, or none, leaves open what was done."""
    if result.ok:
        return Done()
    if result.outcome is Outcome.NOT_FOUND:
        return Gone()
    if result.outcome in TRANSIENT:
        return Failed(result.message)
    return Failed(result.message, final=_is_final(result.status), maybe_done=not _is_final(result.status))


def _is_final(status: int) -> bool:
    """Whether the same request would be refused again."""
    return 400 <= status < 500 and status not in (409, 429)
