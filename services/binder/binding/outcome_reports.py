"""What is to be told to the snapshot: outcomes are gathered for a moment, numbered, and repeated until acknowledged."""

import math

from shared.errors import InvariantBroken
from shared.messages.binding import BindingOutcome, BindingOutcomes

GATHER = 0.01
"""Seconds that an outcome may wait for others to go along with it."""
REPEAT = 1.0
"""Seconds without an acknowledgement after which a report is sent again."""


class Reports:
    def __init__(self, binder: str) -> None:
        self._binder = binder
        self._number = 0
        self._gathered: list[BindingOutcome] = []
        self._gathered_until = math.inf
        self._sent: dict[int, tuple[list[BindingOutcome], float]] = {}
        """In the order in which they are to be repeated."""
        self._outcomes = 0

    def __len__(self) -> int:
        """The outcomes that the snapshot is not known to have."""
        return self._outcomes

    def add(self, outcome: BindingOutcome, now: float) -> None:
        if not self._gathered:
            self._gathered_until = now + GATHER
        self._gathered.append(outcome)
        self._outcomes += 1

    def due(self, epoch: int, now: float) -> list[BindingOutcomes]:
        """What is to be sent now, addressed to the snapshot of this epoch, which keeps the ledger of earlier ones."""
        numbers: list[int] = []
        for number, (_, repeat) in self._sent.items():
            if repeat > now:
                break
            numbers.append(number)
        if now >= self._gathered_until:
            self._number += 1
            numbers.append(self._number)
            self._sent[self._number] = (self._gathered, now)
            self._gathered, self._gathered_until = [], math.inf
        for number in numbers:
            outcomes, _ = self._sent.pop(number)
            self._sent[number] = (outcomes, now + REPEAT)
        return [BindingOutcomes(self._binder, epoch, number, self._sent[number][0]) for number in numbers]

    def acknowledged(self, number: int) -> list[BindingOutcome]:
        """The outcomes that the snapshot has now; none if it is known already."""
        outcomes, _ = self._sent.pop(number, ((), 0.0))
        self._outcomes -= len(outcomes)
        return list(outcomes)

    def next_deadline(self) -> float:
        first = next(iter(self._sent.values()), None)
        return self._gathered_until if first is None else min(first[1], self._gathered_until)

    def validate(self) -> None:
        if self._outcomes != len(self._gathered) + sum(len(outcomes) for outcomes, _ in self._sent.values()):
            raise InvariantBroken("the outcomes to be told are miscounted")
        if (self._gathered_until < math.inf) != bool(self._gathered):
            raise InvariantBroken("gathered outcomes have no time to go, or the reverse")
        repeats = [repeat for _, repeat in self._sent.values()]
        if repeats != sorted(repeats):
            raise InvariantBroken("reports are not in the order in which they are to be repeated")
