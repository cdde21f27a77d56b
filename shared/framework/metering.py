"""Counts how often plugins judge classes of pods, and times some of their runs, for metrics.

Plugins judge many nodes at once, so one run is the answer for all nodes of the shards that changed. Every TIMED_EVERYth
evaluation is timed, and every TIMED_EVERYth pod or class at points that look at no nodes, as kube-scheduler times a
tenth of its cycles.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

TIMED_EVERY = 10
MAX_TIMINGS = 1 << 10
"""Timings that wait to be read; the oldest are dropped first."""
PRE_ENQUEUE, PRE_FILTER, FILTER, PRE_SCORE, SCORE = "PreEnqueue", "PreFilter", "Filter", "PreScore", "Score"
RESERVE, UNRESERVE, PERMIT, POST_BIND = "Reserve", "Unreserve", "Permit", "PostBind"
SUCCESS = "Success"


class Timing(NamedTuple):
    plugin: str
    point: str
    seconds: float
    status: str = SUCCESS


class PluginMeter:
    """Of one profile. Without a stopwatch nothing is timed."""

    def __init__(self, stopwatch: Callable[[], float] | None = None) -> None:
        self.timings: deque[Timing] = deque(maxlen=MAX_TIMINGS)
        self._stopwatch = stopwatch
        self._timing = False
        self._begun = 0
        self._pods: dict[str, int] = {}
        self._runs: Counter[tuple[str, tuple[str, ...]]] = Counter()
        """By extension point, and the plugins that run there for a class."""

    def begin(self) -> None:
        """Another evaluation begins."""
        self._timing = self._stopwatch is not None and self._begun % TIMED_EVERY == 0
        self._begun += 1

    def of_pod(self, point: str) -> Self | None:
        """Another pod, or class of pods, comes to this point and those after it; None unless its plugins are timed."""
        before = self._pods.get(point, 0)
        self._pods[point] = before + 1
        self._timing = not before % TIMED_EVERY and self._stopwatch is not None
        return self if self._timing else None

    def ran(self, point: str, plugins: tuple[str, ...]) -> None:
        """These plugins have judged, or prepared, one class."""
        self._runs[point, plugins] += 1

    def evaluations(self) -> Counter[tuple[str, str]]:
        """How often each plugin ran for a class, by plugin and point."""
        found: Counter[tuple[str, str]] = Counter()
        for (point, plugins), count in self._runs.items():
            for plugin in plugins:
                found[plugin, point] += count
        return found

    def start(self) -> float:
        """The time, if this evaluation is timed."""
        return self._stopwatch() if self._timing and self._stopwatch is not None else 0.0

    def stop(self, plugin: str, point: str, began: float, status: str = SUCCESS) -> None:
        """The plugin has run since `began`. Those without a name are the engine's own."""
        if self._timing and plugin and self._stopwatch is not None:
            self.timings.append(Timing(plugin, point, self._stopwatch() - began, status))


def names(plugins: Iterable[str], run: Iterable[bool]) -> tuple[str, ...]:
    """The named plugins that run; those without a name are the engine's own."""
    return tuple(plugin for plugin, runs in zip(plugins, run, strict=True) if runs and plugin)
