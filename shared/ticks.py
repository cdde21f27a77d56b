"""Ticks: the times of periodic work. Work of one period coincides, so that a process wakes up once for all of it."""

from math import floor

EARLY = 0.02
"""The share of its period by which a timer may fire too early and still counts as on time."""


def next_tick(now: float, period: float) -> float:
    """The next multiple of the period, at most a period (and what a timer fires too early) from now."""
    return (floor(now / period + EARLY) + 1) * period
