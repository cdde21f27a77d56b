"""Pace: how long something with a fixed cost waits so that more can share it.

A round, or a message to all followers, hardly costs more for several pods than for one, so what comes soon after the
one before waits for more. What comes alone has nothing to wait for: the pause grows with the rate of what came lately.
"""

from math import exp

MEMORY = 0.25
"""Seconds after which something counts for a third of its weight in the rate."""


class Pace:
    def __init__(self, longest: float, per_rate: float) -> None:
        """`longest`: seconds of pause at most. `per_rate`: seconds of pause for each that comes in a second."""
        self._longest = longest
        self._per_rate = per_rate
        self._recent = 0.0
        """What came lately, weighted by its age."""
        self._began = 0.0
        self.not_before = 0.0
        """When the next one may begin."""

    def began(self, count: int, now: float) -> None:
        """A round or a message of `count` begins."""
        self._recent = self._recent * exp(min(self._began - now, 0.0) / MEMORY) + count
        self._began = now
        self.not_before = now + min(self._per_rate * self._recent / MEMORY, self._longest)
