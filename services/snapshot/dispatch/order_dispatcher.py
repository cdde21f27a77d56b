"""Which binder has which orders: each order is with one binder at a time, and goes to another if that one is lost.

A *process* is a binder by name and incarnation. The ledger says what an order is now: which version of the pod it
names, and what is left of its window. So what is sent again is never older than the ledger, and nothing is sent that
has ended there.

An order may be sent twice, to one process or to two: both name the same version of the same pod, so the pod is bound
once. But then a process that reports a failure, without having called Bind, says nothing about the others, or about
what it did before it forgot the order. Its word alone is enough if the order, with its present version, was sent once
and to no other process: `is_sole`. Where orders of earlier terms went is unknown: a process that says it holds one
keeps it (`claim`), and unclaimed ones are dispatched again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.snapshot.events import BindingReport
from services.snapshot.state.ledger import AttemptKey, bounded
from shared.messages.binding import BinderBeat, BindingOrders, BindingOutcome, HeldAttempt
from shared.messages.limits import BEAT_INTERVAL, HALF_A_MESSAGE
from shared.messages.state import EPOCH_SHIFT, BindingOrder
from shared.model.objects import encode_msgpack

BINDER_TIMEOUT = 4 * BEAT_INTERVAL
"""Seconds without a beat after which a binder is lost."""
REPORT_TIMEOUT = 3.0
"""Seconds without a report on an order after which it is sent again: it, or the report, may have been lost."""
MIN_WINDOW = 5.0
"""Seconds of its window with which an order is still worth giving to another binder."""
MAX_BYTES = HALF_A_MESSAGE
"""Of orders in one message, half of what a message may hold."""
ORDER_BYTES = 1 << 11
"""The most that an order takes, without its pod and what is decided about volumes and devices."""

Process = tuple[str, str]
"""A binder's name and incarnation."""
Sends = list[tuple[str, list[BindingOrder]]]
"""Orders by binder."""
OrderOf = Callable[[AttemptKey, float], BindingOrder | None]
"""The order of an attempt as the ledger has it now; None if no binder must have it."""


class _Sent(NamedTuple):
    """`process`: the only one that got an order with this version, and only once; None if there were several."""

    version: str
    process: Process | None


@dataclass(slots=True)
class _Binder:
    incarnation: str
    room: int
    heard_at: float
    held: dict[AttemptKey, float] = field(default_factory=dict)
    """By when a report on each is due."""


