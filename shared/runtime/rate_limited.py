"""Rate-limits values per key: at most one every `seconds`; the latest wins."""

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


class RateLimited(Generic[K, V]):
    """Lets values of one key pass at most once every `seconds` while their kind stays the same.

    A value that comes sooner is delayed, and replaces one that is delayed already; it is `due` once the time has
    passed. A value of another kind passes at once. The caller hands in the time, on one clock, and keys
    that can be ordered.
    """

    def __init__(self, seconds: float, most: int = MAX_REMEMBERED) -> None:
        self._seconds = seconds
        self._most = most
        self._passed: OrderedDict[K, _Passed] = OrderedDict()
        """The last value of each key that has passed, the first one first; each for `seconds`, or until its next."""
        self._delayed: dict[K, V] = {}
        self._dues: list[tuple[float, K]] = []
        """A heap of when delayed values are due, and of some that were dropped since."""

    def __len__(self) -> int:
        """Values that are delayed."""
        return len(self._delayed)

    def offer(self, key: K, kind: Hashable, value: V, now: float) -> bool:
        """Whether the value passes now; if not, it is delayed."""
        last = self._passed.get(key)
        if last is None or last.kind != kind or not last.at <= now < last.at + self._seconds:
            self.record(key, kind, now)
            return True
        if key not in self._delayed:
            heapq.heappush(self._dues, (last.at + self._seconds, key))
        self._delayed[key] = value
        return False

    def record(self, key: K, kind: Hashable, now: float) -> None:
        """A value has passed, here or elsewhere: one that is delayed is outdated."""
        self.drop(key)
        self._passed.pop(key, None)
        self._forget(now)
        if len(self._passed) < self._most:
            self._passed[key] = _Passed(kind, now)

    def drop(self, key: K) -> bool:
        """Drops what is delayed for the key; returns whether there was anything."""
        return self._delayed.pop(key, None) is not None

    def due(self, now: float) -> list[V]:
        """The values whose time has come; they have passed."""
        if not self._dues:
            return []
        found: list[V] = []
        while (at := self.next_deadline()) is not None and at <= now:
            _, key = heapq.heappop(self._dues)
            found.append(self._delayed[key])
            self.record(key, self._passed[key].kind, now)
        return found

    def flush(self) -> list[V]:
        """All that is delayed, before the end."""
        delayed, self._delayed = self._delayed, {}
        return list(delayed.values())

    def next_deadline(self) -> float | None:
        while self._dues and not self._is_due(*self._dues[0]):
            heapq.heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def _is_due(self, at: float, key: K) -> bool:
        return key in self._delayed and self._passed[key].at + self._seconds == at

    def _forget(self, now: float) -> None:
        """What has passed so long ago that the next value passes anyway."""
        while self._passed:
            key, last = next(iter(self._passed.items()))
            if key in self._delayed or last.at + self._seconds > now:
                return
            del self._passed[key]

    def validate(self) -> None:
        if len(self._passed) > self._most or not self._delayed.keys() <= self._passed.keys():
            raise InvariantBroken(f"{len(self._delayed)} values are delayed, {len(self._passed)} have passed")
        if not {(self._passed[key].at + self._seconds, key) for key in self._delayed} <= set(self._dues):
            raise InvariantBroken("a value is delayed for good")
