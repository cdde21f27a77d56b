"""Decides whether an event is worth another attempt at a rejected pod. No other module calls plugins' hints."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from flotilla.events import Hint, OfUsers, Resource
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.gang_events import GangEvents
from services.queue.scheduling.gang_plugins import GANG_PLUGINS
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.cluster.objects import ClusterObjects
from shared.errors import FlotillaError, UserError
from shared.framework.clusterevents import EVERYTHING, ClusterEvent
from shared.framework.profile import Framework

MAX_CALLS = 1 << 14


class PluginHints(NamedTuple):
    """Of one plugin for one event. Without hints the event always helps."""

    hints: tuple[Hint, ...]
    of_users: tuple[OfUsers, ...]
    """Empty if a hint is called for all pods."""


HintsOfPlugins = Mapping[str, PluginHints]


class QueueStrategy(IntEnum):
    """What to do with a rejected pod; the greatest of several prevails."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class HintCall(NamedTuple):
    """`answer`: Queue, QueueSkip or Error."""

    plugin: str
    event: str
    answer: str
    seconds: float


class QueueingHints:
    """Asks a plugin once for equivalent pods, and caches its answer until the next event is handled."""

    def __init__(
        self,
        frameworks: Iterable[Framework],
        objects: ClusterObjects,
        problems: deque[FlotillaError],
        gangs: GangEvents,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.objects = objects
        self.gangs = gangs
        self.calls: deque[HintCall] = deque(maxlen=MAX_CALLS)
        """The latest calls, if there is a stopwatch; the reader clears it."""
        self._frameworks = list(frameworks)
        self._problems = problems
        self._stopwatch = stopwatch
        self._registered: dict[tuple[str, ClusterEvent], HintsOfPlugins] = {}
        self._awaited: dict[ClusterEvent, bool] = {}
        self._answers: dict[tuple[ClusterChange, str, bytes, str], bool] = {}

    def clear_cache(self) -> None:
        """Called when the cluster may have changed."""
        if self._answers:
            self._answers = {}
        self.gangs.clear_cache()

    def is_awaited(self, change: ClusterChange) -> bool:
        """Whether any plugin of any profile waits for such events, or a gang may wait for this one."""
        event = change.event
        known = self._awaited.get(event)
        if known is None:
            always = event == EVERYTHING or event.resource is Resource.POD_GROUP
            known = always or any(self._hints(framework, event) for framework in self._frameworks)
            self._awaited[event] = known
        return known or self.gangs.may_help(change)

    def may_help(self, framework: Framework, plugin: str, event: ClusterEvent) -> bool:
        """Whether such events may move a pod that the plugin rejected. Without registrations, every event may."""
        is_unknown = plugin not in framework.registrations and plugin not in GANG_PLUGINS
        return is_unknown or plugin in self._hints(framework, event)

    def may_help_pod(self, info: QueuedPodInfo, event: ClusterEvent) -> bool:
        """Whether such events may help a plugin that rejected the pod. Its gang is another matter (`gangs`)."""
        plugins = hinting_plugins(info)
        return event == EVERYTHING or any(self.may_help(info.framework, plugin, event) for plugin in plugins)

    def helps_others(self, info: QueuedPodInfo, change: ClusterChange) -> bool:
        """Whether the change of a claim may help the pod, which does not use the claim."""
        return any(
            self.may_help(info.framework, plugin, change.event)
            and not self.helps_users_only(info.framework, plugin, change)
            for plugin in hinting_plugins(info)
        )

    def helps_users_only(self, framework: Framework, plugin: str, change: ClusterChange) -> bool:
        """Whether the change of a claim may move only those pods of the plugin that use the claim."""
        registered = self._hints(framework, change.event).get(plugin)
        if registered is None or not registered.of_users:
            return False
        try:
            return all(of_users(change.before, change.now) for of_users in registered.of_users)
        except Exception:
            return False  # the hints are called for all pods: one that raises as well is reported with its pod

    def strategy(self, info: QueuedPodInfo, change: ClusterChange) -> QueueStrategy:
        if not info.unschedulable_plugins and not info.pending_plugins:
            return QueueStrategy.AFTER_BACKOFF
        if change.event == EVERYTHING:
            return QueueStrategy.AFTER_BACKOFF if change.only_uid in ("", info.uid) else QueueStrategy.SKIP
        for plugin in info.pending_plugins:
            if self._helps(plugin, info, change):
                return QueueStrategy.IMMEDIATELY
        for plugin in hinting_plugins(info):
            if self._helps(plugin, info, change):
                return QueueStrategy.AFTER_BACKOFF
        return QueueStrategy.SKIP

    def _hints(self, framework: Framework, event: ClusterEvent) -> HintsOfPlugins:
        key = (framework.name, event)
        known = self._registered.get(key)
        if known is None:
            known = self._registered[key] = _registered(framework, event)
        return known

    def _helps(self, plugin: str, info: QueuedPodInfo, change: ClusterChange) -> bool:
        if plugin in GANG_PLUGINS:
            return self.gangs.helps(info, change)
        registered = self._hints(info.framework, change.event).get(plugin)
        if registered is None:
            return plugin not in info.framework.registrations
        hints = registered.hints
        if not hints or (change.before is None and change.now is None):
            return True
        if change.changed_uid == info.uid:
            return self._call(plugin, hints, info, change)
        key = (change, info.framework.name, info.equivalence, plugin)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._call(plugin, hints, info, change)
        return answer

    def _call(self, plugin: str, hints: tuple[Hint, ...], info: QueuedPodInfo, change: ClusterChange) -> bool:
        """A hint that raises counts as Queue, as in kube-scheduler."""
        began = self._stopwatch() if self._stopwatch else 0.0
        try:
            helps = any(hint(info.pod, change.before, change.now, self.objects) for hint in hints)
            answer = "Queue" if helps else "QueueSkip"
        except Exception as cause:
            self._problems.append(_hint_raised(plugin, info, change, cause))
            helps, answer = True, "Error"
        if self._stopwatch:
            self.calls.append(HintCall(plugin, change.label, answer, self._stopwatch() - began))
        return helps


def hinting_plugins(info: QueuedPodInfo) -> tuple[str, ...]:
    """The plugins of which one must be helped: those that rejected the pod.

    Of a gang that nothing else is known of, every plugin of the profile may keep members from nodes.
    """
    rejecting = info.rejecting_plugins
    if not rejecting or not GANG_PLUGINS.issuperset(rejecting):
        return rejecting
    return (*rejecting, *(plugin for plugin in info.framework.registrations if plugin not in rejecting))


def _registered(framework: Framework, event: ClusterEvent) -> HintsOfPlugins:
    found: dict[str, PluginHints] = {}
    for plugin, registrations in framework.registrations.items():
        matching = [registration for registration in registrations if event.matches(registration)]
        if matching:
            hints = tuple(each.hint for each in matching if each.hint is not None)
            of_users = tuple(each.of_users for each in matching if each.of_users is not None)
            complete = len(matching)
            found[plugin] = PluginHints(
                hints if len(hints) == complete else (), of_users if len(of_users) == complete else ()
            )
    return found


def _hint_raised(plugin: str, info: QueuedPodInfo, change: ClusterChange, cause: Exception) -> FlotillaError:
    problem = UserError(
        f"Pod {info.pod.key}: queueing hint of {plugin} raised on {change.label}: {type(cause).__name__}: {cause}"
    )
    problem.__cause__ = cause
    return problem
