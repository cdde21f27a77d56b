"""How many pods, how fast, how long each."""

import math
from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """`created` and `bound` are those of our schedulers since the first listing, gone or not; the rest is as of now."""

    created: int
    bound: int
    waiting: int
    gated: int
    pods: int
    nodes: int
    assumed: int
    events: int
    violations: int


class Statistics:
    """Latencies are from when a pod was seen, or seen without gates, until it was seen bound."""

    def __init__(self) -> None:
        self.created = 0
        self.bound = 0
        self.first_created: float | None = None
        self.first_bound: float | None = None
        self.last_bound: float | None = None
        self._latencies = array("d")

    def on_created(self, now: float) -> None:
        self.created += 1
        if self.first_created is None:
            self.first_created = now

    def on_bound(self, waited: float | None, now: float) -> None:
        """None: it was not seen waiting."""
        self.bound += 1
        if self.first_bound is None:
            self.first_bound = now
        self.last_bound = now
        if waited is not None:
            self._latencies.append(waited)

    @property
    def rate(self) -> float:
        """Pods bound a second, from the first one created to the last one bound."""
        if self.first_created is None or self.last_bound is None or self.last_bound <= self.first_created:
            return 0.0
        return self.bound / (self.last_bound - self.first_created)

    def latency(self, quantile: float) -> float:
        """The smallest latency that at least this share of the pods did not exceed; 1 for the greatest of all."""
        if not self._latencies:
            return 0.0
        rank = math.ceil(quantile * len(self._latencies)) - 1
        return sorted(self._latencies)[max(rank, 0)]
