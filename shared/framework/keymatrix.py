"""KeyMatrix: for every class a line of keys, a line of feasibility, and the highest key of each block of rows."""

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable

BLOCK = 1024

Keys = NDArray[np.int64]


class KeyMatrix:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._free: list[int] = []
        self._used = 0
        self.keys: Keys
        self.feasible: NDArray[np.bool_]
        self._highest: Keys
        self._lay_out(4, table.capacity)

    def acquire(self) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot == self.keys.shape[0]:
                self.keys = np.concatenate([self.keys, np.full_like(self.keys, -1)])
                self.feasible = np.concatenate([self.feasible, np.zeros_like(self.feasible)])
                self._highest = np.concatenate([self._highest, np.full_like(self._highest, -1)])
        self.keys[slot] = -1
        self.feasible[slot] = False
        self._highest[slot] = -1
        return slot

    def release(self, slot: int) -> None:
        self._free.append(slot)

    def fit(self, capacity: int) -> None:
        """The table grew: every line starts over."""
        if self.keys.shape[1] != capacity:
            self._lay_out(self.keys.shape[0], capacity)

    def write(self, slots: NDArray[np.intp], rows: Rows | None, keys: Keys) -> None:
        """New keys for some rows (all when None) of some lines."""
        if rows is None:
            size = self._table.size
            for slot, line in zip(slots, keys, strict=True):
                self.keys[slot, :size] = line
                self._highest[slot] = self._padded(slot).max(axis=1)
            return
        blocks = rows // BLOCK
        lines = slots[:, None]
        before = self.keys[lines, rows]
        self.keys[lines, rows] = keys
        highest = self._highest[lines, blocks]
        np.maximum.at(self._highest, (lines, blocks[None, :]), keys)
        fallen = (before == highest) & (keys < before)
        if fallen.any():
            which, at = np.nonzero(fallen)
            for slot, block in set(zip(slots[which].tolist(), blocks[at].tolist(), strict=True)):
                self._highest[slot, block] = self.keys[slot, block * BLOCK : (block + 1) * BLOCK].max()

    def best(self, slot: int, wanted: int, among: NDArray[np.bool_] | None = None) -> tuple[Rows, Keys]:
        """The `wanted` rows of a line with the highest keys, in no order; fewer where fewer are feasible."""
        if among is not None:
            rows = np.flatnonzero(among)
        else:
            highest = self._highest[slot]
            if wanted == 1:
                block = int(highest.argmax())
                start = block * BLOCK
                row = start + int(self.keys[slot, start : start + BLOCK].argmax())
                rows = np.array([row], dtype=np.intp)
                keys = self.keys[slot, row : row + 1]
                return (rows, keys) if keys[0] >= 0 else (rows[:0], keys[:0])
            if wanted < len(highest):
                blocks = np.argpartition(highest, len(highest) - wanted)[-wanted:]
                rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
                rows = rows[rows < self._table.size]
            else:
                rows = np.arange(self._table.size, dtype=np.intp)
        keys = self.keys[slot, rows]
        if wanted < len(keys):
            chosen = np.argpartition(keys, len(keys) - wanted)[-wanted:]
            rows, keys = rows[chosen], keys[chosen]
        fits = keys >= 0
        return rows[fits], keys[fits]

    def _padded(self, slot: np.intp) -> Keys:
        line: Keys = self.keys[slot]
        missing = -len(line) % BLOCK
        if missing:
            line = np.concatenate([line, np.full(missing, -1, dtype=np.int64)])
        return line.reshape(-1, BLOCK)

    def _lay_out(self, slots: int, capacity: int) -> None:
        self.keys = np.full((slots, capacity), -1, dtype=np.int64)
        self.feasible = np.zeros((slots, capacity), dtype=np.bool_)
        self._highest = np.full((slots, -(-capacity // BLOCK)), -1, dtype=np.int64)
