"""From the lists of a profile to what runs at each point, in which order and with which weight."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from shared.config.points import (
    EVERY_PLUGIN,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
    POINTS_IN_ORDER,
    ExtensionPoint,
    PluginRef,
)
from shared.config.problems import Fault, Problem
from shared.config.schema import MULTI_POINT, Listed, Tree

MAX_NODE_SCORE: Final = 100
MAX_TOTAL_SCORE: Final = 2**63 - 1
SCORING: Final = (ExtensionPoint.SCORE, PLACEMENT_SCORE)

PointsOf = Callable[[str], Collection[str] | None]
"""The points that a plugin implements, or None if there is no such plugin."""


class Expansion:
    """What runs where in one profile; `problems` has everything for which it cannot run."""

    def __init__(self, plugins: Tree, points_of: PointsOf, path: str) -> None:
        self.problems: list[Problem] = []
        self._plugins, self._path = plugins, path
        self._points = {plugin["name"]: points_of(plugin["name"]) for plugin in self._enabled()}
        self._find_unknown()
        names = {point: self._at(point) for point in POINTS_IN_ORDER}
        if not self.problems:
            self._count(names)
        weights = {point: self._weights(point) for point in SCORING}
        self.running: Mapping[str, tuple[PluginRef, ...]] = {
            point: tuple(PluginRef(name, weights.get(point, {}).get(name, 0)) for name in names[point])
            for point in POINTS_IN_ORDER
        }

    def _enabled(self) -> Iterator[Listed]:
        for point in (*POINTS_IN_ORDER, MULTI_POINT):
            yield from self._plugins[point]["enabled"] or ()

    def _find_unknown(self) -> None:
        for plugin in self._enabled():
            name = plugin["name"]
            if self._points[name] is None:
                hint = "; only disabled takes *" if name == EVERY_PLUGIN else ""
                self._refuse(plugin.path, name, f"there is no plugin {name!r}{hint}")

    def _at(self, point: str) -> tuple[str, ...]:
        """Those that the point overrides in its order, then the rest of multiPoint, then those of the point only."""
        specific = self._specific(point)
        disabled = {plugin["name"] for plugin in self._plugins[point]["disabled"] or ()}
        if EVERY_PLUGIN in disabled:
            return tuple(specific)
        overriding: set[str] = set()
        expanded: dict[str, None] = {}
        for plugin in self._plugins[MULTI_POINT]["enabled"] or ():
            name = plugin["name"]
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
        for plugin in self._plugins[point]["enabled"] or ():
            name = plugin["name"]
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
        sorts, binds = names[ExtensionPoint.QUEUE_SORT], names[ExtensionPoint.BIND]
        generators = names[PLACEMENT_GENERATE]
        if len(sorts) != 1:
            found = " and ".join(sorts) or "none"
            self._refuse(
                self._at_point("queueSort"), list(sorts), f"exactly one plugin must sort the queue, not {found}"
            )
        if not binds:
            self._refuse(
                self._at_point(ExtensionPoint.BIND), [], "at least one plugin must bind, such as DefaultBinder"
            )
        if len(generators) > 1:
            found = " and ".join(generators)
            self._refuse(self._at_point(PLACEMENT_GENERATE), list(generators), f"at most one plugin, not {found}")

    def _weights(self, point: str) -> dict[str, int]:
        """What the point says, else multiPoint, and 1 for nought; a problem where kube-scheduler sees an overflow."""
        weights: dict[str, int] = {}
        total = 0
        for plugin in (*(self._plugins[point]["enabled"] or ()), *(self._plugins[MULTI_POINT]["enabled"] or ())):
            name = plugin["name"]
            if name in weights or not self._implements(name, point):
                continue
            weights[name] = plugin["weight"] or 1
            most = weights[name] * MAX_NODE_SCORE
            # What is left is counted in 64 bits: above a negative sum it wraps around, and nothing fits any more.
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
        problem = Problem(path, Fault.INVALID, value, reason)
        if problem not in self.problems:
            self.problems.append(problem)


def _int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
