"""Whether what has happened makes another attempt at a rejected pod worth while: the one place that asks plugins."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from services.queue.happenings import Happening
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.tally import HintTaken, Tally
from shared.cluster.objects import ClusterObjects
from shared.errors import FlotillaError, UserError
from shared.framework.clusterevents import EVERYTHING, ClusterEvent, Hint
from shared.framework.profile import Framework

Listeners = Mapping[str, tuple[Hint, ...]]
"""By plugin, whom to ask; a plugin that has registered without a hint has none, and is always helped."""


class Worth(IntEnum):
    """Of another attempt; the greater one prevails."""

    NOTHING = 0
    AFTER_REST = 1
    AT_ONCE = 2


class Hints:
    """A plugin is asked once about pods that are alike; what it said is known until the next event is handled."""

    def __init__(
        self,
        frameworks: Iterable[Framework],
        objects: ClusterObjects,
        problems: deque[FlotillaError],
        tally: Tally,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """Tells `tally` of every question, if it is timed by a stopwatch."""
        self.objects = objects
        self._frameworks = list(frameworks)
        self._problems = problems
        self._tally = tally
        self._stopwatch = stopwatch
        self._listeners: dict[tuple[str, ClusterEvent], Listeners] = {}
        self._awaited: dict[ClusterEvent, bool] = {}
        self._said: dict[tuple[Happening, str, bytes, str], bool] = {}

    def forget(self) -> None:
        """The cluster may have changed."""
        if self._said:
            self._said = {}

    def awaits(self, event: ClusterEvent) -> bool:
        """Whether any plugin of any profile waits for such events."""
        known = self._awaited.get(event)
        if known is None:
            known = event == EVERYTHING or any(self.listeners(framework, event) for framework in self._frameworks)
            self._awaited[event] = known
        return known

    def listeners(self, framework: Framework, event: ClusterEvent) -> Listeners:
        key = (framework.name, event)
        known = self._listeners.get(key)
        if known is None:
            known = self._listeners[key] = _listeners(framework, event)
        return known

    def hears(self, framework: Framework, plugin: str, event: ClusterEvent) -> bool:
        """Whether such events may move a pod that this plugin keeps out. One that is not known hears of everything."""
        return plugin in self.listeners(framework, event) or plugin not in framework.registrations

    def concerns(self, entry: Entry, event: ClusterEvent) -> bool:
        """Whether there is anything to be asked about this pod."""
        return event == EVERYTHING or any(
            self.hears(entry.framework, p, event) for p in (*entry.plugins, *entry.pending)
        )

    def worth(self, entry: Entry, happening: Happening) -> Worth:
        if not entry.plugins and not entry.pending:
            return Worth.AFTER_REST
        if happening.event == EVERYTHING:
            return Worth.AFTER_REST if happening.only in ("", entry.uid) else Worth.NOTHING
        if any(self._helps(plugin, entry, happening) for plugin in entry.pending):
            return Worth.AT_ONCE
        if any(self._helps(plugin, entry, happening) for plugin in entry.plugins):
            return Worth.AFTER_REST
        return Worth.NOTHING

    def _helps(self, plugin: str, entry: Entry, happening: Happening) -> bool:
        hints = self.listeners(entry.framework, happening.event).get(plugin)
        if hints is None:
            return plugin not in entry.framework.registrations
        if not hints or not happening.is_shown:
            return True
        if happening.about == entry.uid:
            return self._ask(plugin, hints, entry, happening)
        key = (happening, entry.framework.name, entry.likeness, plugin)
        said = self._said.get(key)
        if said is None:
            said = self._said[key] = self._ask(plugin, hints, entry, happening)
        return said

    def _ask(self, plugin: str, hints: tuple[Hint, ...], entry: Entry, happening: Happening) -> bool:
        """A hint that breaks down is no reason to leave a pod where it is."""
        began = self._stopwatch() if self._stopwatch else 0.0
        try:
            helps = any(hint(entry.pod, happening.before, happening.now, self.objects) for hint in hints)
            answer = "Queue" if helps else "QueueSkip"
        except Exception as cause:
            self._problems.append(_broken(plugin, entry, happening, cause))
            helps, answer = True, "Error"
        if self._stopwatch:
            self._tally.hints.append(HintTaken(plugin, happening.label, answer, self._stopwatch() - began))
        return helps


def _listeners(framework: Framework, event: ClusterEvent) -> Listeners:
    found: dict[str, tuple[Hint, ...]] = {}
    for plugin, registrations in framework.registrations.items():
        hints = [registration.hint for registration in registrations if registration.matches(event)]
        if hints:
            asked = [hint for hint in hints if hint is not None]
            found[plugin] = tuple(asked) if len(asked) == len(hints) else ()
    return found


def _broken(plugin: str, entry: Entry, happening: Happening, cause: Exception) -> FlotillaError:
    problem = UserError(
        f"Pod {entry.pod.key}: {plugin} could not tell whether {happening.label} helps: {type(cause).__name__}: {cause}"
    )
    problem.__cause__ = cause
    return problem
