"""Outcomes on their way to the snapshot: gathered for a moment, numbered, and repeated until acknowledged."""

import math

from shared.errors import InvariantBroken
from shared.messages.binding import BindingOutcome, BindingOutcomes
from shared.runtime.unanswered import Unanswered

GATHER_SECONDS = 0.01
"""An outcome waits this long for others to go in the same report."""
BOUND_GATHER_SECONDS = 0.1
"""The outcome of a bound pod waits this long: nothing waits for it, as the watch shows it, too."""
MAX_GATHERED = 64
"""Outcomes that are sent without waiting for more."""
REPEAT_SECONDS = 1.0
"""A report that is not acknowledged is sent again after this."""


class OutcomeReports:
    def __init__(self, binder: str, incarnation: str) -> None:
        self._binder = binder
        self._incarnation = incarnation
        self._number = 0
        self._gathered: list[BindingOutcome] = []
        self._send_at = math.inf
        self._sent: Unanswered[int, tuple[int, list[BindingOutcome]]] = Unanswered((REPEAT_SECONDS,))
        """By number of the report: the number, and its outcomes."""
        self._outcomes = 0

    def __len__(self) -> int:
        """Outcomes that the snapshot has not acknowledged."""
        return self._outcomes

    def add(self, outcome: BindingOutcome, now: float) -> None:
        self._gathered.append(outcome)
        wait = BOUND_GATHER_SECONDS if outcome.bound else GATHER_SECONDS
        self._send_at = now if len(self._gathered) >= MAX_GATHERED else min(self._send_at, now + wait)
        self._outcomes += 1

    def due(self, epoch: int, now: float) -> list[BindingOutcomes]:
        """The reports to send now, to the snapshot of this epoch, which has the ledger of earlier ones."""
        reports = self._sent.due(now)
        if now >= self._send_at:
            self._number += 1
            report = (self._number, self._gathered)
            self._sent.sent(self._number, report, now)
            reports.append(report)
            self._gathered, self._send_at = [], math.inf
        return [
            BindingOutcomes(self._binder, epoch, number, outcomes, self._incarnation) for number, outcomes in reports
        ]

    def acknowledged(self, number: int) -> list[BindingOutcome]:
        """Returns the outcomes of this report; none if it was acknowledged before."""
        report = self._sent.answered(number)
        if report is None:
            return []
        _, outcomes = report
        self._outcomes -= len(outcomes)
        return outcomes

    def next_deadline(self) -> float:
        repeat = self._sent.next_deadline()
        return self._send_at if repeat is None else min(repeat, self._send_at)

    def validate(self) -> None:
        if self._outcomes != len(self._gathered) + sum(len(outcomes) for _, outcomes in self._sent.requests()):
            raise InvariantBroken("outcomes are miscounted")
        if (self._send_at < math.inf) != bool(self._gathered):
            raise InvariantBroken("gathered outcomes are never sent, or the reverse")
        self._sent.validate()
