"""A filter that looks at one node at a time."""

from collections.abc import Collection, Hashable, Sequence
from typing import Any

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from flotilla.results import SUCCESS, Status, unschedulable
from shared.errors import UserError
from shared.framework.cyclestate import CycleState
from shared.framework.nodeinfo import NodeInfo
from shared.framework.pernode import PerNodeFilter
from shared.framework.plugin import PodParts
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod


class SameAppLimit(PerNodeFilter):
    """No more than `most` pods of one app and namespace on a node; the app is what the label `label` says."""

    name = "SameAppLimit"
    reads_of_pod = PodParts.TEMPLATE

    def __init__(self, args: dict[str, Any]) -> None:
        self._label = args.get("label", "app")
        self._most = args.get("most", 4)
        if not isinstance(self._most, int) or self._most < 1:
            raise UserError(f"most: must be a number of pods, at least 1, got {self._most!r}")

    def signature(self, pod: Pod) -> Hashable:
        return pod.namespace, pod.metadata.labels.get(self._label)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.POD, Action.DELETE | Action.UPDATE_POD_LABEL, self.makes_room),
        )

    def makes_room(self, pod: Pod, before: Pod, now: Pod | None, objects: ClusterObjects) -> bool:
        """A pod of the app is gone, or is of another app now; or the rejected pod itself has other labels."""
        if now is not None and now.uid == pod.uid:
            return True
        app = self.signature(pod)
        return self.signature(before) == app and (now is None or self.signature(now) != app)

    def filter_node(self, state: CycleState, node: NodeInfo) -> Status:
        namespace, app = state.pod.namespace, state.pod.metadata.labels.get(self._label)
        if app is None:
            return SUCCESS
        alike = sum(load.namespace == namespace and load.labels.get(self._label) == app for load in node.pods)
        return SUCCESS if alike < self._most else unschedulable(f"node(s) had {self._most} pods of app {app}")
