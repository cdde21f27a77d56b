"""CoreRunner: what all shells have in common. It feeds a pure core, carries out its effects, and keeps its time."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from shared.errors import InvariantBroken
from shared.telemetry import Telemetry
from shared.telemetry.logs import Repeated

SHORTEST_SLEEP = 0.001
STUCK_SLEEP = 0.05
"""After a tick that has left a deadline in the past: nothing here may spin."""

Event = TypeVar("Event", contravariant=True)
Effect = TypeVar("Effect", covariant=True)
E = TypeVar("E")
F = TypeVar("F")


class Core(Protocol[Event, Effect]):
    def handle(self, event: Event, now: float) -> Iterable[Effect]: ...

    def next_deadline(self) -> float | None: ...


class CoreRunner(Generic[E, F]):
    """One for a process. `feed` handles an event at once, or after the one that is being handled.

    What the core raises is a fault of ours: it is logged and counted, and the next event is handled all the same. A
    broken invariant ends the service, by way of `broken`; `validate`, where given, looks for one after each event.
    """

    def __init__(
        self,
        core: Core[E, F],
        tick: E,
        carry_out: Callable[[F], None],
        *,
        clock: Callable[[], float],
        telemetry: Telemetry,
        validate: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._tick = tick
        self._carry_out = carry_out
        self._clock = clock
        self._validate = validate
        self._sparingly = Repeated(telemetry.log)
        self._failures = telemetry.metrics.counter("flotilla_core_failures_total", "Events that the core failed on.")
        self._loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._events: deque[E] = deque()
        self._busy = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._least = SHORTEST_SLEEP

    def feed(self, event: E) -> None:
        if self._closed:
            return
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._busy = False
        self._arm()

    def carry_out(self, effects: Iterable[F]) -> None:
        """What the core wanted done other than in answer to an event: when it was started."""
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception as cause:
                self._tell_failure(f"carrying out {type(effect).__name__}", cause)
        self._arm()

    async def broken(self) -> None:
        """Never returns; raises InvariantBroken when the core is not to be trusted any more."""
        await self._broken

    def close(self) -> None:
        """Nothing is handled any more."""
        self._closed = True
        self._events.clear()
        self._broken.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _handle(self, event: E) -> None:
        try:
            effects = self._core.handle(event, self._clock())
            if self._validate is not None:
                self._validate()
        except Exception as cause:
            self._tell_failure(f"handling {type(event).__name__}", cause)
            return
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception as cause:
                self._tell_failure(f"carrying out {type(effect).__name__}", cause)

    def _tell_failure(self, what: str, cause: Exception) -> None:
        self._failures.inc()
        self._sparingly.error(f"{what} {type(cause).__name__}", "%s failed: %r", what, cause, exc_info=cause)
        if isinstance(cause, InvariantBroken) and not self._broken.done():
            self._broken.set_exception(cause)

    # Time

    def _arm(self) -> None:
        """A timer that goes off too early is left alone: it will arm the next."""
        deadline = None if self._closed else self._core.next_deadline()
        if deadline is None or (self._timer is not None and self._wakes_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock()
        delay = max(deadline - now, self._least)
        self._wakes_at = now + delay
        self._timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        deadline = self._core.next_deadline()
        if deadline is None or deadline > self._clock():
            self._arm()
            return
        self._least = STUCK_SLEEP
        self.feed(self._tick)
        self._least = SHORTEST_SLEEP