class OrderDispatcher:
    """Methods return the orders that must be sent now."""

    def __init__(self, order_of: OrderOf) -> None:
        self._order_of = order_of
        self._binders: dict[str, _Binder] = {}
        self._waiting: OrderedDict[AttemptKey, None] = OrderedDict()
        self._unclaimed: dict[AttemptKey, None] = {}
        """Of earlier terms; binders are being asked which of them they hold."""
        self._holder: dict[AttemptKey, str] = {}
        self._sent: dict[AttemptKey, _Sent] = {}
        self.number = 0
        """Of the last orders to any binder."""
        self._heard_at: float | None = None
        """When the last beat of any binder came; before the first, when it was first missed."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        return len(self._holder)

    def dispatch(self, attempts: Iterable[AttemptKey], now: float) -> Sends:
        """An order that waits or is held is not sent again, unless its binder has another version of it."""
        renewed: Sends = []
        for attempt in attempts:
            name = self._holder.get(attempt)
            if name is not None:
                order = self._order_of(attempt, now)
                if order is not None and self._sent[attempt].version != order.version:
                    self._hand(name, order, now)
                    renewed.append((name, [order]))
            elif attempt not in self._waiting and attempt not in self._unclaimed:
                self._waiting[attempt] = None
        return renewed + self.fill(now)

    # Orders of earlier terms

    def recall(self, attempts: Iterable[AttemptKey]) -> None:
        """Holds these back until it is known which binders hold them."""
        self._unclaimed = dict.fromkeys(attempts)

    def claim(self, process: Process, held: HeldAttempt, now: float) -> Sends | None:
        """This process says that it holds an order. None if another one does, or no binder must have it."""
        attempt = (held.uid, held.attempt)
        order = self._order_of(attempt, now)
        if order is None or attempt in self._holder or not self.is_alive(process):
            return None
        name = process[0]
        self._unclaimed.pop(attempt, None)
        self._waiting.pop(attempt, None)
        self._holder[attempt], self._sent[attempt] = name, _Sent(held.version, None)
        self._binders[name].held[attempt] = now + bounded(held.wait) + REPORT_TIMEOUT
        if held.version == order.version:
            return []
        self._hand(name, order, now)
        return [(name, [order])]

    def dispatch_unclaimed(self, now: float) -> Sends:
        """All binders have answered."""
        if not self._unclaimed:
            return []
        attempts, self._unclaimed = self._unclaimed, {}
        return self.dispatch(attempts, now)

    # Binders

    def processes(self) -> list[Process]:
        return [(name, binder.incarnation) for name, binder in self._binders.items()]

    def is_alive(self, process: Process) -> bool:
        """Whether beats of this process come."""
        binder = self._binders.get(process[0])
        return binder is not None and binder.incarnation == process[1]

    def addressed(self, binder: str, epoch: int, orders: list[BindingOrder]) -> BindingOrders:
        """The message for the present process of a binder, under a new number."""
        self.number += 1
        known = self._binders.get(binder)
        return BindingOrders(epoch, orders, "" if known is None else known.incarnation, self.number)

    def on_beat(self, beat: BinderBeat, now: float) -> Sends:
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
        return self.fill(now)

    def takes_orders(self, since: float) -> bool:
        """Whether a binder with room has beaten since then; one that is leaving has none."""
        return any(binder.room > 0 and binder.heard_at >= since for binder in self._binders.values())

    def no_binder(self, now: float) -> str:
        """Says that orders wait and no binder beats; empty if that is not so, or a binder may come back."""
        silent = 0.0 if self._heard_at is None else now - self._heard_at
        if self._binders or not self._waiting or silent < BINDER_TIMEOUT:
            return ""
        orders = "1 order waits" if self.waiting == 1 else f"{self.waiting} orders wait"
        return f"nothing has been heard from a binder for {int(silent)} s, {orders}"

    # Outcomes

    def report_of(self, process: Process, outcome: BindingOutcome) -> BindingReport | None:
        """The event for the core; None if another binder has the order, and this one may not report on it."""
        if outcome.bound:
            return BindingReport(outcome)
        key = (outcome.uid, outcome.attempt)
        holds = self.holds(process, key)
        may_report = holds or key not in self._holder
        if (outcome.found and not holds) or (outcome.waits and not may_report):
            return None
        # Another process than the holder may report a failure, which is fenced all the same.
        sure = outcome.fenced or self.is_sole(process, key, outcome.version)
        return BindingReport(outcome, sure, sole=may_report)

    def on_outcome(self, process: Process, outcome: BindingOutcome, now: float) -> None:
        """May make room for other orders: `fill` sends them."""
        attempt = (outcome.uid, outcome.attempt)
        name = self._holder.get(attempt)
        if name is None:
            return
        if outcome.bound or outcome.gone or (outcome.failed and self.holds(process, attempt)):
            self._drop(attempt)
            return
        # A report about an earlier version says nothing of the renewed order, which may be lost.
        has_newest = outcome.version in ("", self._sent[attempt].version)
        if outcome.wait is not None and has_newest and self.holds(process, attempt):
            self._binders[name].held[attempt] = now + bounded(outcome.wait) + REPORT_TIMEOUT

    def holds(self, process: Process, attempt: AttemptKey) -> bool:
        name, incarnation = process
        return self._holder.get(attempt) == name and self._binders[name].incarnation == incarnation

    def was_sent(self, attempt: AttemptKey) -> bool:
        """In this term, of an attempt that a binder must have."""
        return attempt in self._sent

    def is_sole(self, process: Process, attempt: AttemptKey, version: str) -> bool:
        """Whether only this process can have called Bind with this version."""
        return self._sent.get(attempt) == _Sent(version, process)

    def hand_back(self, process: Process, outcome: BindingOutcome, now: float) -> Sends | None:
        """Gives the order to another binder. None if that is not worthwhile, and the pod must be decided again."""
        attempt = (outcome.uid, outcome.attempt)
        if not self.holds(process, attempt):
            return []
        order = self._order_of(attempt, now)
        if order is None:
            self._drop(attempt)
            return []
        if order.window < MIN_WINDOW and self.is_sole(process, attempt, order.version):
            return None
        del self._binders[process[0]].held[attempt], self._holder[attempt]
        self._wait_first(attempt)
        return self.fill(now)

    def tick(self, now: float) -> Sends:
        """Drops lost binders, and sends again the orders without a report."""
        self._heard_at = now if self._heard_at is None else self._heard_at
        for name in [name for name, b in self._binders.items() if now - b.heard_at > BINDER_TIMEOUT]:
            self._lose(name)
        sends = self.fill(now)
        for name, binder in self._binders.items():
            again: list[BindingOrder] = []
            for attempt in [attempt for attempt, due in binder.held.items() if due <= now]:
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
        """A new term dispatches every order again."""
        for orders in (self._waiting, self._unclaimed, self._holder, self._sent):
            orders.clear()
        for binder in self._binders.values():
            binder.held.clear()

    def _lose(self, name: str) -> None:
        """The binder's orders are the first that others get."""
        for attempt in reversed(self._binders.pop(name).held):
            del self._holder[attempt]
            self._wait_first(attempt)

    def _wait_first(self, attempt: AttemptKey) -> None:
        self._waiting[attempt] = None
        self._waiting.move_to_end(attempt, last=False)

    def _drop(self, attempt: AttemptKey) -> None:
        """The attempt has ended, or the snapshot fences it."""
        del self._binders[self._holder.pop(attempt)].held[attempt], self._sent[attempt]

    def fill(self, now: float) -> Sends:
        """Gives waiting orders to the binder with the most room; in equal parts if several have as much."""
        sends: dict[str, list[BindingOrder]] = {}
        room = {name: b.room - len(b.held) for name, b in self._binders.items()}
        while self._waiting and room and room[name := max(room, key=room.__getitem__)] > 0:
            attempt, _ = self._waiting.popitem(last=False)
            order = self._order_of(attempt, now)
            if order is None:
                self._sent.pop(attempt, None)
                continue
            self._hand(name, order, now)
            sends.setdefault(name, []).append(order)
            room[name] -= 1
        return list(sends.items())

    def _hand(self, name: str, order: BindingOrder, now: float) -> None:
        attempt, binder = (order.uid, order.attempt), self._binders[name]
        before = self._sent.get(attempt)
        of_this_term = order.attempt >> EPOCH_SHIFT >= order.epoch
        first = of_this_term if before is None else before.version != order.version
        self._sent[attempt] = _Sent(order.version, (name, binder.incarnation) if first else None)
        self._holder[attempt] = name
        binder.held[attempt] = now + REPORT_TIMEOUT


def messages(orders: Sequence[BindingOrder]) -> Iterator[list[BindingOrder]]:
    """Splits orders into as many as fit into a message each."""
    part: list[BindingOrder] = []
    size = 0
    for order in orders:
        of = order.assignment
        added = ORDER_BYTES + sum(len(encode_msgpack(each)) for each in (of.pod, of.volumes, of.devices) if each)
        if part and size + added > MAX_BYTES:
            yield part
            part, size = [], 0
        part.append(order)
        size += added
    if part:
        yield part
