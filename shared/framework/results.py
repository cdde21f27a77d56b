"""ResultPool: what one plugin answered for every row of a table, one line a signature.

Slot 0 answers nought for every row; it stands in for a plugin that is skipped.
"""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import ChangeLog, Rows
from shared.framework.cyclestate import CycleState

NOTHING_SEEN = -1
UNKNOWN = -(1 << 62)
"""Stands for an answer that a one-node-at-a-time plugin has not been asked for yet."""


class ResultPool:
    def __init__(self, log: ChangeLog, capacity: int) -> None:
        self.log = log
        self.values: NDArray[np.int64] = np.zeros((4, capacity), dtype=np.int64)
        self.seen: list[int] = [NOTHING_SEEN]
        self.states: list[CycleState | None] = [None]
        self._slots: dict[Hashable, int] = {}
        self._signatures: list[Hashable] = [None]
        self._users: list[int] = [1]
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(self, signature: Hashable, state: CycleState) -> int:
        """The slot for a signature; the first state that comes with a signature computes for all its users."""
        slot = self._slots.get(signature)
        if slot is None:
            slot = self._new_slot()
            self._slots[signature] = slot
            self._signatures[slot] = signature
            self.states[slot] = state
            self.seen[slot] = NOTHING_SEEN
        self._users[slot] += 1
        return slot

    def release(self, slot: int) -> None:
        if slot == 0:
            return
        self._users[slot] -= 1
        if self._users[slot] == 0:
            del self._slots[self._signatures[slot]]
            self.states[slot] = None
            self._free.append(slot)

    def state(self, slot: int) -> CycleState:
        state = self.states[slot]
        if state is None:
            raise LookupError(f"slot {slot} is not in use")
        return state

    def stale(self, slots: set[int]) -> dict[int, list[int]]:
        """The slots that have not seen every change, grouped by the position up to which they have."""
        position = self.log.position
        groups: dict[int, list[int]] = {}
        for slot in slots:
            if slot and self.seen[slot] != position:
                groups.setdefault(self.seen[slot], []).append(slot)
        return groups

    def caught_up(self, slots: list[int]) -> None:
        """These have seen every change now."""
        for slot in slots:
            self.seen[slot] = self.log.position

    def mark_unknown(self, slots: list[int], index: Rows | slice) -> None:
        """These rows are to be asked about anew."""
        for slot in slots:
            self.values[slot, index] = UNKNOWN

    def read(self, slots: list[int], index: Rows | slice) -> NDArray[np.int64]:
        """Lines of answers; just one, to be broadcast, where all slots are the same."""
        if slots.count(slots[0]) == len(slots):
            return self.values[slots[0], index][None, :]
        lines = np.array(slots, dtype=np.intp)
        return self.values[lines, index] if isinstance(index, slice) else self.values[lines[:, None], index]

    def store(self, slots: list[int], rows: Rows, answers: NDArray[np.int64]) -> None:
        if len(slots) == 1:
            self.values[slots[0], rows] = answers[0]
        else:
            self.values[np.array(slots, dtype=np.intp)[:, None], rows] = answers

    def fit(self, capacity: int) -> None:
        """Lines of another length, with nothing in them."""
        if self.values.shape[1] != capacity:
            self.values = np.zeros((self.values.shape[0], capacity), dtype=np.int64)

    def forget(self, slot: int) -> None:
        """The slot is to be computed from nothing."""
        self.seen[slot] = NOTHING_SEEN

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = len(self.seen)
        if slot == self.values.shape[0]:
            self.values = np.concatenate([self.values, np.zeros_like(self.values)])
        self.seen.append(NOTHING_SEEN)
        self.states.append(None)
        self._signatures.append(None)
        self._users.append(0)
        return slot
