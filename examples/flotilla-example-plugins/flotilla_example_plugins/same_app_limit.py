"""A filter that looks at one node at a time."""

from collections.abc import Hashable, Sequence
from typing import Any

from flotilla.plugin import (
    SUCCESS,
    Action,
    ClassState,
    ClusterObjects,
    NodeInfo,
    PerNodeFilter,
    Pod,
    PodParts,
    Registration,
    Resource,
    Status,
    UserError,
    unschedulable,
)


class SameAppLimit(PerNodeFilter):
    """No more than `most` pods of one app and namespace on a node; the label `label` names the app."""

    name = "SameAppLimit"
    reads_of_pod = PodParts.TEMPLATE

    def __init__(self, args: dict[str, Any]) -> None:
        self._label = args.get("label", "app")
        self._most = args.get("most", 4)
        if not isinstance(self._most, int) or self._most < 1:
            raise UserError(f"most: must be a number of pods, at least 1, got {self._most!r}")

    def signature(self, pod: Pod) -> Hashable:
        return pod.namespace, pod.metadata.labels.get(self._label)

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.POD, Action.DELETE | Action.UPDATE_POD_LABEL, self.makes_room),
        )

    def makes_room(self, pod: Pod, before: Pod, now: Pod | None, objects: ClusterObjects) -> bool:
        """A pod of the app is gone, or belongs to another app now; or the rejected pod itself has other labels."""
        if now is not None and now.uid == pod.uid:
            return True
        app = self.signature(pod)
        return self.signature(before) == app and (now is None or self.signature(now) != app)

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        namespace, app = state.pod.namespace, state.pod.metadata.labels.get(self._label)
        if app is None:
            return SUCCESS
        same = sum(other.namespace == namespace and other.labels.get(self._label) == app for other in node.pods)
        return SUCCESS if same < self._most else unschedulable(f"node(s) had {self._most} pods of app {app}")
