"""The claims of a pod, by what is to become of them."""

from typing import NamedTuple

from flotilla.objects import ClusterObjects
from flotilla.results import Status, error, unresolvable
from shared.model.objects import PersistentVolumeClaim, Pod
from shared.model.quantity import Quantity
from shared.model.storage import WAIT_FOR_FIRST_CONSUMER
from shared.plugins.volumes.podvolumes import claim_not_found, claim_of, claim_uses, not_owned

STORAGE = "storage"


class PodClaims(NamedTuple):
    """`bound` have their volume. The others get one with the pod's node: for those `selected` a node was chosen before,
    where a volume is to be made; `unbound`, the smallest first, get a volume that is there, or one is made.
    """

    bound: list[PersistentVolumeClaim]
    selected: list[PersistentVolumeClaim]
    unbound: list[PersistentVolumeClaim]


def requested_storage(claim: PersistentVolumeClaim) -> Quantity | None:
    return claim.spec.resources.requests.get(STORAGE)


def claims_of(pod: Pod, objects: ClusterObjects) -> PodClaims | Status | None:
    """A status if the pod cannot run as its claims are, None if it has none."""
    found: list[PersistentVolumeClaim] = []
    for name, ephemeral in claim_uses(pod):
        claim = claim_of(objects, pod, name)
        fault = _fault(pod, name, claim, ephemeral)
        if claim is None or fault is not None:
            return unresolvable(fault or claim_not_found(name))
        found.append(claim)
    return _sorted_out(found, objects) if found else None


def _fault(pod: Pod, name: str, claim: PersistentVolumeClaim | None, ephemeral: bool) -> str | None:
    if claim is None:
        if ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return claim_not_found(name)
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return not_owned(pod, claim) if ephemeral else None


def _sorted_out(claims: list[PersistentVolumeClaim], objects: ClusterObjects) -> PodClaims | Status:
    sorted_out = PodClaims([], [], [])
    immediate = False
    for claim in claims:
        if claim.fully_bound:
            sorted_out.bound.append(claim)
            continue
        storage_class = objects.storage_classes.get(claim.storage_class) if claim.storage_class else None
        if storage_class is not None and storage_class.volume_binding_mode is None:
            return error(f'VolumeBindingMode not set for StorageClass "{storage_class.name}"')
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if not waits or claim.spec.volume_name:
            immediate = True
        elif claim.selected_node is not None:
            sorted_out.selected.append(claim)
        else:
            sorted_out.unbound.append(claim)
    if immediate:
        return unresolvable("pod has unbound immediate PersistentVolumeClaims")
    sorted_out.unbound.sort(key=lambda claim: requested_storage(claim) or 0)
    return sorted_out
