"""ApiClock: by how much the API server's clock differs from this process's. All processes can compare with that one.

Who differs is not ready: it is the one to be set right, not those that hear it. Nothing else rests on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

CLOCKS = "clocks"
LARGEST = 2.5
"""Seconds by which they may differ: two, as between processes, and half of one, for the server names whole seconds."""
QUICK = 1.0
"""Seconds that an answer may take which tells the time."""
GOOD_FOR = 60.0
"""Seconds for which a measurement counts."""


@dataclass(slots=True)
class ApiClock:
    _ahead: float = 0.0
    _measured_at: float | None = None

    def measured(self, ahead: float, now: float) -> None:
        """`ahead`: seconds by which the API server's clock is ahead of ours. `now`: by the monotonic clock."""
        self._ahead, self._measured_at = ahead, now

    def ahead(self, now: float) -> float | None:
        """None while it is unknown."""
        known = self._measured_at is not None and now - self._measured_at <= GOOD_FOR
        return self._ahead if known else None

    def problem(self, now: float) -> str:
        ahead = self.ahead(now)
        if ahead is None or abs(ahead) <= LARGEST:
            return ""
        return f"this process's clock is {abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} the API server's"


def told_by(date: str | None, before: float, after: float) -> float | None:
    """Seconds by which the server is ahead that has sent this Date header between two moments of our wall clock.

    None where that cannot be told. A header names whole seconds, so this is right within half a second and the time
    that the answer took.
    """
    if date is None or not 0.0 <= after - before <= QUICK:
        return None
    try:
        named = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    return named + 0.5 - (before + after) / 2


def with_clock(problem: Callable[[], str], api: ApiClock, clock: Callable[[], float]) -> Callable[[], str]:
    """A check for `Health`: what the API server's clock says counts, and `problem` while that is unknown."""

    def check() -> str:
        return problem() if api.ahead(clock()) is None else api.problem(clock())

    return check
