"""Which filters a profile runs: what the scheduler itself does not enforce, the snapshot does not either."""

from collections.abc import Mapping

import msgspec

from shared.config.args import NodeResourcesFitArgs
from shared.config.points import ExtensionPoint
from shared.config.structs import KubeSchedulerConfig, ProfileConfig
from shared.model.resources import is_extended_resource


class Checks(msgspec.Struct, frozen=True):
    """Of one profile: whether it runs NodeResourcesFit, NodePorts, VolumeRestrictions and VolumeBinding.

    `ignored`, `ignored_groups`: the extended resources that NodeResourcesFit leaves to others.
    """

    resources: bool = True
    ports: bool = True
    volumes: bool = True
    binding: bool = True
    ignored: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()

    @staticmethod
    def of(config: KubeSchedulerConfig) -> "Mapping[str, Checks]":
        """By scheduler name."""
        return {profile.scheduler_name: _of_profile(profile) for profile in config.profiles}

    def counts(self, resource: str) -> bool:
        if not (self.ignored or self.ignored_groups) or not is_extended_resource(resource):
            return True
        return resource not in self.ignored and resource.partition("/")[0] not in self.ignored_groups


EVERYTHING = Checks()


def _of_profile(profile: ProfileConfig) -> Checks:
    filters = {plugin.name for plugin in profile.plugins.get(ExtensionPoint.FILTER, ())}
    args = profile.args.get("NodeResourcesFit")
    fit = args if isinstance(args, NodeResourcesFitArgs) else NodeResourcesFitArgs()
    return Checks(
        resources="NodeResourcesFit" in filters,
        ports="NodePorts" in filters,
        volumes="VolumeRestrictions" in filters,
        binding="VolumeBinding" in filters,
        ignored=frozenset(fit.ignored_resources),
        ignored_groups=frozenset(fit.ignored_resource_groups),
    )
