"""The events that may help a gang as a whole, regardless of which plugins rejected its members.

These are changes of its own groups and of their pods: of the pod group, of the composite groups above it and of all
groups in its tree. A gang with topology constraints also waits for changes of the labels that tell its domains apart.
A status says nothing new: it changes because the gang was rejected.
"""

from collections.abc import Iterator

from flotilla.events import Action, Resource
from services.queue.scheduling.assigned_pod import AssignedPod
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.framework.clusterevents import ClusterEvent
from shared.model.composite_groups import CompositePodGroup
from shared.model.objects import GroupRef, Node, Pod, PodGroup, group_of

NODE_LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
PENDING_POD = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)
_PODS_AND_GROUPS = frozenset({Resource.POD_GROUP, Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD})
_NONE: frozenset[GroupRef] = frozenset()


class GangEvents:
    def __init__(self, groups: PodGroups) -> None:
        self.groups = groups
        self._concerned: dict[ClusterChange, frozenset[GroupRef]] = {}

    def clear_cache(self) -> None:
        """Called when groups may have changed."""
        if self._concerned:
            self._concerned = {}

    def may_help(self, change: ClusterChange) -> bool:
        """Whether the change may help any gang."""
        return self.may_help_all(change) or bool(self.groups_of(change))

    def may_help_all(self, change: ClusterChange) -> bool:
        """Whether the change may help gangs of any group: it names none."""
        event = change.event
        return event == NODE_LABELS or (event.resource in _PODS_AND_GROUPS and change.subject is None)

    def helps(self, info: QueuedPodInfo, change: ClusterChange) -> bool:
        """Whether the change may help the gang of this member, which was rejected."""
        if self.helps_members_of(group_of(info.pod), change):
            return True
        return change.changed_uid == info.uid and bool(self.groups_of(change))  # it may have left its group

    def helps_members_of(self, ref: GroupRef | None, change: ClusterChange) -> bool:
        """The same for all members of a group, but for changes of a member itself."""
        if change.subject is None:
            return self.may_help_all(change)
        if change.event == NODE_LABELS:
            return self._tells_domains_apart(ref, change)
        return ref in self.groups_of(change)

    def groups_of(self, change: ClusterChange) -> frozenset[GroupRef]:
        """The pod groups, with all of their trees, that the change is about."""
        if change.event.resource not in _PODS_AND_GROUPS or change.subject is None:
            return _NONE
        found = self._concerned.get(change)
        if found is None:
            found = self._concerned[change] = frozenset(self._concerned_by(change))
        return found

    def _concerned_by(self, change: ClusterChange) -> Iterator[GroupRef]:
        before, now = change.told_before, change.told_now
        if change.event == PENDING_POD and _reads_the_same(before, now):
            return
        for version in (before, now):
            match version:
                case PodGroup(ref=ref, parent=parent):
                    yield from self._tree_of(ref)
                    yield from self._below(parent)
                case CompositePodGroup(key=key, parent=parent):
                    yield from self._below(key)
                    yield from self._below(parent)
                case AssignedPod(parts=parts):
                    yield from self._tree_of(parts.group)
                case Pod() as pod if change.event.resource is Resource.UNSCHEDULABLE_POD or pod.spec.node_name:
                    yield from self._tree_of(group_of(pod))  # not of one that loses a nomination

    def _tree_of(self, ref: GroupRef | None) -> Iterator[GroupRef]:
        if ref is None:
            return
        yield ref
        group = self.groups.get(ref)
        if group is not None and group.parent is not None:
            yield from self._below(group.parent.key)

    def _below(self, composite: str) -> Iterator[GroupRef]:
        """The pod groups of the tree that this composite group is in."""
        return (group.ref for group in self.groups.forest.tree(composite))

    def _tells_domains_apart(self, ref: GroupRef | None, change: ClusterChange) -> bool:
        before, now = change.told_before, change.told_now
        group = None if ref is None else self.groups.get(ref)
        if group is None or not isinstance(before, Node) or not isinstance(now, Node):
            return False
        return any(
            before.metadata.labels.get(level.key) != now.metadata.labels.get(level.key) for level in group.levels
        )


def _reads_the_same(before: object, now: object) -> bool:
    """Whether the versions of a pending pod differ in its status alone, or in what no plugin reads."""
    match before, now:
        case Pod(), Pod():
            return before.spec == now.spec and before.metadata.annotations == now.metadata.annotations
    return False
