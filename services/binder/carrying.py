"""PreBind and Bind of an attempt, call by call, and the doubt that a call without a clear answer leaves behind.

A binding call that is answered with a conflict, not found, or not at all, proves nothing by itself: the API server is
asked where the pod is, and only what it says counts.
"""

import math
from collections.abc import Callable, Iterable

from services.binder import points
from services.binder.attempt import Attempt, Doubt, State
from services.binder.book import Book
from services.binder.ending import Endings
from services.binder.events import (
    Call,
    Called,
    Done,
    Effect,
    ExtenderBinding,
    LookedUp,
    LookUp,
    Refused,
    Result,
    Unknown,
    Where,
)
from services.binder.extended import binding_of
from services.binder.points import Failure, failure
from services.binder.reports import Reports
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.errors import InvariantBroken
from shared.extenders.interest import in_order
from shared.framework.plugin import ApiAnswer, ApiCall, Pause
from shared.framework.status import SUCCESS, error
from shared.messages.binding import BindingOutcome

LOOK_AGAIN = 0.5
"""Seconds until a pod is looked up again, the first time; the pause doubles from then on."""
LONGEST_PAUSE = 8.0
PAUSE_GRAIN = 0.25
"""Pauses of PreBind end at multiples of so many seconds."""
SETTLING = 1.0
"""Seconds after which a call that was cut off does not arrive any more."""

NOT_FOUND, CONFLICT = 404, 409
UNSURE = (NOT_FOUND, CONFLICT)
"""Refusals that say nothing about where the pod is: it may be gone, replaced, or bound already."""


class Carrying:
    def __init__(
        self,
        book: Book,
        reports: Reports,
        effects: list[Effect],
        endings: Endings,
        extenders: Iterable[ExtenderConfig],
        clock: Callable[[], float],
    ) -> None:
        self._book = book
        self._reports = reports
        self._effects = effects
        self._endings = endings
        self._extenders = in_order(extenders)
        self._clock = clock

    # PreBind

    def prepare(self, attempt: Attempt, now: float, answer: ApiAnswer | None = None) -> None:
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
            self._endings.took(attempt, ExtensionPoint.PRE_BIND, step.code, attempt.point_began)
            if not step.ok:
                self._endings.fail(attempt, failure(ExtensionPoint.PRE_BIND, step), now)
                return
        self._bind(attempt, now)

    def resume(self, attempt: Attempt, now: float) -> None:
        """After a pause."""
        self.prepare(attempt, now, ApiAnswer(elapsed=now - attempt.prepared_from))

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

    # Bind

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
            self._endings.finish(attempt, now)
        else:
            self._endings.took(attempt, ExtensionPoint.BIND, answer.code, attempt.point_began)
            self._endings.fail(attempt, failure(ExtensionPoint.BIND, answer), now)

    def _fail_bind(self, attempt: Attempt, why: Failure, now: float) -> None:
        self._endings.took(attempt, ExtensionPoint.BIND, why.code, attempt.point_began)
        self._endings.fail(attempt, why, now)

    # Calls

    def _call(self, attempt: Attempt, state: State, plugin: str, call: ApiCall | ExtenderBinding, now: float) -> None:
        attempt.move(state, now)
        attempt.plugin = plugin
        attempt.step += 1
        order = attempt.order
        binds = state is State.BINDING
        self._effects.append(Call(order.uid, order.attempt, attempt.step, call, attempt.deadline, binds))

    def on_called(self, called: Called, now: float) -> None:
        attempt = self._book.find(called.uid, called.attempt)
        if attempt is None or attempt.step != called.step:
            return
        if attempt.state is State.BINDING:
            self._on_bind_called(attempt, called.result, now)
        elif attempt.state is State.PREPARING:
            self.prepare(attempt, now, _answer(called.result, now - attempt.prepared_from))

    def _on_bind_called(self, attempt: Attempt, result: Result, now: float) -> None:
        if isinstance(result, Done):
            self._endings.finish(attempt, now)
            return
        extender, attempt.extender = attempt.extender, None
        if extender is not None and extender.extender.ignorable:
            self._bind_by_plugin(attempt, now)
            return
        refused = error(result.message).by(attempt.plugin)
        why = Failure(result.message) if extender is not None else failure(ExtensionPoint.BIND, refused)
        if isinstance(result, Refused) and result.status not in UNSURE:
            self._fail_bind(attempt, why, now)
            return
        settled = now if isinstance(result, Refused) else now + SETTLING
        attempt.doubt = Doubt(why, result.message, settled, LOOK_AGAIN)
        self.look_up(attempt, now)

    # Doubt

    def look_up(self, attempt: Attempt, now: float) -> None:
        attempt.move(State.LOOKING, now)
        order = attempt.order
        self._effects.append(LookUp(order.uid, order.attempt, order.namespace, order.name))

    def on_looked_up(self, found: LookedUp, now: float) -> None:
        attempt = self._book.find(found.uid, found.attempt)
        if attempt is None or attempt.state is not State.LOOKING:
            return
        doubt = attempt.doubt
        if doubt is None:
            raise InvariantBroken(f"looked up without a doubt. {attempt.tell()}")
        plugin = doubt.answer.plugin
        if found.where is Where.ON_NODE:
            if found.node == attempt.order.node:
                self._endings.finish(attempt, now)
            else:
                elsewhere = f"the pod is on node {found.node} already"
                self._fail_bind(attempt, Failure(elsewhere, told=False, plugin=plugin), now)
        elif found.where is Where.GONE:
            gone = f"the pod is gone: {doubt.said}"
            self._fail_bind(attempt, Failure(gone, told=False, plugin=plugin, gone=True), now)
        elif found.where is Where.UNBOUND and now >= doubt.settled:
            self._fail_bind(attempt, doubt.answer, now)
        else:
            doubt.look_at = now + doubt.pause
            doubt.pause = min(2 * doubt.pause, LONGEST_PAUSE)
            attempt.move(State.DOUBTING, now)
            self._book.ring(attempt.alarm)


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
