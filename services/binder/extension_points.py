"""Runs a profile's binding plugins on one pod: Reserve, Permit, PreBind, Bind and PostBind.

A plugin that raises has failed: that is an error of its pod, never of the binder. Messages are kube-scheduler's.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping

import msgspec

from flotilla.plugin import BindingState, PreBindPlugin
from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Code, Pause, PreBindSteps, Status, error
from shared.config.points import ExtensionPoint
from shared.framework.metering import POST_BIND, UNRESERVE, PluginMeter
from shared.framework.profile import Framework, PermitOutcome, unfit_message
from shared.framework.signatures import PluginFailed
from shared.messages.binding import LONGEST_WAIT
from shared.messages.evaluation import Rejections

Step = Status | ApiCall | Pause
Steps = Generator[tuple[str, Step], ApiAnswer, None]

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"

NAMES = {
    ExtensionPoint.RESERVE: "Reserve",
    ExtensionPoint.PERMIT: "Permit",
    ExtensionPoint.PRE_BIND: "PreBind",
    ExtensionPoint.BIND: "Bind",
    ExtensionPoint.POST_BIND: "PostBind",
}
REJECTING = (ExtensionPoint.RESERVE, ExtensionPoint.PERMIT)
"""A rejection here means that the pod does not fit; at a later point it is an error, and the pod is retried."""
DURATION_UNITS = ((3600, "h"), (60, "m"))


class Failure(msgspec.Struct, frozen=True):
    """Why a pod was not bound. `reason`: of its PodScheduled condition; `notify`: write that and an Event.

    `plugin` failed it; `rejected`: the pod does not fit there, and waits for an event that may help. `handed_back`:
    another binder may bind it. `gone`: there is no such pod.
    """

    message: str
    reason: str = SCHEDULER_ERROR
    code: Code = Code.ERROR
    notify: bool = True
    plugin: str = ""
    rejected: bool = False
    handed_back: bool = False
    gone: bool = False


def failure(point: ExtensionPoint, status: Status) -> Failure:
    reasons = status.message or status.code
    if not status.rejected:
        plugin = f'plugin "{status.plugin}"' if status.plugin else "plugins"
        return Failure(f"running {NAMES[point]} {plugin}: {reasons}", plugin=status.plugin)
    if point not in REJECTING:
        return Failure(reasons, UNSCHEDULABLE, status.code, plugin=status.plugin)
    message = unfit_message(1, None, [Rejections(status, 1)])
    return Failure(message, UNSCHEDULABLE, status.code, plugin=status.plugin, rejected=True)


class Durations:
    """Seconds that extension points and plugins took, API calls included, until the shell reads and clears them.

    By the labels of their metrics: the point, its result and the profile; the plugin, the point and its result.
    """

    def __init__(self) -> None:
        self.of_points: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.of_plugins: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)


class PermitWait:
    """The wait of one pod for the permits of several plugins: each must allow it.

    The first rejection ends the wait, and so does the shortest timeout of a plugin that has not allowed it yet.
    Timeouts are capped at LONGEST_WAIT.
    """

    def __init__(self, waits: Mapping[str, float], began: float) -> None:
        self.began = began
        self._waits = {plugin: min(max(seconds, 0.0), LONGEST_WAIT) for plugin, seconds in waits.items()}

    @property
    def deadline(self) -> float:
        return self.began + min(self._waits.values())

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(self._waits)

    def left(self, now: float) -> dict[str, float]:
        """Seconds left, by plugin that has not allowed the pod yet."""
        return {plugin: max(self.began + seconds - now, 0.0) for plugin, seconds in self._waits.items()}

    def allow(self, plugin: str) -> bool:
        """Allows the pod for this plugin, or for all (""). Returns whether no other plugin is waited for."""
        if plugin:
            self._waits.pop(plugin, None)
        else:
            self._waits.clear()
        return not self._waits

    def rejected(self, plugin: str, reason: str) -> Status:
        """The status of a rejection; without a plugin, by the first that has not allowed the pod."""
        return rejected(plugin or self.pending[0], reason or "rejected")

    def timed_out(self) -> Status:
        """The status of the plugin with the shortest timeout."""
        plugin, seconds = min(self._waits.items(), key=lambda item: item[1])
        return rejected(plugin, f"rejected due to timeout after waiting {duration(seconds)} at plugin {plugin}")


def reserve(framework: Framework, cycle: BindingState, node: str, meter: PluginMeter | None = None) -> Status:
    """All plugins reserve, or none."""
    try:
        return framework.run_reserve(cycle, node, meter)
    except Exception as cause:
        unreserve(framework, cycle, node)
        return _raised(cause)


def unreserve(framework: Framework, cycle: BindingState, node: str, meter: PluginMeter | None = None) -> list[str]:
    """Runs Unreserve of every plugin, in reverse order. Returns their errors."""
    errors: list[str] = []
    for plugin in reversed(framework.reserve):
        began = 0.0 if meter is None else meter.start()
        try:
            plugin.unreserve(cycle, node)
        except Exception as cause:
            errors.append(f"{plugin.name}.unreserve: {_named(cause)}")
        if meter is not None:
            meter.stop(plugin.name, UNRESERVE, began)
    return errors


def permit(framework: Framework, cycle: BindingState, node: str, meter: PluginMeter | None = None) -> PermitOutcome:
    try:
        return framework.run_permit(cycle, node, meter)
    except Exception as cause:
        return PermitOutcome(_raised(cause))


def pre_bind(
    framework: Framework,
    cycle: BindingState,
    node: str,
    clock: Callable[[], float],
    finished: Callable[[str, Code, float], None],
) -> Steps:
    """Yields each step with its plugin's name, and the status of a plugin that fails; is sent the answer to each step.

    A plugin runs when all steps of the plugins before it are done. `finished` hears of each that had something to do,
    with its seconds.
    """
    for plugin in framework.pre_bind:
        began = clock()
        answer = _run_pre_bind(plugin, cycle, node)
        status = answer if isinstance(answer, Status) else (yield from _steps(plugin, answer))
        if status.skipped:
            continue
        finished(plugin.name, status.code, clock() - began)
        if not status.ok:
            yield plugin.name, status.by(plugin.name)
            return


def _run_pre_bind(plugin: PreBindPlugin, cycle: BindingState, node: str) -> Status | PreBindSteps:
    try:
        answer = plugin.pre_bind(cycle, node)
    except Exception as cause:
        return _raised(cause)
    return answer if isinstance(answer, Status | Generator) else _one_by_one(answer)


def _steps(plugin: PreBindPlugin, steps: PreBindSteps) -> Generator[tuple[str, Step], ApiAnswer, Status]:
    try:
        step = next(steps)
        while True:
            step = steps.send((yield plugin.name, step))
    except StopIteration as end:
        status: Status = end.value
        return status
    except Exception as cause:
        return _raised(cause)


def _one_by_one(calls: Iterable[ApiCall]) -> PreBindSteps:
    """Makes the calls one after the other, up to the first that fails."""
    for call in calls:
        answer = yield call
        if not answer.ok:
            return error(answer.message)
    return SUCCESS


def bind(framework: Framework, cycle: BindingState, node: str) -> tuple[str, Status | ApiCall]:
    """Returns the name and the answer of the first plugin that does not skip the pod."""
    for plugin in framework.bind:
        try:
            answer = plugin.bind(cycle, node)
        except Exception as cause:
            answer = _raised(cause)
        if not isinstance(answer, Status):
            return plugin.name, answer
        if not answer.skipped:
            return plugin.name, answer.by(plugin.name)
    return "", error("no bind plugin took the pod")


def post_bind(framework: Framework, cycle: BindingState, node: str, meter: PluginMeter | None = None) -> list[str]:
    """Returns the plugins' errors, which do not change that the pod is bound."""
    errors: list[str] = []
    for plugin in framework.post_bind:
        began = 0.0 if meter is None else meter.start()
        try:
            plugin.post_bind(cycle, node)
        except Exception as cause:
            errors.append(f"{plugin.name}.post_bind: {_named(cause)}")
        if meter is not None:
            meter.stop(plugin.name, POST_BIND, began)
    return errors


