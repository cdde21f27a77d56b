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
       +-- refused ---------------------------------------------------------> FAILED
       +-- refused as a conflict, or no answer --> LOOKING --+-- is there --> BOUND
                                            ^                +-- is not ----> FAILED
                                            |                +-- not known -> DOUBTING
                                            +------ after a pause -----------------+

Whatever is not BOUND in the end is rolled back: Unreserve, in reverse, and the reason goes to the snapshot, which
forgets the assumption. From every state at its deadline: LEFT, rolled back and nothing said. Before Bind, by a newer
attempt for the same pod: SUPERSEDED, likewise. Which state may follow which is in `attempt.TRANSITIONS`.

While a pod waits for permits, or PreBind pauses, the snapshot is asked for more time; it is not taken before the
snapshot has acknowledged that. An order that comes again does nothing, except that a known outcome is told again.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from services.binder import points
from services.binder.attempt import ENDS, MAYBE_BOUND, Attempt, Doubt, Identity, State
from services.binder.book import Book
from services.binder.events import (
    Acknowledged,
    Beat,
    Call,
    Called,
    Done,
    Effect,
    Ended,
    Event,
    ExtenderBinding,
    Leave,
    LookedUp,
    LookUp,
    Orders,
    Problem,
    Record,
    Refused,
    Report,
    Result,
    Said,
    SetCondition,
    Tick,
    Took,
    Unknown,
    Waited,
    Where,
)
from services.binder.extended import binding_of
from services.binder.permits import PermitWait, rejected
from services.binder.points import Failure, failure
from services.binder.reports import Reports
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.errors import ClusterError, InvariantBroken, ProtocolError
from shared.extenders.interest import in_order
from shared.framework.plugin import ApiAnswer, ApiCall, Pause
from shared.framework.profile import Framework
from shared.framework.status import SUCCESS, Code, Status, error
from shared.messages.binding import BindingOutcome, PermitAnswer
from shared.messages.state import BindingOrder

ROOM = 2048
"""Orders that the snapshot may have here at a time."""
MOST_HELD = 2 * ROOM
"""Orders that are taken: the snapshot may count as ended, or as lost, what is not."""
BEAT = 0.5
LOOK_AGAIN = 0.5
"""Seconds until a pod is looked up again, the first time; the pause doubles from then on."""
LONGEST_PAUSE = 8.0
PAUSE_GRAIN = 0.25
"""Pauses of PreBind end at multiples of so many seconds."""
SETTLING = 1.0
"""Seconds after which a call that was cut off does not arrive any more."""

CONFLICT = 409
NOT_FOUND = 404
HANDED_BACK = Failure("the binder is leaving", told=False)


