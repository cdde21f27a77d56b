"""PreBind and Bind of an attempt, call by call, and the doubt that a call without a clear answer leaves behind.

Every Binding names the version of the pod that its order names, so it lands only while the pod is at that version. What
a call that was not answered with success has done is looked up, and only what the API server says counts. The pod has
not been bound, and will not be, once it has another version: then the attempt has failed, or, where that other version
is why the call was refused, the snapshot is asked for an order that names it. A binder never picks a version itself.
"""

import math
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, error
from services.binder.binding import extension_points
from services.binder.binding.attempts import Attempt, Doubt, State
from services.binder.binding.extension_points import Failure, failure
from services.binder.binding.outcome_reports import Reports
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
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.errors import InvariantBroken
from shared.extenders.interest import in_order
from shared.messages.binding import LONGEST_WAIT, BindingOutcome
from shared.messages.state import BindingOrder

LOOK_AGAIN = 0.5
"""Seconds until a pod is looked up again, the first time; the pause doubles from then on."""
LONGEST_PAUSE = 8.0
UNANSWERED = 5.0
"""Seconds for which the snapshot may leave a stale attempt unanswered, before the pod is looked up again."""
PAUSE_GRAIN = 0.25
"""Pauses of PreBind end at multiples of so many seconds."""
BINDING = "/binding"
"""How the path of the sub-resource ends that binds a pod."""

