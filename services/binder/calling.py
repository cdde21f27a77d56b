"""Calls to the API server on behalf of attempts: what became of each, in the core's words."""

import asyncio
from collections.abc import Callable

from services.binder.events import Call, Called, Done, Event, LookedUp, LookUp, Refused, Result, Unknown, Where
from services.binder.metrics import BinderMetrics
from services.binder.spans import BindSpans
from shared.errors import FlotillaError
from shared.kube import outcome as kube
from shared.kube.client import CALL_PATIENCE, KubeClient
from shared.kube.outcome import Outcome

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
    ) -> None:
        self._client = client
        self._feed = feed
        self._awaits = awaits
        self._clock = clock
        self._metrics = metrics
        self._spans = spans

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
        if self._spans.enabled and self._awaits(call):
            self._spans.called(call, result, began, ended)
        self._feed(Called(call.uid, call.attempt, call.step, result))

    async def _execute(self, call: Call, seconds: float) -> Result:
        if seconds <= 0:
            return Unknown("there was no time left for it")
        try:
            if seconds > CALL_PATIENCE:
                return result_of(await self._client.execute(call.api))
            async with asyncio.timeout(seconds):
                return result_of(await self._client.execute(call.api))
        except TimeoutError:
            return Unknown(f"no answer within {seconds:.1f} s")
        except FlotillaError as cause:
            return Refused(0, str(cause))  # a call that cannot be made at all

    async def _look_up(self, wanted: LookUp) -> LookedUp:
        where, node = Where.UNKNOWN, ""
        try:
            pod = await self._client.get_pod(wanted.namespace, wanted.name)
        except FlotillaError:
            pass  # asked again, and left to the snapshot in the end
        else:
            if pod is None or pod.uid != wanted.uid:
                where = Where.GONE
            else:
                node = pod.spec.node_name or ""
                where = Where.ON_NODE if node else Where.UNBOUND
        return LookedUp(wanted.uid, wanted.attempt, where, node)


def result_of(result: kube.Result) -> Result:
    """An answer of 5xx leaves open what was done, whatever else it says."""
    if result.ok:
        return DONE
    if result.outcome is Outcome.UNKNOWN or result.status >= 500:
        return Unknown(result.message)
    return Refused(result.status, result.message)
