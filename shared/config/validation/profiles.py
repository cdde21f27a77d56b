"""Profiles: their names, what they name that was removed, their arguments, and the one queue that they share."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from shared.config.kinds import child
from shared.config.problems import Fault, Problem, duplicate, invalid, required, shown
from shared.config.schema import ARGS, PLUGIN_SET, Tree, TypedArgs
from shared.config.validation.arguments import args_problems

MAX_PERCENTAGE: Final = 100
QUEUE_SORT: Final = "queueSort"
POINTS_CHECKED: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""Where removed plugins are looked for; what is wrong in multiPoint shows when the profile is built."""

NO_PLUGINS: Final[Tree] = {"enabled": None, "disabled": None}


def profiles_problems(profiles: Sequence[Tree] | None, removed: Collection[str]) -> Iterator[Problem]:
    """Everything that is wrong with them."""
    if not profiles:
        yield required("profiles", "is needed, and is empty")
        return
    first_by_name: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        path, name = f"profiles[{i}]", profile["schedulerName"]
        if not name:
            yield required(f"{path}.schedulerName", "is needed, and is empty: each of several profiles must have one")
        yield from percentage_problems(profile, path)
        yield from _removed_problems(profile, path, removed)
        yield from _plugin_config_problems(profile, path, removed)
        if name in first_by_name:
            reason = f"{name!r} is the name of profiles[{first_by_name[name]}] already"
            yield duplicate(f"{path}.schedulerName", {}, reason)
        first_by_name[name] = i
    yield from _queue_sort_problems(profiles)


def percentage_problems(tree: Tree, path: str) -> Iterator[Problem]:
    """Of a profile, or of the whole configuration."""
    percentage = tree["percentageOfNodesToScore"]
    if percentage is not None and not 0 <= percentage <= MAX_PERCENTAGE:
        yield invalid(child(path, "percentageOfNodesToScore"), percentage, f"must be from 0 to {MAX_PERCENTAGE}")


def _removed_problems(profile: Tree, path: str, removed: Collection[str]) -> Iterator[Problem]:
    if profile["plugins"] is None:
        return
    for point in POINTS_CHECKED:
        for i, plugin in enumerate(profile["plugins"][point]["enabled"] or ()):
            if plugin["name"] in removed:
                yield _removed(f"{path}.plugins.{point}.enabled[{i}]", plugin["name"])


def _plugin_config_problems(profile: Tree, path: str, removed: Collection[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, entry in enumerate(profile["pluginConfig"] or ()):
        at, name, args = f"{path}.pluginConfig[{i}]", entry["name"], entry["args"]
        if name in seen:
            yield duplicate(at, name, f"plugin {name!r} is configured twice; put all its arguments into one entry")
        seen.add(name)
        if name in removed:
            yield _removed(at, name)
        elif name == "NodeResourcesFitArgs":
            # kube-scheduler looks for these arguments under this name by mistake, and then finds them ill-typed.
            yield Problem(f"{at}.args", Fault.INVALID, args, "the plugin is called NodeResourcesFit")
        elif isinstance(args, TypedArgs) and name != "NodeResourcesFit":
            # Those of NodeResourcesFit are checked when the plugin is made, if it is.
            yield from args_problems(args, f"{at}.args")


def _removed(path: str, name: str) -> Problem:
    return Problem(path, Fault.INVALID, name, f"plugin {name!r} was removed before v1")


def _queue_sort_problems(profiles: Sequence[Tree]) -> Iterator[Problem]:
    canon = _queue_sort(profiles[0])
    enabled = canon["enabled"] or []
    plugin = enabled[0]["name"] if enabled else ""
    if len(enabled) > 1:
        reason = f"only one queue sort plugin can be enabled, not {len(enabled)}"
        # The capital letter is kube-scheduler's.
        yield Problem(f"profiles[0].plugins.{QUEUE_SORT}.Enabled", Fault.INVALID, len(enabled), reason)
    args = _last_args(profiles[0], plugin) if plugin else None
    for i, profile in enumerate(profiles[1:], start=1):
        current = _queue_sort(profile)
        if not same_plugin_set(canon, current):
            value = PLUGIN_SET.capitalised(current)
            reason = f"must be the same in all profiles: {_names(canon)} in profiles[0], {_names(current)} here"
            yield Problem(f"profiles[{i}].plugins.{QUEUE_SORT}", Fault.INVALID, value, reason)
        for entry in profile["pluginConfig"] or ():
            if entry["name"] == plugin and plain_args(entry["args"]) != plain_args(args):
                value = plain_args(entry["args"])
                reason = f"the arguments of {plugin!r}, which sorts the queue, must be the same in all profiles"
                yield Problem(f"profiles[{i}].pluginConfig.args", Fault.INVALID, value, f"{reason}, not {shown(value)}")


def same_plugin_set(one: Tree, other: Tree) -> bool:
    """Whether two lists enable and disable the same; none at all is as good as an empty one."""
    return all((one[key] or []) == (other[key] or []) for key in ("enabled", "disabled"))


def plain_args(args: Any) -> object:
    """Arguments as plain data, to be compared."""
    return ARGS[args.plugin].written(args.tree) if isinstance(args, TypedArgs) else args


def _queue_sort(profile: Tree) -> Tree:
    plugins: Tree | None = profile["plugins"]
    return NO_PLUGINS if plugins is None else plugins[QUEUE_SORT]


def _last_args(profile: Tree, plugin: str) -> object:
    found = [entry["args"] for entry in profile["pluginConfig"] or () if entry["name"] == plugin]
    return found[-1] if found else None


def _names(plugin_set: Tree) -> str:
    enabled = [plugin["name"] for plugin in plugin_set["enabled"] or ()]
    disabled = [f"not {plugin['name']}" for plugin in plugin_set["disabled"] or ()]
    return ", ".join([*enabled, *disabled]) or "none"
