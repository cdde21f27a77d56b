"""The binder's core: carries out the snapshot's orders, and reports the outcome of each.

An order names a pod and a node, which the snapshot holds for the pod until a deadline; from then on the snapshot looks
the pod up itself. So the binder reports only what it knows, and begins nothing that could end after the deadline.

           +--------- an earlier attempt may be bound any moment ---------> QUEUED
           |                                                                  | it has ended
    order -+-> Reserve -> Permit -+-------------------------------------------+-----> PreBind -> Bind
                                  |  all plugins allow                                  |         |
                                  +--> WAITING -----------------------------------------+         |
                                                                                                  |
    PREPARING   a call of PreBind is out; after the last one, Bind                                |
    PAUSED      PreBind waits for something, and continues after a pause                          |
    BINDING     the call that binds is out  <-----------------------------------------------------+
       |
       +-- done ------------------------------------------------------------> BOUND -> PostBind
       +-- certainly not sent ----------------------------------------------> FAILED
       +-- any other answer, or none ----------> LOOKING_UP -+-- is there --> BOUND
                                            ^                +-- is fenced -> FAILED
                                            |                +-- has changed -> STALE -> ordered again -> BINDING
                                            |                +-- not known -> BACKING_OFF
                                            +------ after a pause -----------------+

An attempt that does not end BOUND is rolled back: Unreserve, in reverse order. At its deadline an attempt is EXPIRED,
and the snapshot hears that. Before Bind it may be SUPERSEDED by a newer attempt for the pod, or withdrawn: FAILED.
`attempts.TRANSITIONS` has every transition. Here an attempt begins, waits for permits and is withdrawn; `bind_steps`
has PreBind, Bind and the end.

While a pod waits for permits, or PreBind pauses, the snapshot is asked for more time, which counts once the snapshot
has acknowledged it. A repeated order does nothing, except that a known outcome is reported again.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from flotilla.results import Code, Status
from services.binder import events, extension_points
from services.binder.attempts import (
    FINAL,
    IDLE,
    LOOKED_UP_AGAIN,
    MAYBE_BOUND,
    Attempt,
    Attempts,
    AttemptState,
    Finished,
)
from services.binder.bind_steps import BEFORE_BIND, BindSteps
from services.binder.extension_points import Durations, Failure, PermitWait, failure
from services.binder.outcome_reports import OutcomeReports
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.errors import ProtocolError
from shared.framework.metering import RESERVE, PluginMeter
from shared.framework.profile import Framework
from shared.messages.binding import (
    MAX_LISTED,
    BindingOrders,
    HeldAttempt,
    PermitAnswer,
    PermitHeard,
    PermitPending,
    Recall,
    Recalled,
    Withdraw,
)
from shared.messages.identity import NameTaken
from shared.messages.limits import BEAT_INTERVAL
from shared.messages.queue import Received
from shared.messages.state import BindingOrder
from shared.terms import Heard, Newest
from shared.ticks import next_tick

ROOM = 2048
"""Orders that the snapshot may have here at a time."""
MAX_HELD = 2 * ROOM
"""Orders that are accepted: the snapshot may count some as ended, or lost, that are not."""
MAX_IN_PART = 1 << 10
"""Attempts in one message that answers a Recall: some 200 KiB."""

HANDED_BACK = Failure("the binder is leaving", notify=False, handed_back=True)


class BinderCore:
    def __init__(
        self,
        name: str,
        frameworks: Mapping[str, Framework],
        *,
        clock: Callable[[], float],
        extenders: Iterable[ExtenderConfig] = (),
        incarnation: str = "",
        date: Callable[[float], float] = float,
        nominates: bool = False,
    ) -> None:
        """`clock` measures plugins, and decides nothing. `incarnation`: of this process.

        `date` converts the core's times to Unix times. `nominates`: pods that wait for permits or PreBind are nominated
        to their node (NominatedNodeNameForExpectation).
        """
        self.incarnation = incarnation
        self._name = name
        self._frameworks = frameworks
        self._clock = clock
        self._newest = Newest((0, 0))
        """The snapshot's term, and the number of its last orders."""
        self._attempts = Attempts()
        self._reports = OutcomeReports(name, incarnation)
        self._next_beat = -math.inf
        self._leaving = False
        self._effects: list[events.Effect] = []
        self.meter = PluginMeter(clock)
        """Times plugins at Reserve, Permit, Unreserve and PostBind."""
        self.durations = Durations()
        self._steps = BindSteps(
            self._attempts,
            self._reports,
            self._effects,
            extenders,
            self.meter,
            clock,
            self.durations,
            self._begin_queued,
            date,
            nominates,
        )

    def handle(self, event: events.Event, now: float) -> list[events.Effect]:
        self._effects.clear()
        match event:
            case events.Called():
                self._steps.on_called(event, now)
            case events.Nominated():
                self._steps.on_nominated(event, now)
            case BindingOrders():
                self._on_orders(event, now)
            case Recall():
                self._on_recall(event, now)
            case Received():
                self._on_received(event)
            case events.Tick():
                self._on_tick(now)
            case events.LookedUp():
                self._steps.on_looked_up(event, now)
            case PermitAnswer():
                self._on_permit_answer(event, now)
            case Withdraw():
                self._on_withdraw(event, now)
            case NameTaken(epoch=epoch, incarnation=incarnation):
                if epoch >= self.epoch and incarnation == self.incarnation:
                    self._effects.append(event)
            case events.Leave():
                self._on_leave(now)
        return self._effects.copy()

    def next_deadline(self) -> float:
        return min(self._attempts.alarm, self._next_beat, self._reports.next_deadline())

    def awaits(self, call: events.Call | events.Nominate) -> bool:
        """Whether a call that was not made yet must still be made."""
        attempt = self._attempts.find(call.uid, call.attempt)
        if attempt is None or isinstance(call, events.Nominate):
            return attempt is not None and attempt.state in BEFORE_BIND
        return attempt.step == call.step

    @property
    def epoch(self) -> int:
        """The newest epoch of the snapshot."""
        return self._newest.position[0]

    @property
    def held(self) -> int:
        return len(self._attempts)

    @property
    def unacknowledged(self) -> int:
        """Outcomes that the snapshot has not acknowledged."""
        return len(self._reports)

    def waiting(self, now: float) -> tuple[list[PermitPending], int]:
        """The pods that wait for permits, the longest wait first, and how many more there are than listed."""
        waits = [(a.permit.began, a.order, a.permit) for a in self._attempts.all() if a.permit and a.permit.pending]
        waits.sort(key=lambda wait: wait[0])
        listed = []
        for began, order, permit in waits[:MAX_LISTED]:
            of = order.assignment
            left, waited = permit.left(now), now - began
            listed.append(
                PermitPending(of.uid, of.namespace, of.name, of.node, began, left, waited, attempt=order.attempt)
            )
        return listed, len(waits) - len(listed)

    def last_attempt(self, uid: str) -> Finished | None:
        """What happened in the pod's last attempt, if it is or was here."""
        return self._attempts.last(uid)

    # Orders

    def _on_orders(self, message: BindingOrders, now: float) -> None:
        why = self._why_refused(message, now)
        if why:
            self._problem(f"orders of epoch {message.epoch}, number {message.number}: {why}")
            return
        for order in message.orders:
            self._on_order(order, now)

    def _why_refused(self, message: BindingOrders, now: float) -> str:
        if message.incarnation not in ("", self.incarnation):
            return f"they are for process {message.incarnation} of this name, which is {self.incarnation}"
        before = epoch, number = self._newest.position
        is_numbered = message.number > 0 or message.epoch != epoch
        position = (message.epoch, message.number if is_numbered else number)
        if self._is_current(position, now) and (position != before or not is_numbered):
            return ""
        return f"the epoch is {epoch} now" if message.epoch < epoch else f"number {number} came before"

    def _is_current(self, position: tuple[int, int], now: float) -> bool:
        newest = self._newest.position
        heard = self._newest.hear(position, now)
        if heard is Heard.REFUTED:
            came = f"number {newest[1]} of epoch {newest[0]} came in the snapshot's name"
            self._effects.append(events.EndProcess(f"{came}, which is at number {position[1]} of epoch {position[0]}"))
        return heard is Heard.CURRENT

    def _on_recall(self, recall: Recall, now: float) -> None:
        """A new term begins: orders of earlier terms that are still on their way are refused from now on."""
        if recall.incarnation == self.incarnation:
            # Orders of a new epoch may still be on their way.
            position = (recall.epoch, 0 if recall.epoch > self.epoch else min(recall.orders, self._newest.position[1]))
            if self._is_current(position, now) or recall.epoch == self.epoch:
                self._effects += self._recalled(recall, now)
                return
        self._problem(f"epoch {recall.epoch} asks process {recall.incarnation} of this name what it holds")

    def _recalled(self, recall: Recall, now: float) -> Iterator[Recalled]:
        held = [
            HeldAttempt(a.uid, a.order.attempt, a.order.version, max(a.waits_until - now, 0.0))
            for a in self._attempts.all()
        ]
        parts = max(-(-len(held) // MAX_IN_PART), 1)
        for part in range(parts):
            attempts = held[part * MAX_IN_PART : (part + 1) * MAX_IN_PART]
            yield Recalled(self._name, recall.incarnation, recall.epoch, recall.number, part, parts, attempts)

    def _on_order(self, order: BindingOrder, now: float) -> None:
        if self._attempts.knows(order):
            self._on_known(order, now)
            return
        withdraw = self._attempts.withdrawn(order)
        if withdraw is not None:
            self._steps.refuse(order, _withdrawn(withdraw, AttemptState.NEW), now)
            return
        late = not 0 < order.window < math.inf
        if late or self.held >= MAX_HELD:
            self._problem(f"order for pod {order.key}: {'deadline passed' if late else f'{self.held} orders are held'}")
            return
        framework = self._frameworks.get(order.profile)
        if framework is None or self._leaving:
            unknown = Failure(f'profile not found for scheduler name "{order.profile}"')
            self._steps.refuse(order, HANDED_BACK if self._leaving else unknown, now)
            return
        self._accept(Attempt.of(order, framework, now), now)

    def _on_known(self, order: BindingOrder, now: float) -> None:
        """The attempt is under way or finished. An order for another version of the pod counts from the next Bind."""
        attempt = self._attempts.find_any(order.uid, order.attempt)
        if attempt is None:
            outcome = self._attempts.outcome(order)
            if outcome is not None:
                self._reports.add(outcome, now)
        elif attempt.state is AttemptState.STALE:
            self._steps.on_reordered(attempt, order, now)
        elif attempt.state not in MAYBE_BOUND:
            attempt.renew(order)
            if attempt.waits_until > now:
                self._steps.report_wait(attempt, now)

    def _accept(self, attempt: Attempt, now: float) -> None:
        """Begins the attempt instead of an earlier one, or queues it after one that may be bound any moment."""
        self._attempts.ring(attempt.deadline)
        before = self._attempts.get(attempt.uid)
        if before is None:
            self._begin(attempt, now)
        elif before.state not in MAYBE_BOUND:
            self._steps.supersede(before, now)
            self._begin(attempt, now)
        else:
            queued = self._attempts.queued(attempt.uid)
            if queued is not None:
                self._steps.supersede(queued, now)
            attempt.move(AttemptState.QUEUED, now)
            self._attempts.queue(attempt)

    def _begin_queued(self, attempt: Attempt, now: float) -> None:
        if now < attempt.deadline:
            self._begin(attempt, now)
        else:
            self._attempts.make_current(attempt)
            self._steps.expire(attempt, now)

    def _begin(self, attempt: Attempt, now: float) -> None:
        steps, framework, node = self._steps, attempt.framework, attempt.order.assignment.node
        self._attempts.make_current(attempt)
        meter = self.meter.of_pod(RESERVE)
        if framework.reserve:
            began = self._clock()
            status = extension_points.reserve(framework, attempt.cycle, node, meter)
            steps.point_finished(attempt, ExtensionPoint.RESERVE, status.code, began)
            if not status.ok:
                steps.fail(attempt, failure(ExtensionPoint.RESERVE, status), now)
                return
            attempt.reserved = True
        if framework.permit:
            began = self._clock()
            permission = extension_points.permit(framework, attempt.cycle, node, meter)
            code = Code.WAIT if permission.waits else permission.status.code
            steps.point_finished(attempt, ExtensionPoint.PERMIT, code, began)
            if not permission.status.ok:
                steps.fail(attempt, failure(ExtensionPoint.PERMIT, permission.status), now)
                return
            steps.activate(attempt)
            if permission.waits:
                self._wait(attempt, PermitWait(permission.waits, now), now)
                return
        steps.prepare(attempt, now)

    # Permits

    def _wait(self, attempt: Attempt, permit: PermitWait, now: float) -> None:
        attempt.permit = permit
        attempt.move(AttemptState.WAITING, now)
        attempt.waits_until = permit.deadline
        self._attempts.ring(attempt.alarm)
        self._steps.report_wait(attempt, now)
        self._steps.nominate(attempt)
        for answer in attempt.early_permits:
            self._count_permit(attempt, answer, now)
        attempt.early_permits.clear()

    def _on_permit_answer(self, answer: PermitAnswer, now: float) -> None:
        waiting = _addressed(answer, self._attempts.get(answer.uid))
        queued = _addressed(answer, self._attempts.queued(answer.uid))
        if waiting is not None and self._count_permit(waiting, answer, now):
            self._heard(answer, "counted")
        elif queued is not None and queued.keep_permit(answer):
            self._heard(answer, "kept")
        else:
            self._heard(answer, "unknown" if waiting is None and queued is None else "late")

    def _count_permit(self, attempt: Attempt, answer: PermitAnswer, now: float) -> bool:
        """False if the attempt does not wait."""
        if attempt.state is not AttemptState.WAITING or attempt.permit is None:
            return False
        if not answer.allow:
            self._reject(attempt, attempt.permit, attempt.permit.rejected(answer.plugin, answer.reason), now)
        elif attempt.permit.allow(answer.plugin):
            self._effects.append(events.PermitWaitEnded(Code.SUCCESS, now - attempt.permit.began))
            self._steps.prepare(attempt, now)
        return True

    def _heard(self, answer: PermitAnswer, result: Literal["counted", "kept", "late", "unknown"]) -> None:
        if answer.id:
            self._effects.append(PermitHeard(answer.id, self._name, answer.uid, result))

    def _reject(self, attempt: Attempt, permit: PermitWait, status: Status, now: float) -> None:
        self._effects.append(events.PermitWaitEnded(status.code, now - permit.began))
        self._steps.fail(attempt, failure(ExtensionPoint.PERMIT, status), now)

    def _on_withdraw(self, withdraw: Withdraw, now: float) -> None:
        """Fails the attempt unless it may be bound already; if it is not here, its order may still come."""
        if withdraw.epoch < max(self.epoch, 1):
            self._problem(f"a withdrawal of epoch {withdraw.epoch}, now {self.epoch}")
            return
        attempt = self._attempts.find_any(withdraw.uid, withdraw.attempt)
        if attempt is None:
            self._attempts.withdraw(withdraw)
        elif attempt.state not in MAYBE_BOUND:
            if attempt.state is AttemptState.WAITING and attempt.permit is not None:
                self._effects.append(events.PermitWaitEnded(Code.ERROR, now - attempt.permit.began))
            self._steps.fail(attempt, _withdrawn(withdraw, attempt.state), now)

    # Time

    def _on_tick(self, now: float) -> None:
        if now >= self._attempts.alarm:
            self._on_alarm(now)
        self._effects += self._reports.due(self.epoch, now)
        if now >= self._next_beat:
            self._next_beat = next_tick(now, BEAT_INTERVAL)
            self._effects.append(events.SendBeat(0 if self._leaving else ROOM, *self._newest.position))

    def _on_alarm(self, now: float) -> None:
        for attempt in self._attempts.all():
            if attempt.alarm > now or attempt.state in FINAL:
                continue
            if attempt.deadline <= now:
                self._steps.expire(attempt, now)
            elif attempt.state in LOOKED_UP_AGAIN:
                self._steps.look_up(attempt, now)
            elif attempt.state is AttemptState.PAUSED:
                self._steps.resume(attempt, now)
            elif attempt.permit is not None:
                self._reject(attempt, attempt.permit, attempt.permit.timed_out(), now)
        self._attempts.reset_alarm()

    def _on_received(self, received: Received) -> None:
        """The snapshot holds the node while the pod waits, and then for a whole window."""
        if 0 < received.sender_epoch < self.epoch:
            self._problem(f"a snapshot of epoch {received.sender_epoch}, now {self.epoch}, has received outcomes")
            return
        for outcome in self._reports.acknowledged(received.number):
            attempt = None if outcome.wait is None else self._attempts.find(outcome.uid, outcome.attempt)
            if attempt is not None:
                attempt.deadline = max(attempt.deadline, attempt.waits_until + attempt.window)

    def _on_leave(self, now: float) -> None:
        self._leaving = True
        self._next_beat = now
        for attempt in reversed(self._attempts.all()):
            if attempt.state in IDLE:
                self._steps.fail(attempt, HANDED_BACK, now)

    def _problem(self, text: str) -> None:
        self._effects.append(events.Problem(ProtocolError(text)))

    def validate(self) -> None:
        self._attempts.validate()
        self._reports.validate()


def _withdrawn(withdraw: Withdraw, state: AttemptState) -> Failure:
    """An error rather than a rejection: the pod fits, and is retried. Without a plugin the owner is not told."""
    if not withdraw.plugin:
        return Failure(withdraw.reason, notify=False)
    if state is AttemptState.WAITING:
        return Failure(f"waiting on permit for pod: {withdraw.reason}", plugin=withdraw.plugin)
    return Failure(f"{withdraw.reason} by {withdraw.plugin}", plugin=withdraw.plugin)


def _addressed(answer: PermitAnswer, attempt: Attempt | None) -> Attempt | None:
    """The attempt, if the answer is for it: an answer without a number is for any attempt of the pod."""
    return attempt if attempt is not None and answer.attempt in (0, attempt.order.attempt) else None
