"""How long a pod rests after a failed attempt.

Twice as long each time, within limits, rounded down to a whole second; the pod rests through all of that second. So all
pods of one second leave together and in queue order.
"""

from dataclasses import dataclass
from math import floor

from services.queue.scheduling.queued_pod_info import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds of the first rest, and of the longest; if that is nought, there is no rest at all."""

    initial: float = 1.0
    longest: float = 10.0

    def until(self, entry: Entry) -> int:
        """The second through which it rests: by its errors in a row, if there were any last, else by its rejections."""
        if not self.longest:
            return NEVER
        count = entry.errors or entry.rejections
        seconds = self.longest if count > _ENOUGH else min(self.initial * 2 ** (count - 1), self.longest)
        return floor(entry.queued_at + seconds)

    def resumed(self, until: int, now: float) -> int:
        """A rest that was remembered; never longer than one that begins now could be."""
        return min(until, floor(now + self.longest))


NEVER = -1
_ENOUGH = 64
"""After so many doublings any rest is the longest."""


def rests(entry: Entry, now: float) -> bool:
    return entry.backoff_until >= floor(now)


def wakes_at(entry: Entry) -> float:
    return entry.backoff_until + 1.0
