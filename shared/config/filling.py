"""What kube-scheduler v1.36 fills in where a configuration says nothing."""

from collections.abc import Callable, Mapping
from typing import Final

from shared.config.defaults import DEFAULT_PERCENTAGE_OF_NODES_TO_SCORE, DEFAULT_PLUGINS, DEFAULT_SCHEDULER_NAME
from shared.config.durations import SECOND, Duration
from shared.config.points import EVERY_PLUGIN
from shared.config.schema import ARGS, MULTI_POINT, PLUGINS, PROFILE, SCORING_STRATEGY, Listed, Tree, TypedArgs

DEFAULT_PARALLELISM: Final = 16
DEFAULT_INITIAL_BACKOFF: Final = 1
DEFAULT_MAX_BACKOFF: Final = 10
DEFAULT_QPS: Final = 50
DEFAULT_BURST: Final = 100
DEFAULT_CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_LEADER_ELECTION: Final[Mapping[str, object]] = {
    "resourceLock": "leases",
    "resourceNamespace": "kube-system",
    "resourceName": "kube-scheduler",
    "leaseDuration": Duration(15 * SECOND),
    "renewDeadline": Duration(10 * SECOND),
    "retryPeriod": Duration(2 * SECOND),
}
_CLIENT_CONNECTION: Final[Mapping[str, object]] = {
    "contentType": DEFAULT_CONTENT_TYPE,
    "qps": DEFAULT_QPS,
    "burst": DEFAULT_BURST,
}


def fill_in(tree: Tree) -> None:
    """Puts the defaults into a tree of v1 that was read."""
    _fill(tree, "parallelism", DEFAULT_PARALLELISM)
    if not tree["profiles"]:
        tree["profiles"] = [PROFILE.fresh_zero()]
    if len(tree["profiles"]) == 1:
        _fill(tree["profiles"][0], "schedulerName", DEFAULT_SCHEDULER_NAME)
    for i, profile in enumerate(tree["profiles"]):
        _fill_profile(profile, f"profiles[{i}]")
    _fill(tree, "percentageOfNodesToScore", DEFAULT_PERCENTAGE_OF_NODES_TO_SCORE)
    _fill_empty(tree["leaderElection"], _LEADER_ELECTION)
    _fill(tree["leaderElection"], "leaderElect", True)
    _fill_empty(tree["clientConnection"], _CLIENT_CONNECTION)
    _fill(tree, "podInitialBackoffSeconds", DEFAULT_INITIAL_BACKOFF)
    _fill(tree, "podMaxBackoffSeconds", DEFAULT_MAX_BACKOFF)
    _fill(tree, "enableProfiling", True)
    if tree["enableProfiling"]:
        _fill(tree, "enableContentionProfiling", True)


def default_args(plugin: str) -> TypedArgs:
    """The arguments of a plugin that was given none."""
    args = TypedArgs(plugin, ARGS[plugin].fresh_zero())
    _FILLERS[plugin](args.tree)
    return args


def merged_plugins(defaults: list[Listed], custom: Tree) -> Tree:
    """A list of the file merged with the defaults.

    A default that the file enables too is replaced where it stands; the other plugins of the file follow the defaults.
    What the file both disables and enables is no default any more, and hence follows.
    """
    enabled: list[Listed] = custom["enabled"] or []
    disabled = [_without_weight(plugin) for plugin in custom["disabled"] or ()]
    off = {plugin["name"] for plugin in disabled}
    last_by_name = {plugin["name"]: plugin for plugin in enabled}
    kept = [
        last_by_name.get(plugin["name"], plugin)
        for plugin in defaults
        if EVERY_PLUGIN not in off and plugin["name"] not in off
    ]
    placed = {id(plugin) for plugin in kept}
    result = [*kept, *(plugin for plugin in enabled if id(plugin) not in placed)]
    return {"enabled": result or None, "disabled": disabled or None}


def _fill_profile(profile: Tree, path: str) -> None:
    if profile["plugins"] is None:
        profile["plugins"] = PLUGINS.fresh_zero()
    plugins: Tree = profile["plugins"]
    for point in plugins:
        defaults = _default_plugins(path) if point == MULTI_POINT else []
        plugins[point] = merged_plugins(defaults, plugins[point])
    entries = profile["pluginConfig"] or []
    for entry in entries:
        args = entry["args"]
        if isinstance(args, TypedArgs) and args.filled_in:
            _FILLERS[args.plugin](args.tree)
    configured = {entry["name"] for entry in entries}
    enabled = {plugin["name"] for plugin_set in plugins.values() for plugin in plugin_set["enabled"] or ()}
    missing = sorted((enabled & ARGS.keys()) - configured)
    profile["pluginConfig"] = [*entries, *({"name": name, "args": default_args(name)} for name in missing)] or None


def _default_plugins(path: str) -> list[Listed]:
    plugins = []
    for ref in DEFAULT_PLUGINS:
        listed = Listed(name=ref.name, weight=ref.weight or None)
        listed.path = f"{path}.plugins.{MULTI_POINT}"
        plugins.append(listed)
    return plugins


def _without_weight(plugin: Listed) -> Listed:
    bare = Listed(name=plugin["name"], weight=None)
    bare.path = plugin.path
    return bare


def _fill(tree: Tree, field: str, default: object) -> None:
    if tree[field] is None:
        tree[field] = default


def _fill_empty(tree: Tree, defaults: Mapping[str, object]) -> None:
    for field, default in defaults.items():
        tree[field] = tree[field] or default


def _default_resources() -> list[Tree]:
    return [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]


def _fill_resources(tree: Tree) -> None:
    tree["resources"] = tree["resources"] or _default_resources()
    for resource in tree["resources"]:
        resource["weight"] = resource["weight"] or 1


def _fill_preemption(tree: Tree) -> None:
    _fill(tree, "minCandidateNodesPercentage", 10)
    _fill(tree, "minCandidateNodesAbsolute", 100)


def _fill_dynamic_resources(tree: Tree) -> None:
    _fill(tree, "filterTimeout", Duration(10 * SECOND))
    _fill(tree, "bindingTimeout", Duration(600 * SECOND))


def _fill_fit(tree: Tree) -> None:
    if tree["scoringStrategy"] is None:
        tree["scoringStrategy"] = SCORING_STRATEGY.fresh_zero() | {"type": "LeastAllocated"}
    _fill_resources(tree["scoringStrategy"])


_FILLERS: Final[Mapping[str, Callable[[Tree], None]]] = {
    "DefaultPreemption": _fill_preemption,
    "DynamicResources": _fill_dynamic_resources,
    "InterPodAffinity": lambda tree: _fill(tree, "hardPodAffinityWeight", 1),
    "NodeAffinity": lambda tree: None,
    "NodeResourcesBalancedAllocation": _fill_resources,
    "NodeResourcesFit": _fill_fit,
    "PodTopologySpread": lambda tree: _fill_empty(tree, {"defaultingType": "System"}),
    "VolumeBinding": lambda tree: _fill(tree, "bindTimeoutSeconds", 600),
}
