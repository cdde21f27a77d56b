"""From a KubeSchedulerConfiguration to frameworks that can run."""

from msgspec.structs import replace

from shared.config.reading import load_config
from shared.config.structs import KubeSchedulerConfig
from shared.framework.profile import Framework
from shared.plugins.entrypoints import Registry
from shared.plugins.registry import IN_TREE


def load_scheduler_config(given: object | None) -> KubeSchedulerConfig:
    """As load_config; it may name the plugins of installed packages."""
    return load_config(given, Registry(IN_TREE).points_of)


def load_frameworks(given: object | None) -> dict[str, Framework]:
    """The framework of each profile, by scheduler name; of whatever load_scheduler_config takes, or has returned."""
    registry = Registry(IN_TREE)
    loaded = load_config(given, registry.points_of)
    frameworks: dict[str, Framework] = {}
    for profile in loaded.profiles:
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            profile = replace(profile, percentage_of_nodes_to_score=loaded.percentage_of_nodes_to_score)
        frameworks[profile.scheduler_name] = Framework(profile, registry)
    return frameworks
