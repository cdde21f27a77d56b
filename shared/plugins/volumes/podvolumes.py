"""What volume plugins share: their base classes, a pod's volumes that matter to scheduling, and the claims it uses."""

from abc import abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from flotilla.objects import ClusterObjects, PersistentVolumeClaim, Pod, Volume
from flotilla.plugin import ClassState, NodeView, Plugin, PluginError, StateKey
from shared.cluster.volumes import VolumeDecision
from shared.plugins.base import InTreePlugin
from shared.plugins.volumes.migration import migration_of_inline

DECISION = StateKey[VolumeDecision]("the decision about the pod's volumes")
"""Set by the binder for plugins that bind volumes."""


SOURCES = (
    *("persistent_volume_claim", "ephemeral", "gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "cinder"),
    *("portworx_volume", "rbd", "iscsi", "azure_file", "vsphere_volume"),
)
"""The fields of a volume that volume plugins read."""


class VolumePlugin(Plugin):
    """A plugin that decides which volumes a pod gets along with its node."""

    @abstractmethod
    def decides(self, state: ClassState) -> bool:
        """Whether anything is left to decide about the pod's volumes."""

    @abstractmethod
    def volumes_for(self, state: ClassState, node: NodeView) -> VolumeDecision:
        """For a pod with something to decide, and a node that the filter admitted, as a view of one."""

    @abstractmethod
    def choices_for(self, state: ClassState, node: NodeView, taken: int) -> list[list[str]]:
        """For each binding of that decision, what it would be if up to `taken` volumes were given to other pods: the
        free volumes in their order. None for a volume that is reserved for the claim.
        """


class ReadsVolumes(InTreePlugin):
    """A plugin that reads nothing of a pod but its volumes."""

    def signature(self, pod: Pod) -> Hashable:
        """None for the many pods without a volume that matters."""
        volumes = [volume for volume in pod.spec.volumes if any(getattr(volume, kind) is not None for kind in SOURCES)]
        if not volumes:
            return None
        owner = (pod.name, pod.uid) if any(volume.ephemeral is not None for volume in volumes) else ()
        return pod.namespace, owner, msgspec.msgpack.encode(volumes)

    def failed(self, why: str) -> PluginError:
        return PluginError(f'running "{self.name}" filter plugin: {why}')


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
    """The claims that the pod names itself, without those that are made for it."""
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
    """The pod uses the claim; it may be one that is made for the pod."""
    return now.namespace == pod.namespace and any(use.name == now.name for use in claim_uses(pod))


def always(before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None) -> bool:
    """A claim of a volume helps only pods that use it."""
    return True


def after_named_claim(
    pod: Pod, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim, objects: ClusterObjects
) -> bool:
    """The pod names the claim itself."""
    return now.namespace == pod.namespace and now.name in named_claims(pod)
