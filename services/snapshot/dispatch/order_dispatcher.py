"""Which binder has which orders: each is with one binder at a time, and goes to another when that is lost.

A *process* is a binder by name and incarnation. The ledger says what an order is now: which version of the pod it
names, and what is left of its window. So what is sent again is never older than the ledger, and nothing is sent that
has ended there.

An order may be sent twice, to the same process or to another: what they name is the same version of the same pod, so it
is bound once. But then a process that has failed, and has not called on Bind, says nothing of the others, or of what it
did before it forgot the order. Its word alone is enough where the order, with the version that it has now, was sent
once and to nobody else: `is_sole`. Of orders from earlier terms it is not known where they went; who says that it holds
one keeps it (`claim`), and what nobody claims is given out again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.snapshot.state.ledger import Attempt, bounded
from shared.messages.binding import LONGEST_WAIT, BinderBeat, BindingOrders, BindingOutcome, HeldAttempt
from shared.messages.state import EPOCH_SHIFT, BindingOrder
from shared.model.objects import encode_msgpack

BINDER_PATIENCE = 2.0
"""Seconds without a beat after which a binder counts as lost."""
WORD_PATIENCE = 3.0
"""Seconds without a word on an order after which it is sent again: it, or the word, may have been lost."""
LEAST_LEFT = 5.0
"""Seconds of its window with which an order is still worth giving to another binder."""
MOST_BYTES = 4 << 20
"""Of orders in one message, half of what a message may hold."""
SMALL_ORDER = 1 << 11
"""Bytes; names are not longer."""

Process = tuple[str, str]
"""A binder's name and incarnation."""
Sends = list[tuple[str, list[BindingOrder]]]
OrderOf = Callable[[Attempt, float], BindingOrder | None]
"""The order for an attempt as the ledger has it at this moment; None where no binder is to have it any more."""


class _Sent(NamedTuple):
    """`process`: the only one that an order with this version was sent to, and only once; None: not so."""

    version: str
    process: Process | None


@dataclass(slots=True)
class _Binder:
    incarnation: str
    room: int
    heard_at: float
    held: dict[Attempt, float] = field(default_factory=dict)
    """By when there is to be a word on each."""


