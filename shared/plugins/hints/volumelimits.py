"""When a pod that would have made too many volumes for a node is worth another attempt: NodeVolumeLimits and kin."""

from flotilla.objects import ClusterObjects
from shared.model.objects import CSINode, CSINodeDriver, Pod, VolumeAttachment
from shared.plugins.hints.anypod import holds_place
from shared.plugins.volumes.migration import handle_of_inline, migration_of_inline
from shared.plugins.volumes.podvolumes import may_count


def after_pod_gone(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The pod that is gone had a volume that may have counted."""
    return bool(before.spec.volumes) and holds_place(before) and may_count(before)


def after_detachment(pod: Pod, before: VolumeAttachment, now: None, objects: ClusterObjects) -> bool:
    """The pod has a claim, or an in-tree volume of the same driver; raises Untranslatable for one of no driver."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            return True
        migration = migration_of_inline(volume)
        if migration is None:
            continue
        if migration.counts:
            handle_of_inline(volume)
        if migration.driver == before.spec.attacher:
            return True
    return False


def after_limits(pod: Pod, before: CSINode, now: CSINode, objects: ClusterObjects) -> bool:
    """The node can have more volumes of some driver, whichever; no limit at all counts as nought."""
    old = {driver.name: _limit(driver) for driver in before.spec.drivers}
    return any(_limit(driver) > old.get(driver.name, 0) for driver in now.spec.drivers)


def _limit(driver: CSINodeDriver) -> int:
    return driver.allocatable.count or 0 if driver.allocatable is not None else 0
