"""Terms of leaders: which are possible, and which is the newest that a follower knows.

A leader's term is the number of minutes since the start of 2026, or more if its Lease is taken more than once a minute.
Followers refuse messages of earlier terms than the newest they have heard from.

A process that could send in a leader's name may have named a term, or a number within one, that the leader will not
reach for years. So a follower does not keep to the newest for good: it leaves it once an earlier one has been heard
from again and again, and the newest not at all. Only delays depend on this time. What a deposed leader must not do is
refused where it would be done: in Redis, by the versions of pods, by the snapshot.
"""

from enum import Enum
from typing import Generic, TypeVar

TERMS_BEGIN = 1767225600.0
"""The start of 2026, as Unix time."""
MAX_AHEAD = 1 << 20
"""Terms by which one may be ahead of the present minute: two years."""
REFUTED_AFTER = 30.0
"""Seconds for which only older messages come until the newest position counts as refuted."""
OLDER_TO_REFUTE = 3
"""How many of them it takes at least: one or two may be late."""

Position = TypeVar("Position", int, tuple[int, int], tuple[int, int, int])
"""A term, or a term and numbers that rise within it."""


def is_possible(term: int, wall: float) -> bool:
    """Whether a leader can have reached this term at this Unix time."""
    return term <= MAX_AHEAD or term - MAX_AHEAD <= (wall - TERMS_BEGIN) / 60


class Heard(Enum):
    CURRENT = "current"
    OLD = "old"
    REFUTED = "refuted"
    """It is older than the newest, which is refuted by now: it becomes the newest."""


class Newest(Generic[Position]):
    """The newest position that one follower has heard from."""

    def __init__(self, position: Position) -> None:
        self.position: Position = position
        self._older = 0
        """Messages since the last current one, all of them older."""
        self._older_since = 0.0

    def hear(self, position: Position, now: float) -> Heard:
        if position >= self.position:
            self.position, self._older = position, 0
            return Heard.CURRENT
        if not self._older:
            self._older_since = now
        self._older += 1
        if self._older < OLDER_TO_REFUTE or now - self._older_since < REFUTED_AFTER:
            return Heard.OLD
        self.position, self._older = position, 0
        return Heard.REFUTED
