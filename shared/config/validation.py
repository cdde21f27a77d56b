"""Validate a whole configuration as kube-scheduler v1.36 does, in its order."""

from collections.abc import Collection, Iterator, Sequence

from shared.config.args import NodeResourcesFitArgs, PluginArgs
from shared.config.args_validation import args_problems, name_problems, out_of_range
from shared.config.feature_gates import FeatureGates
from shared.config.points import ExtensionPoint
from shared.config.problems import Problem, duplicate, invalid, required, shown, wrong
from shared.config.struct_codec import child, encode
from shared.config.structs import ExtenderConfig, KubeSchedulerConfiguration, LeaderElection, PluginSet, Profile
from shared.model.durations import format_duration, nanoseconds_of
from shared.model.resources import is_extended_resource

MAX_PERCENTAGE = 100
QUEUE_SORT = "queueSort"


def plain_args(args: object) -> object:
    """Arguments as plain data, to be compared."""
    return encode(args) if isinstance(args, PluginArgs) else args


def configuration_problems(
    file: KubeSchedulerConfiguration, removed: Collection[str], gates: FeatureGates
) -> Iterator[Problem]:
    """Everything that is wrong. `removed`: plugins that a v1 file must not name at a point or give arguments."""
    yield from out_of_range("clientConnection.burst", file.client_connection.burst, 0)
    if file.leader_election.leader_elect:
        yield from _leader_election_problems(file.leader_election, "leaderElection")
    yield from out_of_range("parallelism", file.parallelism, 1)
    if file.profiles:
        yield from _profiles_problems(file.profiles, removed, gates)
    else:
        yield required("profiles", "is needed, and is empty")
    yield from _percentage_problems(file.percentage_of_nodes_to_score, "")
    initial, most = file.pod_initial_backoff_seconds, file.pod_max_backoff_seconds
    yield from out_of_range("podInitialBackoffSeconds", initial, 1)
    if most < initial:
        yield invalid("podMaxBackoffSeconds", most, f"must be at least podInitialBackoffSeconds ({initial})")
    yield from _extender_problems(file.extenders)


