"""What a binder answers the snapshot of a new term, which asks for the attempts that are under way."""

from collections.abc import Iterator, Sequence

from services.binder.binding.attempts import Attempt
from shared.messages.binding import HeldAttempt, Recall, Recalled

MOST_IN_PART = 1 << 10
"""Attempts in one message: some 200 KiB."""


def answers(recall: Recall, binder: str, attempts: Sequence[Attempt], now: float) -> Iterator[Recalled]:
    """All parts; one where nothing is held."""
    held = [_held(each, now) for each in attempts]
    parts = max(-(-len(held) // MOST_IN_PART), 1)
    for part in range(parts):
        of_part = held[part * MOST_IN_PART : (part + 1) * MOST_IN_PART]
        yield Recalled(binder, recall.incarnation, recall.epoch, recall.number, part, parts, of_part)


def _held(attempt: Attempt, now: float) -> HeldAttempt:
    order, wait = attempt.order, max(attempt.waits_until - now, 0.0)
    return HeldAttempt(order.uid, order.attempt, order.version, wait)
