"""Which binder has which orders: each is with one binder at a time, and goes to another when that is lost.

An order may be given twice, to the same binder or to another: it names pod and node, so binding it again does no harm.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shared.messages.binding import BinderBeat, BindingOutcome
from shared.messages.state import EPOCH_SHIFT, BindingOrder
from shared.model.objects import encode_msgpack

BINDER_PATIENCE = 2.0
"""Seconds without a beat after which a binder counts as lost."""
WORD_PATIENCE = 3.0
"""Seconds without a word on an order after which it is sent again: it, or the word, may have been lost."""
LEAST_LEFT = 5.0
"""Seconds until its deadline with which an order is still worth giving to another binder."""
MOST_BYTES = 4 << 20
"""Of orders in one message, half of what a message may hold."""
SMALL_ORDER = 1 << 11
"""Bytes; names are not longer."""

Attempt = tuple[str, int]
Sends = list[tuple[str, list[BindingOrder]]]


@dataclass(slots=True)
class _Held:
    order: BindingOrder
    word_by: float


@dataclass(slots=True)
class _Binder:
    incarnation: str
    room: int
    heard_at: float
    held: dict[Attempt, _Held] = field(default_factory=dict)


class Dispatcher:
    """The methods answer with what is to be sent now, by binder."""

    def __init__(self) -> None:
        self._binders: dict[str, _Binder] = {}
        self._waiting: deque[BindingOrder] = deque()
        self._waits: set[Attempt] = set()
        self._holder: dict[Attempt, str] = {}
        self._shared: set[Attempt] = set()
        """Those that another binder had before: it may have asked the API server already, and be late."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        return len(self._holder)

    def give(self, orders: Iterable[BindingOrder], now: float) -> Sends:
        """Those that are here already count once."""
        for order in orders:
            attempt = (order.uid, order.attempt)
            if attempt not in self._waits and attempt not in self._holder:
                self._waits.add(attempt)
                self._waiting.append(order)
                if order.attempt >> EPOCH_SHIFT < order.epoch:
                    self._shared.add(attempt)  # an earlier term has given it to somebody
        return self._send(now)

    def knows(self, beat: BinderBeat) -> bool:
        """Whether this very process has been heard of, and is not lost."""
        binder = self._binders.get(beat.binder)
        return binder is not None and binder.incarnation == beat.incarnation

    def beat(self, beat: BinderBeat, now: float) -> Sends:
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

    def word(self, binder: str, outcome: BindingOutcome, now: float) -> Sends:
        """A binder tells of an order: how it ended, or until when it waits."""
        attempt = (outcome.uid, outcome.attempt)
        name = self._holder.get(attempt)
        if name is None or (name != binder and not outcome.bound):
            return []
        held = self._binders[name].held
        if outcome.until is not None:
            held[attempt].word_by = outcome.until + WORD_PATIENCE
            return []
        if not outcome.bound and attempt in self._shared:
            return []
        del held[attempt], self._holder[attempt]
        self._shared.discard(attempt)
        return self._send(now) if self._waiting else []

    def hand_back(self, binder: str, outcome: BindingOutcome, now: float) -> Sends | None:
        """Another one is to have it, at once. None where that cannot be, and the pod is to be decided anew."""
        attempt = (outcome.uid, outcome.attempt)
        if self._holder.get(attempt) != binder:
            return []
        order = self._binders[binder].held[attempt].order
        if order.deadline - now < LEAST_LEFT and attempt not in self._shared:
            return None
        del self._binders[binder].held[attempt], self._holder[attempt]
        self._waits.add(attempt)
        self._waiting.appendleft(order)
        return self._send(now)

    def tick(self, now: float) -> Sends:
        """To be called now and then: notices who is lost, and what there was no word on.

        What is past its deadline is nobody's any more: the snapshot looks it up.
        """
        for name in [name for name, b in self._binders.items() if now - b.heard_at > BINDER_PATIENCE]:
            self._lose(name)
        sends = self._send(now)
        for name, binder in self._binders.items():
            overdue = [held for held in binder.held.values() if held.word_by <= now]
            again = [held for held in overdue if now < held.order.deadline]
            for held in again:
                held.word_by = now + WORD_PATIENCE
            for held in overdue:
                if now >= held.order.deadline:
                    attempt = (held.order.uid, held.order.attempt)
                    del binder.held[attempt], self._holder[attempt]
                    self._shared.discard(attempt)
            if again:
                sends.append((name, [held.order for held in again]))
        return sends

    def believes(self, binder: str, outcome: BindingOutcome) -> bool:
        """That a pod is bound, anybody may say; that it will not be, not who has lost the order to another.

        Nor who got it from another: that one may be about to bind it. Then the deadline brings it to light.
        """
        attempt = (outcome.uid, outcome.attempt)
        if outcome.bound:
            return True
        has_it = self._holder.get(attempt, binder) == binder
        return has_it and (outcome.until is not None or attempt not in self._shared)

    def clear(self) -> None:
        """A new term: every order will be given anew."""
        self._waiting.clear()
        self._waits.clear()
        self._holder.clear()
        self._shared.clear()
        for binder in self._binders.values():
            binder.held.clear()

    # Inside

    def _lose(self, name: str) -> None:
        """Its orders are the first that others get."""
        binder = self._binders.pop(name)
        self._waiting.extendleft(held.order for held in reversed(binder.held.values()))
        self._waits.update(binder.held)
        self._shared.update(binder.held)
        for attempt in binder.held:
            del self._holder[attempt]

    def _send(self, now: float) -> Sends:
        """To the binder with the most room, in equal parts where several have it."""
        parts: dict[str, list[BindingOrder]] = {}
        room = {name: b.room - len(b.held) for name, b in self._binders.items()}
        while self._waiting and room and (most := max(room.values())) > 0:
            name = next(name for name in room if room[name] == most)
            order = self._waiting.popleft()
            attempt = (order.uid, order.attempt)
            self._waits.discard(attempt)
            if order.deadline <= now:
                self._shared.discard(attempt)
                continue  # the snapshot looks it up
            self._binders[name].held[attempt] = _Held(order, now + WORD_PATIENCE)
            self._holder[attempt] = name
            parts.setdefault(name, []).append(order)
            room[name] -= 1
        return list(parts.items())


def parts(orders: Sequence[BindingOrder]) -> Iterator[list[BindingOrder]]:
    """As many together as fit into a message."""
    part: list[BindingOrder] = []
    size = 0
    for order in orders:
        bytes_of_order = SMALL_ORDER if order.pod is None else SMALL_ORDER + len(encode_msgpack(order.pod))
        if part and size + bytes_of_order > MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(order)
        size += bytes_of_order
    if part:
        yield part
