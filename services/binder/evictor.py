"""Evictor: carries out what `evicting` wants: calls to the API server, and words to binders, queue and owners."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from services.binder.evicting import MOST_ASKED, MOST_TOLD, REPEAT, Effect
from services.binder.eviction import (
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
from services.binder.pool import Pool
from services.binder.telling import Telling
from shared.bus import NoAnswer
from shared.bus.subjects import BINDER_WITHDRAWALS, QUEUE_EVICTED
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.notes import DisruptionTarget, PodRef, PodStanding
from shared.kube.outcome import Outcome, Result
from shared.messages.binding import Evict, Evicted, Withdraw
from shared.messages.queue import Received
from shared.runtime import Context
from shared.telemetry.logs import Repeated

TRANSIENT = (Outcome.CONFLICT, Outcome.THROTTLED, Outcome.UNREACHABLE)
"""It was not done, and may well be the next time."""
MOST_TOLD_AT_ONCE = 64
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
        self._seen_at: OrderedDict[tuple[str, int], float] = OrderedDict()
        """When the preemptor of an eviction was last seen to wait for it; the latest last."""
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
        """Why nobody is to go any more. None: the preemptor was seen to wait for it less than a second ago."""
        now = self._clock()
        if self._seen_at.get(ask.key, -math.inf) + SEEN_LATELY > now:
            return None
        evict = ask.evict
        reply = await self._look(PodRef(evict.namespace, evict.name, evict.uid))
        if isinstance(reply, Failed):
            return reply
        why = _why_not(reply.pod if isinstance(reply, Found) else None, evict)
        if why:
            return Failed(f"the pod they make way for {why}", final=True)
        self._seen_at[ask.key] = now
        self._seen_at.move_to_end(ask.key)
        while next(iter(self._seen_at.values())) + SEEN_LATELY <= now:
            self._seen_at.popitem(last=False)
        return None

    async def _look(self, pod: PodRef) -> Reply:
        try:
            standing = await self._client.pod_standing(pod.namespace, pod.name)
        except Unreachable as cause:
            return Failed(str(cause))
        except Refused as cause:
            return Failed(cause.message, final=_is_final(cause.status))
        return Gone() if standing is None else Found(standing)


def _why_not(pod: PodStanding | None, evict: Evict) -> str:
    """Empty where it still waits for room there. The status may not show its nomination yet."""
    if pod is None or pod.uid != evict.uid or pod.terminating:
        return "is gone"
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
