"""KeyMatrix: what is known of each class about each row, a line a class.

`settled` and `fixed` are the parts that only a changed node object can change: whether the plugins that read nothing
else let the pod in, and their weighted scores. `feasible` and `keys` are the whole. The highest key of every block of
rows is kept, so that the best rows are found without looking at all of them.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import Mask
from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable

BLOCK = 128

Keys = NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)


class KeyMatrix:
    LINES_PER_CLASS = 3
    """In units of eight bytes a row: keys, the fixed part, and the masks and block maxima together at most one."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._free: list[int] = []
        self._used = 0
        self.keys: Keys
        self.fixed: Keys
        self.feasible: Mask
        self.settled: Mask
        self._highest: Keys
        self._lay_out(4, table.capacity)

    def index(self, rows: Rows | None) -> Rows | slice:
        """How to address these rows, or all that are in use."""
        return slice(0, self._table.size) if rows is None else rows

    def acquire(self) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot == self.keys.shape[0]:
                self._double()
        self.keys[slot] = -1
        self.feasible[slot] = False
        self._highest[slot] = -1
        return slot

    def release(self, slot: int) -> None:
        self._free.append(slot)

    def fit(self, capacity: int) -> None:
        """The table grew: every line starts over."""
        if self.feasible.shape[1] != capacity:
            self._lay_out(self.keys.shape[0], capacity)

    def write(self, slots: list[int], rows: Rows | None, keys: Keys) -> None:
        """New keys for some rows (all when None) of some lines."""
        if rows is None:
            for slot, line in zip(slots, keys, strict=True):
                self.keys[slot, : self._table.size] = line
                self._highest[slot] = self._in_blocks(slot).max(axis=1)
            return
        blocks = rows // BLOCK
        if len(slots) == 1:
            slot = slots[0]
            self.keys[slot, rows] = keys[0]
            touched = blocks if len(blocks) == 1 else np.unique(blocks)
            self._highest[slot, touched] = self._in_blocks(slot)[touched].max(axis=1)
            return
        lines = np.array(slots, dtype=np.intp)[:, None]
        before = self.keys[lines, rows]
        self.keys[lines, rows] = keys
        highest = self._highest[lines, blocks]
        np.maximum.at(self._highest, (lines, blocks[None, :]), keys)
        fallen = (before == highest) & (keys < before)
        if fallen.any():
            which, at = np.nonzero(fallen)
            touched = np.unique(lines[which, 0] * self._highest.shape[1] + blocks[at])
            for slot, block in zip(*divmod(touched, self._highest.shape[1]), strict=True):
                self._highest[slot, block] = self.keys[slot, block * BLOCK : (block + 1) * BLOCK].max()

    def best(self, slot: int, wanted: int, among: Mask | None = None) -> tuple[Rows, Keys]:
        """The `wanted` rows of a line with the highest keys, in no order; fewer where fewer are feasible."""
        if not wanted:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)
        if among is not None:
            rows = np.flatnonzero(among)
            keys = self.keys[slot, rows]
        elif wanted == 1:
            row = self._best_row(slot)
            rows, keys = np.array([row], dtype=np.intp), self.keys[slot, row : row + 1]
        else:
            rows, keys = self._candidates(slot, wanted)
        if wanted < len(keys):
            chosen = np.argpartition(keys, len(keys) - wanted)[-wanted:]
            rows, keys = rows[chosen], keys[chosen]
        if keys.size and keys.min() >= 0:
            return rows, keys
        fits = keys >= 0
        return rows[fits], keys[fits]

    def _best_row(self, slot: int) -> int:
        start = int(self._highest[slot].argmax()) * BLOCK
        return start + int(self.keys[slot, start : start + BLOCK].argmax())

    def _candidates(self, slot: int, wanted: int) -> tuple[Rows, Keys]:
        """Rows among which the `wanted` best are: those of as many blocks with the highest keys."""
        highest = self._highest[slot]
        if wanted >= len(highest):
            return np.arange(self._table.size, dtype=np.intp), self.keys[slot, : self._table.size]
        blocks = np.argpartition(highest, len(highest) - wanted)[-wanted:]
        rows = (blocks[:, None] * BLOCK + _WITHIN_BLOCK).ravel()
        return rows, self._in_blocks(slot)[blocks].ravel()

    def _in_blocks(self, slot: int) -> Keys:
        blocks: Keys = self.keys[slot].reshape(-1, BLOCK)
        return blocks

    def _double(self) -> None:
        for name in ("keys", "fixed", "feasible", "settled", "_highest"):
            matrix = getattr(self, name)
            setattr(self, name, np.concatenate([matrix, np.zeros_like(matrix)]))

    def _lay_out(self, slots: int, capacity: int) -> None:
        blocks = -(-capacity // BLOCK)
        self.keys = np.full((slots, blocks * BLOCK), -1, dtype=np.int64)
        self.fixed = np.zeros((slots, capacity), dtype=np.int64)
        self.feasible = np.zeros((slots, capacity), dtype=np.bool_)
        self.settled = np.zeros((slots, capacity), dtype=np.bool_)
        self._highest = np.full((slots, blocks), -1, dtype=np.int64)


_WITHIN_BLOCK = np.arange(BLOCK, dtype=np.intp)


def lines(matrix: NDArray[Item], slots: list[int], index: Rows | slice) -> NDArray[Item]:
    """Some lines of a matrix at some rows: always with an axis of classes."""
    if len(slots) == 1:
        return matrix[slots[0], index][None, :]
    lines = np.array(slots, dtype=np.intp)
    return matrix[lines, index] if isinstance(index, slice) else matrix[lines[:, None], index]