def _raised(cause: Exception) -> Status:
    if isinstance(cause, PluginFailed):
        return error(_named(cause.__cause__ or cause)).by(cause.plugin)
    return error(_named(cause))


def _named(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}"


def rejected(plugin: str, reason: str) -> Status:
    return Status(Code.UNSCHEDULABLE, (reason,), plugin)


def duration(seconds: float) -> str:
    """Formats as Go does a time.Duration: `1m30s`, `2.5s`, `100ms`, `0s`."""
    nanoseconds = round(seconds * 1e9)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 1_000_000_000:
        scale, unit = next((s, u) for s, u in ((1_000_000, "ms"), (1_000, "µs"), (1, "ns")) if nanoseconds >= s)
        return f"{_decimal(nanoseconds, scale)}{unit}"
    rest, text = nanoseconds, ""
    for size, unit in DURATION_UNITS:
        whole, rest = divmod(rest, size * 1_000_000_000)
        if whole or text:
            text += f"{whole}{unit}"
    return f"{text}{_decimal(rest, 1_000_000_000)}s"


def _decimal(amount: int, scale: int) -> str:
    whole, part = divmod(amount, scale)
    digits = f"{part:0{len(str(scale)) - 1}d}".rstrip("0") if scale > 1 else ""
    return f"{whole}.{digits}" if digits else str(whole)
