"""ResultPool: what one plugin answered for every row of a table, one line per signature.

Slot 0 holds 0 for every row; it stands in for a skipped plugin. Filters answer with the number of the status that
rejects a row, 0 if none does; scores with the raw score.
"""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import ClassState
from shared.cluster.changes import ChangeLog, Rows
from shared.cluster.view import Statuses

NOTHING_SEEN = -1
UNKNOWN = -(1 << 62)
"""The plugin was not asked about this row yet, or the reason of its rejection was forgotten."""
MOST_STATUSES = 1 << 14


class ResultPool:
    def __init__(self, log: ChangeLog, capacity: int) -> None:
        self.log = log
        self.statuses = Statuses()
        self.values: NDArray[np.int64] = np.zeros((4, capacity), dtype=np.int64)
        self.seen: list[int] = [NOTHING_SEEN]
        self.states: list[ClassState | None] = [None]
        self._slots: dict[Hashable, int] = {}
        self._signatures: list[Hashable] = [None]
        self._users: list[int] = [1]
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(self, signature: Hashable, state: ClassState) -> int:
        """The slot for a signature; the first state that comes with a signature is the one plugins are asked with."""
        if len(self.statuses) > MOST_STATUSES:
            self.values[self.values > 0] = UNKNOWN
            self.statuses = Statuses()
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

    def state(self, slot: int) -> ClassState:
        state = self.states[slot]
        if state is None:
            raise LookupError(f"slot {slot} is not in use")
        return state

    def stale(self, slots: set[int]) -> dict[int, list[int]]:
        """The slots that have not seen every change, grouped by the position they have seen."""
        position = self.log.position
        groups: dict[int, list[int]] = {}
        for slot in slots:
            if slot and self.seen[slot] != position:
                groups.setdefault(self.seen[slot], []).append(slot)
        return groups

    def caught_up(self, slots: list[int]) -> None:
        """These slots have seen every change now."""
        for slot in slots:
            self.seen[slot] = self.log.position

    def mark_unknown(self, slots: list[int], index: Rows | slice) -> None:
        """The plugin must be asked about these rows again."""
        for slot in slots:
            self.values[slot, index] = UNKNOWN

    def read(self, slots: list[int], index: Rows | slice) -> NDArray[np.int64]:
        """Lines of answers; a single one to be broadcast if all slots are the same."""
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
        """Start over with lines of another length."""
        if self.values.shape[1] != capacity:
            self.values = np.zeros((self.values.shape[0], capacity), dtype=np.int64)

    def forget(self, slot: int) -> None:
        """Compute the slot from nothing the next time."""
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