def _leader_election_problems(election: LeaderElection, path: str) -> Iterator[Problem]:
    lease, renew, retry = map(nanoseconds_of, (election.lease_duration, election.renew_deadline, election.retry_period))
    for field, nanoseconds in (("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)):
        if nanoseconds <= 0:
            yield invalid(f"{path}.{field}", format_duration(nanoseconds), "must be longer than 0s")
    if lease <= renew:
        # As in kube-scheduler, the value of the problem is the renewDeadline.
        reason = f"must be longer than renewDeadline ({format_duration(renew)}), not {format_duration(lease)}"
        yield wrong(f"{path}.leaseDuration", format_duration(renew), reason)
    for field, value in (
        ("resourceLock", election.resource_lock),
        ("resourceNamespace", election.resource_namespace),
        ("resourceName", election.resource_name),
    ):
        if not value:
            yield required(f"{path}.{field}", "is needed, and is empty")
    if election.resource_lock != "leases":
        yield invalid(f"{path}.resourceLock", election.resource_lock, "must be leases")


def _percentage_problems(percentage: int | None, path: str) -> Iterator[Problem]:
    return out_of_range(child(path, "percentageOfNodesToScore"), percentage or 0, 0, MAX_PERCENTAGE)


# Profiles


def _profiles_problems(profiles: Sequence[Profile], removed: Collection[str], gates: FeatureGates) -> Iterator[Problem]:
    first_by_name: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        path, name = f"profiles[{i}]", profile.scheduler_name
        if not name:
            yield required(f"{path}.schedulerName", "is needed, and is empty: each of several profiles must have one")
        yield from _percentage_problems(profile.percentage_of_nodes_to_score, path)
        yield from _removed_problems(profile, path, removed)
        yield from _plugin_config_problems(profile, path, removed, gates)
        if name in first_by_name:
            reason = f"{name!r} is the name of profiles[{first_by_name[name]}] already"
            yield duplicate(f"{path}.schedulerName", {}, reason)
        first_by_name[name] = i
    yield from _queue_sort_problems(profiles)


def _removed_problems(profile: Profile, path: str, removed: Collection[str]) -> Iterator[Problem]:
    """Removed plugins at the points; building finds those in multiPoint."""
    for point in ExtensionPoint if profile.plugins else ():
        for i, plugin in enumerate(profile.plugins.at(point).enabled if profile.plugins else ()):
            if plugin.name in removed:
                yield _removed(f"{path}.plugins.{point}.enabled[{i}]", plugin.name)


def _plugin_config_problems(
    profile: Profile, path: str, removed: Collection[str], gates: FeatureGates
) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, entry in enumerate(profile.plugin_config):
        at, name, args = f"{path}.pluginConfig[{i}]", entry.name, entry.args
        if name in seen:
            yield duplicate(at, name, f"plugin {name!r} is configured twice; put all its arguments into one entry")
        seen.add(name)
        if name in removed:
            yield _removed(at, name)
        elif name == NodeResourcesFitArgs.__name__:
            # kube-scheduler looks for these arguments under this name by mistake, and then finds them ill-typed.
            yield wrong(f"{at}.args", args, "the plugin is called NodeResourcesFit")
        elif isinstance(args, PluginArgs) and not isinstance(args, NodeResourcesFitArgs):
            yield from args_problems(args, f"{at}.args", gates)


def _removed(path: str, name: str) -> Problem:
    return wrong(path, name, f"plugin {name!r} was removed before v1")


def _queue_sort_problems(profiles: Sequence[Profile]) -> Iterator[Problem]:
    first = _queue_sort(profiles[0])
    if len(first.enabled) > 1:
        reason = f"only one queue sort plugin can be enabled, not {len(first.enabled)}"
        # The capital letter is kube-scheduler's.
        yield wrong(f"profiles[0].plugins.{QUEUE_SORT}.Enabled", len(first.enabled), reason)
    plugin = first.enabled[0].name if first.enabled else ""
    given = [entry.args for entry in profiles[0].plugin_config if entry.name == plugin]
    args = plain_args(given[-1]) if plugin and given else None
    for i, profile in enumerate(profiles[1:], start=1):
        current = _queue_sort(profile)
        if _content(current) != _content(first):
            reason = f"must be the same in all profiles: {_names(first)} in profiles[0], {_names(current)} here"
            yield wrong(f"profiles[{i}].plugins.{QUEUE_SORT}", encode(current, go=True), reason)
        for entry in profile.plugin_config:
            if entry.name == plugin and plain_args(entry.args) != args:
                value = plain_args(entry.args)
                reason = f"the arguments of {plugin!r}, which sorts the queue, must be the same in all profiles"
                yield wrong(f"profiles[{i}].pluginConfig.args", value, f"{reason}, not {shown(value)}")


def _queue_sort(profile: Profile) -> PluginSet:
    return profile.plugins.queue_sort if profile.plugins else PluginSet()


def _content(plugin_set: PluginSet) -> list[list[tuple[str, int]]]:
    """Without paths, to be compared."""
    return [[(plugin.name, plugin.weight) for plugin in each] for each in (plugin_set.enabled, plugin_set.disabled)]


def _names(plugin_set: PluginSet) -> str:
    disabled = [f"not {plugin.name}" for plugin in plugin_set.disabled]
    return ", ".join([*(plugin.name for plugin in plugin_set.enabled), *disabled]) or "none"


# Extenders


def _extender_problems(extenders: Sequence[ExtenderConfig]) -> Iterator[Problem]:
    managed: set[str] = set()
    for i, extender in enumerate(extenders):
        if extender.prioritize_verb and extender.weight <= 0:
            reason = "must be at least 1 where there is a prioritizeVerb"
            yield invalid(f"extenders[{i}].weight", extender.weight, reason)
        for j, resource in enumerate(extender.managed_resources):
            path, name = f"extenders[{i}].managedResources[{j}].name", resource.name
            problems = list(name_problems(path, name, "a resource name"))
            yield from problems
            if not problems and not is_extended_resource(name):
                reason = "is not an extended resource: it must be DOMAIN/NAME with a domain outside kubernetes.io"
                yield wrong(path, name, f"{name!r} {reason}")
            if name in managed:
                yield wrong(path, name, f"{name!r} is managed twice; a resource can be listed once")
            managed.add(name)
    binders = [f"extenders[{i}]" for i, extender in enumerate(extenders) if extender.bind_verb]
    if len(binders) > 1:
        value = f"found {len(binders)} extenders implementing bind"
        yield wrong("extenders", value, f"only one extender can have a bindVerb, but {', '.join(binders)} have one")