CONFLICT = 409
NOT_SENT = 0
NO_VERSION = Failure("the order does not say which version of the pod it is about", told=False)
MOVED = "the pod has another version than its order names"


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
                attempt.pre_bind = extension_points.pre_bind(framework, attempt.cycle, attempt.order.node)
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
        """Many pods wake up together, so that this many do not each have all others looked through.

        The snapshot grants LONGEST_WAIT at most: of a plugin with more patience more is asked for once half is over.
        """
        attempt.move(State.PAUSED, now)
        seconds = min(pause.seconds, LONGEST_WAIT / 2)
        attempt.resume_at = math.ceil((now + seconds) / PAUSE_GRAIN) * PAUSE_GRAIN
        self._book.ring(attempt.alarm)
        until = min(attempt.prepared_from + pause.patience, now + LONGEST_WAIT)
        if until > attempt.prepared_until and attempt.prepared_until - now <= LONGEST_WAIT / 2:
            attempt.prepared_until = until
            attempt.waits_until = until
            self.report_wait(attempt, now)

    def report_wait(self, attempt: Attempt, now: float) -> None:
        """Ask the snapshot for as much more time."""
        order, wait = attempt.order, max(attempt.waits_until - now, 0.0)
        self._reports.add(BindingOutcome(order.uid, order.attempt, version=order.version, wait=wait), now)

    # Bind

    def _bind(self, attempt: Attempt, now: float) -> None:
        attempt.point_began = self._clock()
        attempt.extender = binding_of(self._extenders, attempt.order, attempt.cycle.pod)
        if attempt.extender is not None:
            self._call(attempt, State.BINDING, "", attempt.extender, now)
        elif not attempt.order.version:
            self._doubt(attempt, Doubt(NO_VERSION, "", LOOK_AGAIN, renews=True), now)
        else:
            self._bind_by_plugin(attempt, now)

    def on_reordered(self, attempt: Attempt, order: BindingOrder, now: float) -> None:
        """A stale one: with the version that was found, or again with the old one, so nobody has heard of the other."""
        if order.version == attempt.order.version:
            self.look_up(attempt, now)
            return
        attempt.deadline = now + order.window
        self._book.ring(attempt.alarm)
        self.renew(attempt, order, now)

    def renew(self, attempt: Attempt, order: BindingOrder, now: float) -> None:
        """The snapshot has ordered it with the version that was found."""
        attempt.order = order
        attempt.doubt = None
        self._bind_by_plugin(attempt, now)

    def _bind_by_plugin(self, attempt: Attempt, now: float) -> None:
        plugin, answer = extension_points.bind(attempt.framework, attempt.cycle, attempt.order.node)
        if isinstance(answer, ApiCall):
            self._call(attempt, State.BINDING, plugin, answer, now)
        elif answer.ok:
            self._endings.finish(attempt, now)
        else:
            self._endings.took(attempt, ExtensionPoint.BIND, answer.code, attempt.point_began)
            self._endings.fail(attempt, failure(ExtensionPoint.BIND, answer), now)

    def _fail_bind(self, attempt: Attempt, why: Failure, now: float, *, fenced: bool = False) -> None:
        self._endings.took(attempt, ExtensionPoint.BIND, why.code, attempt.point_began)
        self._endings.fail(attempt, why, now, fenced=fenced)

    # Calls

    def _call(self, attempt: Attempt, state: State, plugin: str, call: ApiCall | ExtenderBinding, now: float) -> None:
        attempt.move(state, now)
        attempt.plugin = plugin
        attempt.step += 1
        order = attempt.order
        binds = state is State.BINDING
        if binds and isinstance(call, ApiCall):
            call = _with_precondition(call, order)
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
        if isinstance(result, Refused) and (result.status == NOT_SENT or extender is not None):
            self._fail_bind(attempt, why, now)
            return
        stale = isinstance(result, Refused) and result.status == CONFLICT
        fences = "" if stale or extender is not None else attempt.order.version
        doubt = Doubt(why, result.message, LOOK_AGAIN, fences=fences, renews=stale, endless=extender is not None)
        self._doubt(attempt, doubt, now)

    # Doubt

    def _doubt(self, attempt: Attempt, doubt: Doubt, now: float) -> None:
        attempt.doubt = doubt
        self.look_up(attempt, now)

    def look_up(self, attempt: Attempt, now: float) -> None:
        doubt = attempt.doubt
        if doubt is None:
            raise InvariantBroken(f"looked up without a doubt. {attempt.tell()}")
        attempt.move(State.LOOKING, now)
        order = attempt.order
        self._effects.append(
            LookUp(order.uid, order.attempt, order.assignment.namespace, order.assignment.name, doubt.fences)
        )

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
                self._fail_bind(attempt, Failure(elsewhere, told=False, plugin=plugin), now, fenced=True)
        elif found.where is Where.GONE:
            gone = f"the pod is gone: {doubt.said}" if doubt.said else "the pod is gone"
            self._fail_bind(attempt, Failure(gone, told=False, plugin=plugin, gone=True), now, fenced=True)
        elif found.where is Where.UNBOUND and not doubt.endless:
            self._on_unbound(attempt, doubt, found, now)
        else:
            doubt.look_at = now + doubt.pause
            doubt.pause = min(2 * doubt.pause, LONGEST_PAUSE)
            attempt.move(State.DOUBTING, now)
            self._book.ring(attempt.alarm)

    def _on_unbound(self, attempt: Attempt, doubt: Doubt, found: LookedUp, now: float) -> None:
        order = attempt.order
        moved = found.version != order.version
        if doubt.renews and moved and not found.terminating:
            if self._book.behind(order.uid) is not None:
                self._endings.supersede(attempt, now)
                return
            doubt.look_at = now + UNANSWERED
            attempt.move(State.STALE, now)
            self._book.ring(attempt.alarm)
            asked = BindingOutcome(order.uid, order.attempt, MOVED, version=order.version, found=found.version)
            self._reports.add(asked, now)
        elif moved:
            self._fail_bind(attempt, doubt.answer, now, fenced=True)
        else:
            self._doubt(attempt, Doubt(doubt.answer, doubt.said, doubt.pause, fences=order.version), now)


def _with_precondition(call: ApiCall, order: BindingOrder) -> ApiCall:
    """A Binding that lands only on the very pod and version that the order is about, whichever plugin wants it."""
    if not call.path.endswith(BINDING):
        return call
    metadata = {
        **(call.body.get("metadata") or {}),
        "uid": order.uid,
        "resourceVersion": order.version,
    }
    return replace(call, body={**call.body, "metadata": metadata})


def _next_step(steps: extension_points.Steps, answer: ApiAnswer | None) -> tuple[str, extension_points.Step]:
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
