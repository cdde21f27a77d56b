"""What a new term learns from the binders: which attempts of earlier terms each of them holds.

    term begins --Recall--> asked --all parts of an answer--> told
                              |
                              +-- no answer for RECALL_PATIENCE, or lost --> not waited for

A binder is asked with each of its beats until it has told. What it holds and stands in the ledger stays with it; what
does not stand is withdrawn. Once nobody is waited for, what nobody has claimed is given out again. A binder that is
heard of later is asked as well.

Everything may be lost, doubled or late: a claim only says where an order is, as if it had been sent there again. Who
holds it is still not the only one that may call on Bind, so versions fence it (`dispatch`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.snapshot.dispatch.order_dispatcher import BINDER_PATIENCE, Dispatcher, Process, Sends
from services.snapshot.events import BindingWaits
from services.snapshot.state.ledger import Attempt
from shared.messages.binding import Recall, Recalled, Withdraw

RECALL_PATIENCE = 3.0
"""Seconds for which a binder that beats is asked."""
REASON = "it is not part of the new term"


@dataclass(slots=True)
class _Asked:
    since: float
    parts: dict[int, set[int]] = field(default_factory=dict)
    """That have come, by number of the question."""
    told: bool = False


@dataclass(slots=True)
class Learnt:
    """What follows from an answer."""

    sends: Sends = field(default_factory=list)
    waits: list[BindingWaits] = field(default_factory=list)
    withdrawn: list[Withdraw] = field(default_factory=list)


class Recalls:
    def __init__(self, dispatcher: Dispatcher, stands: Callable[[Attempt], bool], now: float) -> None:
        """From now on binders are listened to. `stands`: whether an attempt is in the ledger."""
        self._dispatcher = dispatcher
        self._stands = stands
        self._listens_since = now
        self._epoch = 0
        self._number = 0
        self._asked: dict[Process, _Asked] = {}

    def begin(self, epoch: int, attempts: Iterable[Attempt], now: float) -> list[tuple[str, Recall]]:
        """A term begins with these attempts of earlier ones; the binders that are known are asked at once."""
        self._epoch = epoch
        self._asked.clear()
        self._dispatcher.recall(attempts)
        asks = [(process[0], self.ask(process, now)) for process in self._dispatcher.processes()]
        return [(name, recall) for name, recall in asks if recall is not None]

    def ask(self, process: Process, now: float) -> Recall | None:
        """The question for a process that has beaten; None where there is nothing to ask."""
        if not self._epoch:
            return None
        asked = self._asked.setdefault(process, _Asked(now))
        if not self._is_awaited(asked, now):
            return None
        self._number += 1
        asked.parts[self._number] = set()
        return Recall(self._epoch, self._number, process[1])

    def take(self, message: Recalled, now: float) -> Learnt:
        """Nothing follows from an answer to another term, or from a process that does not beat."""
        process, learnt = (message.binder, message.incarnation), Learnt()
        asked = self._asked.get(process)
        if message.epoch != self._epoch or asked is None:
            return learnt
        for each in message.attempts:
            attempt = (each.uid, each.attempt)
            if not self._stands(attempt):
                learnt.withdrawn.append(Withdraw(*attempt, "", REASON, self._epoch))
                continue
            sends = self._dispatcher.claim(process, each, now)
            if sends is None:
                continue
            learnt.sends += sends
            if each.wait > 0:
                learnt.waits.append(BindingWaits(*attempt, each.wait))
        parts = asked.parts.get(message.number)
        if parts is not None:
            parts.add(message.part)
            asked.told = asked.told or len(parts) == message.parts
        return learnt

    def tick(self, now: float) -> Sends:
        """To be called now and then: gives out what nobody has claimed, once nobody is waited for."""
        self._asked = {process: each for process, each in self._asked.items() if self._dispatcher.beats(process)}
        awaited = any(self._is_awaited(each, now) for each in self._asked.values())
        if awaited or now < self._listens_since + BINDER_PATIENCE:
            return []
        return self._dispatcher.give_unclaimed(now)

    def _is_awaited(self, asked: _Asked, now: float) -> bool:
        return not asked.told and now - asked.since <= RECALL_PATIENCE
