"""The steps of an attempt from PreBind on, and its end.

Every Binding names the version of the pod that its order names, so it lands only while the pod has that version. If a
call that binds is not answered with success, the pod is looked up, and only what the API server says counts. Once the
pod has another version, such a call can no longer bind it: the attempt has failed, or, if that version is why the call
was refused, the snapshot is asked for an order that names it. A binder never picks a version itself.

At its end an attempt is rolled back unless it is bound, its outcome is reported to the snapshot, and the pod's owner is
told by an Event and a condition.
"""

import math
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Code, Pause, error
from services.binder import events, extension_points
from services.binder.attempts import Attempt, Attempts, AttemptState, Finished, Identity, LookUpReason, NominationState
from services.binder.extension_points import Durations, Failure, failure
from services.binder.outcome_reports import OutcomeReports
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.errors import ClusterError, InvariantBroken
from shared.extenders.talk import binder_of, in_order
from shared.extenders.wire import bind_request
from shared.framework.metering import POST_BIND, UNRESERVE, PluginMeter
from shared.messages.binding import LONGEST_WAIT, OVERDUE, BindingOutcome
from shared.messages.state import Assignment, BindingOrder
from shared.model.objects import Pod
from shared.plugins.devices.pre_bind import DEVICES, ClaimCreated, DevicesToBind, WaitBegan, WaitEnded

FIRST_PAUSE = 0.5
"""Seconds until a pod is looked up again; doubles each time."""
MAX_PAUSE = 8.0
"""Seconds between two look-ups of a pod, at most."""
STALE_SECONDS = 5.0
"""A stale attempt that the snapshot does not answer for so long is looked up again."""
PAUSE_GRAIN = 0.25
"""Pauses of PreBind end at multiples of this many seconds, so that many pods resume together."""
BINDING_PATH = "/binding"
PRE_BIND, BIND = (extension_points.NAMES[point] for point in (ExtensionPoint.PRE_BIND, ExtensionPoint.BIND))

CONFLICT = 409
NOT_SENT = 0
NO_VERSION = Failure("the order does not name the pod's version", notify=False)
CHANGED = "the pod has another version than its order names"
NO_ORDER = Failure("the pod has another version than its order names, and no order came for that", notify=False)
BEFORE_BIND = frozenset({AttemptState.WAITING, AttemptState.PREPARING, AttemptState.PAUSED})


