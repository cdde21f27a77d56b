"""Whether two pods can have their disks on one node."""

from shared.model.objects import Volume


def clash(one: Volume, other: Volume) -> bool:
    """Two pods cannot have the same disk on one node, unless both only read what may be read together."""
    if one.gce_persistent_disk is not None and other.gce_persistent_disk is not None:
        gce, there = one.gce_persistent_disk, other.gce_persistent_disk
        return gce.pd_name == there.pd_name and not (gce.read_only and there.read_only)
    if one.aws_elastic_block_store is not None and other.aws_elastic_block_store is not None:
        return one.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id
    if one.iscsi is not None and other.iscsi is not None:
        return one.iscsi.iqn == other.iscsi.iqn and not (one.iscsi.read_only and other.iscsi.read_only)
    if one.rbd is not None and other.rbd is not None:
        same = (one.rbd.pool, one.rbd.image) == (other.rbd.pool, other.rbd.image)
        together = one.rbd.read_only and other.rbd.read_only
        return same and not together and not set(one.rbd.monitors).isdisjoint(other.rbd.monitors)
    return False


def can_clash(volume: Volume) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )
