"""Which events the change of an object is, if any. Rejected pods are woken by these, never by a change as such.

Several things can change at once, so an update may be several events, in an order that is told from the outside: the
first one that helps a pod is why it is tried again. For nodes what is not among them is nothing (a heartbeat, say);
for pods it is the general update.
"""

from collections.abc import Mapping
from typing import TypeVar

from shared.framework.clusterevents import Action, ClusterEvent, Resource
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod
from shared.model.resources import pod_requests

T = TypeVar("T")

_RESOURCES: Mapping[ObjectKind, Resource] = {
    ObjectKind.PERSISTENT_VOLUME: Resource.PERSISTENT_VOLUME,
    ObjectKind.PERSISTENT_VOLUME_CLAIM: Resource.PERSISTENT_VOLUME_CLAIM,
    ObjectKind.STORAGE_CLASS: Resource.STORAGE_CLASS,
    ObjectKind.CSI_NODE: Resource.CSI_NODE,
    ObjectKind.CSI_DRIVER: Resource.CSI_DRIVER,
    ObjectKind.CSI_STORAGE_CAPACITY: Resource.CSI_STORAGE_CAPACITY,
    ObjectKind.VOLUME_ATTACHMENT: Resource.VOLUME_ATTACHMENT,
    ObjectKind.POD_GROUP: Resource.POD_GROUP,
    ObjectKind.COSCHEDULING_POD_GROUP: Resource.POD_GROUP,
    ObjectKind.RESOURCE_CLAIM: Resource.RESOURCE_CLAIM,
    ObjectKind.RESOURCE_SLICE: Resource.RESOURCE_SLICE,
    ObjectKind.DEVICE_CLASS: Resource.DEVICE_CLASS,
}


def node_events(before: Node | None, now: Node | None) -> list[ClusterEvent]:
    """Cordoning is nothing; uncordoning is a change of taints, and so are taints: that event can come twice."""
    if before is None or now is None:
        return _come_or_gone(Resource.NODE, before, now)
    actions = []
    if before.spec.unschedulable and not now.spec.unschedulable:
        actions.append(Action.UPDATE_NODE_TAINT)
    if before.status.allocatable != now.status.allocatable:
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if before.metadata.labels != now.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if before.spec.taints != now.spec.taints:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _conditions(before) != _conditions(now):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if before.metadata.annotations != now.metadata.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if before.status.declared_features != now.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action) for action in actions]


def pod_events(before: Pod | None, now: Pod | None) -> list[ClusterEvent]:
    """Of a pod on a node or of one that has none yet, whichever it is by now. Coming to a node is being added there."""
    pod = now or before
    assigned = pod is not None and pod.spec.node_name != ""
    resource = Resource.ASSIGNED_POD if assigned else Resource.UNSCHEDULABLE_POD
    if before is None or now is None:
        return _come_or_gone(resource, before, now)
    if assigned and not before.spec.node_name:
        return [ClusterEvent(resource, Action.ADD)]
    actions = []
    if before.metadata.labels != now.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if _asks_for_less(before, now):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if before.spec.scheduling_gates and not now.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(before.spec.tolerations) != len(now.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    if before.status.resource_claim_statuses != now.status.resource_claim_statuses:
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return [ClusterEvent(resource, action) for action in actions or (Action.UPDATE,)]


def object_events(kind: ObjectKind, before: ClusterObject | None, now: ClusterObject | None) -> list[ClusterEvent]:
    """None of a kind that plugins cannot register for."""
    resource = _RESOURCES.get(kind)
    if resource is None:
        return []
    if before is None or now is None:
        return _come_or_gone(resource, before, now)
    return [ClusterEvent(resource, Action.UPDATE)]


def _come_or_gone(resource: Resource, before: T | None, now: T | None) -> list[ClusterEvent]:
    if now is not None:
        return [ClusterEvent(resource, Action.ADD)]
    return [] if before is None else [ClusterEvent(resource, Action.DELETE)]


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def _asks_for_less(before: Pod, now: Pod) -> bool:
    """Of anything, in thousandths; what was granted in place counts as well as what is asked for."""
    if before.spec == now.spec and before.status == now.status:
        return False
    wanted = pod_requests(now, use_status=True)
    return any(
        resource not in wanted or amount.milli > wanted[resource].milli
        for resource, amount in pod_requests(before, use_status=True).items()
    )
