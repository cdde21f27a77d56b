"""From a KubeSchedulerConfiguration to frameworks, with in-tree plugins and those of installed packages.

Packages provide plugin classes by name, under the entry point group `flotilla.plugins`. A package is imported only if a
configuration names a plugin of it.
"""

import inspect
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from msgspec.structs import replace

from flotilla.plugin import (
    API_VERSION,
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from shared.config.building import KnownPlugins, flotilla_plugins
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.config.plugin_lists import DEFAULT_POINTS
from shared.config.points import ExtensionPoint
from shared.config.reading import all_problems, load_config, read_config_text
from shared.config.structs import KubeSchedulerConfig
from shared.errors import UserError
from shared.framework.profile import Framework
from shared.plugins.registry import Factory, in_tree

GROUP = "flotilla.plugins"

POINTS: Mapping[ExtensionPoint, type[Plugin]] = {
    ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
    ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
    ExtensionPoint.PRE_FILTER: PreFilterPlugin,
    ExtensionPoint.FILTER: FilterPlugin,
    ExtensionPoint.POST_FILTER: PostFilterPlugin,
    ExtensionPoint.PRE_SCORE: PreScorePlugin,
    ExtensionPoint.SCORE: ScorePlugin,
    ExtensionPoint.RESERVE: ReservePlugin,
    ExtensionPoint.PERMIT: PermitPlugin,
    ExtensionPoint.PRE_BIND: PreBindPlugin,
    ExtensionPoint.BIND: BindPlugin,
    ExtensionPoint.POST_BIND: PostBindPlugin,
}
"""The base class of each point's plugins."""


def load_scheduler_config(given: object | None, gates: FeatureGates = DEFAULT_GATES) -> KubeSchedulerConfig:
    """As load_config; plugins of installed packages may be named."""
    return load_config(given, Registry({}).known_plugins(), gates)


def load_frameworks(given: object | None, gates: FeatureGates = DEFAULT_GATES) -> dict[str, Framework]:
    """The framework of each profile, by scheduler name. Takes what load_scheduler_config takes or returns."""
    loaded = load_scheduler_config(given, gates)
    registry = Registry(in_tree(loaded.feature_gates))
    frameworks: dict[str, Framework] = {}
    for profile in loaded.profiles:
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            profile = replace(profile, percentage_of_nodes_to_score=loaded.percentage_of_nodes_to_score)
        frameworks[profile.scheduler_name] = Framework(profile, registry)
    return frameworks


def examine(text: bytes, gates: FeatureGates = DEFAULT_GATES) -> tuple[list[str], list[str]]:
    """All that is wrong with a file, its plugins of packages included, and what it names without effect; lines."""
    registry = Registry({})
    refused: dict[str, None] = {}

    def points_of(name: str) -> Collection[ExtensionPoint]:
        try:
            return registry.points_of(name)
        except UserError as cause:
            refused[str(cause)] = None
            return tuple(ExtensionPoint)

    problems, notes = all_problems(text, flotilla_plugins(points_of, registry), gates)
    lines = list(dict.fromkeys(problem.message for problem in problems))
    if not lines and not refused:
        try:
            load_frameworks(read_config_text(text, registry.known_plugins(), gates).config)
        except UserError as cause:
            lines += cause.lines()
    return [*lines, *refused], notes


@lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The plugins of the packages found on this path; looking for them reads a file of every package."""
    return tuple(entry_points(group=GROUP))


class Registry(Mapping[str, Factory]):
    """All plugins by name: those in-tree, and those of installed packages, which never take the name of one in-tree.

    Looking up one of a package imports it; UserError says whose fault it is if that does not work.
    """

    def __init__(self, in_tree: Mapping[str, Factory]) -> None:
        self._in_tree = in_tree
        self._entries: dict[str, list[EntryPoint]] = {}
        for entry in _installed(tuple(sys.path)):
            if entry.name not in DEFAULT_POINTS:
                self._entries.setdefault(entry.name, []).append(entry)
        self._classes: dict[str, type[Plugin]] = {}

    def known_plugins(self) -> KnownPlugins:
        """For reading a configuration: Flotilla's own plugins, and these."""
        return flotilla_plugins(self.points_of, self)

    def points_of(self, name: str) -> Collection[ExtensionPoint]:
        """The points that a package's plugin runs at. LookupError if there is no such plugin."""
        return _points_of(self._class(name))

    def __getitem__(self, name: str) -> Factory:
        if name in self._in_tree:
            return self._in_tree[name]
        self._class(name)
        return lambda args: self._make(name, args)

    def __iter__(self) -> Iterator[str]:
        yield from self._in_tree
        yield from self._entries.keys() - self._in_tree.keys()

    def __len__(self) -> int:
        return len(self._entries.keys() | self._in_tree.keys())

    def _class(self, name: str) -> type[Plugin]:
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = _load(name, self._entries[name])
        return found

    def _make(self, name: str, args: Any) -> Plugin:
        """A plugin that takes arguments gets a map, empty where the configuration gives it none."""
        plugin = self._class(name)
        whose = _whose(self._entries[name][0])
        if args is not None and not isinstance(args, dict):
            raise UserError(f"{whose}: its arguments must be a map, not {type(args).__name__}")
        takes_args = bool(inspect.signature(plugin).parameters)
        if args and not takes_args:
            raise UserError(f"{whose}: it takes no arguments, and was given {', '.join(map(str, args))}")
        try:
            return plugin(args or {}) if takes_args else plugin()  # type: ignore[call-arg]
        except UserError as cause:
            raise UserError(f"{whose}: {cause}") from cause
        except Exception as cause:
            raise UserError(f"{whose}: cannot be made: {_one_line(cause)}") from cause


def _load(name: str, entries: list[EntryPoint]) -> type[Plugin]:
    whose = _whose(entries[0])
    if len({entry.value for entry in entries}) > 1:
        others = ", ".join(_distribution(entry) for entry in entries[1:])
        raise UserError(f"{whose}: another plugin of this name comes with {others}")
    try:
        found = entries[0].load()
    except Exception as cause:
        raise UserError(f"{whose}: {entries[0].value} cannot be imported: {_one_line(cause)}") from cause
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise UserError(f"{whose}: {entries[0].value} is no class that derives from Plugin")
    if getattr(found, "name", None) != name:
        raise UserError(f"{whose}: {entries[0].value} calls itself {getattr(found, 'name', None)!r}")
    if not _points_of(found):
        raise UserError(f"{whose}: {entries[0].value} derives from no extension point")
    major, minor = found.api_version
    if major != API_VERSION[0] or minor > API_VERSION[1]:
        needs, has = f"{major}.{minor}", ".".join(map(str, API_VERSION))
        raise UserError(f"{whose}: {entries[0].value} needs version {needs} of flotilla.plugin, this is {has}")
    missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
    if missing:
        raise UserError(f"{whose}: {entries[0].value} has no {missing}")
    return found


def _points_of(plugin: type[Plugin]) -> list[ExtensionPoint]:
    """By the classes that it derives from."""
    return [point for point, kind in POINTS.items() if issubclass(plugin, kind)]


def _whose(entry: EntryPoint) -> str:
    return f"plugin {entry.name!r} of {_distribution(entry)}"


def _distribution(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _one_line(cause: Exception) -> str:
    return " ".join(f"{type(cause).__name__}: {cause}".split())
