"""A new term asks the binders which attempts of earlier terms they hold.

    term begins --Recall--> asked --all parts of an answer--> answered
                              |
                              +-- no answer for RECALL_TIMEOUT, or lost --> not waited for

A binder is asked at each of its beats until it has answered. It keeps the attempts that are in the ledger; others are
withdrawn. Once no answer is awaited, unclaimed attempts are dispatched again. A binder that is heard of later is asked
as well.

Messages may be lost, doubled or late: a claim only says where an order is, as if it had been sent there again. Its
holder may not be the only process that can call Bind, so versions fence it (`order_dispatcher`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.snapshot.dispatch.order_dispatcher import BINDER_TIMEOUT, OrderDispatcher, Process, Sends
from services.snapshot.events import BindingReport
from services.snapshot.state.ledger import AttemptKey
from shared.messages.binding import BindingOutcome, Recall, Recalled, Withdraw

RECALL_TIMEOUT = 3.0
"""Seconds for which a binder that beats is asked."""
REASON = "it is not part of the new term"


@dataclass(slots=True)
class _Asked:
    since: float
    parts: dict[int, set[int]] = field(default_factory=dict)
    """That have come, by number of the question."""
    answered: bool = False


@dataclass(slots=True)
class Claimed:
    """What follows from an answer."""

    sends: Sends = field(default_factory=list)
    waits: list[BindingReport] = field(default_factory=list)
    withdrawn: list[Withdraw] = field(default_factory=list)


class BinderRecall:
    def __init__(self, dispatcher: OrderDispatcher, is_assumed: Callable[[AttemptKey], bool], since: float) -> None:
        """Beats are heard since then. `is_assumed`: whether an attempt is in the ledger."""
        self._dispatcher = dispatcher
        self._is_assumed = is_assumed
        self._listens_since = since
        self._epoch = 0
        self._number = 0
        self._asked: dict[Process, _Asked] = {}

    def begin(self, epoch: int, attempts: Iterable[AttemptKey], now: float) -> list[tuple[str, Recall]]:
        """A term begins with these attempts of earlier ones. Returns the questions to the known binders."""
        self._epoch = epoch
        self._asked.clear()
        self._dispatcher.recall(attempts)
        questions = [(process[0], self.question(process, now)) for process in self._dispatcher.processes()]
        return [(name, recall) for name, recall in questions if recall is not None]

    def question(self, process: Process, now: float) -> Recall | None:
        """The question to a process that has beaten; None if it needs none."""
        if not self._epoch:
            return None
        asked = self._asked.setdefault(process, _Asked(now))
        if not self._is_awaited(asked, now):
            return None
        self._number += 1
        asked.parts[self._number] = set()
        return Recall(self._epoch, self._number, process[1], self._dispatcher.number)

    def on_answer(self, message: Recalled, now: float) -> Claimed:
        """Answers to other terms, and of processes that do not beat, are ignored."""
        process, claimed = (message.binder, message.incarnation), Claimed()
        asked = self._asked.get(process)
        if message.epoch != self._epoch or asked is None:
            return claimed
        for held in message.attempts:
            attempt = (held.uid, held.attempt)
            if not self._is_assumed(attempt):
                claimed.withdrawn.append(Withdraw(*attempt, "", REASON, self._epoch))
                continue
            sends = self._dispatcher.claim(process, held, now)
            if sends is None:
                continue
            claimed.sends += sends
            if held.wait > 0:
                claimed.waits.append(BindingReport(BindingOutcome(*attempt, wait=held.wait)))
        parts = asked.parts.get(message.number)
        if parts is not None:
            parts.add(message.part)
            asked.answered = asked.answered or len(parts) == message.parts
        return claimed

    def tick(self, now: float) -> Sends:
        """Dispatches unclaimed attempts, once no answer is awaited."""
        self._asked = {process: each for process, each in self._asked.items() if self._dispatcher.is_alive(process)}
        awaited = any(self._is_awaited(each, now) for each in self._asked.values())
        if awaited or now < self._listens_since + BINDER_TIMEOUT:
            return []
        return self._dispatcher.dispatch_unclaimed(now)

    def _is_awaited(self, asked: _Asked, now: float) -> bool:
        return not asked.answered and now - asked.since <= RECALL_TIMEOUT
