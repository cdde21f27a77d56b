"""EventWriter: writes Events in the background. `event_series` decides what is written, and when."""

import asyncio
from collections.abc import Callable

from shared.errors import FlotillaError
from shared.kube.client import STRATEGIC_MERGE_PATCH, KubeClient
from shared.kube.event_series import POLL, Admission, EventSeries, Limits, Write, WriteEnd
from shared.kube.events_and_conditions import PodEvent, series_body, series_path
from shared.kube.outcome import CallOutcome, CallResult
from shared.telemetry.logs import Repeated
from shared.telemetry.metrics import Metrics

MAX_AT_ONCE = 4
"""Concurrent calls; an answer takes milliseconds, so these suffice for the rate limit."""
LONGEST_POLL = 1.0
"""Seconds until the writer checks again, at most."""

NOT_THERE = frozenset({CallOutcome.NOT_FOUND, CallOutcome.CONFLICT})
"""The pod's namespace is gone."""


class EventMetrics:
    """`crowded` and `failed` also count conditions, which are written beside Events."""

    def __init__(self, metrics: Metrics) -> None:
        dropped = metrics.counter(
            "flotilla_events_dropped_total",
            "Events and conditions dropped: too many were waiting, or too many about one pod.",
            ("reason",),
        )
        self.crowded = dropped.labels(Admission.CROWDED.value)
        self.spam = dropped.labels(Admission.SPAM.value)
        self.failed = metrics.counter(
            "flotilla_events_failed_total", "Events and conditions that the API server refused."
        )
        self.counted = metrics.counter(
            "flotilla_events_counted_total", "Repeats of Events counted in a series instead of being written."
        )
        self.waiting = metrics.gauge("flotilla_events_waiting", "Events that wait to be written.")


class EventWriter:
    """`yields`: whether something more important waits for the API server."""

    def __init__(
        self,
        client: KubeClient,
        metrics: EventMetrics,
        log: Repeated,
        *,
        yields: Callable[[], bool],
        limits: Limits | None = None,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._log = log
        self._yields = yields
        self._core = EventSeries(limits)
        metrics.waiting.set_function(lambda: self._core.waiting)
        self._loop = asyncio.get_running_loop()
        self._writing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._polls_at = 0.0
        """When the timer fires; not every event loop's timers know."""
        self._closed = False

    @property
    def idle(self) -> bool:
        """Every Event is written; counts may still be due later."""
        return not (self._writing or self._core.waiting)

    def record(self, event: PodEvent) -> None:
        if self._closed:
            return
        fate = self._core.occurred(event, self._loop.time())
        if fate is not Admission.WAITS:
            self._count_dropped(fate)
        timer = self._timer
        if timer is None:
            if len(self._writing) < MAX_AT_ONCE:
                self._poll_in(POLL)
        elif fate is Admission.WAITS and self._polls_at > self._loop.time() + POLL:
            timer.cancel()
            self._poll_in(POLL)

    async def close(self) -> None:
        """Drop what waits, cancel writes in progress, ignore later Events."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        writing = list(self._writing)
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)

    def _count_dropped(self, fate: Admission) -> None:
        match fate:
            case Admission.COUNTED:
                self._metrics.counted.inc()
            case Admission.CROWDED:
                self._metrics.crowded.inc()
                self._log.warning("crowded", "an Event is dropped: too many are waiting")
            case Admission.SPAM:
                self._metrics.spam.inc()
                self._log.warning("spam", "an Event is dropped: too many about one pod")

    def _poll_in(self, seconds: float) -> None:
        self._polls_at = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._poll)

    def _poll(self) -> None:
        self._timer = None
        for _ in range(min(MAX_AT_ONCE - len(self._writing), self._core.waiting or 1)):
            task = self._loop.create_task(self._work())
            self._writing.add(task)
            task.add_done_callback(self._finished)

    async def _work(self) -> None:
        """Write everything that may be written now."""
        while write := self._core.next(self._loop.time(), yielding=self._yields()):
            await self._write(write)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        cause = None if task.cancelled() else task.exception()
        if cause is not None:
            self._metrics.failed.inc()
            self._log.error(type(cause).__name__, "an Event is not written: %r", cause, exc_info=cause)
        if self._timer is None and not self._closed:
            wait = self._core.wait(self._loop.time())
            if wait is not None:
                self._poll_in(min(wait, LONGEST_POLL))

    async def _write(self, write: Write) -> None:
        result = await self._ask(write)
        ending = self._core.ended(write, result, self._loop.time())
        if ending is WriteEnd.WRITTEN:
            return
        if ending is WriteEnd.FAILED:
            self._metrics.failed.inc()
        if result.outcome not in NOT_THERE:
            pod, what = write.event.pod, f"an Event {result.outcome} {result.status}"
            said = "not written" if ending is WriteEnd.FAILED else "not written now"
            self._log.warning(what, "%s/%s: an Event is %s: %s", pod.namespace, pod.name, said, result.message)

    async def _ask(self, write: Write) -> CallResult:
        event = write.event
        try:
            if write.creates:
                return await self._client.create_event(event)
            body = series_body(event)
            return await self._client.try_call("PATCH", series_path(event), body, content_type=STRATEGIC_MERGE_PATCH)
        except FlotillaError as cause:
            return CallResult(CallOutcome.FAILED, message=str(cause))
