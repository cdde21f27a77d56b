"""From the lists of a profile to what runs at each point: merging with the defaults and expanding multiPoint."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shared.config.points import ExtensionPoint, PluginRef
from shared.errors import InvalidConfig

MAX_NODE_SCORE: Final = 100
MAX_TOTAL_SCORE: Final = 2**63 - 1
EVERY_PLUGIN: Final = "*"

PLACEMENT_GENERATE: Final = "placementGenerate"
PLACEMENT_SCORE: Final = "placementScore"

POINTS_IN_ORDER: Final[tuple[str, ...]] = (
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.POST_FILTER,
    ExtensionPoint.RESERVE,
    ExtensionPoint.PRE_SCORE,
    ExtensionPoint.SCORE,
    ExtensionPoint.PRE_BIND,
    ExtensionPoint.BIND,
    ExtensionPoint.POST_BIND,
    ExtensionPoint.PERMIT,
    ExtensionPoint.PRE_ENQUEUE,
    ExtensionPoint.QUEUE_SORT,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
)
"""The order in which kube-scheduler fills the points, and so the order in which their faults are found."""

PointsOf = Callable[[str], Collection[str] | None]
"""The points that a plugin implements, or None if there is no such plugin."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An enabled plugin, and where in the file it is enabled."""

    ref: PluginRef
    path: str


@dataclass(frozen=True, slots=True)
class PluginLists:
    """What a file enables and disables at one point, or at multiPoint; both in the order of the file."""

    enabled: tuple[Entry, ...] = ()
    disabled: tuple[str, ...] = ()


def merge(defaults: Sequence[PluginRef], custom: PluginLists, path: str) -> tuple[Entry, ...]:
    """The plugins enabled at multiPoint once the file has had its say over the defaults.

    A default that the file enables too is replaced where it stands; the other plugins of the file follow the
    defaults. What the file both disables and enables is no default any more, and hence follows.
    """
    by_name = {entry.ref.name: entry for entry in custom.enabled}
    kept = [
        by_name.get(ref.name, Entry(ref, path))
        for ref in defaults
        if EVERY_PLUGIN not in custom.disabled and ref.name not in custom.disabled
    ]
    return (*kept, *(entry for entry in custom.enabled if entry not in kept))


def expand(
    multi_point: Sequence[Entry], at_points: Mapping[str, PluginLists], points_of: PointsOf
) -> dict[str, tuple[str, ...]]:
    """The names of the plugins that run at each point, in their order.

    Raises InvalidConfig, with the path of the entry, for a plugin that does not exist, one that is enabled at a point
    it does not implement, and one that is enabled twice.
    """
    for point in POINTS_IN_ORDER:
        _check_point(point, at_points[point].enabled, points_of)
    return {point: _expand_at(point, multi_point, at_points[point], points_of) for point in POINTS_IN_ORDER}


def effective_weights(
    point: str, at_point: Iterable[Entry], multi_point: Iterable[Entry], points_of: PointsOf, path: str
) -> dict[str, int]:
    """The weight of each plugin that scores at the point: what the point says, else multiPoint, and 1 for nought.

    Raises InvalidConfig, with the given path, where kube-scheduler sees the sum of all scores overflow.
    """
    weights: dict[str, int] = {}
    total = 0
    for entry in (*at_point, *multi_point):
        name = entry.ref.name
        if point not in _points(entry, points_of) or name in weights:
            continue
        weights[name] = entry.ref.weight or 1
        most = weights[name] * MAX_NODE_SCORE
        # What is left is counted in 64 bits: above a negative sum it wraps around, and nothing fits any more.
        if most > _int64(MAX_TOTAL_SCORE - total):
            raise InvalidConfig(path, "the weights are such that the sum of all scores could overflow")
        total += most
    return weights


def _check_point(point: str, enabled: Iterable[Entry], points_of: PointsOf) -> None:
    seen: set[str] = set()
    for entry in enabled:
        name = entry.ref.name
        if point not in _points(entry, points_of):
            raise InvalidConfig(entry.path, f"plugin {name!r} does not implement {point}")
        if name in seen:
            raise InvalidConfig(entry.path, f"plugin {name!r} is enabled twice at {point}")
        seen.add(name)


def _expand_at(point: str, multi_point: Iterable[Entry], lists: PluginLists, points_of: PointsOf) -> tuple[str, ...]:
    specific = [entry.ref.name for entry in lists.enabled]
    if EVERY_PLUGIN in lists.disabled:
        return tuple(specific)
    overriding: set[str] = set()
    expanded: dict[str, None] = {}
    for entry in _implementing(point, multi_point, points_of):
        name = entry.ref.name
        if name in lists.disabled:
            continue
        if name in specific:
            overriding.add(name)
            continue
        if name in expanded:
            raise InvalidConfig(entry.path, f"plugin {name!r} is enabled twice at {point}")
        expanded[name] = None
    return (
        *(name for name in specific if name in overriding),
        *expanded,
        *(name for name in specific if name not in overriding),
    )


def _implementing(point: str, entries: Iterable[Entry], points_of: PointsOf) -> Iterator[Entry]:
    return (entry for entry in entries if point in _points(entry, points_of))


def _points(entry: Entry, points_of: PointsOf) -> Collection[str]:
    points = points_of(entry.ref.name)
    if points is None:
        raise InvalidConfig(entry.path, f"there is no plugin {entry.ref.name!r}")
    return points


def _int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
