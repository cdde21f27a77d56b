"""What happens in the cluster, as the events that rejected pods wait for.

An update may be several events. Their order shows from outside: the first one that helps a pod is the reason why the
pod moves. A node's update that is none of them is no event (a heartbeat, say); a pod's is the general update.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from flotilla.events import Action, Resource
from services.queue.scheduling.assigned_pod import AssignedPod
from shared.devices import pod_claims
from shared.framework.clusterevents import EVERYTHING, NAMES, ClusterEvent
from shared.model import load
from shared.model.devices import ResourceClaim
from shared.model.objects import ClusterObject, Node, ObjectKind, PersistentVolumeClaim, Pod, key_of
from shared.model.resources import pod_requests

T = TypeVar("T")

ASSIGNED_POD_ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
CLAIM_UPDATED = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)
_RESOURCES: Mapping[ObjectKind, Resource] = {
    **{kind: Resource[kind.name] for kind in ObjectKind if kind.name in Resource.__members__},
    ObjectKind.COSCHEDULING_POD_GROUP: Resource.POD_GROUP,
    ObjectKind.COMPOSITE_POD_GROUP: Resource.POD_GROUP,
}


Use = tuple[Resource, str]
"""A claim that a pod uses, by `namespace/name`."""


class ClusterChange(msgspec.Struct, frozen=True):
    """Event: something changed that may help rejected pods. Without objects, no hint is asked: all who wait are helped.

    `before` is None for what was added, `now` for what was deleted; the ClusterObjects show it already. AssignedPods
    take the place of pods, which are made once a hint reads them. `why`: the reason for moves, if not the label.
    It concerns pods of priority `max_priority` or less, except the pod `except_uid`; with `only_uid`, that pod alone.
    """

    event: ClusterEvent
    told_before: Any = None
    told_now: Any = None
    why: str = ""
    max_priority: int | None = None
    except_uid: str = ""
    only_uid: str = ""

    def __hash__(self) -> int:
        return id(self)  # a key of the hints' cache, and the objects in it have no hash

    @property
    def before(self) -> Any:
        if isinstance(self.told_before, AssignedPod):
            msgspec.structs.force_setattr(self, "told_before", self.told_before.pod())
        return self.told_before

    @property
    def now(self) -> Any:
        if isinstance(self.told_now, AssignedPod):
            msgspec.structs.force_setattr(self, "told_now", self.told_now.pod())
        return self.told_now

    @property
    def subject(self) -> Any:
        """What has changed, as told: as it is now, or was before it was deleted."""
        return self.told_before if self.told_now is None else self.told_now

    @property
    def label(self) -> str:
        return self.why or label(self.event)

    @property
    def claim(self) -> Use | None:
        """The claim that changed, if it was one."""
        subject = self.subject
        is_claim = isinstance(subject, PersistentVolumeClaim | ResourceClaim)
        return (self.event.resource, key_of(subject)) if is_claim else None

    @property
    def changed_uid(self) -> str:
        """The uid of the pod that changed; empty if it was another object."""
        subject = self.subject
        return subject.uid if isinstance(subject, Pod | AssignedPod) else ""


def anything(why: str = "") -> ClusterChange:
    """Helps every pod that waits."""
    return ClusterChange(EVERYTHING, why=why)


def freed_room(pod: Pod | None = None, *, max_priority: int | None = None, except_uid: str = "") -> ClusterChange:
    """A pod left its node, or will not come to it; None if it is unknown which."""
    return ClusterChange(ASSIGNED_POD_DELETED, pod, max_priority=max_priority, except_uid=except_uid)


def freed_devices() -> ClusterChange:
    """An attempt that was given devices has ended, or what it left is gone, and no claim shows that."""
    return ClusterChange(CLAIM_UPDATED)


def uses_of(pod: Pod) -> frozenset[Use]:
    """All claims that the pod uses, of volumes and of devices."""
    volumes = ((Resource.PERSISTENT_VOLUME_CLAIM, f"{pod.namespace}/{name}") for name in load.claim_names(pod))
    named = pod_claims.claim_names(pod.namespace, pod.spec.resource_claims, pod.status.resource_claim_statuses)
    return frozenset((*volumes, *((Resource.RESOURCE_CLAIM, claim.key) for claim in named)))


@cache
def label(event: ClusterEvent) -> str:
    """The event's name in kube-scheduler's metrics."""
    return event.resource + NAMES[event.action]


def node_events(before: Node | None, now: Node | None) -> list[ClusterEvent]:
    """Cordoning is no event; uncordoning is a change of taints, so that event can come twice."""
    if before is None or now is None:
        return _added_or_deleted(Resource.NODE, before, now)
    changed = {
        Action.UPDATE_NODE_ALLOCATABLE: before.status.allocatable != now.status.allocatable,
        Action.UPDATE_NODE_LABEL: before.metadata.labels != now.metadata.labels,
        Action.UPDATE_NODE_TAINT: before.spec.taints != now.spec.taints,
        Action.UPDATE_NODE_CONDITION: _conditions(before) != _conditions(now),
        Action.UPDATE_NODE_ANNOTATION: before.metadata.annotations != now.metadata.annotations,
        Action.UPDATE_NODE_DECLARED_FEATURE: before.status.declared_features != now.status.declared_features,
    }
    actions = [action for action, is_changed in changed.items() if is_changed]
    if before.spec.unschedulable and not now.spec.unschedulable:
        actions.insert(0, Action.UPDATE_NODE_TAINT)
    return [ClusterEvent(Resource.NODE, action) for action in actions]


def pod_events(before: Pod | None, now: Pod | None) -> list[ClusterEvent]:
    """The events of an assigned or of an unscheduled pod, whichever it is now; being assigned is being added."""
    pod = now or before
    assigned = pod is not None and pod.spec.node_name != ""
    resource = Resource.ASSIGNED_POD if assigned else Resource.UNSCHEDULABLE_POD
    if before is None or now is None:
        return _added_or_deleted(resource, before, now)
    if assigned and not before.spec.node_name:
        return [ClusterEvent(resource, Action.ADD)]
    gates_eliminated = bool(before.spec.scheduling_gates) and not now.spec.scheduling_gates
    tolerations_changed = len(before.spec.tolerations) != len(now.spec.tolerations)
    claims_changed = before.status.resource_claim_statuses != now.status.resource_claim_statuses
    changed = {
        Action.UPDATE_POD_LABEL: before.metadata.labels != now.metadata.labels,
        Action.UPDATE_POD_SCALE_DOWN: _scaled_down(before, now),
        Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: gates_eliminated,
        Action.UPDATE_POD_TOLERATION: tolerations_changed,
        Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: claims_changed,
    }
    actions = [action for action, is_changed in changed.items() if is_changed]
    return [ClusterEvent(resource, action) for action in actions or (Action.UPDATE,)]


def object_events(kind: ObjectKind, before: ClusterObject | None, now: ClusterObject | None) -> list[ClusterEvent]:
    """No events for kinds that plugins cannot register for."""
    resource = _RESOURCES.get(kind)
    if resource is None:
        return []
    if before is None or now is None:
        return _added_or_deleted(resource, before, now)
    return [ClusterEvent(resource, Action.UPDATE)]


def _added_or_deleted(resource: Resource, before: T | None, now: T | None) -> list[ClusterEvent]:
    if now is not None:
        return [ClusterEvent(resource, Action.ADD)]
    return [] if before is None else [ClusterEvent(resource, Action.DELETE)]


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def _scaled_down(before: Pod, now: Pod) -> bool:
    """Whether the pod requests less of any resource; resources granted in place count like requested ones."""
    if before.spec == now.spec and before.status == now.status:
        return False
    requests = pod_requests(now, use_status=True)
    return any(
        resource not in requests or amount.milli > requests[resource].milli
        for resource, amount in pod_requests(before, use_status=True).items()
    )
