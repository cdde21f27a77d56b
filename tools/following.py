"""Following the snapshot's deltas from a whole state on, in order and without a gap.

    loading --the whole state--> following --delta by delta--> following
       ^                             |
       +-- a delta is lost, or the snapshot began another term

Deltas that come early wait for the missing ones, those that come while a state is loaded for that state. A worker's
replica follows them by itself: it answers from what it has while a delta is missing.
"""

from shared.messages.state import Delta, Heartbeat

GAP_PATIENCE = 1.0
"""Seconds to wait for a missing delta. One may be sent later than a heartbeat that names it."""
MAX_EARLY = 1 << 16
"""Deltas that wait for a state or a delta; of more, the oldest are dropped."""


class DeltaFollower:
    """`loaded`: whether there is a state, which is the one after delta `seq` of term `epoch`."""

    def __init__(self) -> None:
        self.epoch = 0
        self.seq = 0
        self.loaded = False
        self._early: dict[int, Delta] = {}
        self._gap_ends: float | None = None
        self._lost = ""

    def load(self, epoch: int, seq: int, now: float) -> list[Delta] | None:
        """A whole state is here. Returns the deltas that follow it; None if it is of an earlier term and of no use."""
        if epoch < self.epoch:
            return None
        if epoch > self.epoch:
            self._early.clear()
        self.epoch, self.seq, self.loaded, self._lost = epoch, seq, True, ""
        self._early = {number: delta for number, delta in self._early.items() if number > seq}
        return self._following(now)

    def take(self, message: Delta | Heartbeat, now: float) -> list[Delta]:
        """The deltas that follow the state now."""
        if message.epoch < self.epoch:
            return []
        if message.epoch > self.epoch:
            self.epoch = message.epoch
            self._early.clear()
            self._lose("what changed between two terms of the snapshot")
        if isinstance(message, Delta):
            if not self.loaded or message.seq > self.seq:
                self._early[message.seq] = message
            if len(self._early) > MAX_EARLY:
                del self._early[min(self._early)]
            return self._following(now)
        if self.loaded and message.seq > self.seq and self._gap_ends is None:
            self._gap_ends = now + GAP_PATIENCE
        return []

    def lost(self, now: float) -> str:
        """What was lost, reported once; then the whole state must be loaded again. Empty if nothing was."""
        if self._gap_ends is not None and now >= self._gap_ends:
            self._lose(f"deltas from {self.seq + 1}")
        lost, self._lost = self._lost, ""
        return lost

    def _lose(self, what: str) -> None:
        if self.loaded:
            self.loaded, self._lost, self._gap_ends = False, what, None

    def _following(self, now: float) -> list[Delta]:
        found: list[Delta] = []
        if not self.loaded:
            return found
        while (following := self._early.pop(self.seq + 1, None)) is not None:
            self.seq += 1
            found.append(following)
        if not self._early:
            self._gap_ends = None
        elif self._gap_ends is None:
            self._gap_ends = now + GAP_PATIENCE
        return found
