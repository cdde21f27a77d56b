"""What a configuration names without effect. kube-scheduler accepts all of it silently; most of it is misspelt."""

from collections.abc import Iterator

from shared.config.building import KnownPlugins
from shared.config.points import EVERY_PLUGIN, MULTI_POINT, POINTS_IN_ORDER
from shared.config.spelling import did_you_mean
from shared.config.structs import KubeSchedulerConfiguration, Plugin, Profile


def plugin_notes(file: KubeSchedulerConfiguration, registry: KnownPlugins) -> Iterator[str]:
    """A line for each plugin that is disabled where it does not run, or has arguments and does not run."""
    for i, profile in enumerate(file.profiles):
        if profile.plugins is None:
            continue
        for point in (*POINTS_IN_ORDER, MULTI_POINT):
            for plugin in profile.plugins.at(point).disabled:
                if why := _disables_nothing(plugin, point, registry):
                    yield f"{plugin.path}: {why}"
        yield from _idle_arguments(profile, f"profiles[{i}]", registry)


def _disables_nothing(plugin: Plugin, point: str, registry: KnownPlugins) -> str:
    if plugin.name == EVERY_PLUGIN:
        return ""
    points = registry.points_of(plugin.name)
    if points is None:
        meant = did_you_mean(plugin.name, registry.names)
        return f"there is no plugin {plugin.name!r}{meant}, so this disables nothing"
    if point == MULTI_POINT or point in points:
        return ""
    where = ", ".join(sorted(points)) or "none"
    return f"plugin {plugin.name!r} does not run at {point}, so this disables nothing; its points are: {where}"


def _idle_arguments(profile: Profile, path: str, registry: KnownPlugins) -> Iterator[str]:
    enabled = {plugin.name for plugin in profile.plugins.enabled()} if profile.plugins is not None else set()
    for j, entry in enumerate(profile.plugin_config):
        if entry.name in enabled:
            continue
        where = f"{path}.pluginConfig[{j}].name"
        if registry.points_of(entry.name) is None:
            yield f"{where}: there is no plugin {entry.name!r}{did_you_mean(entry.name, registry.names)}"
        else:
            yield f"{where}: {entry.name} is not enabled in this profile, so its arguments have no effect"
