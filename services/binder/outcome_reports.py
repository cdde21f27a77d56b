"""Outcomes on their way to the snapshot: gathered for a moment, numbered, and repeated until acknowledged."""

import math

from shared.errors import InvariantBroken
from shared.messages.binding import BindingOutcome, BindingOutcomes

GATHER_SECONDS = 0.01
"""An outcome waits this long for others to go in the same report."""
REPEAT_SECONDS = 1.0
"""A report that is not acknowledged is sent again after this."""


class OutcomeReports:
    def __init__(self, binder: str, incarnation: str) -> None:
        self._binder = binder
        self._incarnation = incarnation
        self._number = 0
        self._gathered: list[BindingOutcome] = []
        self._send_at = math.inf
        self._sent: dict[int, tuple[list[BindingOutcome], float]] = {}
        """Outcomes by number of the report, and when it is repeated, in that order."""
        self._outcomes = 0

    def __len__(self) -> int:
        """Outcomes that the snapshot has not acknowledged."""
        return self._outcomes

    def add(self, outcome: BindingOutcome, now: float) -> None:
        if not self._gathered:
            self._send_at = now + GATHER_SECONDS
        self._gathered.append(outcome)
        self._outcomes += 1

    def due(self, epoch: int, now: float) -> list[BindingOutcomes]:
        """The reports to send now, to the snapshot of this epoch, which has the ledger of earlier ones."""
        numbers: list[int] = []
        for number, (_, repeat) in self._sent.items():
            if repeat > now:
                break
            numbers.append(number)
        if now >= self._send_at:
            self._number += 1
            numbers.append(self._number)
            self._sent[self._number] = (self._gathered, now)
            self._gathered, self._send_at = [], math.inf
        for number in numbers:
            outcomes, _ = self._sent.pop(number)
            self._sent[number] = (outcomes, now + REPEAT_SECONDS)
        return [
            BindingOutcomes(self._binder, epoch, number, self._sent[number][0], self._incarnation) for number in numbers
        ]

    def acknowledged(self, number: int) -> list[BindingOutcome]:
        """Returns the outcomes of this report; none if it was acknowledged before."""
        outcomes, _ = self._sent.pop(number, ((), 0.0))
        self._outcomes -= len(outcomes)
        return list(outcomes)

    def next_deadline(self) -> float:
        first = next(iter(self._sent.values()), None)
        return self._send_at if first is None else min(first[1], self._send_at)

    def validate(self) -> None:
        if self._outcomes != len(self._gathered) + sum(len(outcomes) for outcomes, _ in self._sent.values()):
            raise InvariantBroken("outcomes are miscounted")
        if (self._send_at < math.inf) != bool(self._gathered):
            raise InvariantBroken("gathered outcomes are never sent, or the reverse")
        repeats = [repeat for _, repeat in self._sent.values()]
        if repeats != sorted(repeats):
            raise InvariantBroken("reports are not in the order in which they are repeated")
