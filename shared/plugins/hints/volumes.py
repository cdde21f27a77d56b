"""When a pod that its volumes kept off nodes is worth another attempt.

For VolumeBinding, VolumeZone and VolumeRestrictions.
"""

from flotilla.objects import ClusterObjects
from shared.model.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from shared.model.quantity import Quantity
from shared.model.storage import MIGRATED_PLUGINS, WAIT_FOR_FIRST_CONSUMER
from shared.plugins.volumes.clashes import can_clash, clash
from shared.plugins.volumes.podvolumes import claim_uses, named_claims
from shared.plugins.volumes.zones import zones_of_volume

# Claims


def after_claim(
    pod: Pod, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim, objects: ClusterObjects
) -> bool:
    """It is one that the pod uses; one that is made for the pod is, too."""
    return _may_use(pod, now) and any(use.name == now.name for use in claim_uses(pod))


def after_named_claim(
    pod: Pod, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim, objects: ClusterObjects
) -> bool:
    """It is one that the pod names itself."""
    return _may_use(pod, now) and now.name in named_claims(pod)


def _may_use(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    return bool(pod.spec.volumes) and claim.namespace == pod.namespace


# VolumeBinding


def after_storage_class(pod: Pod, before: StorageClass | None, now: StorageClass, objects: ClusterObjects) -> bool:
    """It is new, or makes volumes elsewhere than before."""
    return before is None or before.allowed_topologies != now.allowed_topologies


def after_migration(pod: Pod, before: CSINode | None, now: CSINode, objects: ClusterObjects) -> bool:
    """Other in-tree volumes have become the CSI drivers' on the node; or the node's drivers are known at last."""
    return before is None or _migrated(before) != _migrated(now)


def after_capacity(
    pod: Pod, before: CSIStorageCapacity | None, now: CSIStorageCapacity, objects: ClusterObjects
) -> bool:
    """Larger volumes than before can be had."""
    if before is None:
        return True
    old, new = _largest_volume(before), _largest_volume(now)
    return new is not None and (old is None or new.value > old.value)


def after_driver(pod: Pod, before: CSIDriver, now: CSIDriver, objects: ClusterObjects) -> bool:
    """The driver of a volume that the pod has without a claim no longer asks for capacity to be looked at."""
    return (
        before.spec.storage_capacity is True
        and not now.spec.storage_capacity
        and any(volume.csi is not None and volume.csi.driver == now.name for volume in pod.spec.volumes)
    )


def _migrated(node: CSINode) -> str:
    return node.metadata.annotations.get(MIGRATED_PLUGINS, "")


def _largest_volume(capacity: CSIStorageCapacity) -> Quantity | None:
    return capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size


# VolumeZone


def after_late_binding_class(pod: Pod, before: None, now: StorageClass, objects: ClusterObjects) -> bool:
    """Its claims need no volume yet."""
    return now.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def after_volume(pod: Pod, before: PersistentVolume | None, now: PersistentVolume, objects: ClusterObjects) -> bool:
    """It is new, or in other zones than before."""
    return before is None or (
        before.metadata.labels != now.metadata.labels and zones_of_volume(before) != zones_of_volume(now)
    )


# VolumeRestrictions


def after_pod_gone(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The pod that is gone had a disk or a claim that this one wants; whether it had a place is not looked at."""
    wanted, freed = pod.spec.volumes, before.spec.volumes
    if not wanted or not freed or before.namespace != pod.namespace:
        return False
    if any(can_clash(volume) and clash(volume, other) for volume in wanted for other in freed):
        return True
    return not set(named_claims(pod)).isdisjoint(named_claims(before))
