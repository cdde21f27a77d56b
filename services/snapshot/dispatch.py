"""Which binder has which orders: each is with one binder at a time, and goes to another when that is lost.

An order may be given twice, to the same binder or to another: it names pod and node, so binding it again does no harm.

When may a pod be forgotten, which frees its room? When nobody will bind it any more. A *process* is a binder by name
and incarnation. Who has had an order may bind it until one of these:

- It has told that it failed. It does so only when the API server has refused, or shows the pod unbound and no call of
  its own can arrive any more; and it never begins that attempt again.
- It has ended, which the next process of its name shows, or its own last beat, and that was LATE seconds ago: what it
  had asked the API server for has been done by now, or will not be.
- The order's deadline has passed, and some seconds. Only this ends it for who has not been heard of for a while, being
  dead or only cut off, and for whoever had it in earlier terms of the snapshot, of which nothing is known here.

So a failure is believed of the process that has the order, once all others that had it have told of theirs: each
claims for itself, no more, and together that is everybody. If some of them have ended without a word, a claim may be
older than the last thing that they did: then, after LATE, the pod is looked up instead, and what the API server says
counts. Anything else waits for the deadline, and no failure is believed of an order that nobody has: the next to get it
would bind a pod that is forgotten. That a pod is bound, or gone, may be believed of anybody: a binding names the uid of
its pod, so nobody binds one that is not there, and no pod comes back.
"""

import math
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
LATE = 10.0
"""Seconds after which a process that has ended has nothing under way at the API server: longer than a call may take."""
LEAST_LEFT = 5.0
"""Seconds until its deadline with which an order is still worth giving to another binder."""
MOST_BYTES = 4 << 20
"""Of orders in one message, half of what a message may hold."""
SMALL_ORDER = 1 << 11
"""Bytes; names are not longer."""

Attempt = tuple[str, int]
Process = tuple[str, str]
"""A binder's name and incarnation."""
SOMEBODY: Process = ("", "")
"""Whoever had it in an earlier term."""
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
        self._others: dict[Attempt, set[Process]] = {}
        """Who had it before, and has not told that it failed: it may have asked the API server already, and be late."""
        self._ended: dict[Process, float] = {}
        """Of all others, since when each is known to have ended; never: inf."""
        self._doubtful: list[BindingOrder] = []

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
                    self._others[attempt] = {SOMEBODY}
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
        self._note_ends(beat, now)
        if beat.gone:
            pass
        elif binder is None:
            self._binders[beat.binder] = _Binder(beat.incarnation, beat.room, now)
        else:
            binder.room, binder.heard_at = beat.room, now
        return self._send(now)

    def word(self, binder: str, outcome: BindingOutcome, now: float, incarnation: str = "") -> Sends:
        """A binder tells of an order: how it ended, or until when it waits. Without `incarnation`: whichever it is."""
        attempt = (outcome.uid, outcome.attempt)
        name = self._holder.get(attempt)
        final = outcome.bound or outcome.gone
        failed = not final and outcome.until is None
        if failed:
            self._excuse(attempt, (binder, incarnation))
        if name is None or (not final and not self._has_it(attempt, binder, incarnation)):
            return []
        held = self._binders[name].held
        if outcome.until is not None:
            held[attempt].word_by = outcome.until + WORD_PATIENCE
            return []
        if failed and attempt in self._others:
            if not all(self._ended.get(other, math.inf) + LATE <= now for other in self._others[attempt]):
                return []  # the order is sent again, and with that comes the word
            self._doubtful.append(held[attempt].order)
        self._drop(attempt, name)
        return self._send(now) if self._waiting else []

    def doubtful(self) -> list[BindingOrder]:
        """Nobody will bind these any more, and it is not known whether somebody has: to be looked up, each once."""
        doubtful, self._doubtful = self._doubtful, []
        return doubtful

    def hand_back(self, binder: str, outcome: BindingOutcome, now: float, incarnation: str = "") -> Sends | None:
        """Another one is to have it, at once. None where that cannot be, and the pod is to be decided anew."""
        attempt = (outcome.uid, outcome.attempt)
        self._excuse(attempt, (binder, incarnation))
        if not self._has_it(attempt, binder, incarnation):
            return []
        order = self._binders[binder].held[attempt].order
        if order.deadline - now < LEAST_LEFT and attempt not in self._others:
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
                    self._drop((held.order.uid, held.order.attempt), name)
            if again:
                sends.append((name, [held.order for held in again]))
        return sends

    def believes(self, binder: str, outcome: BindingOutcome, incarnation: str = "") -> bool:
        """That a pod is bound or gone, anybody may say; that it will not be, only the last who might bind it.

        To be asked before `word` is told.
        """
        attempt = (outcome.uid, outcome.attempt)
        if outcome.bound or outcome.gone:
            return True
        if not self._has_it(attempt, binder, incarnation):
            return outcome.until is not None and attempt not in self._holder
        return outcome.until is not None or self._others.get(attempt, set()) <= {(binder, incarnation)}

    def clear(self) -> None:
        """A new term: every order will be given anew."""
        self._waiting.clear()
        self._waits.clear()
        self._holder.clear()
        self._others.clear()
        self._ended.clear()
        self._doubtful.clear()
        for binder in self._binders.values():
            binder.held.clear()

    # Inside

    def _lose(self, name: str) -> None:
        """Its orders are the first that others get."""
        binder = self._binders.pop(name)
        process = (name, binder.incarnation)
        self._waiting.extendleft(held.order for held in reversed(binder.held.values()))
        self._waits.update(binder.held)
        for attempt in binder.held:
            del self._holder[attempt]
            self._others.setdefault(attempt, set()).add(process)
        others = set().union(*self._others.values())
        self._ended = {other: self._ended.get(other, math.inf) for other in others}

    def _note_ends(self, beat: BinderBeat, now: float) -> None:
        """Of one name there is one process at a time; if there are two, each shows in time that it has not ended."""
        for other, ended in self._ended.items():
            if other[0] != beat.binder:
                continue
            if other[1] == beat.incarnation and not beat.gone:
                self._ended[other] = math.inf
            elif ended == math.inf:
                self._ended[other] = now

    def _has_it(self, attempt: Attempt, binder: str, incarnation: str) -> bool:
        return self._holder.get(attempt) == binder and incarnation in ("", self._binders[binder].incarnation)

    def _excuse(self, attempt: Attempt, process: Process) -> None:
        """This one will not bind it, and says so itself."""
        others = self._others.get(attempt)
        if others is not None:
            others.discard(process)
            if not others:
                del self._others[attempt]

    def _drop(self, attempt: Attempt, holder: str) -> None:
        """It has ended, or is the snapshot's to look up."""
        del self._binders[holder].held[attempt], self._holder[attempt]
        self._others.pop(attempt, None)

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
                self._others.pop(attempt, None)
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
