"""The lists of plugins that a Policy comes to."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.config.defaults import DEFAULT_POINTS, OLDER_PLUGINS
from shared.config.points import EVERY_PLUGIN, ExtensionPoint
from shared.config.schema import MULTI_POINT

P = ExtensionPoint
FILTERING: Final = (P.PRE_FILTER, P.FILTER, P.RESERVE, P.PRE_BIND)
"""The points at which a plugin does the work of a predicate."""
SCORING: Final = (P.PRE_SCORE, P.SCORE)
LATER: Final = ("SchedulingGates", "DynamicResources", "NodeDeclaredFeatures")
"""Plugins without which pods of today would be bound that must not be; Policy was gone before they came."""

_LATER_POINTS: Final = (P.PRE_ENQUEUE, P.PRE_FILTER, P.FILTER, P.POST_FILTER, P.RESERVE, P.PRE_BIND)
_ALWAYS: Final[Mapping[str, tuple[ExtensionPoint, ...]]] = {
    "PrioritySort": (P.QUEUE_SORT,),
    "DefaultPreemption": (P.PRE_ENQUEUE, P.POST_FILTER),
    "DefaultBinder": (P.BIND,),
}


class PluginLists:
    """What is enabled at each point, in order; nothing else runs."""

    def __init__(self) -> None:
        self._points: dict[ExtensionPoint, dict[str, int]] = {point: {} for point in P}

    def filter_with(self, plugin: str) -> None:
        """Lets it reject nodes."""
        self._enable(plugin, FILTERING)

    def score_with(self, plugin: str, weight: int) -> int:
        """Lets it score; the weight in force, which is the first that it was given."""
        self._enable(plugin, SCORING)
        scores = self._points[P.SCORE]
        scores[plugin] = scores[plugin] or weight
        return scores[plugin]

    def add_others(self) -> None:
        """What no Policy could name, behind what it named."""
        for name in LATER:
            self._enable(name, _LATER_POINTS)
        for name, points in _ALWAYS.items():
            self._enable(name, points)

    def scores(self, plugin: str) -> bool:
        return plugin in self._points[P.SCORE]

    def filters(self, plugin: str) -> bool:
        return plugin in self._points[P.FILTER]

    def older(self) -> list[str]:
        """Enabled plugins that kube-scheduler v1.36 does not have."""
        names = dict.fromkeys(name for plugins in self._points.values() for name in plugins)
        return [name for name in names if name in OLDER_PLUGINS]

    def plain(self) -> dict[str, Any]:
        """As `plugins` of a profile."""
        lists: dict[str, Any] = {MULTI_POINT: {"disabled": [{"name": EVERY_PLUGIN}]}}
        for point, plugins in self._points.items():
            if plugins:
                lists[point.value] = {"enabled": list(_entries(plugins))}
        return lists

    def _enable(self, plugin: str, points: tuple[ExtensionPoint, ...]) -> None:
        own = OLDER_PLUGINS.get(plugin) or DEFAULT_POINTS[plugin]
        for point in points:
            if point in own:
                self._points[point].setdefault(plugin, 0)


def _entries(plugins: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, weight in plugins.items():
        yield {"name": name, "weight": weight} if weight else {"name": name}
