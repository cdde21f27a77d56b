"""Know kube-scheduler v1.36's plugins and default list, and expand a profile's lists to what runs at each point."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shared.config.points import (
    EVERY_PLUGIN,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
    POINTS_IN_ORDER,
    ExtensionPoint,
    PluginRef,
)
from shared.config.problems import Problem, wrong
from shared.config.spelling import did_you_mean
from shared.config.structs import Plugin, Plugins, PluginSet

MAX_NODE_SCORE: Final = 100
MAX_TOTAL_SCORE: Final = 2**63 - 1
SCORING: Final = (ExtensionPoint.SCORE, PLACEMENT_SCORE)

PointsOf = Callable[[str], Collection[str] | None]
"""The points that a plugin implements, or None if it does not exist."""

DEFAULT_PLUGINS: Final[tuple[PluginRef, ...]] = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeUnschedulable"),
    PluginRef("NodeName"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("DynamicResources", 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
)
"""The multiPoint list of a profile without plugins, in order, with feature gates at their defaults."""


def _points(**of_plugin: str) -> Mapping[str, frozenset[ExtensionPoint]]:
    points = {plugin: frozenset(map(ExtensionPoint, names.split())) for plugin, names in of_plugin.items()}
    return MappingProxyType(points)


DEFAULT_POINTS: Final = _points(
    DefaultBinder="bind",
    DefaultPreemption="preEnqueue postFilter",
    DynamicResources="preEnqueue preFilter filter postFilter score reserve preBind",
    GangScheduling="preEnqueue permit",
    ImageLocality="score",
    InterPodAffinity="preFilter filter preScore score",
    NodeAffinity="preFilter filter preScore score",
    NodeDeclaredFeatures="preFilter filter",
    NodeName="filter",
    NodePreferAvoidPods="score",
    NodePorts="preFilter filter",
    NodeResourcesBalancedAllocation="preScore score",
    NodeResourcesFit="preFilter filter preScore score",
    NodeUnschedulable="filter",
    NodeVolumeLimits="preFilter filter",
    PodGroupPodsCount="",
    PodTopologySpread="preFilter filter preScore score",
    PrioritySort="queueSort",
    SchedulingGates="preEnqueue",
    TaintToleration="filter preScore score",
    TopologyPlacementGenerator="",
    VolumeBinding="preFilter filter preScore score reserve preBind",
    VolumeRestrictions="preFilter filter",
    VolumeZone="preFilter filter",
)
"""The points that each in-tree plugin implements. NodePreferAvoidPods is from earlier versions of kube-scheduler."""

PLACEMENT_POINTS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "NodeResourcesFit": frozenset({PLACEMENT_SCORE}),
        "PodGroupPodsCount": frozenset({PLACEMENT_SCORE}),
        "TopologyPlacementGenerator": frozenset({PLACEMENT_GENERATE}),
    }
)
"""The points of group scheduling: a file may name them, nothing runs at them while their feature gates are off."""

REMOVED_PLUGINS: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins of earlier versions that kube-scheduler refuses in a v1 configuration."""

OLDER_PLUGINS: Final = _points(
    AzureDiskLimits="filter",
    CinderLimits="filter",
    EBSLimits="filter",
    GCEPDLimits="filter",
    NodePreferAvoidPods="score",
    SelectorSpread="preScore score",
)
"""Plugins of earlier versions that Flotilla still has; none runs unless a file names it."""


def merged_plugins(defaults: Sequence[Plugin], custom: PluginSet) -> PluginSet:
    """Merge a list of the file with the defaults.

    A default that the file enables, too, is replaced where it stands; the file's other plugins follow the defaults.
    What the file both disables and enables is no longer a default, so it follows.
    """
    off = {plugin.name for plugin in custom.disabled}
    last_by_name = {plugin.name: plugin for plugin in custom.enabled}
    kept = [
        last_by_name.get(plugin.name, plugin)
        for plugin in defaults
        if EVERY_PLUGIN not in off and plugin.name not in off
    ]
    placed = {id(plugin) for plugin in kept}
    added = (plugin for plugin in custom.enabled if id(plugin) not in placed)
    return PluginSet((*kept, *added), tuple(Plugin(plugin.name, 0, plugin.path) for plugin in custom.disabled))


