"""Makes the calls of attempts, to the API server or to an extender, and tells the core their results.

A failure of an extender proves nothing, unless the extender says itself that the pod is not bound, or could not be
reached: the pod is looked up, as after a call to the API server that was cut off.
"""

import asyncio
from collections.abc import Callable

from flotilla.results import ApiCall
from services.binder import events
from services.binder.metrics import BinderMetrics, BindSpans
from shared.errors import FlotillaError
from shared.extenders.client import ExtenderClient
from shared.extenders.talk import ExtenderFailed, bind
from shared.kube import errors
from shared.kube.client import CALL_PATIENCE, KubeClient
from shared.kube.events_and_conditions import ObservedPod, PodRef
from shared.kube.fencing import fence
from shared.kube.outcome import CallOutcome, CallResult
from shared.kube.outcome import result_of as call_result_of
from shared.messages.state import BindingOrder
from shared.model.objects import encode_json

DONE = events.Done()


class ApiCalls:
    def __init__(
        self,
        client: KubeClient,
        feed: Callable[[events.Event], None],
        awaits: Callable[[events.Call | events.Nominate], bool],
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

    async def make(self, wanted: events.Call | events.LookUp | events.Nominate) -> None:
        if isinstance(wanted, events.LookUp):
            self._feed(await self._look_up(wanted))
        elif isinstance(wanted, events.Nominate):
            version = await self._nominate(wanted.order) if self._awaits(wanted) else ""
            self._feed(events.Nominated(wanted.uid, wanted.attempt, version))
        elif self._awaits(wanted):
            await self._call(wanted)

    async def _nominate(self, order: BindingOrder) -> str:
        """The pod's version after that; empty if the nomination was not written, or that is unknown."""
        of = order.assignment
        try:
            pod = await self._client.nominate(PodRef(of.namespace, of.name, of.uid), of.node, order.version)
        except FlotillaError:
            return ""
        return pod.version

    async def _call(self, call: events.Call) -> None:
        began = self._clock()
        result = await self._execute(call, call.deadline - began)
        ended = self._clock()
        if call.binds:
            self._metrics.called(result, ended - began)
        if self._spans.enabled and not _is_read(call.api) and self._awaits(call):
            self._spans.called(call, result, began, ended)
        self._feed(events.Called(call.uid, call.attempt, call.step, result))

    async def _execute(self, call: events.Call, seconds: float) -> events.Result:
        if seconds <= 0:
            return events.Unknown("there was no time left for it")
        if isinstance(call.api, events.ExtenderBinding):
            return await call_extender(self._extenders, call.api, seconds)
        try:
            return await self._call_server(call.api, call.binds, min(seconds, CALL_PATIENCE))
        except FlotillaError as cause:
            return events.Refused(0, str(cause))  # a call that cannot be made at all

    async def _call_server(self, api: ApiCall, binds: bool, timeout: float) -> events.Result:
        if binds:  # without the body of the answer, which is not needed
            return result_of(await self._client.execute(api, timeout))
        try:
            body = None if _is_read(api) else encode_json(api.body)
            answer = await self._client.call(api.method, api.path, body, timeout=timeout)
        except errors.Unreachable as cause:
            return events.Unknown(str(cause)) if cause.maybe_done else events.Refused(0, str(cause))
        except errors.Refused as cause:
            return events.Refused(cause.status, cause.message)
        return events.Done(answer.body) if answer.ok else result_of(call_result_of(answer))

    async def _look_up(self, wanted: events.LookUp) -> events.LookedUp:
        try:
            pod = await self._observe(wanted)
        except FlotillaError:  # the core asks again
            return events.LookedUp(wanted.uid, wanted.attempt, events.Where.UNKNOWN)
        if pod is None or pod.uid != wanted.uid:
            return events.LookedUp(wanted.uid, wanted.attempt, events.Where.GONE)
        where = events.Where.ON_NODE if pod.node else events.Where.UNBOUND
        return events.LookedUp(wanted.uid, wanted.attempt, where, pod.node, pod.version, pod.terminating)

    async def _observe(self, wanted: events.LookUp) -> ObservedPod | None:
        if not wanted.fences:
            return await self._client.observe_pod(wanted.namespace, wanted.name)
        pod = PodRef(wanted.namespace, wanted.name, wanted.uid)
        return (await fence(self._client, pod, wanted.fences, f"attempt {wanted.attempt}")).observed


async def call_extender(client: ExtenderClient, call: events.ExtenderBinding, timeout: float) -> events.Result:
    try:
        async with asyncio.timeout(timeout):
            await client.converse(bind(call.extender, call.body))
    except TimeoutError:
        return events.Unknown(f"no answer within {timeout:.1f} s")
    except ExtenderFailed as failed:
        return events.Unknown(str(failed)) if failed.maybe_done else events.Refused(0, str(failed))
    return DONE


def result_of(result: CallResult) -> events.Result:
    """A 5xx answer leaves open whether the call was carried out, even if its text says otherwise."""
    if result.ok:
        return DONE
    if result.outcome is CallOutcome.UNKNOWN or result.status >= 500:
        return events.Unknown(result.message)
    return events.Refused(result.status, result.message)


def _is_read(api: ApiCall | events.ExtenderBinding) -> bool:
    """Plugins poll: reads are too many for traces."""
    return isinstance(api, ApiCall) and api.method == "GET"