class Dispatcher:
    """The methods answer with what is to be sent now, by binder."""

    def __init__(self, order_of: OrderOf) -> None:
        self._order_of = order_of
        self._binders: dict[str, _Binder] = {}
        self._waiting: deque[Attempt] = deque()
        """Some may not wait any more."""
        self._waits: set[Attempt] = set()
        self._unclaimed: dict[Attempt, None] = {}
        """Of earlier terms; binders are being asked which of them they hold."""
        self._holder: dict[Attempt, str] = {}
        self._sent: dict[Attempt, _Sent] = {}
        self._number = 0
        self._heard_at: float | None = None
        """When any binder was heard of last; before that, when that was first missed."""

    @property
    def waiting(self) -> int:
        return len(self._waits)

    @property
    def held(self) -> int:
        return len(self._holder)

    def give(self, attempts: Iterable[Attempt], now: float) -> Sends:
        """Those that are here already count once; a binder that has one with another version gets it anew."""
        anew: Sends = []
        for attempt in attempts:
            name = self._holder.get(attempt)
            if name is not None:
                order = self._order_of(attempt, now)
                if order is not None and self._sent[attempt].version != order.version:
                    self._hand(name, order, now)
                    anew.append((name, [order]))
            elif attempt not in self._waits and attempt not in self._unclaimed:
                self._waits.add(attempt)
                self._waiting.append(attempt)
        return anew + self._send(now)

    def recall(self, attempts: Iterable[Attempt]) -> None:
        """Of earlier terms: nobody is given them before it is known who holds them."""
        self._unclaimed = dict.fromkeys(attempts)

    def claim(self, process: Process, held: HeldAttempt, now: float) -> Sends | None:
        """This process says that it holds an order. None where another one does, or nobody is to have it."""
        attempt = (held.uid, held.attempt)
        order = self._order_of(attempt, now)
        if order is None or attempt in self._holder or not self.beats(process):
            return None
        name = process[0]
        self._unclaimed.pop(attempt, None)
        self._waits.discard(attempt)
        self._holder[attempt], self._sent[attempt] = name, _Sent(held.version, None)
        self._binders[name].held[attempt] = now + bounded(held.wait) + WORD_PATIENCE
        if held.version == order.version:
            return []
        self._hand(name, order, now)
        return [(name, [order])]

    def give_unclaimed(self, now: float) -> Sends:
        """Whoever is to have told what it holds has done so."""
        if not self._unclaimed:
            return []
        attempts, self._unclaimed = self._unclaimed, {}
        return self.give(attempts, now)

    def processes(self) -> list[Process]:
        return [(name, binder.incarnation) for name, binder in self._binders.items()]

    def addressed(self, binder: str, epoch: int, orders: list[BindingOrder]) -> BindingOrders:
        """To the process that it is now, under a number that was never used."""
        self._number += 1
        known = self._binders.get(binder)
        return BindingOrders(epoch, orders, "" if known is None else known.incarnation, self._number)

    def knows(self, beat: BinderBeat) -> bool:
        """Whether this very process has been heard of, and is not lost."""
        return self.beats((beat.binder, beat.incarnation))

    def beats(self, process: Process) -> bool:
        """Whether this process is not lost."""
        binder = self._binders.get(process[0])
        return binder is not None and binder.incarnation == process[1]

    def beat(self, beat: BinderBeat, now: float) -> Sends:
        self._heard_at = now
        binder = self._binders.get(beat.binder)
        if binder is not None and (beat.gone or binder.incarnation != beat.incarnation):
            self._lose(beat.binder)
            binder = None
        if beat.gone:
            pass
        elif binder is None:
            self._binders[beat.binder] = _Binder(beat.incarnation, beat.room, now)
        else:
            binder.room, binder.heard_at = beat.room, now
        return self._send(now)

    def word(self, process: Process, outcome: BindingOutcome, now: float) -> Sends:
        """A binder tells of an order: how it ended, that it waits, or that the pod has changed."""
        attempt = (outcome.uid, outcome.attempt)
        name = self._holder.get(attempt)
        if name is None:
            return []
        if outcome.bound or outcome.gone or (outcome.failed and self.has(process, attempt)):
            self._drop(attempt)
            return self._send(now) if self._waiting else []
        if outcome.waits and self.has(process, attempt):
            self._binders[name].held[attempt] = now + wait_of(outcome) + WORD_PATIENCE
        return []

    def has(self, process: Process, attempt: Attempt) -> bool:
        """Whether the order is with this process."""
        name, incarnation = process
        return self._holder.get(attempt) == name and self._binders[name].incarnation == incarnation

    def takes_orders(self, since: float) -> bool:
        """Whether any binder has said so since then; one that ends takes none."""
        return any(binder.room > 0 and binder.heard_at >= since for binder in self._binders.values())

    def missing(self, now: float) -> str:
        """Why orders wait for lack of any binder. Empty if none waits, or a binder is there or may be back."""
        silent = 0.0 if self._heard_at is None else now - self._heard_at
        if self._binders or not self._waits or silent < BINDER_PATIENCE:
            return ""
        orders = "1 order waits" if self.waiting == 1 else f"{self.waiting} orders wait"
        return f"no binder has been heard of for {int(silent)} s, {orders}"

    def was_sent(self, attempt: Attempt) -> bool:
        """In this term, of an attempt that stands in the ledger and may be given to binders."""
        return attempt in self._sent

    def may_tell(self, process: Process, attempt: Attempt) -> bool:
        """Whether this process may say that the attempt waits or has failed: nobody else has the order.

        Who may put a deadline off may also end the wait. What it says of a failure is fenced all the same.
        """
        return attempt not in self._holder or self.has(process, attempt)

    def is_sole(self, process: Process, attempt: Attempt, version: str) -> bool:
        """Whether only this process can have called on Bind with this version, for all that was ever sent."""
        return self._sent.get(attempt) == _Sent(version, process)

    def hand_back(self, process: Process, outcome: BindingOutcome, now: float) -> Sends | None:
        """Another one is to have it, at once. None where that cannot be, and the pod is to be decided anew."""
        attempt = (outcome.uid, outcome.attempt)
        if not self.has(process, attempt):
            return []
        order = self._order_of(attempt, now)
        if order is None:
            self._drop(attempt)
            return []
        if order.window < LEAST_LEFT and self.is_sole(process, attempt, order.version):
            return None
        del self._binders[process[0]].held[attempt], self._holder[attempt]
        self._waits.add(attempt)
        self._waiting.appendleft(attempt)
        return self._send(now)

    def tick(self, now: float) -> Sends:
        """To be called now and then: notices who is lost, and what there was no word on."""
        self._heard_at = now if self._heard_at is None else self._heard_at
        for name in [name for name, b in self._binders.items() if now - b.heard_at > BINDER_PATIENCE]:
            self._lose(name)
        sends = self._send(now)
        for name, binder in self._binders.items():
            again: list[BindingOrder] = []
            for attempt in [attempt for attempt, word_by in binder.held.items() if word_by <= now]:
                order = self._order_of(attempt, now)
                if order is None:
                    self._drop(attempt)
                else:
                    self._hand(name, order, now)
                    again.append(order)
            if again:
                sends.append((name, again))
        return sends

    def clear(self) -> None:
        """A new term: every order will be given anew."""
        self._waiting.clear()
        self._waits.clear()
        self._unclaimed.clear()
        self._holder.clear()
        self._sent.clear()
        for binder in self._binders.values():
            binder.held.clear()

    # Inside

    def _lose(self, name: str) -> None:
        """Its orders are the first that others get."""
        binder = self._binders.pop(name)
        self._waiting.extendleft(reversed(binder.held))
        self._waits.update(binder.held)
        for attempt in binder.held:
            del self._holder[attempt]

    def _drop(self, attempt: Attempt) -> None:
        """It has ended, or is the snapshot's to fence."""
        del self._binders[self._holder.pop(attempt)].held[attempt], self._sent[attempt]

    def _send(self, now: float) -> Sends:
        """To the binder with the most room, in equal parts where several have it."""
        given: dict[str, list[BindingOrder]] = {}
        room = {name: b.room - len(b.held) for name, b in self._binders.items()}
        while self._waiting and room and (most := max(room.values())) > 0:
            name = next(name for name in room if room[name] == most)
            attempt = self._waiting.popleft()
            if attempt not in self._waits:
                continue
            self._waits.discard(attempt)
            order = self._order_of(attempt, now)
            if order is None:
                self._sent.pop(attempt, None)
                continue
            self._hand(name, order, now)
            given.setdefault(name, []).append(order)
            room[name] -= 1
        return list(given.items())

    def _hand(self, name: str, order: BindingOrder, now: float) -> None:
        """It is going to be sent there."""
        attempt, binder = (order.uid, order.attempt), self._binders[name]
        before = self._sent.get(attempt)
        of_this_term = order.attempt >> EPOCH_SHIFT >= order.epoch
        first = of_this_term if before is None else before.version != order.version
        self._sent[attempt] = _Sent(order.version, (name, binder.incarnation) if first else None)
        self._holder[attempt] = name
        binder.held[attempt] = now + WORD_PATIENCE


def wait_of(outcome: BindingOutcome) -> float:
    """How long the binder waits with it."""
    return LONGEST_WAIT if outcome.wait is None else bounded(outcome.wait)


def parts(orders: Sequence[BindingOrder]) -> Iterator[list[BindingOrder]]:
    """As many together as fit into a message."""
    part: list[BindingOrder] = []
    size = 0
    for order in orders:
        bytes_of_order = (
            SMALL_ORDER if order.assignment.pod is None else SMALL_ORDER + len(encode_msgpack(order.assignment.pod))
        )
        if part and size + bytes_of_order > MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(order)
        size += bytes_of_order
    if part:
        yield part
