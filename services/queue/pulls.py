"""Cycle's side of the conversation: which batch it had last, what it waits for, which of its messages have arrived."""

from shared.errors import ProtocolError
from shared.messages.queue import Batch, Take

MOST_NUMBERS = 1 << 12
"""So far back a doubled message is known to be one by its own number; what is older is taken to have arrived."""


class Pulls:
    """Of the cycle of one epoch; a new one begins with nothing."""

    def __init__(self) -> None:
        self.epoch = 0
        self.last: Batch | None = None
        self.waiting: Take | None = None
        self.patience_ends = 0.0
        self._arrived: set[int] = set()
        self._newest = 0

    def begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.last = self.waiting = None
        self._arrived.clear()
        self._newest = 0

    def again(self, take: Take) -> Batch | None:
        """The batch that this Take had already; ProtocolError if it is an old or impossible one."""
        if take.most < 1:
            raise ProtocolError(f"take {take.number} of epoch {take.epoch}: most: must be at least 1, not {take.most}")
        if self.last is not None and take.number == self.last.number:
            return self.last
        newest = max((known.number for known in (self.last, self.waiting) if known is not None), default=take.number)
        if take.number < newest:
            raise ProtocolError(f"take {take.number} of epoch {take.epoch}: number: {newest} has come already")
        return None

    def wait(self, take: Take, until: float) -> None:
        self.waiting, self.patience_ends = take, until

    def answer(self, batch: Batch) -> None:
        """It waits no more; what it had before has arrived."""
        self.last, self.waiting = batch, None

    def first_arrival(self, number: int) -> bool:
        """Whether the outcomes of this number are heard for the first time."""
        oldest = self._newest - MOST_NUMBERS
        if number <= oldest or number in self._arrived:
            return False
        self._arrived.add(number)
        self._newest = max(self._newest, number)
        if len(self._arrived) > 2 * MOST_NUMBERS:
            self._arrived = {known for known in self._arrived if known > self._newest - MOST_NUMBERS}
        return True
