"""The volumes of a pod that scheduling looks at, the claims it uses by way of them, and what volume plugins share."""

from abc import abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from flotilla.objects import ClusterObjects, PersistentVolumeClaim, Pod, Volume
from flotilla.plugin import ClassState, NodeView, Plugin, StateKey
from shared.cluster.volumes import VolumeDecision
from shared.plugins.volumes.migration import migration_of_inline

DECISION = StateKey[VolumeDecision]("the decision about the pod's volumes")
"""Set by the binder for plugins that bind volumes."""


class VolumePlugin(Plugin):
    """A plugin that decides which volumes a pod gets along with its node."""

    @abstractmethod
    def volumes_for(self, state: ClassState, node: NodeView) -> VolumeDecision | None:
        """For a node that the filter admitted, as a view of one; None if nothing is left to decide."""


class ClaimUse(NamedTuple):
    """A claim that a pod names; an `ephemeral` one is made for the pod by a controller."""

    name: str
    ephemeral: bool


def claim_uses(pod: Pod) -> list[ClaimUse]:
    """In the order of the pod's volumes; a claim that two volumes name comes twice."""
    uses: list[ClaimUse] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            uses.append(ClaimUse(volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            uses.append(ClaimUse(f"{pod.name}-{volume.name}", True))
    return uses


def named_claims(pod: Pod) -> list[str]:
    """The claims that the pod names itself, those that are made for it left out."""
    return [use.name for use in claim_uses(pod) if not use.ephemeral]


def claim_of(objects: ClusterObjects, pod: Pod, name: str) -> PersistentVolumeClaim | None:
    return objects.claims.get(f"{pod.namespace}/{name}")


def not_owned(pod: Pod, claim: PersistentVolumeClaim) -> str | None:
    """Why a claim is not the one that was made for this pod; None if it is."""
    if any(owner.controller and owner.uid == pod.uid for owner in claim.metadata.owner_references):
        return None
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def may_count(pod: Pod) -> bool:
    """Whether the pod has a volume that may count for a limit of a CSI driver."""
    return any(
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or migration_of_inline(volume) is not None
        for volume in pod.spec.volumes
    )


def claim_not_found(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


def volume_signature(pod: Pod) -> Hashable:
    """All that volume plugins read of a pod; None for the many pods without a volume that matters."""
    volumes = [volume for volume in pod.spec.volumes if _matters(volume)]
    if not volumes:
        return None
    owner = (pod.name, pod.uid) if any(volume.ephemeral is not None for volume in volumes) else ()
    return pod.namespace, owner, msgspec.msgpack.encode(volumes)


def _matters(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.azure_disk is not None
        or volume.cinder is not None
        or volume.portworx_volume is not None
        or volume.rbd is not None
        or volume.iscsi is not None
        or volume.azure_file is not None
        or volume.vsphere_volume is not None
    )


def clash(one: Volume, other: Volume) -> bool:
    """Whether two pods cannot have these disks on one node: the same disk, unless both only read it."""
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


# Queueing hints about claims


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