class Expansion:
    """Expand the lists of one profile. `running` is what runs at each point, `problems` why it cannot."""

    def __init__(self, plugins: Plugins, points_of: PointsOf, path: str, names: Collection[str]) -> None:
        """`names`: of all plugins that exist, to say which one was meant."""
        self.problems: list[Problem] = []
        self._plugins, self._path, self._names = plugins, path, names
        self._points = {plugin.name: points_of(plugin.name) for plugin in plugins.enabled()}
        self._find_unknown()
        names = {point: self._at(point) for point in POINTS_IN_ORDER}
        if not self.problems:
            self._count(names)
        weights = {point: self._weights(point) for point in SCORING}
        self.running: Mapping[str, tuple[PluginRef, ...]] = {
            point: tuple(PluginRef(name, weights.get(point, {}).get(name, 0)) for name in names[point])
            for point in POINTS_IN_ORDER
        }

    def _find_unknown(self) -> None:
        for plugin in self._plugins.enabled():
            if self._points[plugin.name] is None:
                is_every = plugin.name == EVERY_PLUGIN
                hint = "; only disabled takes *" if is_every else did_you_mean(plugin.name, self._names)
                self._refuse(plugin.path, plugin.name, f"there is no plugin {plugin.name!r}{hint}")

    def _at(self, point: str) -> tuple[str, ...]:
        """Those that the point overrides in its order, then the rest of multiPoint, then those of the point only."""
        specific = self._specific(point)
        disabled = {plugin.name for plugin in self._plugins.at(point).disabled}
        if EVERY_PLUGIN in disabled:
            return tuple(specific)
        overriding: set[str] = set()
        expanded: dict[str, None] = {}
        for plugin in self._plugins.multi_point.enabled:
            name = plugin.name
            if not self._implements(name, point) or name in disabled:
                continue
            if name in specific:
                overriding.add(name)
            elif name in expanded:
                self._refuse(plugin.path, name, f"plugin {name!r} is enabled twice")
            else:
                expanded[name] = None
        return (
            *(name for name in specific if name in overriding),
            *expanded,
            *(name for name in specific if name not in overriding),
        )

    def _specific(self, point: str) -> list[str]:
        names: list[str] = []
        for plugin in self._plugins.at(point).enabled:
            name = plugin.name
            if self._points[name] is None:
                continue
            if not self._implements(name, point):
                points = ", ".join(sorted(self._points[name] or ())) or "none"
                self._refuse(plugin.path, name, f"plugin {name!r} does not run at {point}; its points are: {points}")
            elif name in names:
                self._refuse(plugin.path, name, f"plugin {name!r} is enabled twice at {point}")
            else:
                names.append(name)
        return names

    def _count(self, names: Mapping[str, tuple[str, ...]]) -> None:
        for point, least, most, rule in (
            (ExtensionPoint.QUEUE_SORT, 1, 1, "exactly one plugin must sort the queue"),
            (ExtensionPoint.BIND, 1, None, "at least one plugin must bind, such as DefaultBinder"),
            (PLACEMENT_GENERATE, 0, 1, "at most one plugin"),
        ):
            found = names[point]
            if len(found) < least or (most is not None and len(found) > most):
                shown = f", not {' and '.join(found) or 'none'}" if most else ""
                self._refuse(self._at_point(point), list(found), f"{rule}{shown}")

    def _weights(self, point: str) -> dict[str, int]:
        """The point's weight, else multiPoint's; 1 for 0. A problem where kube-scheduler sees an overflow."""
        weights: dict[str, int] = {}
        total = 0
        for plugin in (*self._plugins.at(point).enabled, *self._plugins.multi_point.enabled):
            name = plugin.name
            if name in weights or not self._implements(name, point):
                continue
            weights[name] = plugin.weight or 1
            most = weights[name] * MAX_NODE_SCORE
            # Go computes the rest in 64 bits: with a negative sum it wraps around, and nothing fits any more.
            if most > _int64(MAX_TOTAL_SCORE - total):
                reason = "the weights are such that the sum of all scores could overflow; they must be positive"
                self._refuse(self._at_point(point), weights, reason)
                break
            total += most
        return weights

    def _implements(self, name: str, point: str) -> bool:
        return point in (self._points[name] or ())

    def _at_point(self, point: str) -> str:
        return f"{self._path}.plugins.{point}"

    def _refuse(self, path: str, value: object, reason: str) -> None:
        problem = wrong(path, value, reason)
        if problem not in self.problems:
            self.problems.append(problem)


def _int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
