"""Claims of devices that are reserved for a group, or for pods of it: given back only while none of them has a node."""

from collections.abc import Collection, Iterator

from services.queue.scheduling.assigned_pod import AssignedPod
from services.queue.scheduling.cluster_event import ASSIGNED_POD_DELETED, ClusterChange
from services.queue.scheduling.group_info import GroupInfo, MemberState
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.model.objects import GroupRef, Pod, group_of

DEVICES = "DynamicResources"


def waiting_pods(groups: PodGroups, pod: Pod) -> Collection[str] | None:
    """The uids of all pods of this one's group; None if one of them has a node, or there is no group."""
    group = _without_nodes(groups, group_of(pod))
    return None if group is None else group.pods.keys()


def left_alone(groups: PodGroups, change: ClusterChange) -> Iterator[QueuedPodInfo]:
    """Pods of a group whose last pod with a node is gone, while they wait for devices: no event of a claim says so.

    Another attempt finds out whether a claim of the group is in their way, and gives it back.
    """
    gone = change.told_before
    if change.event != ASSIGNED_POD_DELETED or gone is None:
        return
    ref = gone.parts.group if isinstance(gone, AssignedPod) else group_of(gone)
    group = _without_nodes(groups, ref)
    for info in [] if group is None else list(group.pods.values()):
        if info.state is PodState.UNSCHEDULABLE and DEVICES in info.rejecting_plugins:
            yield info


def _without_nodes(groups: PodGroups, ref: GroupRef | None) -> GroupInfo | None:
    """The group, if no pod of it has a node."""
    group = None if ref is None else groups.get(ref)
    return None if group is None or group.counts[MemberState.PLACED] else group
