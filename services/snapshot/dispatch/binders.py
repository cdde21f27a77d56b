"""The snapshot's side of the binders: orders, recalls, withdrawals and evictions go out, beats and reports come in."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch.order_dispatcher import OrderDispatcher, Process, Sends, messages
from services.snapshot.dispatch.recall import BinderRecall
from services.snapshot.events import (
    AcknowledgeBinder,
    BindingReport,
    BindingReports,
    DispatchOrders,
    FromBinders,
    RecallAttempts,
    ToBinders,
)
from shared.bus import Envelope
from shared.bus.subjects import BINDER_EVICTIONS, BINDER_WITHDRAWALS, binder
from shared.messages.binding import (
    BinderBeat,
    BindingOutcome,
    BindingOutcomes,
    Evict,
    Evicted,
    IsNominated,
    IsPlaced,
    Nominated,
    NominationOf,
    PlacedNow,
    Recall,
    Recalled,
    Withdraw,
)
from shared.messages.limits import PREEMPTION_TIMEOUT
from shared.messages.queue import Received
from shared.runtime import Context
from shared.runtime.clocks import ClockOffsets
from shared.runtime.names import Names, name_conflict
from shared.telemetry.logs import Repeated

NOT_ORDERED = "it is not ordered any more"
PENDING_SECONDS = PREEMPTION_TIMEOUT - 5
"""For so long an eviction is sent again: then the queue will soon retry the preemptor anyway."""


class Binders:
    def __init__(
        self,
        context: Context,
        core: SnapshotCore,
        clocks: ClockOffsets,
        feed: Callable[[FromBinders], None],
        acknowledge: Callable[[AcknowledgeBinder], None],
        listens_since: float | None = None,
    ) -> None:
        """`acknowledge` is called for each message; its effect comes back once what the message changed is durable.

        `listens_since`: from when on beats are heard; by default from now on.
        """
        self.dispatcher = OrderDispatcher(core.order)
        self.stopped = False
        """Nothing is dispatched any more."""
        self._context = context
        self._bus = context.bus
        self._core = core
        self._clocks = clocks
        self._feed = feed
        self._acknowledge = acknowledge
        since = context.clock() if listens_since is None else listens_since
        self._recall = BinderRecall(self.dispatcher, core.is_assumed, since)
        self._evictions = PendingEvictions()
        self._names = Names()
        self._repeated = Repeated(context.log)

    # Messages

    def on_beat(self, beat: BinderBeat, envelope: Envelope) -> None:
        self._clocks.heard(beat.binder, beat.at)
        self.heard(beat, self._context.clock())

    def heard(self, beat: BinderBeat, now: float) -> None:
        """`now`: when the beat came."""
        process = beat.binder, beat.incarnation
        ruling = self._names.beat(*process, now, epoch=self._core.epoch, uptime=beat.uptime, leaving=beat.gone)
        if ruling.taken is not None:
            self._repeated.warning(f"name {beat.binder}", "%s", name_conflict("binder", ruling.taken))
            self._bus.post(binder(beat.binder), ruling.taken)
        if not ruling.counts:
            return
        is_new = not self.dispatcher.is_alive(process)
        newest = self._core.epoch, self.dispatcher.number
        if (beat.epoch, beat.number) > newest:  # it would refuse our orders
            beat = replace(beat, room=0)
            self._bus.post(binder(beat.binder), Recall(newest[0], 0, beat.incarnation, newest[1]))
        self._send(self.dispatcher.on_beat(beat, now))
        if not beat.gone:
            self._ask(beat.binder, self._recall.question(process, now))
        for evict in self._evictions.resend(now) if is_new else ():
            self._bus.post(BINDER_EVICTIONS, replace(evict, epoch=self._core.epoch))

    def on_recalled(self, message: Recalled) -> None:
        claimed = self._recall.on_answer(message, self._context.clock())
        self._send(claimed.sends)
        for wait in claimed.waits:
            self._feed(wait)
        for withdraw in claimed.withdrawn:
            self._bus.post(BINDER_WITHDRAWALS, withdraw)

    def on_outcomes(self, message: BindingOutcomes, envelope: Envelope) -> None:
        process, now = (message.binder, message.incarnation), self._context.clock()
        reports = [each for outcome in message.outcomes if (each := self._report_of(process, outcome, now)) is not None]
        self._send(self.dispatcher.fill(now))
        if reports:
            self._feed(BindingReports(reports))
        self._acknowledge(AcknowledgeBinder(message.epoch, message.number, envelope.respond))

    def _report_of(self, process: Process, outcome: BindingOutcome, now: float) -> BindingReport | None:
        """None if another binder gets the order, or has it and this one may not report on it."""
        if outcome.handed_back and not self.stopped:
            sends = self.dispatcher.hand_back(process, outcome, now)
            if sends is not None:
                self._send(sends)
                return None
        if outcome.found and not self._core.is_assumed((outcome.uid, outcome.attempt)):
            self.withdraw(Withdraw(outcome.uid, outcome.attempt, "", NOT_ORDERED))
        report = self.dispatcher.report_of(process, outcome)
        self.dispatcher.on_outcome(process, outcome, now)
        return report

    def on_evicted(self, evicted: Evicted, envelope: Envelope) -> None:
        if self._evictions.end(evicted) and evicted.failure:
            self._feed(evicted)

    def on_is_nominated(self, asked: IsNominated, envelope: Envelope) -> None:
        envelope.respond(Nominated(self._core.epoch, self._stands(asked), [self._stands(each) for each in asked.more]))

    def _stands(self, asked: IsNominated | NominationOf) -> bool:
        stands = self._core.cluster.nominator.stands(asked.uid, asked.attempt, asked.node)
        return stands and self._evictions.has_victims(asked.uid, asked.attempt, asked.victims)

    def on_is_placed(self, asked: IsPlaced, envelope: Envelope) -> None:
        pods = self._core.cluster.pods
        is_placed = asked.uid in pods or bool(asked.group and pods.of_group(asked.group))
        envelope.respond(PlacedNow(self._core.epoch, is_placed, asked.group))

    # Effects

    def carry_out(self, effect: ToBinders) -> None:
        now = self._context.clock()
        match effect:
            case RecallAttempts() | DispatchOrders() if self.stopped:
                pass
            case RecallAttempts(attempts=attempts):
                for name, recall in self._recall.begin(self._core.epoch, attempts, now):
                    self._ask(name, recall)
            case DispatchOrders(attempts=attempts):
                self._send(self.dispatcher.dispatch(attempts, now))
            case Evict():
                self._evictions.add(effect, now)
                self._bus.post(BINDER_EVICTIONS, effect)
            case Withdraw():
                self.withdraw(effect)
            case AcknowledgeBinder(epoch=epoch, number=number, respond=respond):
                respond(Received(epoch, number, self._core.epoch))

    def withdraw(self, withdraw: Withdraw) -> None:
        self._bus.post(BINDER_WITHDRAWALS, replace(withdraw, epoch=self._core.epoch))

    def tick(self, now: float) -> None:
        self._send(self.dispatcher.tick(now))
        health, missing = self._context.health, self.dispatcher.no_binder(now)
        if missing:
            health.wait_for("binders", missing)
            self._repeated.warning("binders", "%s", missing)
        else:
            health.clear("binders")
        self._send(self._recall.tick(now))

    def _ask(self, name: str, recall: Recall | None) -> None:
        if recall is not None and not self.stopped:
            self._bus.post(binder(name), recall)

    def _send(self, sends: Sends) -> None:
        for name, orders in () if self.stopped else sends:
            for part in messages(orders):
                self._bus.post(binder(name), self.dispatcher.addressed(name, self._core.epoch, part))


class PendingEvictions:
    """Evictions that binders were asked for, until one reports the end.

    Which binder has one is unknown, and a lost binder has lost its evictions. So all pending ones are sent again once
    there is a new binder; if one is under way, or has ended, that does no harm.
    """

    def __init__(self) -> None:
        self._pending: OrderedDict[tuple[str, int], tuple[Evict, float]] = OrderedDict()
        """In the order in which they expire."""

    def add(self, evict: Evict, now: float) -> None:
        self._expire(now)
        self._pending[evict.uid, evict.attempt] = evict, now + PENDING_SECONDS

    def has_victims(self, uid: str, attempt: int, victims: Iterable[str]) -> bool:
        """Whether binders were asked to evict all of these for this nomination."""
        evict, _ = self._pending.get((uid, attempt), (None, 0.0))
        return evict is not None and {victim.uid for victim in evict.victims}.issuperset(victims)

    def end(self, evicted: Evicted) -> bool:
        """Returns whether it has not ended before, by another binder's report."""
        return self._pending.pop((evicted.uid, evicted.attempt), None) is not None

    def resend(self, now: float) -> list[Evict]:
        """With what is left of their windows."""
        self._expire(now)
        left = [(evict, until - PENDING_SECONDS + evict.window - now) for evict, until in self._pending.values()]
        return [replace(evict, window=window) for evict, window in left if window > 0]

    def _expire(self, now: float) -> None:
        while self._pending and next(iter(self._pending.values()))[1] <= now:
            self._pending.popitem(last=False)