class BinderCore:
    def __init__(
        self,
        name: str,
        frameworks: Mapping[str, Framework],
        *,
        clock: Callable[[], float],
        extenders: Iterable[ExtenderConfig] = (),
    ) -> None:
        """`clock` measures how long plugins take, and decides nothing."""
        self._frameworks = frameworks
        self._extenders = in_order(extenders)
        self._clock = clock
        self._epoch = 0
        self._book = Book()
        self._reports = Reports(name)
        self._next_beat = -math.inf
        self._leaving = False
        self._effects: list[Effect] = []

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._effects = []
        match event:
            case Called():
                self._on_called(event, now)
            case Orders(message=message) if message.epoch < self._epoch:
                self._problem(f"orders of epoch {message.epoch}, now {self._epoch}")
            case Orders(message=message):
                self._epoch = message.epoch
                for order in message.orders:
                    self._on_order(order, now)
            case Acknowledged(number=number):
                self._on_acknowledged(number)
            case Tick():
                self._on_tick(now)
            case LookedUp():
                self._on_looked_up(event, now)
            case PermitAnswer():
                self._on_permit_answer(event, now)
            case Leave():
                self._on_leave(now)
        return self._effects

    def next_deadline(self) -> float:
        return min(self._book.alarm, self._next_beat, self._reports.next_deadline())

    def awaits(self, call: Call) -> bool:
        """Whether a call that has not been made yet is still to be made."""
        attempt = self._book.find(call.uid, call.attempt)
        return attempt is not None and attempt.step == call.step

    @property
    def held(self) -> int:
        return len(self._book)

    @property
    def untold(self) -> int:
        """Outcomes that the snapshot is not known to have."""
        return len(self._reports)

    # Orders

    def _on_order(self, order: BindingOrder, now: float) -> None:
        if self._book.knows(order):
            outcome = self._book.outcome(order)
            if outcome is not None:
                self._reports.add(outcome, now)
            return
        if now >= order.deadline or self.held >= MOST_HELD:
            why = "comes after its deadline" if now >= order.deadline else f"finds {self.held} others here"
            self._problem(f"the order for pod {order.namespace}/{order.name} {why}")
            return
        framework = self._frameworks.get(order.profile)
        if framework is None or self._leaving:
            unknown = Failure(f'profile not found for scheduler name "{order.profile}"')
            self._refuse(order, HANDED_BACK if self._leaving else unknown, now)
            return
        self._take(Attempt(order, framework, now), now)

    def _take(self, attempt: Attempt, now: float) -> None:
        """It takes the place of an earlier attempt, or waits for the end of one that may be bound any moment."""
        self._book.ring(attempt.deadline)
        before = self._book.get(attempt.order.uid)
        if before is not None and before.state in MAYBE_BOUND:
            waiting = self._book.behind(attempt.order.uid)
            if waiting is not None:
                self._supersede(waiting, now)
            attempt.move(State.BEHIND, now)
            self._book.put_behind(attempt)
            return
        if before is not None:
            self._supersede(before, now)
        self._begin(attempt, now)

    def _begin(self, attempt: Attempt, now: float) -> None:
        order, framework = attempt.order, attempt.framework
        self._book.hold(attempt)
        if framework.reserve:
            began = self._clock()
            status = points.reserve(framework, attempt.cycle, order.node)
            self._took(attempt, ExtensionPoint.RESERVE, status.code, began)
            if not status.ok:
                self._fail(attempt, failure(ExtensionPoint.RESERVE, status), now)
                return
            attempt.reserved = True
        if framework.permit:
            began = self._clock()
            permission = points.permit(framework, attempt.cycle, order.node)
            code = Code.WAIT if permission.waits else permission.status.code
            self._took(attempt, ExtensionPoint.PERMIT, code, began)
            if not permission.status.ok:
                self._fail(attempt, failure(ExtensionPoint.PERMIT, permission.status), now)
                return
            if permission.waits:
                self._wait(attempt, PermitWait(permission.waits, now), now)
                return
        self._prepare(attempt, now)

    # Permits

    def _wait(self, attempt: Attempt, permit: PermitWait, now: float) -> None:
        order = attempt.order
        attempt.permit = permit
        attempt.move(State.WAITING, now)
        self._book.ring(attempt.alarm)
        self._reports.add(BindingOutcome(order.uid, order.attempt, until=permit.deadline), now)

    def _on_permit_answer(self, answer: PermitAnswer, now: float) -> None:
        attempt = self._book.get(answer.uid)
        if attempt is None or attempt.state is not State.WAITING or attempt.permit is None:
            return
        if not answer.allow:
            self._reject(attempt, attempt.permit, rejected(answer.plugin, answer.reason), now)
        elif attempt.permit.allow(answer.plugin):
            self._effects.append(Waited(Code.SUCCESS, now - attempt.permit.began))
            self._prepare(attempt, now)

    def _reject(self, attempt: Attempt, permit: PermitWait, status: Status, now: float) -> None:
        self._effects.append(Waited(status.code, now - permit.began))
        self._fail(attempt, failure(ExtensionPoint.PERMIT, status), now)

    # PreBind and Bind

    def _prepare(self, attempt: Attempt, now: float, answer: ApiAnswer | None = None) -> None:
        """The next step of PreBind, given what became of the one before; Bind, once there is none."""
        framework = attempt.framework
        if framework.pre_bind:
            if attempt.pre_bind is None:
                attempt.point_began = self._clock()
                attempt.prepared_from = now
                attempt.pre_bind = points.pre_bind(framework, attempt.cycle, attempt.order.node)
            plugin, step = _next_step(attempt.pre_bind, answer)
            if isinstance(step, ApiCall):
                self._call(attempt, State.PREPARING, plugin, step, now)
                return
            if isinstance(step, Pause):
                self._pause(attempt, step, now)
                return
            self._took(attempt, ExtensionPoint.PRE_BIND, step.code, attempt.point_began)
            if not step.ok:
                self._fail(attempt, failure(ExtensionPoint.PRE_BIND, step), now)
                return
        self._bind(attempt, now)

    def _pause(self, attempt: Attempt, pause: Pause, now: float) -> None:
        """Many pods wake up together, so that this many do not each have all others looked through."""
        order = attempt.order
        attempt.move(State.PAUSED, now)
        attempt.resume_at = math.ceil((now + pause.seconds) / PAUSE_GRAIN) * PAUSE_GRAIN
        self._book.ring(attempt.alarm)
        until = attempt.prepared_from + pause.patience
        if until > attempt.prepared_until:
            attempt.prepared_until = until
            self._reports.add(BindingOutcome(order.uid, order.attempt, until=until), now)

    def _bind(self, attempt: Attempt, now: float) -> None:
        attempt.point_began = self._clock()
        attempt.extender = binding_of(self._extenders, attempt.order, attempt.cycle.pod)
        if attempt.extender is not None:
            self._call(attempt, State.BINDING, "", attempt.extender, now)
        else:
            self._bind_by_plugin(attempt, now)

    def _bind_by_plugin(self, attempt: Attempt, now: float) -> None:
        plugin, answer = points.bind(attempt.framework, attempt.cycle, attempt.order.node)
        if isinstance(answer, ApiCall):
            self._call(attempt, State.BINDING, plugin, answer, now)
        elif answer.ok:
            self._finish(attempt, now)
        else:
            self._took(attempt, ExtensionPoint.BIND, answer.code, attempt.point_began)
            self._fail(attempt, failure(ExtensionPoint.BIND, answer), now)

    def _call(self, attempt: Attempt, state: State, plugin: str, call: ApiCall | ExtenderBinding, now: float) -> None:
        attempt.move(state, now)
        attempt.plugin = plugin
        attempt.step += 1
        order = attempt.order
        binds = state is State.BINDING
        self._effects.append(Call(order.uid, order.attempt, attempt.step, call, attempt.deadline, binds))

    def _on_called(self, called: Called, now: float) -> None:
        attempt = self._book.find(called.uid, called.attempt)
        if attempt is None or attempt.step != called.step:
            return
        if attempt.state is State.BINDING:
            self._on_bind_called(attempt, called.result, now)
        elif attempt.state is State.PREPARING:
            self._prepare(attempt, now, _answer(called.result, now - attempt.prepared_from))

    def _on_bind_called(self, attempt: Attempt, result: Result, now: float) -> None:
        if isinstance(result, Done):
            self._finish(attempt, now)
            return
        extender, attempt.extender = attempt.extender, None
        if extender is not None and extender.extender.ignorable:
            self._bind_by_plugin(attempt, now)
            return
        in_words = Failure(result.message)
        why = in_words if extender is not None else self._call_failure(attempt, ExtensionPoint.BIND, result)
        if isinstance(result, Refused) and result.status != CONFLICT:
            self._fail_bind(attempt, _gone(result.message) if result.status == NOT_FOUND else why, now)
            return
        settled = now if isinstance(result, Refused) else now + SETTLING
        attempt.doubt = Doubt(why, settled, LOOK_AGAIN)
        self._look_up(attempt, now)

    def _call_failure(self, attempt: Attempt, point: ExtensionPoint, result: Refused | Unknown) -> Failure:
        return failure(point, error(result.message).by(attempt.plugin))

    # Doubt

    def _look_up(self, attempt: Attempt, now: float) -> None:
        attempt.move(State.LOOKING, now)
        order = attempt.order
        self._effects.append(LookUp(order.uid, order.attempt, order.namespace, order.name))

    def _on_looked_up(self, found: LookedUp, now: float) -> None:
        attempt = self._book.find(found.uid, found.attempt)
        if attempt is None or attempt.state is not State.LOOKING:
            return
        doubt = attempt.doubt
        if doubt is None:
            raise InvariantBroken(f"looked up without a doubt. {attempt.tell()}")
        if found.where is Where.ON_NODE:
            if found.node == attempt.order.node:
                self._finish(attempt, now)
            else:
                elsewhere = Failure(f"the pod is on node {found.node} already", told=False)
                self._fail_bind(attempt, elsewhere, now)
        elif found.where is Where.GONE:
            self._fail_bind(attempt, _gone(doubt.answer.message), now)
        elif found.where is Where.UNBOUND and now >= doubt.settled:
            self._fail_bind(attempt, doubt.answer, now)
        else:
            doubt.look_at = now + doubt.pause
            doubt.pause = min(2 * doubt.pause, LONGEST_PAUSE)
            attempt.move(State.DOUBTING, now)
            self._book.ring(attempt.alarm)

    # Ends

    def _finish(self, attempt: Attempt, now: float) -> None:
        order = attempt.order
        self._took(attempt, ExtensionPoint.BIND, Code.SUCCESS, attempt.point_began)
        if attempt.framework.post_bind:
            began = self._clock()
            troubles = points.post_bind(attempt.framework, attempt.cycle, order.node)
            self._took(attempt, ExtensionPoint.POST_BIND, Code.SUCCESS, began)
            self._troubles(attempt, troubles)
        message = f"Successfully assigned {order.namespace}/{order.name} to {order.node}"
        self._effects.append(Record(Said.SCHEDULED, order.uid, order.namespace, order.name, order.profile, message))
        self._end(attempt, State.BOUND, "", BindingOutcome(order.uid, order.attempt), now)

    def _fail_bind(self, attempt: Attempt, why: Failure, now: float) -> None:
        self._took(attempt, ExtensionPoint.BIND, why.code, attempt.point_began)
        self._fail(attempt, why, now)

    def _fail(self, attempt: Attempt, why: Failure, now: float) -> None:
        self._roll_back(attempt)
        outcome = self._say_failure(attempt.order, why)
        self._end(attempt, State.FAILED, why.message, outcome, now)

    def _leave(self, attempt: Attempt, now: float) -> None:
        self._roll_back(attempt)
        self._end(attempt, State.LEFT, "its deadline has passed", None, now)

    def _supersede(self, attempt: Attempt, now: float) -> None:
        self._roll_back(attempt)
        self._end(attempt, State.SUPERSEDED, "there is a newer attempt", None, now)

    def _roll_back(self, attempt: Attempt) -> None:
        if attempt.reserved:
            attempt.reserved = False
            self._troubles(attempt, points.unreserve(attempt.framework, attempt.cycle, attempt.order.node))

    def _end(self, attempt: Attempt, state: State, reason: str, outcome: BindingOutcome | None, now: float) -> None:
        order = attempt.order
        attempt.move(state, now)
        if outcome is not None:
            self._reports.add(outcome, now)
        self._effects.append(Ended(order, attempt.began, reason))
        follower = self._book.drop(attempt, outcome)
        if follower is not None:
            self._follow(follower, now)

    def _follow(self, attempt: Attempt, now: float) -> None:
        if now < attempt.deadline:
            self._begin(attempt, now)
        else:
            self._book.hold(attempt)
            self._leave(attempt, now)

    def _refuse(self, order: BindingOrder, why: Failure, now: float) -> None:
        """Of an order that is not even begun."""
        outcome = self._say_failure(order, why)
        self._reports.add(outcome, now)
        self._effects.append(Ended(order, now, why.message))
        self._book.remember(order.uid, Identity(order.epoch, order.attempt), outcome)

    def _say_failure(self, order: BindingOrder, why: Failure) -> BindingOutcome:
        if why.told:
            pod = (order.uid, order.namespace, order.name)
            self._effects.append(Record(Said.FAILED, *pod, order.profile, why.message))
            self._effects.append(SetCondition(*pod, why.reason, why.message))
        return BindingOutcome(order.uid, order.attempt, why.message)

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
                self._leave(attempt, now)
            elif attempt.state is State.DOUBTING:
                self._look_up(attempt, now)
            elif attempt.state is State.PAUSED:
                self._prepare(attempt, now, ApiAnswer(elapsed=now - attempt.prepared_from))
            elif attempt.permit is not None:
                self._reject(attempt, attempt.permit, attempt.permit.timed_out(), now)
        self._book.set_alarm()

    def _on_acknowledged(self, number: int) -> None:
        """For a pod that waits, the snapshot holds the place as long, and then for as long as binding may take."""
        for outcome in self._reports.acknowledged(number):
            if outcome.until is None:
                continue
            attempt = self._book.find(outcome.uid, outcome.attempt)
            if attempt is not None:
                attempt.deadline = max(attempt.deadline, outcome.until + attempt.order.deadline - attempt.began)

    def _on_leave(self, now: float) -> None:
        self._leaving = True
        self._next_beat = now
        for attempt in reversed(self._book.attempts()):
            if attempt.state in (State.BEHIND, State.WAITING, State.PAUSED):
                self._fail(attempt, HANDED_BACK, now)

    # Inside

    def _took(self, attempt: Attempt, point: ExtensionPoint, code: Code, began: float) -> None:
        name = points.NAMES[point]
        self._effects.append(Took(name, code, attempt.framework.name, self._clock() - began))

    def _troubles(self, attempt: Attempt, troubles: list[str]) -> None:
        order = attempt.order
        for trouble in troubles:
            self._effects.append(Problem(ClusterError(f"Pod {order.namespace}/{order.name}: {trouble}")))

    def _problem(self, text: str) -> None:
        self._effects.append(Problem(ProtocolError(text)))

    def validate(self) -> None:
        self._book.validate()
        self._reports.validate()


def _next_step(steps: points.Steps, answer: ApiAnswer | None) -> tuple[str, points.Step]:
    """SUCCESS once there is none."""
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration:
        return "", SUCCESS


def _answer(result: Result, elapsed: float) -> ApiAnswer:
    match result:
        case Done(body=body):
            return ApiAnswer(200, body, elapsed=elapsed)
        case Refused(status=status, message=message):
            return ApiAnswer(status, message=message, elapsed=elapsed)
        case Unknown(message=message):
            return ApiAnswer(message=message, elapsed=elapsed)


def _gone(message: str) -> Failure:
    return Failure(f"the pod is gone: {message}", told=False)
