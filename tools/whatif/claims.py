"""Claims of volumes and devices that controllers make for a pod, and that go with it."""

from collections.abc import Mapping

from msgspec.structs import replace

from shared.model.devices import ConsumerReference, ResourceClaim, ResourceClaimStatus
from shared.model.objects import (
    ClusterObject,
    ObjectKind,
    ObjectMeta,
    OwnerReference,
    PersistentVolumeClaim,
    Pod,
    PodStatus,
)
from shared.model.pod import PodResourceClaimStatus
from shared.model.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolumeClaimStatus

DECIDED = frozenset({BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE})
"""Annotations that schedulers and controllers write on claims of volumes."""

Objects = Mapping[tuple[ObjectKind, str], ClusterObject]


def recreated(pod: Pod, uid: str, objects: Objects) -> tuple[Pod, list[ClusterObject]]:
    """The pod as its owner would make it again, with new claims that ask for what its own ones did."""
    metadata = replace(pod.metadata, uid=uid, deletion_timestamp=None, resource_version="")
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=uid, controller=True)
    made: list[ClusterObject] = []
    for volume in pod.spec.volumes if any(volume.ephemeral for volume in pod.spec.volumes) else ():
        name = f"{pod.name}-{volume.name}"
        claim = objects.get((ObjectKind.PERSISTENT_VOLUME_CLAIM, f"{pod.namespace}/{name}"))
        if volume.ephemeral is not None and isinstance(claim, PersistentVolumeClaim):
            given = _metadata(claim.metadata, name, f"{uid}-{volume.name}", owner)
            spec = replace(claim.spec, volume_name="")
            made.append(replace(claim, metadata=given, spec=spec, status=PersistentVolumeClaimStatus(), promised=""))
    named = []
    templates = {use.name for use in pod.spec.resource_claims if use.resource_claim_template_name}
    for status in pod.status.resource_claim_statuses:
        device_claim = objects.get((ObjectKind.RESOURCE_CLAIM, f"{pod.namespace}/{status.resource_claim_name}"))
        if status.name in templates and isinstance(device_claim, ResourceClaim):
            given = _metadata(device_claim.metadata, f"{uid}-{status.name}", f"{uid}-{status.name}", owner)
            made.append(replace(device_claim, metadata=given, status=ResourceClaimStatus(), promised=False))
            named.append(PodResourceClaimStatus(name=status.name, resource_claim_name=given.name))
    again = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""))
    return replace(again, status=PodStatus(resource_claim_statuses=named)), made


def _metadata(before: ObjectMeta, name: str, uid: str, owner: OwnerReference) -> ObjectMeta:
    """Of a claim about which nothing is decided yet."""
    annotations = {key: value for key, value in before.annotations.items() if key not in DECIDED}
    return replace(
        before,
        name=name,
        uid=uid,
        annotations=annotations,
        owner_references=[owner],
        deletion_timestamp=None,
        resource_version="",
    )


def with_user(claim: ResourceClaim, pod: Pod) -> ResourceClaim:
    """The claim as a binder writes it, with the devices that were decided, before it binds the pod."""
    others = [each for each in claim.status.reserved_for if each.uid != pod.uid]
    user = ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
    return replace(claim, promised=False, status=replace(claim.status, reserved_for=[*others, user]))


def without_user(claim: ResourceClaim, uid: str) -> ResourceClaim:
    """The claim as the controller leaves it when a pod that it was reserved for is gone."""
    left = [each for each in claim.status.reserved_for if each.uid != uid]
    return replace(claim, status=replace(claim.status, reserved_for=left) if left else ResourceClaimStatus())


def owner_of(obj: ClusterObject) -> str:
    """The uid of its controller; empty without one."""
    return next((owner.uid for owner in obj.metadata.owner_references if owner.controller), "")
