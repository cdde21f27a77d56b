"""The volumes of a pod that scheduling looks at, and the claims that it uses by way of them."""

from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from flotilla.objects import ClusterObjects
from shared.model.objects import PersistentVolumeClaim, Pod, Volume
from shared.plugins.volumes.migration import migration_of_inline


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
