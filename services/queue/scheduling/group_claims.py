"""Claims of devices that are reserved for a group, or for pods of it: given back only while none of them has a node."""

from collections.abc import Collection, Iterator

from services.queue.scheduling.cluster_event import ASSIGNED_POD_DELETED, ClusterChange
from services.queue.scheduling.group_info import MemberState
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.model.objects import Pod, group_of

DEVICES = "DynamicResources"


def has_placed(groups: PodGroups, pod: Pod) -> bool:
    """Whether a pod of this one's group has a node."""
    ref = group_of(pod)
    group = None if ref is None else groups.get(ref)
    return group is not None and group.counts[MemberState.PLACED] > 0


def waiting_pods(groups: PodGroups, pod: Pod) -> Collection[str] | None:
    """The uids of all pods of this one's group; None if one of them has a node, or there is no group."""
    ref = group_of(pod)
    group = None if ref is None else groups.get(ref)
    return None if group is None or has_placed(groups, pod) else group.pods.keys()


def left_alone(groups: PodGroups, change: ClusterChange) -> Iterator[QueuedPodInfo]:
    """Pods of a group whose last pod with a node is gone, while they wait for devices: no event of a claim says so.

    Another attempt finds out whether a claim of the group is in their way, and gives it back.
    """
    gone = change.before
    if change.event != ASSIGNED_POD_DELETED or not isinstance(gone, Pod) or has_placed(groups, gone):
        return
    ref = group_of(gone)
    group = None if ref is None else groups.get(ref)
    for info in [] if group is None else list(group.pods.values()):
        if info.state is PodState.UNSCHEDULABLE and DEVICES in info.rejecting_plugins:
            yield info
