"""When a process that has ended is started again, and when not.

It is started again after a while that doubles with each failure in a row; one that ran long enough has a clean slate.
Exit code 2 means a bad configuration, which no restart mends, so then everything ends.
"""

import signal
from collections.abc import Iterable

from shared.errors import InvariantBroken
from tools.supervisor.events import Effect, Ended, Event, GiveUp, Launch, Started, Stopping, Tell

FIRST_PAUSE = 0.2
"""Seconds before the first restart; doubled for each failure in a row."""
LONGEST_PAUSE = 10.0
HEALTHY_AFTER = 30.0
"""Seconds of running that make the failures before forgotten."""
BAD_CONFIGURATION = 2


class SupervisorCore:
    """`configured`: the processes whose exit code 2 means that they cannot be as they were told to be."""

    def __init__(self, names: Iterable[str], configured: Iterable[str]) -> None:
        self._failures = dict.fromkeys(names, 0)
        self._configured = frozenset(configured)
        self._started: dict[str, float] = {}
        self._stopping = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Stopping():
                self._stopping = True
                return []
            case Started(name):
                self._started[name] = now
                return []
            case Ended(name):
                return self._ended(event, now)

    def validate(self) -> None:
        unknown = self._started.keys() - self._failures.keys()
        if unknown:
            raise InvariantBroken(f"processes that nobody asked for: {sorted(unknown)}")

    def _ended(self, event: Ended, now: float) -> list[Effect]:
        name = event.name
        started = self._started.pop(name, None)
        if self._stopping:
            return []
        if event.code == BAD_CONFIGURATION and name in self._configured:
            return [GiveUp(name, event.reason)]
        if started is not None and now - started >= HEALTHY_AFTER:
            self._failures[name] = 0
        pause = pause_after(self._failures[name])
        self._failures[name] += 1
        reason = f" ({event.reason})" if event.reason else ""
        return [Tell(name, f"{how_it_ended(event.code)}{reason}; starts again in {pause:g} s"), Launch(name, pause)]


def pause_after(failures: int) -> float:
    """Seconds until a process that had so many failures in a row before is started again."""
    return LONGEST_PAUSE if failures > 10 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**failures)


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
