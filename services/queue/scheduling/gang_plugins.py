"""The plugins that stand for a gang."""

from collections.abc import Mapping

from flotilla.events import Action, Registration, Resource
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.model.objects import GroupApi

PLUGIN_OF_API: Mapping[GroupApi, str] = {GroupApi.SCHEDULING: "GangScheduling", GroupApi.COSCHEDULING: "Coscheduling"}
GANG_PLUGINS = frozenset(PLUGIN_OF_API.values())
"""They hold members, and reject gangs. No cluster event opens their gates: PodGroups releases held members. What may
help a gang that they rejected, GangEvents says."""

OWN_TREE = tuple(
    Registration(resource, Action.ADD | Action.UPDATE | Action.DELETE)
    for resource in (Resource.POD_GROUP, Resource.POD)
)
"""What a rejected gang waits for, as it is shown: changes of the groups in its tree and of their pods."""
DOMAIN_LABELS = Registration(Resource.NODE, Action.UPDATE_NODE_LABEL)
"""What a gang with topology constraints waits for as well."""


def is_of_gang(info: QueuedPodInfo) -> bool:
    """Whether the pod was rejected as a member of a gang, which waits for its group as well."""
    return not GANG_PLUGINS.isdisjoint(info.rejecting_plugins)
