"""The offset of the API server's clock, as the Date headers of its answers show it."""

from dataclasses import dataclass
from email.utils import parsedate_to_datetime

LARGEST_OFFSET = 2.0
"""Seconds; more than a heartbeat takes and than synchronized clocks differ."""
LARGEST_API_OFFSET = LARGEST_OFFSET + 0.5
"""A Date header names whole seconds, so it is right within half of one."""
LONGEST_CALL = 1.0
"""Seconds; a slower call does not measure the API server's clock."""
API_OFFSET_TTL = 60.0
"""Seconds for which a measured offset of the API server's clock counts."""


@dataclass(slots=True)
class ApiClock:
    """The offset of the API server's clock in seconds, positive if it is ahead of ours."""

    _ahead: float = 0.0
    _measured_at: float | None = None

    def measured(self, ahead: float, now: float) -> None:
        """`now`: by the monotonic clock."""
        self._ahead, self._measured_at = ahead, now

    def ahead(self, now: float) -> float | None:
        """None while it is unknown."""
        known = self._measured_at is not None and now - self._measured_at <= API_OFFSET_TTL
        return self._ahead if known else None

    def problem(self, now: float) -> str:
        ahead = self.ahead(now)
        if ahead is None or abs(ahead) <= LARGEST_API_OFFSET:
            return ""
        return f"this process's clock is {abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} the API server's"


def offset_from_date(date: str | None, before: float, after: float) -> float | None:
    """Seconds by which the clock of a server is ahead that sent this Date header between two times of our wall clock.

    None if the header is missing or malformed, or the call was too slow. Right within half a second plus the time of
    the call.
    """
    if date is None or not 0.0 <= after - before <= LONGEST_CALL:
        return None
    try:
        named = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    return named + 0.5 - (before + after) / 2
