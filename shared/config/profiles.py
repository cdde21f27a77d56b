"""The configuration that a process runs by, wherever it comes from."""

from collections.abc import Callable, Collection

from shared.config.building import flotilla_plugins
from shared.config.file import ConfigSource
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.problems import InvalidConfigFile
from shared.config.reading import read_config_text, read_config_values
from shared.config.structs import KubeSchedulerConfig, ProfileConfig

__all__ = ["KubeSchedulerConfig", "PluginRef", "ProfileConfig", "load_config"]


def load_config(
    given: object | None, points_of: Callable[[str], Collection[ExtensionPoint]] | None = None
) -> KubeSchedulerConfig:
    """What a KubeSchedulerConfiguration makes of kube-scheduler v1.36; None: all defaults.

    It is given as a file that was read, as plain dicts, or in types, as which it is returned at once. `points_of`
    gives the points of plugins that are not in-tree, and nothing or a LookupError for names it does not know. Raises
    InvalidConfigFile with everything that is wrong.
    """
    if isinstance(given, KubeSchedulerConfig):
        return given
    registry = flotilla_plugins(points_of)
    if not isinstance(given, ConfigSource):
        return read_config_values(given, registry).config
    try:
        return read_config_text(given.text, registry).config
    except InvalidConfigFile as wrong:
        raise wrong.within(given.name) from None
