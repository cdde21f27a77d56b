"""Values that follow each other too quickly are joined: the latest one counts, and comes when its time has come."""

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from shared.errors import InvariantBroken

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_REMEMBERED = 1 << 17
"""Keys that are remembered by default; values of further ones are let through."""


class _Passed(NamedTuple):
    kind: Hashable
    at: float


class Paced(Generic[K, V]):
    """Lets values of one key pass at most once every `seconds` while their kind stays the same.

    A value that comes sooner is held back, and replaces one that is held back already; it is `due` once the time has
    passed. A value of another kind passes at once. The caller hands in the time, on one clock.
    """

    def __init__(self, seconds: float, most: int = MAX_REMEMBERED) -> None:
        self._seconds = seconds
        self._most = most
        self._passed: OrderedDict[K, _Passed] = OrderedDict()
        """The last value of each key that has passed, the first one first; each for `seconds`, or until its next."""
        self._held: dict[K, V] = {}
        self._dues: list[tuple[float, int, K]] = []
        """A heap of when held values are due; some of these were dropped since."""
        self._due_at: dict[K, float] = {}
        """By key, its one entry in the heap that counts."""
        self._numbers = 0

    def __len__(self) -> int:
        """Values that are held back."""
        return len(self._held)

    def passes(self, key: K, kind: Hashable, value: V, now: float) -> bool:
        """Whether the value passes now; if not, it is held back."""
        last = self._passed.get(key)
        if last is not None and last.kind == kind and last.at <= now < last.at + self._seconds:
            self._hold(key, value, last.at + self._seconds)
            return False
        self.passed(key, kind, now)
        return True

    def passed(self, key: K, kind: Hashable, now: float) -> None:
        """A value has passed elsewhere: one that is held back is outdated."""
        self.drop(key)
        self._passed.pop(key, None)
        self._forget(now)
        if len(self._passed) < self._most:
            self._passed[key] = _Passed(kind, now)

    def drop(self, key: K) -> bool:
        """Drops what is held back for the key; returns whether there was anything."""
        return self._held.pop(key, None) is not None

    def due(self, now: float) -> list[V]:
        """The values whose time has come; they have passed."""
        found: list[V] = []
        while self._dues and self._dues[0][0] <= now:
            at, _, key = heapq.heappop(self._dues)
            if self._due_at.get(key) == at:
                del self._due_at[key]
                if key in self._held:
                    found.append(self._held[key])
                    self.passed(key, self._passed[key].kind, now)
        return found

    def flush(self) -> list[V]:
        """All that is held back, before the end."""
        held, self._held = self._held, {}
        return list(held.values())

    def next_deadline(self) -> float | None:
        while self._dues and (self._due_at.get(self._dues[0][2]) != self._dues[0][0]):
            heapq.heappop(self._dues)
        return self._dues[0][0] if self._held and self._dues else None

    def _hold(self, key: K, value: V, due: float) -> None:
        self._held[key] = value
        if self._due_at.get(key) != due:
            self._due_at[key] = due
            self._numbers += 1
            heapq.heappush(self._dues, (due, self._numbers, key))

    def _forget(self, now: float) -> None:
        """What has passed so long ago that the next value passes anyway, and when values that were dropped were due."""
        while self._dues and self._dues[0][0] <= now and self._dues[0][2] not in self._held:
            at, _, key = heapq.heappop(self._dues)
            if self._due_at.get(key) == at:
                del self._due_at[key]
        while self._passed:
            key, last = next(iter(self._passed.items()))
            if key in self._held or last.at + self._seconds > now:
                return
            del self._passed[key]

    def validate(self) -> None:
        if len(self._passed) > self._most or not self._held.keys() <= self._passed.keys():
            raise InvariantBroken(f"{len(self._held)} values are held back, {len(self._passed)} have passed")
        if not self._held.keys() <= self._due_at.keys() <= {key for _, _, key in self._dues}:
            raise InvariantBroken("a value is held back for good")
