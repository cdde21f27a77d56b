"""Pace: when a round of few pods may begin.

A round has a fixed cost, so pods that come soon after each other share one; but a pod that comes alone has nothing to
wait for. So the pause after a round grows with the rate at which pods came lately, up to `longest`.
"""

from math import exp

MEMORY = 0.25
"""Seconds after which a pod counts for a third of its weight in the rate."""
PAUSE_PER_RATE = 0.00012
"""Seconds of pause for each pod per second: 6 ms at 50 pods/s, which come 20 ms apart, and 18 ms at 150/s."""


class Pace:
    def __init__(self, longest: float) -> None:
        """`longest`: seconds from the beginning of a round to that of the next one, at most."""
        self._longest = longest
        self._recent = 0.0
        """Pods of earlier rounds, each weighted by its age."""
        self._began = 0.0
        self.not_before = 0.0
        """When the next round of few pods may begin."""

    def began(self, pods: int, now: float) -> None:
        """A round of `pods` pods begins."""
        self._recent = self._recent * exp(min(self._began - now, 0.0) / MEMORY) + pods
        self._began = now
        self.not_before = now + min(PAUSE_PER_RATE * self._recent / MEMORY, self._longest)
