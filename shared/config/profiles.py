"""The profiles of a KubeSchedulerConfiguration, resolved to what really runs at each extension point."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from shared.config.args import DEFAULT_ARGS, args_problems, decode_args, finished_args
from shared.config.decoding import Int32, child, decode, normalized
from shared.config.defaults import (
    DEFAULT_PERCENTAGE_OF_NODES_TO_SCORE,
    DEFAULT_PLUGINS,
    DEFAULT_POINTS,
    DEFAULT_SCHEDULER_NAME,
    PLACEMENT_POINTS,
    REMOVED_PLUGINS,
)
from shared.config.expansion import (
    PLACEMENT_SCORE,
    POINTS_IN_ORDER,
    Entry,
    PluginLists,
    PointsOf,
    effective_weights,
    expand,
    merge,
)
from shared.config.points import ExtensionPoint, PluginRef
from shared.errors import InvalidConfig

__all__ = ["PluginRef", "ProfileConfig", "SchedulerConfig", "load_config"]

_MULTI_POINT: Final = "multiPoint"
_MAX_PERCENTAGE: Final = 100
_ARGS: Final = frozenset({"args"})


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """One profile, resolved.

    `plugins` has every point, with the plugins that run there in their order; at the score point each has the weight
    in force, at other points 0. `percentage_of_nodes_to_score` is None where the scheduler's own holds. `args` has
    the arguments of every plugin that has some, given or by default.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    plugins: Mapping[ExtensionPoint, tuple[PluginRef, ...]]
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The whole configuration, as far as profiles go. A percentage of 0 leaves the choice to the cluster's size."""

    profiles: tuple[ProfileConfig, ...]
    percentage_of_nodes_to_score: int | None


def load_config(
    obj: object | None, points_of: Callable[[str], Collection[ExtensionPoint]] | None = None
) -> SchedulerConfig:
    """What a KubeSchedulerConfiguration, given as plain dicts, makes of kube-scheduler v1.36; None: all defaults.

    `points_of` gives the points of plugins that are not in-tree, and nothing or a LookupError for names it does not
    know. Raises InvalidConfig with the path of the fault that kube-scheduler finds first.
    """
    top = _decode_top({} if obj is None else obj)
    profiles = [_decode_profile(raw, f"profiles[{i}]") for i, raw in enumerate(top.profiles or [{}])]
    if len(profiles) == 1 and profiles[0].name is None:
        profiles[0].name = DEFAULT_SCHEDULER_NAME
    for problem in _problems(top, profiles):
        raise problem
    return SchedulerConfig(
        tuple(_build(profiles, _lookup(points_of))),
        DEFAULT_PERCENTAGE_OF_NODES_TO_SCORE
        if top.percentage_of_nodes_to_score is None
        else top.percentage_of_nodes_to_score,
    )


class _Top(msgspec.Struct, rename="camel"):
    profiles: list[dict[str, Any]] = []
    percentage_of_nodes_to_score: Int32 | None = None


