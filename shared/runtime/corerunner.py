"""CoreRunner: the part that all shells share. Feeds events to a pure core, carries out its effects, keeps its
deadlines.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from shared.runtime.context import Context
from shared.ticks import next_tick

SHORTEST_SLEEP = 0.001
"""Seconds between two ticks, at least."""
STUCK_SLEEP = 0.05
"""The least wait after a tick that left a deadline in the past, so that the runner does not spin."""

Event = TypeVar("Event", contravariant=True)
Effect = TypeVar("Effect", covariant=True)
E = TypeVar("E")
F = TypeVar("F")


class Core(Protocol[Event, Effect]):
    def handle(self, event: Event, now: float) -> Iterable[Effect]: ...

    def next_deadline(self) -> float | None: ...


class CoreRunner(Generic[E, F]):
    """One per process. `feed` handles an event at once, or after the one in progress.

    An exception from the core or from an effect ends the term (`context.fault`): nothing more is handled or carried
    out, because a change may be half applied. `feed` itself never raises. `validate` checks the core after each event,
    if the context asks for it. `tick` None: the shell feeds time events itself.
    """

    def __init__(
        self,
        core: Core[E, F],
        tick: E | None,
        carry_out: Callable[[F], None],
        context: Context,
        validate: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._tick = tick
        self._carry_out = carry_out
        self._clock = context.clock
        self._validate = validate if context.validates else None
        self._fault = context.fault
        self._loop = asyncio.get_running_loop()
        self._events: deque[E] = deque()
        self._busy = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._least = SHORTEST_SLEEP

    def feed(self, event: E) -> None:
        if self._closed or self._fault.found:
            return
        if self._busy:
            self._events.append(event)
            return
        self._busy = True
        try:
            self._handle(event)
            while self._events and not self._fault.found:
                self._handle(self._events.popleft())
        finally:
            self._busy = False
        if self._tick is not None:
            self._arm()

    def close(self) -> None:
        """Handle no further events."""
        self._closed = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _handle(self, event: E) -> None:
        try:
            effects = self._core.handle(event, self._clock())
            if self._validate is not None:
                self._validate()
        except Exception as cause:
            self._fault.report(f"handling {type(event).__name__}", cause)
            return
        for effect in effects:
            if self._fault.found:
                return
            try:
                self._carry_out(effect)
            except Exception as cause:
                self._fault.report(f"carrying out {type(effect).__name__}", cause)

    # Time

    def _arm(self) -> None:
        """A timer that fires too early is kept; it arms the next one."""
        deadline = self._next_deadline()
        if deadline is None or (self._timer is not None and self._wakes_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock()
        delay = max(deadline - now, self._least)
        self._wakes_at = now + delay
        self._timer = self._loop.call_later(delay, self._wake)

    def _next_deadline(self) -> float | None:
        if self._tick is None or self._closed or self._fault.found:
            return None
        try:
            return self._core.next_deadline()
        except Exception as cause:
            self._fault.report("the core's next deadline", cause)
            return None

    def _wake(self) -> None:
        self._timer = None
        deadline = self._next_deadline()
        if self._tick is None or deadline is None or deadline > self._clock():
            self._arm()
            return
        self._least = STUCK_SLEEP
        self.feed(self._tick)
        self._least = SHORTEST_SLEEP


async def every(seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
    """Do the work at once and then at each tick of `seconds`, until cancelled.

    Missed ticks are skipped, not made up for. An exception of the work ends the loop: run it in a task group.
    """
    while True:
        outcome = work()
        if inspect.isawaitable(outcome):
            await outcome
        await sleep_until_tick(seconds)


async def sleep_until_tick(period: float) -> None:
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now, period) - now)