class BindSteps:
    def __init__(
        self,
        attempts: Attempts,
        reports: OutcomeReports,
        effects: list[events.Effect],
        extenders: Iterable[ExtenderConfig],
        meter: PluginMeter,
        clock: Callable[[], float],
        durations: Durations,
        begin_next: Callable[[Attempt, float], None],
        date: Callable[[float], float],
        nominates: bool,
    ) -> None:
        """`effects` is appended to. `begin_next` begins the attempt that was queued after one that ended.

        `date` converts the core's times to Unix times. `nominates`: pods that wait are nominated to their node.
        """
        self._attempts = attempts
        self._reports = reports
        self._effects = effects
        self._extenders = in_order(extenders)
        self._meter = meter
        self._clock = clock
        self._durations = durations
        self._begin_next = begin_next
        self._date = date
        self._nominates = nominates

    # The nomination of a pod that waits

    def nominate(self, attempt: Attempt) -> bool:
        """Has the node written into the pod's status, once. Returns whether that is under way now."""
        if not self._nominates or attempt.nomination is not NominationState.NONE or not attempt.order.version:
            return False
        attempt.nomination = NominationState.UNDER_WAY
        self._effects.append(events.Nominate(attempt.order))
        return True

    def on_nominated(self, nominated: events.Nominated, now: float) -> None:
        """Asks the snapshot for an order that names the pod's new version: PreBind and Bind wait for it."""
        attempt = self._attempts.find(nominated.uid, nominated.attempt)
        if attempt is None or attempt.nomination is not NominationState.UNDER_WAY:
            return
        attempt.nomination = NominationState.DONE
        if nominated.version not in ("", attempt.order.version):
            attempt.nominated_version = nominated.version
            self._report(attempt, now, reason=CHANGED, found=nominated.version)
        if attempt.state is AttemptState.PREPARING:
            self.prepare(attempt, now)

    # PreBind

    def prepare(self, attempt: Attempt, now: float, answer: ApiAnswer | None = None) -> None:
        """Runs the next step of PreBind, given the answer to the one before; after the last, Bind."""
        if attempt.pre_bind is None:
            self._begin_pre_bind(attempt, now)
        else:
            plugin, step = _next_step(attempt.pre_bind, answer)
            self._take_step(attempt, plugin, step, now)

    def _begin_pre_bind(self, attempt: Attempt, now: float) -> None:
        """What PreBind writes may depend on the pod's version, so it begins after the nomination has changed that."""
        if attempt.nomination is NominationState.UNDER_WAY:
            attempt.move(AttemptState.PREPARING, now)
            return
        of = attempt.order.assignment
        if attempt.nominated_version not in ("", of.version):
            reason = LookUpReason(NO_ORDER, "", FIRST_PAUSE, renews=True, before_pre_bind=True)
            self._wait_for_order(attempt, reason, now)
            return
        if not attempt.framework.pre_bind:
            self._bind(attempt, now)
            return
        attempt.point_began = self._clock()
        attempt.prepared_from = now
        attempt.cycle.pod = _at_version(attempt.cycle.pod, of.version)
        if of.devices is not None:
            attempt.cycle[DEVICES] = DevicesToBind(of.devices, self._date(now))
        steps = extension_points.pre_bind(
            attempt.framework, attempt.cycle, of.node, self._clock, self._pre_bind_plugin_finished
        )
        plugin, step = _next_step(steps, None)
        if isinstance(step, ApiCall | Pause) and self.nominate(attempt):
            attempt.move(AttemptState.PREPARING, now)
            return
        attempt.pre_bind = steps
        self._take_step(attempt, plugin, step, now)

    def _take_step(self, attempt: Attempt, plugin: str, step: extension_points.Step, now: float) -> None:
        self._take_progress(attempt, now)
        if isinstance(step, ApiCall):
            self._call(attempt, AttemptState.PREPARING, plugin, step, now)
            return
        if isinstance(step, Pause):
            self._pause(attempt, step, now)
            return
        self.point_finished(attempt, ExtensionPoint.PRE_BIND, step.code, attempt.point_began)
        if step.ok:
            self._bind(attempt, now)
        else:
            self.fail(attempt, failure(ExtensionPoint.PRE_BIND, step), now)

    def _take_progress(self, attempt: Attempt, now: float) -> None:
        """Turns what PreBind's last step has done about devices into effects."""
        devices = attempt.cycle.get(DEVICES)
        if devices is None:
            return
        for progress in devices.progress:
            match progress:
                case ClaimCreated():
                    self._effects.append(progress)
                case WaitBegan():
                    attempt.devices_awaited_from = now
                    self._effects.append(events.TellDevicesAwaited(attempt.order))
                case WaitEnded(drivers=drivers, result=result):
                    seconds = now - attempt.devices_awaited_from
                    self._effects.append(events.DeviceWaitEnded(attempt.framework.name, drivers, result, seconds))
        devices.progress.clear()

    def resume(self, attempt: Attempt, now: float) -> None:
        self.prepare(attempt, now, ApiAnswer(elapsed=now - attempt.prepared_from))

    def _pause(self, attempt: Attempt, pause: Pause, now: float) -> None:
        """The snapshot grants LONGEST_WAIT at most: for a more patient plugin, asks again once half is over."""
        attempt.move(AttemptState.PAUSED, now)
        seconds = min(pause.seconds, LONGEST_WAIT / 2)
        attempt.resume_at = math.ceil((now + seconds) / PAUSE_GRAIN) * PAUSE_GRAIN
        self._attempts.ring(attempt.alarm)
        until = min(attempt.prepared_from + pause.patience, now + LONGEST_WAIT)
        if until > attempt.prepare_until and attempt.prepare_until - now <= LONGEST_WAIT / 2:
            attempt.prepare_until = attempt.waits_until = until
            self.report_wait(attempt, now)

    def report_wait(self, attempt: Attempt, now: float) -> None:
        """Asks the snapshot for more time."""
        self._report(attempt, now, wait=max(attempt.waits_until - now, 0.0))

    # Bind

    def _bind(self, attempt: Attempt, now: float) -> None:
        attempt.point_began, attempt.plugin = self._clock(), ""
        extender, of = binder_of(self._extenders, attempt.cycle.pod), attempt.order.assignment
        attempt.extender = None
        if extender is not None:
            request = bind_request(of.namespace, of.name, of.uid, of.node)
            attempt.extender = events.ExtenderBinding(extender, request)
            self._call(attempt, AttemptState.BINDING, "", attempt.extender, now)
        elif not of.version:
            self._begin_look_up(attempt, LookUpReason(NO_VERSION, "", FIRST_PAUSE, renews=True), now)
        else:
            self._run_bind(attempt, now)

    def on_reordered(self, attempt: Attempt, order: BindingOrder, now: float) -> None:
        """A stale attempt was ordered again: with the found version, or with the old one if that report was lost."""
        if order.version == attempt.order.version:
            self.look_up(attempt, now)
            return
        attempt.deadline = now + order.window
        reason = _reason_of(attempt)
        attempt.renew(order)
        attempt.look_up = None
        self._attempts.ring(attempt.alarm)
        if reason.before_pre_bind:
            self._begin_pre_bind(attempt, now)
        else:
            self._run_bind(attempt, now)

    def _run_bind(self, attempt: Attempt, now: float) -> None:
        plugin, answer = extension_points.bind(attempt.framework, attempt.cycle, attempt.order.assignment.node)
        if isinstance(answer, ApiCall):
            self._call(attempt, AttemptState.BINDING, plugin, answer, now)
        elif answer.ok:
            attempt.plugin = plugin
            self._finish(attempt, now)
        else:
            attempt.plugin = plugin
            self._bind_finished(attempt, answer.code)
            self.fail(attempt, failure(ExtensionPoint.BIND, answer), now)

    # Calls

    def _call(
        self, attempt: Attempt, state: AttemptState, plugin: str, call: ApiCall | events.ExtenderBinding, now: float
    ) -> None:
        attempt.move(state, now)
        attempt.plugin = plugin
        attempt.step += 1
        order, binds = attempt.order, state is AttemptState.BINDING
        if binds and isinstance(call, ApiCall):
            call = _with_precondition(call, order.assignment)
        self._effects.append(events.Call(attempt.uid, order.attempt, attempt.step, call, attempt.deadline, binds))

    def on_called(self, called: events.Called, now: float) -> None:
        attempt = self._attempts.find(called.uid, called.attempt)
        if attempt is None or attempt.step != called.step:
            return
        if attempt.state is AttemptState.BINDING:
            self._on_bind_called(attempt, called.result, now)
        elif attempt.state is AttemptState.PREPARING:
            self.prepare(attempt, now, _answer(called.result, now - attempt.prepared_from))

    def _on_bind_called(self, attempt: Attempt, result: events.Result, now: float) -> None:
        if isinstance(result, events.Done):
            self._finish(attempt, now)
            return
        extender, attempt.extender = attempt.extender, None
        if extender is not None and extender.extender.ignorable:
            self._run_bind(attempt, now)
            return
        refused = error(result.message).by(attempt.plugin)
        why = Failure(result.message) if extender is not None else failure(ExtensionPoint.BIND, refused)
        if isinstance(result, events.Refused) and (result.status == NOT_SENT or extender is not None):
            self._fail_bind(attempt, why, now)
            return
        stale = isinstance(result, events.Refused) and result.status == CONFLICT
        fences = "" if stale or extender is not None else attempt.order.version
        endless = extender is not None
        reason = LookUpReason(why, result.message, FIRST_PAUSE, fences=fences, renews=stale, endless=endless)
        self._begin_look_up(attempt, reason, now)

    # Looking up

    def _begin_look_up(self, attempt: Attempt, reason: LookUpReason, now: float) -> None:
        attempt.look_up = reason
        self.look_up(attempt, now)

    def look_up(self, attempt: Attempt, now: float) -> None:
        reason = _reason_of(attempt)
        attempt.move(AttemptState.LOOKING_UP, now)
        of = attempt.order.assignment
        self._effects.append(events.LookUp(of.uid, attempt.order.attempt, of.namespace, of.name, reason.fences))

    def on_looked_up(self, found: events.LookedUp, now: float) -> None:
        attempt = self._attempts.find(found.uid, found.attempt)
        if attempt is None or attempt.state is not AttemptState.LOOKING_UP:
            return
        reason = _reason_of(attempt)
        plugin = reason.failure.plugin
        if found.where is events.Where.ON_NODE:
            if found.node == attempt.order.node:
                self._finish(attempt, now)
            else:
                elsewhere = f"the pod is on node {found.node} already"
                self._fail_bind(attempt, Failure(elsewhere, notify=False, plugin=plugin), now, fenced=True)
        elif found.where is events.Where.GONE:
            gone = f"the pod is gone: {reason.response}" if reason.response else "the pod is gone"
            self._fail_bind(attempt, Failure(gone, notify=False, plugin=plugin, gone=True), now, fenced=True)
        elif found.where is events.Where.UNBOUND and not reason.endless:
            self._on_unbound(attempt, reason, found, now)
        else:
            reason.look_at = now + reason.pause
            reason.pause = min(2 * reason.pause, MAX_PAUSE)
            attempt.move(AttemptState.BACKING_OFF, now)
            self._attempts.ring(attempt.alarm)

    def _on_unbound(self, attempt: Attempt, reason: LookUpReason, found: events.LookedUp, now: float) -> None:
        changed = found.version != attempt.order.version
        if not changed:
            fencing = LookUpReason(reason.failure, reason.response, reason.pause, fences=attempt.order.version)
            self._begin_look_up(attempt, fencing, now)
        elif not reason.renews or found.terminating:
            self._fail_bind(attempt, reason.failure, now, fenced=True)
        elif self._attempts.queued(attempt.uid) is not None:
            self.supersede(attempt, now)
        else:
            self._wait_for_order(attempt, reason, now)
            self._report(attempt, now, reason=CHANGED, found=found.version)

    def _wait_for_order(self, attempt: Attempt, reason: LookUpReason, now: float) -> None:
        """Waits for an order that names the pod's present version; without one, the pod is looked up."""
        attempt.look_up = reason
        reason.look_at = now + STALE_SECONDS
        attempt.move(AttemptState.STALE, now)
        self._attempts.ring(attempt.alarm)

    # The end

    def _finish(self, attempt: Attempt, now: float) -> None:
        """The pod is bound."""
        order, of = attempt.order, attempt.order.assignment
        self._bind_finished(attempt, Code.SUCCESS)
        if attempt.framework.post_bind:
            began = self._clock()
            errors = extension_points.post_bind(
                attempt.framework, attempt.cycle, of.node, self._meter.of_pod(POST_BIND)
            )
            self.point_finished(attempt, ExtensionPoint.POST_BIND, Code.SUCCESS, began)
            self._log(attempt, errors)
        self.activate(attempt)
        self._effects.append(events.TellOwner(order, f"Successfully assigned {of.key} to {of.node}"))
        outcome = BindingOutcome(of.uid, order.attempt, version=of.version)
        self._end(attempt, AttemptState.BOUND, "", outcome, now)

    def fail(self, attempt: Attempt, why: Failure, now: float, *, fenced: bool = False) -> None:
        """The attempt will not bind the pod: Bind was not called, or no such call can land any more (`fenced`)."""
        self._roll_back(attempt)
        outcome = self._failed(attempt.order, why, fenced=fenced)
        self._end(attempt, AttemptState.FAILED, why.message, outcome, now)

    def _fail_bind(self, attempt: Attempt, why: Failure, now: float, *, fenced: bool = False) -> None:
        self._bind_finished(attempt, why.code)
        self.fail(attempt, why, now, fenced=fenced)

    def expire(self, attempt: Attempt, now: float) -> None:
        """Leaves the attempt to the snapshot, which may have granted it more time than this binder has heard of."""
        self._roll_back(attempt)
        outcome = BindingOutcome(attempt.uid, attempt.order.attempt, OVERDUE)
        self._end(attempt, AttemptState.EXPIRED, OVERDUE, outcome, now)

    def supersede(self, attempt: Attempt, now: float) -> None:
        self._roll_back(attempt)
        self._end(attempt, AttemptState.SUPERSEDED, "there is a newer attempt", None, now)

    def refuse(self, order: BindingOrder, why: Failure, now: float) -> None:
        """Fails an order that is not begun."""
        outcome = self._failed(order, why)
        self._reports.add(outcome, now)
        self._effects.append(events.AttemptEnded(order, now, why.message))
        self._attempts.remember(order.uid, Finished(Identity(order.epoch, order.attempt), outcome))

    def point_finished(self, attempt: Attempt, point: ExtensionPoint, code: Code, began: float) -> None:
        labels = extension_points.NAMES[point], code, attempt.framework.name
        self._durations.of_points[labels].append(self._clock() - began)

    def _pre_bind_plugin_finished(self, plugin: str, code: Code, seconds: float) -> None:
        self._durations.of_plugins[plugin, PRE_BIND, code].append(seconds)

    def _bind_finished(self, attempt: Attempt, code: Code) -> None:
        self.point_finished(attempt, ExtensionPoint.BIND, code, attempt.point_began)
        if attempt.plugin:
            self._durations.of_plugins[attempt.plugin, BIND, code].append(self._clock() - attempt.point_began)

    def activate(self, attempt: Attempt) -> None:
        """Has the queue retry the pods that plugins have named so far."""
        if named := attempt.cycle.activated:
            self._effects.append(events.ActivatePods(sorted(named)))
            named.clear()

    def _report(
        self, attempt: Attempt, now: float, reason: str = "", found: str = "", wait: float | None = None
    ) -> None:
        """Reports on an attempt that continues."""
        order = attempt.order
        outcome = BindingOutcome(order.uid, order.attempt, reason, version=order.version, found=found, wait=wait)
        self._reports.add(outcome, now)

    def _roll_back(self, attempt: Attempt) -> None:
        if attempt.reserved:
            attempt.reserved = False
            meter, node = self._meter.of_pod(UNRESERVE), attempt.order.node
            self._log(attempt, extension_points.unreserve(attempt.framework, attempt.cycle, node, meter))

    def _end(
        self, attempt: Attempt, state: AttemptState, reason: str, outcome: BindingOutcome | None, now: float
    ) -> None:
        attempt.move(state, now)
        if outcome is not None:
            self._reports.add(outcome, now)
        self._effects.append(events.AttemptEnded(attempt.order, attempt.began, reason))
        following = self._attempts.remove(attempt, outcome)
        if following is not None:
            self._begin_next(following, now)

    def _failed(self, order: BindingOrder, why: Failure, *, fenced: bool = False) -> BindingOutcome:
        if why.notify:
            self._effects.append(events.TellOwner(order, why.message, why.reason))
        return BindingOutcome(
            order.uid,
            order.attempt,
            why.message,
            plugin=why.plugin,
            rejected=why.rejected,
            handed_back=why.handed_back,
            gone=why.gone,
            version=order.version,
            fenced=fenced,
        )

    def _log(self, attempt: Attempt, errors: Iterable[str]) -> None:
        self._effects += [events.Problem(ClusterError(f"Pod {attempt.order.key}: {each}")) for each in errors]


