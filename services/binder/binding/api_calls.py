"""Calls to the API server on behalf of attempts: what became of each, in the core's words."""

from collections.abc import Callable

from flotilla.results import ApiCall
from services.binder.events import (
    Call,
    Called,
    Done,
    Event,
    ExtenderBinding,
    LookedUp,
    LookUp,
    Refused,
    Result,
    Unknown,
    Where,
)
from services.binder.extended import execute
from services.binder.metrics import BinderMetrics
from services.binder.spans import BindSpans
from shared.errors import FlotillaError
from shared.extenders.client import ExtenderClient
from shared.kube import errors
from shared.kube import outcome as kube
from shared.kube.client import CALL_PATIENCE, KubeClient
from shared.kube.fencing import fence
from shared.kube.notes import PodRef, PodStanding
from shared.kube.outcome import Outcome
from shared.model.objects import encode_json

DONE = Done()


class Calling:
    def __init__(
        self,
        client: KubeClient,
        feed: Callable[[Event], None],
        awaits: Callable[[Call], bool],
        clock: Callable[[], float],
        metrics: BinderMetrics,
        spans: BindSpans,
        extenders: ExtenderClient,
    ) -> None:
        self._client = client
        self._feed = feed
        self._awaits = awaits
        self._clock = clock
        self._metrics = metrics
        self._spans = spans
        self._extenders = extenders

    async def make(self, wanted: Call | LookUp) -> None:
        if isinstance(wanted, LookUp):
            self._feed(await self._look_up(wanted))
        elif self._awaits(wanted):
            await self._call(wanted)

    async def _call(self, call: Call) -> None:
        began = self._clock()
        result = await self._execute(call, call.deadline - began)
        ended = self._clock()
        if call.binds:
            self._metrics.called(result, ended - began)
        if self._spans.enabled and not _only_looks(call.api) and self._awaits(call):
            self._spans.called(call, result, began, ended)
        self._feed(Called(call.uid, call.attempt, call.step, result))

    async def _execute(self, call: Call, seconds: float) -> Result:
        if seconds <= 0:
            return Unknown("there was no time left for it")
        if isinstance(call.api, ExtenderBinding):
            return await execute(self._extenders, call.api, seconds)
        try:
            return await self._ask(call.api, call.binds, min(seconds, CALL_PATIENCE))
        except FlotillaError as cause:
            return Refused(0, str(cause))  # a call that cannot be made at all

    async def _ask(self, api: ApiCall, binds: bool, patience: float) -> Result:
        """What the server answers to a call that binds is not worth keeping."""
        if binds:
            return result_of(await self._client.execute(api, patience))
        try:
            body = None if _only_looks(api) else encode_json(api.body)
            answer = await self._client.call(api.method, api.path, body, timeout=patience)
        except errors.Unreachable as cause:
            return Unknown(str(cause)) if cause.maybe_done else Refused(0, str(cause))
        except errors.Refused as cause:
            return Refused(cause.status, cause.message)
        if answer.ok:
            return Done(answer.body)
        return result_of(kube.result_of(answer))

    async def _look_up(self, wanted: LookUp) -> LookedUp:
        try:
            pod = await self._standing(wanted)
        except FlotillaError:  # asked again, and left to the snapshot in the end
            return LookedUp(wanted.uid, wanted.attempt, Where.UNKNOWN)
        if pod is None or pod.uid != wanted.uid:
            return LookedUp(wanted.uid, wanted.attempt, Where.GONE)
        where = Where.ON_NODE if pod.node else Where.UNBOUND
        return LookedUp(wanted.uid, wanted.attempt, where, pod.node, pod.version, pod.terminating)

    async def _standing(self, wanted: LookUp) -> PodStanding | None:
        if not wanted.fences:
            return await self._client.pod_standing(wanted.namespace, wanted.name)
        pod = PodRef(wanted.namespace, wanted.name, wanted.uid)
        return (await fence(self._client, pod, wanted.fences, f"attempt {wanted.attempt}")).standing


def _only_looks(api: ApiCall | ExtenderBinding) -> bool:
    """Such calls are too many for traces: whoever waits for something looks again and again."""
    return isinstance(api, ApiCall) and api.method == "GET"


def result_of(result: kube.Result) -> Result:
    """An answer of 5xx leaves open what was done, whatever else it says."""
    if result.ok:
        return DONE
    if result.outcome is Outcome.UNKNOWN or result.status >= 500:
        return Unknown(result.message)
    return Refused(result.status, result.message)
