"""Running a profile's binding plugins on one pod, and saying as kube-scheduler does what went wrong.

A plugin that raises has failed; that is the pod's misfortune and never the binder's.
"""

from collections.abc import Generator, Iterable

import msgspec

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Code, Pause, PreBindSteps, Status, error
from shared.config.points import ExtensionPoint
from shared.framework.cyclestate import CycleState
from shared.framework.diagnosis import unfit_message
from shared.framework.plugin import PreBindPlugin
from shared.framework.profile import Framework, PermitOutcome
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
DECIDING = (ExtensionPoint.RESERVE, ExtensionPoint.PERMIT)
"""A rejection here says that the pod does not fit; later ones come too late for that, and the pod is tried again."""


class Failure(msgspec.Struct, frozen=True):
    """Why a pod is not bound. `told`: whether its owner should read of it; `reason`: of the PodScheduled condition.

    `plugin` had it fail; `rejected`: the pod does not fit there, and waits until something is done about it.
    `handed_back`: another binder may have it bound. `gone`: nobody may, for there is no such pod.
    """

    message: str
    reason: str = SCHEDULER_ERROR
    code: Code = Code.ERROR
    told: bool = True
    plugin: str = ""
    rejected: bool = False
    handed_back: bool = False
    gone: bool = False


def failure(point: ExtensionPoint, status: Status) -> Failure:
    reasons = status.message or status.code
    if not status.rejected:
        plugin = f'plugin "{status.plugin}"' if status.plugin else "plugins"
        return Failure(f"running {NAMES[point]} {plugin}: {reasons}", plugin=status.plugin)
    if point not in DECIDING:
        return Failure(reasons, UNSCHEDULABLE, status.code, plugin=status.plugin)
    message = unfit_message(1, None, [Rejections(status, 1)])
    return Failure(message, UNSCHEDULABLE, status.code, plugin=status.plugin, rejected=True)


def reserve(framework: Framework, cycle: CycleState, node: str) -> Status:
    """All or nothing."""
    try:
        return framework.run_reserve(cycle, node)
    except Exception as cause:
        unreserve(framework, cycle, node)
        return _raised(cause)


def unreserve(framework: Framework, cycle: CycleState, node: str) -> list[str]:
    """Every plugin gets to take back what it reserved, whatever the others do. Who could not, and why."""
    troubles: list[str] = []
    for plugin in reversed(framework.reserve):
        try:
            plugin.unreserve(cycle, node)
        except Exception as cause:
            troubles.append(f"{plugin.name}.unreserve: {_named(cause)}")
    return troubles


def permit(framework: Framework, cycle: CycleState, node: str) -> PermitOutcome:
    try:
        return framework.run_permit(cycle, node)
    except Exception as cause:
        return PermitOutcome(_raised(cause))


def pre_bind(framework: Framework, cycle: CycleState, node: str) -> Steps:
    """Each step with its plugin's name, or the status that ends it. Each step's answer is to be sent.

    A plugin is asked only when all steps of the plugins before it are done.
    """
    for plugin in framework.pre_bind:
        status = yield from _steps(plugin, cycle, node)
        if not (status.ok or status.skipped):
            yield plugin.name, status.by(plugin.name)
            return


def _steps(plugin: PreBindPlugin, cycle: CycleState, node: str) -> Generator[tuple[str, Step], ApiAnswer, Status]:
    try:
        answer = plugin.pre_bind(cycle, node)
        if isinstance(answer, Status):
            return answer
        steps = answer if isinstance(answer, Generator) else _one_by_one(answer)
        step = next(steps)
        while True:
            step = steps.send((yield plugin.name, step))
    except StopIteration as end:
        status: Status = end.value
        return status
    except Exception as cause:
        return _raised(cause)


def _one_by_one(calls: Iterable[ApiCall]) -> PreBindSteps:
    """Each call once the one before is done; the first that is not ends it."""
    for call in calls:
        answer = yield call
        if not answer.ok:
            return error(answer.message)
    return SUCCESS


def bind(framework: Framework, cycle: CycleState, node: str) -> tuple[str, Status | ApiCall]:
    """What the first plugin that takes the pod answers, and its name."""
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


def post_bind(framework: Framework, cycle: CycleState, node: str) -> list[str]:
    """Who could not, and why: the pod is bound all the same."""
    troubles: list[str] = []
    for plugin in framework.post_bind:
        try:
            plugin.post_bind(cycle, node)
        except Exception as cause:
            troubles.append(f"{plugin.name}.post_bind: {_named(cause)}")
    return troubles


def _raised(cause: Exception) -> Status:
    return error(_named(cause))


def _named(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}"