class _RawArgs(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    args: Any = None


class _RawProfile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: dict[str, Any] = {}
    plugin_config: list[_RawArgs] = []


class _RawPlugin(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    weight: Int32 = 0


class _RawPluginSet(msgspec.Struct, forbid_unknown_fields=True):
    enabled: list[_RawPlugin] = []
    disabled: list[_RawPlugin] = []


@dataclass(slots=True)
class _Args:
    name: str
    raw: Any
    value: object
    path: str


@dataclass(slots=True)
class _Profile:
    path: str
    name: str | None
    percentage: int | None
    multi_point: tuple[Entry, ...]
    at_points: Mapping[str, PluginLists]
    args: list[_Args] = field(default_factory=list)

    @property
    def queue_sort(self) -> PluginLists:
        return self.at_points[ExtensionPoint.QUEUE_SORT]

    def raw_args(self, plugin: str) -> Any:
        return next((entry.raw for entry in self.args if entry.name == plugin), None)


def _decode_top(obj: object) -> _Top:
    if not isinstance(obj, dict):
        raise InvalidConfig("", f"the configuration must be a map, got {type(obj).__name__}")
    fields = {key: obj[key] for key in ("profiles", "percentageOfNodesToScore") if key in obj}
    return decode(normalized(fields, "", _ARGS), _Top, "")


def _decode_profile(raw: dict[str, Any], path: str) -> _Profile:
    profile = decode(raw, _RawProfile, path)
    lists: dict[str, PluginLists] = {point: PluginLists() for point in (_MULTI_POINT, *POINTS_IN_ORDER)}
    for key, plugin_set in profile.plugins.items():
        at = f"{path}.plugins.{key}"
        if key not in lists:
            raise InvalidConfig(at, "unknown field")
        lists[key] = _decode_plugin_set(plugin_set, at)
    args = []
    for i, entry in enumerate(profile.plugin_config):
        at = f"{path}.pluginConfig[{i}].args"
        args.append(_Args(entry.name, entry.args, decode_args(entry.name, entry.args, at), at))
    multi_point = merge(DEFAULT_PLUGINS, lists.pop(_MULTI_POINT), f"{path}.plugins.{_MULTI_POINT}")
    return _Profile(path, profile.scheduler_name, profile.percentage_of_nodes_to_score, multi_point, lists, args)


def _decode_plugin_set(raw: object, path: str) -> PluginLists:
    plugins = decode(raw, _RawPluginSet, path)
    return PluginLists(
        tuple(Entry(PluginRef(p.name, p.weight), f"{path}.enabled[{i}]") for i, p in enumerate(plugins.enabled)),
        tuple(p.name for p in plugins.disabled),
    )


def _problems(top: _Top, profiles: Sequence[_Profile]) -> Iterator[InvalidConfig]:
    """What is wrong in the file as such, before any plugin is looked for; in kube-scheduler's order."""
    first_by_name: dict[str, _Profile] = {}
    for profile in profiles:
        name = profile.name or ""
        if not name:
            yield InvalidConfig(f"{profile.path}.schedulerName", "is needed")
        yield from _percentage_problems(profile.percentage, profile.path)
        yield from _plugin_problems(profile)
        yield from _plugin_config_problems(profile)
        if name in first_by_name:
            reason = f"{name!r} is the name of {first_by_name[name].path} already"
            yield InvalidConfig(f"{profile.path}.schedulerName", reason)
        first_by_name[name] = profile
    yield from _queue_sort_problems(profiles)
    yield from _percentage_problems(top.percentage_of_nodes_to_score, "")


def _percentage_problems(percentage: int | None, path: str) -> Iterator[InvalidConfig]:
    if percentage is not None and not 0 <= percentage <= _MAX_PERCENTAGE:
        reason = f"must be 0 to {_MAX_PERCENTAGE}, got {percentage}"
        yield InvalidConfig(child(path, "percentageOfNodesToScore"), reason)


def _plugin_problems(profile: _Profile) -> Iterator[InvalidConfig]:
    for point in ExtensionPoint:
        for entry in profile.at_points[point].enabled:
            if entry.ref.name in REMOVED_PLUGINS:
                yield InvalidConfig(entry.path, f"plugin {entry.ref.name!r} was removed before v1")


def _plugin_config_problems(profile: _Profile) -> Iterator[InvalidConfig]:
    seen: set[str] = set()
    for entry in profile.args:
        at = entry.path.removesuffix(".args")
        if entry.name in seen:
            yield InvalidConfig(at, f"plugin {entry.name!r} is configured twice")
        seen.add(entry.name)
        if entry.name in REMOVED_PLUGINS:
            yield InvalidConfig(at, f"plugin {entry.name!r} was removed before v1")
        elif entry.name == "NodeResourcesFitArgs":
            # kube-scheduler looks for these arguments under this name by mistake, and then finds them ill-typed.
            yield InvalidConfig(entry.path, "the plugin is called NodeResourcesFit")
        elif entry.name != "NodeResourcesFit":
            yield from args_problems(entry.value, entry.path)


def _queue_sort_problems(profiles: Sequence[_Profile]) -> Iterator[InvalidConfig]:
    first = profiles[0]
    enabled = [entry.ref for entry in first.queue_sort.enabled]
    plugin = enabled[0].name if enabled else ""
    if len(enabled) > 1:
        # The capital letter is kube-scheduler's.
        yield InvalidConfig(f"{first.path}.plugins.queueSort.Enabled", "only one queue sort plugin can be enabled")
    args = first.raw_args(plugin) if plugin else None
    for profile in profiles[1:]:
        same = [entry.ref for entry in profile.queue_sort.enabled] == enabled
        if not (same and profile.queue_sort.disabled == first.queue_sort.disabled):
            yield InvalidConfig(f"{profile.path}.plugins.queueSort", "must be the same in all profiles")
        if any(entry.name == plugin and entry.raw != args for entry in profile.args):
            reason = "the arguments of the queue sort plugin must be the same in all profiles"
            yield InvalidConfig(f"{profile.path}.pluginConfig.args", reason)


def _lookup(points_of: Callable[[str], Collection[ExtensionPoint]] | None) -> PointsOf:
    def points(name: str) -> Collection[str] | None:
        if name in DEFAULT_POINTS:
            return DEFAULT_POINTS[name] | PLACEMENT_POINTS.get(name, frozenset())
        if points_of is None:
            return None
        try:
            return points_of(name) or None
        except LookupError:
            return None

    return points


def _build(profiles: Sequence[_Profile], points_of: PointsOf) -> Iterator[ProfileConfig]:
    queue_sort: tuple[str, Any] | None = None
    for profile in profiles:
        config = _resolve(profile, points_of)
        name = config.plugins[ExtensionPoint.QUEUE_SORT][0].name
        args = profile.raw_args(name)
        if queue_sort is None:
            queue_sort = (name, args)
        elif queue_sort[0] != name:
            reason = f"sorts by {name!r} where {profiles[0].path} sorts by {queue_sort[0]!r}"
            raise InvalidConfig(f"{profile.path}.plugins.queueSort", reason)
        elif queue_sort[1] != args:
            reason = f"the arguments of {name!r} differ from those in {profiles[0].path}"
            raise InvalidConfig(f"{profile.path}.pluginConfig", reason)
        yield config


def _resolve(profile: _Profile, points_of: PointsOf) -> ProfileConfig:
    multi_point, at_points, path = profile.multi_point, profile.at_points, f"{profile.path}.plugins"
    needed = {entry.ref.name for lists in at_points.values() for entry in lists.enabled}
    needed |= {entry.ref.name for entry in multi_point}
    for entry in profile.args:
        if entry.name == "NodeResourcesFit" and entry.name in needed:
            for problem in args_problems(entry.value, entry.path):
                raise problem

    running = expand(multi_point, at_points, points_of)
    queue_sorts = running[ExtensionPoint.QUEUE_SORT]
    if len(queue_sorts) != 1:
        reason = f"exactly one queue sort plugin is needed, not {len(queue_sorts)}"
        raise InvalidConfig(f"{path}.{ExtensionPoint.QUEUE_SORT}", reason)
    if not running[ExtensionPoint.BIND]:
        raise InvalidConfig(f"{path}.{ExtensionPoint.BIND}", "at least one bind plugin is needed")
    weights, _ = (
        effective_weights(point, at_points[point].enabled, multi_point, points_of, f"{path}.{point}")
        for point in (ExtensionPoint.SCORE, PLACEMENT_SCORE)
    )
    plugins = {
        point: tuple(PluginRef(name, weights[name] if point is ExtensionPoint.SCORE else 0) for name in running[point])
        for point in ExtensionPoint
    }
    args = dict(DEFAULT_ARGS)
    for entry in profile.args:
        if entry.value is not None:
            args[entry.name] = finished_args(entry.value, entry.path)
    return ProfileConfig(profile.name or "", profile.percentage, plugins, args)
