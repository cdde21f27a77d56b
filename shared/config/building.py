"""From a configuration without faults to extenders and profiles: whether what it names is there and fits together."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.config.defaults import DEFAULT_POINTS, OLDER_PLUGINS, PLACEMENT_POINTS, REMOVED_PLUGINS
from shared.config.durations import SECOND, Duration
from shared.config.extendertls import tls_problems
from shared.config.points import POINTS_IN_ORDER, ExtensionPoint, PluginRef
from shared.config.problems import Fault, InvalidConfigFile, Problem, Stage, required, shown
from shared.config.running import Expansion, PointsOf
from shared.config.schema import MULTI_POINT, Tree, TypedArgs
from shared.config.validation.arguments import args_problems
from shared.config.validation.profiles import plain_args

DEFAULT_EXTENDER_TIMEOUT = Duration(5 * SECOND)


@dataclass(frozen=True, slots=True)
class KnownPlugins:
    """Which plugins there are. `removed`: those that a file must not name at a point or give arguments."""

    points_of: PointsOf
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Built:
    """What runs at each of all points, by scheduler name, and the configuration as it is in force."""

    plugins: Mapping[str, Mapping[str, tuple[PluginRef, ...]]] = field(default_factory=dict)
    completed: Tree = field(default_factory=dict)


def kube_scheduler_plugins() -> KnownPlugins:
    """The plugins of kube-scheduler v1.36, and no others."""
    return KnownPlugins(_in_tree, REMOVED_PLUGINS)


def flotilla_plugins(points_of: Callable[[str], Collection[ExtensionPoint]] | None = None) -> KnownPlugins:
    """Those and older ones; and whatever `points_of` knows.

    It gives the points of a plugin, and nothing or a LookupError for names that it does not know.
    """

    def points(name: str) -> Collection[str] | None:
        ours = OLDER_PLUGINS[name] if name in OLDER_PLUGINS else _in_tree(name)
        if ours is not None or points_of is None:
            return ours
        try:
            return points_of(name) or None
        except LookupError:
            return None

    return KnownPlugins(points)


def build(tree: Tree, registry: KnownPlugins) -> Built:
    """Raises InvalidConfigFile with everything for which extenders or profiles cannot be made."""
    completed = copy.deepcopy(tree)
    problems = list(_extender_problems(completed))
    built: dict[str, Mapping[str, tuple[PluginRef, ...]]] = {}
    for i, profile in enumerate(completed["profiles"] or ()):
        path = f"profiles[{i}]"
        if profile["plugins"] is None:
            problems.append(required(f"{path}.plugins", "is needed"))
            continue
        problems += _fit_problems(profile, path)
        expansion = Expansion(profile["plugins"], registry.points_of, path)
        problems += expansion.problems
        built[profile["schedulerName"]] = expansion.running
        profile["pluginConfig"] = _arguments_in_force(profile, registry)
    if not problems:
        problems += _queue_sort_problems(tree["profiles"], built)
    if problems:
        raise InvalidConfigFile(Stage.BUILD, problems)
    return Built(built, completed)


def _in_tree(name: str) -> Collection[str] | None:
    if name not in DEFAULT_POINTS:
        return None
    return DEFAULT_POINTS[name] | PLACEMENT_POINTS.get(name, frozenset())


def _extender_problems(tree: Tree) -> Iterator[Problem]:
    """Completes the extenders on the way: their time-outs, and the resources that they take from NodeResourcesFit."""
    extenders: list[Tree] = tree["extenders"] or []
    for i, extender in enumerate(extenders):
        extender["httpTimeout"] = extender["httpTimeout"] or DEFAULT_EXTENDER_TIMEOUT
        yield from tls_problems(extender, f"extenders[{i}]")
    resources = [r for extender in extenders for r in extender["managedResources"] or ()]
    ignored = [resource["name"] for resource in resources if resource["ignoredByScheduler"]]
    if not ignored:
        return
    for i, profile in enumerate(tree["profiles"] or ()):
        fit = _args_of(profile, "NodeResourcesFit")
        if isinstance(fit, TypedArgs):
            fit.tree["ignoredResources"] = list(ignored)
        else:
            reason = "needs NodeResourcesFit, which is to leave resources of an extender out (ignoredByScheduler)"
            yield Problem(f"profiles[{i}]", Fault.INVALID, ignored, f"{reason}: {', '.join(ignored)}")


def _fit_problems(profile: Tree, path: str) -> Iterator[Problem]:
    if "NodeResourcesFit" not in _enabled(profile):
        return
    for i, entry in enumerate(profile["pluginConfig"] or ()):
        if entry["name"] == "NodeResourcesFit" and isinstance(entry["args"], TypedArgs):
            yield from args_problems(entry["args"], f"{path}.pluginConfig[{i}].args")


def _arguments_in_force(profile: Tree, registry: KnownPlugins) -> list[Tree] | None:
    enabled = _enabled(profile)
    entries = [
        entry
        for entry in profile["pluginConfig"] or ()
        if entry["name"] in enabled and entry["args"] is not None and registry.points_of(entry["name"]) is not None
    ]
    return sorted(entries, key=lambda entry: str(entry["name"])) or None


def _queue_sort_problems(
    profiles: Sequence[Tree], built: Mapping[str, Mapping[str, tuple[PluginRef, ...]]]
) -> Iterator[Problem]:
    """All profiles share one queue, so they must sort it in one way."""
    sorts = [built[profile["schedulerName"]][ExtensionPoint.QUEUE_SORT][0].name for profile in profiles]
    first = plain_args(_args_of(profiles[0], sorts[0]))
    for i, (profile, name) in enumerate(zip(profiles[1:], sorts[1:], strict=True), start=1):
        args = plain_args(_args_of(profile, name))
        if name != sorts[0]:
            reason = f"sorts the queue by {name!r} where profiles[0] sorts it by {sorts[0]!r}; it must be one"
            yield Problem(f"profiles[{i}].plugins.queueSort", Fault.INVALID, name, reason)
        elif args != first:
            reason = f"the arguments of {name!r} must be those in profiles[0] ({shown(first)}), not {shown(args)}"
            yield Problem(f"profiles[{i}].pluginConfig", Fault.INVALID, args, reason)


def _enabled(profile: Tree) -> set[str]:
    points = (*POINTS_IN_ORDER, MULTI_POINT)
    return {plugin["name"] for point in points for plugin in profile["plugins"][point]["enabled"] or ()}


def _args_of(profile: Tree, plugin: str) -> object:
    return next((entry["args"] for entry in profile["pluginConfig"] or () if entry["name"] == plugin), None)