def _at_version(pod: Pod, version: str) -> Pod:
    if pod.metadata.resource_version == version:
        return pod
    return replace(pod, metadata=replace(pod.metadata, resource_version=version))


def _with_precondition(call: ApiCall, of: Assignment) -> ApiCall:
    """Makes a Binding, whichever plugin wants it, land only on the pod and version that the order names."""
    if not call.path.endswith(BINDING_PATH):
        return call
    metadata = {**(call.body.get("metadata") or {}), "uid": of.uid, "resourceVersion": of.version}
    return ApiCall(call.method, call.path, {**call.body, "metadata": metadata})


def _reason_of(attempt: Attempt) -> LookUpReason:
    if attempt.look_up is None:
        raise InvariantBroken(f"looked up without a reason. {attempt.history()}")
    return attempt.look_up


def _next_step(steps: extension_points.Steps, answer: ApiAnswer | None) -> tuple[str, extension_points.Step]:
    """SUCCESS after the last step."""
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration:
        return "", SUCCESS


def _answer(result: events.Result, elapsed: float) -> ApiAnswer:
    match result:
        case events.Done(body=body):
            return ApiAnswer(200, body, elapsed=elapsed)
        case events.Refused(status=status, message=message):
            return ApiAnswer(status, message=message, elapsed=elapsed)
        case events.Unknown(message=message):
            return ApiAnswer(message=message, elapsed=elapsed)
