"""A log of changed rows, so that caches recompute only these."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]


class ChangeLog:
    """Rows in the order of their changes. A reader remembers a position and asks what came after it.

    Bounded: a reader more than `capacity` changes behind is told that everything may have changed.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._capacity = capacity
        self._base = 0
        self._rows: list[int] = []

    @property
    def position(self) -> int:
        return self._base + len(self._rows)

    def append(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) > 2 * self._capacity:
            del self._rows[: self._capacity]
            self._base += self._capacity

    def invalidate(self) -> None:
        """Invalidate every cache: the rows themselves have moved."""
        self._base += len(self._rows) + 1
        self._rows.clear()

    def since(self, position: int) -> Rows | None:
        """The distinct rows changed after `position`, ascending; None if that is no longer known."""
        if position < self._base:
            return None
        recent = self._rows[position - self._base :]
        if not recent:
            return _NO_ROWS
        if len(recent) == 1:
            return np.array(recent, dtype=np.intp)
        return np.array(sorted(set(recent)), dtype=np.intp)


_NO_ROWS: Rows = np.empty(0, dtype=np.intp)
