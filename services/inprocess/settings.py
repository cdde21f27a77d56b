"""From a KubeSchedulerConfiguration to frameworks that can run."""

from shared.config.profiles import load_config
from shared.framework.profile import Framework
from shared.plugins.registry import IN_TREE


def load_frameworks(config: object | None, *, lenient: bool = True) -> dict[str, Framework]:
    """The framework of each profile, by scheduler name. `lenient`: plugins that do not exist yet are left out."""
    loaded = load_config(config)
    return {profile.scheduler_name: Framework(profile, IN_TREE, lenient=lenient) for profile in loaded.profiles}
