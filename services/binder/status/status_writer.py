"""StatusWriter: writes into pods' statuses what `statuses` says, some pods at a time. Best effort.

A word never overtakes a binding: it is written only onto the version of the pod that it is said of. Where the pod has
changed since, or its version is not known, it is looked at first; if it is bound or gone, nothing is said any more.
"""

import asyncio
import logging

from services.binder.metrics import BinderMetrics
from services.binder.statuses import Place, Status, Statuses, Told
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.notes import POD_SCHEDULED, PodStanding
from shared.kube.outcome import Outcome, Result
from shared.telemetry.logs import Repeated

MOST_AT_ONCE = 8
MOST_PODS = 1 << 16

NOT_THERE = (Outcome.NOT_FOUND, Outcome.CONFLICT)
"""The pod is gone, or another one has its name."""
TOO_MANY = 429
NOT_SO = 422
"""What the API server says where the nomination that is to be cleared does not stand there."""

NOT_DONE = (Outcome.THROTTLED, Outcome.UNREACHABLE, Outcome.UNKNOWN)
"""As far as is known, and it may well be the next time; where it was done, it does no harm to say it again."""
TRIES = 4
"""What is older than some seconds may not be so any more; the queue says it again if the pod does not show it."""
LOOKS = 3
"""How often a pod is looked at that changes under one's hands."""
OK = Result(Outcome.OK)
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0


class StatusWriter:
    def __init__(self, client: KubeClient, metrics: BinderMetrics, log: logging.Logger) -> None:
        self._client = client
        self._metrics = metrics
        self._sparingly = Repeated(log)
        self._statuses = Statuses(MOST_PODS)
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        return not self._workers

    def put(self, told: Told) -> None:
        match self._statuses.put(told):
            case Place.JOINED:
                self._metrics.statuses_joined.inc()
            case Place.NONE:
                self._metrics.events.crowded.inc()
                self._sparingly.warning("crowded", "too many pods wait for their conditions: one is dropped")
        if len(self._workers) < MOST_AT_ONCE:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._gone)

    def forget(self, uid: str) -> None:
        """The pod is bound: what still waits to be said of it is not so any more."""
        self._statuses.forget(uid)

    async def close(self) -> None:
        """What waits is thrown away, and what is under way is cut off."""
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        tries = 0
        while (told := self._statuses.take()) is not None:
            result = await self._write(told)
            if result.outcome in NOT_DONE and tries < TRIES - 1:
                self._statuses.again(told)
                await asyncio.sleep(min(result.retry_after or FIRST_PAUSE * 2**tries, LONGEST_PAUSE))
                tries += 1
                continue
            tries = 0
            self._statuses.done(told)
            if not (result.ok or (result.status == NOT_SO and not isinstance(told, Status))):
                self._on_failure(told, result)

    async def _write(self, told: Told) -> Result:
        try:
            if not isinstance(told, Status):
                return await self._client.clear_nomination(told.pod, told.node)
            return await self._say(told)
        except Unreachable as cause:
            return Result(Outcome.UNREACHABLE, message=str(cause))
        except Refused as cause:
            again = cause.status == TOO_MANY or cause.status >= 500
            outcome = Outcome.THROTTLED if again else Outcome.FAILED
            return Result(outcome, cause.status, cause.message, cause.retry_after)
        except FlotillaError as cause:
            return Result(Outcome.FAILED, message=str(cause))

    async def _say(self, told: Status) -> Result:
        """OK as well where there is nothing to say any more. Raises what a look at the pod raises."""
        result, version = OK, told.version
        for looks in range(LOOKS + 1):
            if version:
                result = await self._client.patch_pod_condition(told.pod, told.condition, told.nominated, version)
                if result.outcome is not Outcome.CONFLICT or looks == LOOKS:
                    break
            pod = await self._client.pod_standing(told.pod.namespace, told.pod.name)
            if pod is None or pod.uid != told.pod.uid or pod.node or _shows(pod, told):
                return OK
            version = pod.version
        return result

    def _on_failure(self, told: Told, result: Result) -> None:
        self._metrics.events.failed.inc()
        if result.outcome not in NOT_THERE:
            what, name = _name(told), f"{told.pod.namespace}/{told.pod.name}"
            self._sparingly.warning(f"{what} {result.status}", "%s: %s not written: %s", name, what, result.message)

    def _gone(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        cause = None if worker.cancelled() else worker.exception()
        if cause is not None:
            self._metrics.events.failed.inc()
            self._sparingly.error(type(cause).__name__, "a condition is not written: %r", cause, exc_info=cause)


def _shows(pod: PodStanding, told: Status) -> bool:
    """Whether all of this stands there already."""
    if told.nominated not in (None, pod.nominated):
        return False
    why = told.condition
    return why is None or any(
        (c.type, c.status, c.reason, c.message) == (POD_SCHEDULED, "False", why.reason, why.message)
        for c in pod.conditions
    )


def _name(told: Told) -> str:
    return "a condition" if isinstance(told, Status) else "a nomination"
