"""Binder: carries out the snapshot's orders, and says what became of each.

An order names a pod and a node; the snapshot holds the place for it until a deadline, and from then on looks the pod up
itself. So the binder may claim only what it knows, and begins nothing that could end after the deadline. Each attempt
goes through the profile's plugins:

           +--------- an earlier attempt may be bound any moment ---------> BEHIND
           |                                                                  | it has ended
    order -+-> Reserve -> Permit -+-------------------------------------------+-----> PreBind -> Bind
                                  |  all plugins allow                                  |         |
                                  +--> WAITING -----------------------------------------+         |
                                                                                                  |
    PREPARING   a call of PreBind is out; when it is answered, the next step, at last Bind        |
    PAUSED      PreBind waits for others to do something, and goes on after a pause               |
    BINDING     the call that binds is out  <-----------------------------------------------------+
       |
       +-- done ------------------------------------------------------------> BOUND -> PostBind
       +-- certainly not sent ----------------------------------------------> FAILED
       +-- any other answer, or none ------------> LOOKING --+-- is there --> BOUND
                                            ^                +-- is fenced -> FAILED
                                            |                +-- has changed -> STALE -> ordered anew -> BINDING
                                            |                +-- not known -> DOUBTING
                                            +------ after a pause -----------------+

Whatever is not BOUND in the end is rolled back: Unreserve, in reverse, and the reason goes to the snapshot, which
forgets the assumption. From every state at its deadline: LEFT, rolled back and nothing said. Before Bind, by a newer
attempt for the same pod: SUPERSEDED, likewise; withdrawn, because the pod is to make way or is gone: FAILED. Which
state may follow which is in `attempt.TRANSITIONS`.

Here is how an attempt begins, waits for permits and is withdrawn; PreBind and Bind are in `carrying`, ends in `ending`.

While a pod waits for permits, or PreBind pauses, the snapshot is asked for more time; it is not taken before the
snapshot has acknowledged that. An order that comes again does nothing, except that a known outcome is told again.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from flotilla.results import Code, Status
from services.binder.binding import extension_points
from services.binder.binding.attempts import ENDS, IDLE, LOOKS_AGAIN, MAYBE_BOUND, Attempt, State
from services.binder.binding.bind_steps import Carrying
from services.binder.binding.extension_points import Failure, failure
from services.binder.binding.outcome_reports import Reports
from services.binder.book import Book
from services.binder.ending import Endings
from services.binder.events import (
    Acknowledged,
    Answer,
    Beat,
    Call,
    Called,
    Effect,
    Event,
    Leave,
    LookedUp,
    Orders,
    Problem,
    Report,
    Tick,
    Unnamed,
    Waited,
)
from services.binder.permits import PermitWait
from services.binder.recalling import answers
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.errors import ProtocolError
from shared.framework.profile import Framework
from shared.messages.binding import BindingOrders, PermitAnswer, Recall, Withdraw
from shared.messages.identity import NameTaken
from shared.messages.permits import MOST_LISTED, PermitPending
from shared.messages.state import BindingOrder

ROOM = 2048
"""Orders that the snapshot may have here at a time."""
MOST_HELD = 2 * ROOM
"""Orders that are taken: the snapshot may count as ended, or as lost, what is not."""
BEAT = 0.5

HANDED_BACK = Failure("the binder is leaving", told=False, handed_back=True)


class BinderCore:
    def __init__(
        self,
        name: str,
        frameworks: Mapping[str, Framework],
        *,
        clock: Callable[[], float],
        extenders: Iterable[ExtenderConfig] = (),
        incarnation: str = "",
    ) -> None:
        """`clock` measures how long plugins take, and decides nothing. `incarnation` is this process's."""
        self.incarnation = incarnation
        self._name = name
        self._frameworks = frameworks
        self._clock = clock
        self._epoch = 0
        self._number = 0
        """Of the last orders of this epoch."""
        self._book = Book()
        self._reports = Reports(name)
        self._next_beat = -math.inf
        self._leaving = False
        self._effects: list[Effect] = []
        self._endings = Endings(self._book, self._reports, self._effects, clock, self._follow)
        self._carrying = Carrying(self._book, self._reports, self._effects, self._endings, extenders, clock)

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._effects.clear()
        match event:
            case Called():
                self._carrying.on_called(event, now)
            case Orders(message=message):
                self._on_orders(message, now)
            case Recall():
                self._on_recall(event, now)
            case Acknowledged(number=number):
                self._on_acknowledged(number)
            case Tick():
                self._on_tick(now)
            case LookedUp():
                self._carrying.on_looked_up(event, now)
            case PermitAnswer():
                self._on_permit_answer(event, now)
            case Withdraw():
                self._on_withdraw(event, now)
            case NameTaken(epoch=epoch, incarnation=incarnation):
                if epoch >= self._epoch and incarnation == self.incarnation:
                    self._effects.append(Unnamed(event))
            case Leave():
                self._on_leave(now)
        return self._effects.copy()

    def next_deadline(self) -> float:
        return min(self._book.alarm, self._next_beat, self._reports.next_deadline())

    def awaits(self, call: Call) -> bool:
        """Whether a call that has not been made yet is still to be made."""
        attempt = self._book.find(call.uid, call.attempt)
        return attempt is not None and attempt.step == call.step

    @property
    def epoch(self) -> int:
        """The newest of the snapshot that was heard of."""
        return self._epoch

    @property
    def held(self) -> int:
        return len(self._book)

    @property
    def untold(self) -> int:
        """Outcomes that the snapshot is not known to have."""
        return len(self._reports)

    def waiting(self, now: float) -> tuple[list[PermitPending], int]:
        """Who waits for permits, the longest first, and how many there are beyond those that are named."""
        waits = [(a.permit.began, a.order, a.permit) for a in self._book.attempts() if a.permit and a.permit.pending]
        waits.sort(key=lambda wait: wait[0])
        named = [
            PermitPending(
                order.uid,
                order.assignment.namespace,
                order.assignment.name,
                order.node,
                began,
                permit.left(now),
                now - began,
            )
            for began, order, permit in waits[:MOST_LISTED]
        ]
        return named, len(waits) - len(named)

    # Orders

    def _on_orders(self, message: BindingOrders, now: float) -> None:
        why = self._why_refused(message)
        if why:
            self._problem(f"orders of epoch {message.epoch}, number {message.number}: {why}")
            return
        self._epoch, self._number = message.epoch, message.number
        for order in message.orders:
            self._on_order(order, now)

    def _on_recall(self, recall: Recall, now: float) -> None:
        """A new term begins: orders of earlier ones that are still on their way are void from here on."""
        if recall.epoch < self._epoch or recall.incarnation != self.incarnation:
            self._problem(f"epoch {recall.epoch} asks process {recall.incarnation} of this name what it holds")
            return
        if recall.epoch > self._epoch:
            self._epoch, self._number = recall.epoch, 0
        self._effects += [Answer(each) for each in answers(recall, self._name, self._book.attempts(), now)]

    def _why_refused(self, message: BindingOrders) -> str:
        if message.epoch < self._epoch:
            return f"the epoch is {self._epoch} now"
        if message.incarnation not in ("", self.incarnation):
            return f"they are for process {message.incarnation} of this name, which is {self.incarnation}"
        if message.epoch == self._epoch and 0 < message.number <= self._number:
            return f"number {self._number} was there before"
        return ""

    def _on_order(self, order: BindingOrder, now: float) -> None:
        if self._book.knows(order):
            self._on_known(order, now)
            return
        withdraw = self._book.withdrawn(order)
        if withdraw is not None:
            self._endings.refuse(order, _withdrawn(withdraw, State.NEW), now)
            return
        late = not 0 < order.window < math.inf
        if late or self.held >= MOST_HELD:
            why = "comes after its deadline" if late else f"finds {self.held} others here"
            self._problem(f"the order for pod {order.key} {why}")
            return
        framework = self._frameworks.get(order.profile)
        if framework is None or self._leaving:
            unknown = Failure(f'profile not found for scheduler name "{order.profile}"')
            self._endings.refuse(order, HANDED_BACK if self._leaving else unknown, now)
            return
        self._take(Attempt(order, framework, now, order.window), now)

    def _on_known(self, order: BindingOrder, now: float) -> None:
        """It is under way, or over. An order for another version of the pod counts from the next Bind on."""
        attempt = self._book.either(order.uid, order.attempt)
        if attempt is None:
            outcome = self._book.outcome(order)
            if outcome is not None:
                self._reports.add(outcome, now)
            return
        if attempt.state is State.STALE:
            self._carrying.on_reordered(attempt, order, now)
        elif attempt.state not in MAYBE_BOUND:
            attempt.order = order
            if attempt.waits_until > now:
                self._carrying.report_wait(attempt, now)

    def _take(self, attempt: Attempt, now: float) -> None:
        """It takes the place of an earlier attempt, or waits for the end of one that may be bound any moment."""
        self._book.ring(attempt.deadline)
        before = self._book.get(attempt.order.uid)
        if before is not None and before.state in MAYBE_BOUND:
            waiting = self._book.behind(attempt.order.uid)
            if waiting is not None:
                self._endings.supersede(waiting, now)
            attempt.move(State.BEHIND, now)
            self._book.put_behind(attempt)
            return
        if before is not None:
            self._endings.supersede(before, now)
        self._begin(attempt, now)

    def _follow(self, attempt: Attempt, now: float) -> None:
        if now < attempt.deadline:
            self._begin(attempt, now)
        else:
            self._book.hold(attempt)
            self._endings.leave(attempt, now)

    def _begin(self, attempt: Attempt, now: float) -> None:
        order, framework = attempt.order, attempt.framework
        self._book.hold(attempt)
        if framework.reserve:
            began = self._clock()
            status = extension_points.reserve(framework, attempt.cycle, order.node)
            self._endings.took(attempt, ExtensionPoint.RESERVE, status.code, began)
            if not status.ok:
                self._endings.fail(attempt, failure(ExtensionPoint.RESERVE, status), now)
                return
            attempt.reserved = True
        if framework.permit:
            began = self._clock()
            permission = extension_points.permit(framework, attempt.cycle, order.node)
            code = Code.WAIT if permission.waits else permission.status.code
            self._endings.took(attempt, ExtensionPoint.PERMIT, code, began)
            if not permission.status.ok:
                self._endings.fail(attempt, failure(ExtensionPoint.PERMIT, permission.status), now)
                return
            self._endings.activate(attempt)
            if permission.waits:
                self._wait(attempt, PermitWait(permission.waits, now), now)
                return
        self._carrying.prepare(attempt, now)

    # Permits

    def _wait(self, attempt: Attempt, permit: PermitWait, now: float) -> None:
        attempt.permit = permit
        attempt.move(State.WAITING, now)
        attempt.waits_until = permit.deadline
        self._book.ring(attempt.alarm)
        self._carrying.report_wait(attempt, now)

    def _on_permit_answer(self, answer: PermitAnswer, now: float) -> None:
        attempt = self._book.get(answer.uid)
        if attempt is None or attempt.state is not State.WAITING or attempt.permit is None:
            return
        if not answer.allow:
            self._reject(attempt, attempt.permit, attempt.permit.rejected(answer.plugin, answer.reason), now)
        elif attempt.permit.allow(answer.plugin):
            self._effects.append(Waited(Code.SUCCESS, now - attempt.permit.began))
            self._carrying.prepare(attempt, now)

    def _reject(self, attempt: Attempt, permit: PermitWait, status: Status, now: float) -> None:
        self._effects.append(Waited(status.code, now - permit.began))
        self._endings.fail(attempt, failure(ExtensionPoint.PERMIT, status), now)

    def _on_withdraw(self, withdraw: Withdraw, now: float) -> None:
        """What may be bound already is not taken back, and the order of what is not here may yet come."""
        if withdraw.epoch < max(self._epoch, 1):
            self._problem(f"a withdrawal of epoch {withdraw.epoch}, now {self._epoch}")
            return
        attempt = self._book.either(withdraw.uid, withdraw.attempt)
        if attempt is None:
            self._book.withdraw(withdraw)
        elif attempt.state not in MAYBE_BOUND:
            if attempt.state is State.WAITING and attempt.permit is not None:
                self._effects.append(Waited(Code.ERROR, now - attempt.permit.began))
            self._endings.fail(attempt, _withdrawn(withdraw, attempt.state), now)

    # Time

    def _on_tick(self, now: float) -> None:
        if now >= self._book.alarm:
            self._on_alarm(now)
        self._effects.extend(Report(message) for message in self._reports.due(self._epoch, now))
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            self._effects.append(Beat(0 if self._leaving else ROOM))

    def _on_alarm(self, now: float) -> None:
        for attempt in self._book.attempts():
            if attempt.alarm > now or attempt.state in ENDS:
                continue
            if attempt.deadline <= now:
                self._endings.leave(attempt, now)
            elif attempt.state in LOOKS_AGAIN:
                self._carrying.look_up(attempt, now)
            elif attempt.state is State.PAUSED:
                self._carrying.resume(attempt, now)
            elif attempt.permit is not None:
                self._reject(attempt, attempt.permit, attempt.permit.timed_out(), now)
        self._book.set_alarm()

    def _on_acknowledged(self, number: int) -> None:
        """For a pod that waits, the snapshot holds the place as long, and then for as long as binding may take."""
        for outcome in self._reports.acknowledged(number):
            if outcome.wait is None:
                continue
            attempt = self._book.find(outcome.uid, outcome.attempt)
            if attempt is not None:
                attempt.deadline = max(attempt.deadline, attempt.waits_until + attempt.window)

    def _on_leave(self, now: float) -> None:
        self._leaving = True
        self._next_beat = now
        for attempt in reversed(self._book.attempts()):
            if attempt.state in IDLE:
                self._endings.fail(attempt, HANDED_BACK, now)

    def _problem(self, text: str) -> None:
        self._effects.append(Problem(ProtocolError(text)))

    def validate(self) -> None:
        self._book.validate()
        self._reports.validate()


def _withdrawn(withdraw: Withdraw, state: State) -> Failure:
    """An error rather than a rejection: the pod fits, and is tried again. Without a plugin nobody is to read of it."""
    if not withdraw.plugin:
        return Failure(withdraw.reason, told=False)
    if state is State.WAITING:
        return Failure(f"waiting on permit for pod: {withdraw.reason}", plugin=withdraw.plugin)
    return Failure(f"{withdraw.reason} by {withdraw.plugin}", plugin=withdraw.plugin)
