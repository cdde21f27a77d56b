"""Which pods belong with a pod: those of its services and of the controller that owns it."""

from collections.abc import Mapping

from flotilla.objects import ClusterObjects
from shared.model.kinds import ObjectKind
from shared.model.objects import LabelSelector, LabelSelectorRequirement, OwnerReference, Pod

_CONTROLLERS: Mapping[tuple[str, str], ObjectKind] = {
    ("v1", "ReplicationController"): ObjectKind.REPLICATION_CONTROLLER,
    ("apps/v1", "ReplicaSet"): ObjectKind.REPLICA_SET,
    ("apps/v1", "StatefulSet"): ObjectKind.STATEFUL_SET,
}


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def kinds_looked_at(pod: Pod) -> tuple[ObjectKind, ...]:
    """The kinds of objects on which `fellows` rests for this pod."""
    owner = controller_of(pod)
    kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
    return (ObjectKind.SERVICE,) if kind is None else (ObjectKind.SERVICE, kind)


def fellows(pod: Pod, objects: ClusterObjects) -> LabelSelector | None:
    """The selectors of the pod's services and of its controller, all together; None if they select by nothing."""
    labels: dict[str, str] = {}
    for service in objects.services_in(pod.namespace).values():
        if service.spec.selector.items() <= pod.metadata.labels.items():
            labels |= service.spec.selector
    conditions: list[LabelSelectorRequirement] = []
    owner = controller_of(pod)
    if owner is not None:
        key = f"{pod.namespace}/{owner.name}"
        match _CONTROLLERS.get((owner.api_version, owner.kind)):
            case ObjectKind.REPLICATION_CONTROLLER:
                replication = objects.replication_controllers.get(key)
                labels |= {} if replication is None else replication.spec.selector
            case ObjectKind.REPLICA_SET:
                replicas = objects.replica_sets.get(key)
                conditions = _add(labels, None if replicas is None else replicas.spec.selector)
            case ObjectKind.STATEFUL_SET:
                stateful = objects.stateful_sets.get(key)
                conditions = _add(labels, None if stateful is None else stateful.spec.selector)
    if not labels and not conditions:
        return None
    return LabelSelector(match_labels=dict(sorted(labels.items())), match_expressions=conditions)


def _add(labels: dict[str, str], selector: LabelSelector | None) -> list[LabelSelectorRequirement]:
    """Adds a selector's labels; what conflicts with those there, and its conditions, are returned."""
    if selector is None:
        return []
    conditions: list[LabelSelectorRequirement] = []
    for key, value in sorted(selector.match_labels.items()):
        if labels.setdefault(key, value) != value:
            conditions.append(LabelSelectorRequirement(key=key, operator="In", values=[value]))
    return conditions + selector.match_expressions
