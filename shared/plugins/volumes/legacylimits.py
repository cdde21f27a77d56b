"""The limits of in-tree volumes that kube-scheduler had a plugin for each: EBS, GCE PD, Azure Disk and Cinder.

v1.36 has none of them, as the volumes are CSI drivers' by now; they are here for clusters that name them. On a node
whose kubelet leaves the volumes to the CSI driver, NodeVolumeLimits is in charge.
"""

import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from flotilla.plugin import ClassState, FilterPlugin, NodeView, PluginError, PodParts
from flotilla.results import unschedulable
from shared.model.kinds import ObjectKind
from shared.model.objects import Node, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume
from shared.model.wellknown import BETA_INSTANCE_TYPE, INSTANCE_TYPE
from shared.plugins.volumes.migration import AZURE_DISK, CINDER, EBS, GCE_PD, is_migrated_on
from shared.plugins.volumes.nodevolumelimits import after_pod_deletion
from shared.plugins.volumes.podvolumes import after_claim, claim_of, claim_uses, not_owned, volume_signature

TOO_MANY = unschedulable("node(s) exceed max volume count")
LIMIT_FOR_ALL = "KUBE_MAX_PD_VOLS"
"""The environment variable that stands above the limits known here, though not above what a node says itself."""
INSTANCE_TYPES = (INSTANCE_TYPE, BETA_INSTANCE_TYPE)

_NITRO = re.compile(r"^[cmr]5.*|t3|z1d")
_NITRO_LIMIT = 25

Source = Volume | PersistentVolumeSpec


@dataclass(frozen=True, slots=True)
class Disks:
    """A kind of in-tree volume. `resource`: by which a node says how many it can have; `limit`: where it does not."""

    name: str
    plugin: str
    resource: str
    limit: int
    identity: Callable[[Source], str | None]


EBS_DISKS = Disks(
    "EBSLimits",
    EBS,
    "attachable-volumes-aws-ebs",
    39,
    lambda source: None if source.aws_elastic_block_store is None else source.aws_elastic_block_store.volume_id,
)
GCE_DISKS = Disks(
    "GCEPDLimits",
    GCE_PD,
    "attachable-volumes-gce-pd",
    16,
    lambda source: None if source.gce_persistent_disk is None else source.gce_persistent_disk.pd_name,
)
AZURE_DISKS = Disks(
    "AzureDiskLimits",
    AZURE_DISK,
    "attachable-volumes-azure-disk",
    16,
    lambda source: None if source.azure_disk is None else source.azure_disk.disk_name,
)
CINDER_DISKS = Disks(
    "CinderLimits",
    CINDER,
    "attachable-volumes-cinder",
    256,
    lambda source: None if source.cinder is None else source.cinder.volume_id,
)


class DiskLimits(FilterPlugin):
    """One for each kind of disks; a subclass says which."""

    reads_of_pod = PodParts.TEMPLATE
    disks: Disks

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        """A disk may go with a pod, come with a node, or turn out to be another kind once its claim is there."""
        return (
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.POD, Action.DELETE, after_pod_deletion),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_claim),
        )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        if not state.pod.spec.volumes:
            return ()
        return (
            ObjectKind.PERSISTENT_VOLUME_CLAIM,
            ObjectKind.PERSISTENT_VOLUME,
            ObjectKind.STORAGE_CLASS,
            ObjectKind.CSI_NODE,
        )

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        wanted = self._wanted(state.pod, state.objects)
        looked_at = np.flatnonzero(nodes.valid).tolist() if wanted else ()
        exceeding = [i for i in looked_at if self._exceeds(state.objects, nodes, i, wanted)]
        nodes.reject(np.array(exceeding, dtype=np.intp), TOO_MANY)

    def _exceeds(self, objects: ClusterObjects, nodes: NodeView, i: int, wanted: set[str]) -> bool:
        node = nodes.node(i)
        if is_migrated_on(objects.csi_nodes.get(node.name), self.disks.plugin):
            return False
        there: set[str] = set()
        for load in nodes.pods(i):
            there |= self._disks_of(objects, load.namespace, load.claims, load.disks)
        return len(there | wanted) > self._limit(nodes, i, node)

    def _limit(self, nodes: NodeView, i: int, node: Node) -> int:
        if self.disks.resource in node.status.allocatable:
            return int(nodes.allocatable(self.disks.resource)[0, i])
        for_all = os.environ.get(LIMIT_FOR_ALL, "")
        if for_all.isascii() and for_all.isdigit() and int(for_all) > 0:
            return int(for_all)
        if self.disks is EBS_DISKS:
            kind = next((node.metadata.labels[key] for key in INSTANCE_TYPES if key in node.metadata.labels), "")
            return _NITRO_LIMIT if _NITRO.search(kind) else self.disks.limit
        return self.disks.limit

    def _wanted(self, pod: Pod, objects: ClusterObjects) -> set[str]:
        for name, ephemeral in claim_uses(pod):
            claim = claim_of(objects, pod, name)
            if claim is None:
                raise self._failed(f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found')
            fault = not_owned(pod, claim) if ephemeral else None
            if fault is not None:
                raise self._failed(fault)
        return self._disks_of(objects, pod.namespace, [use.name for use in claim_uses(pod)], pod.spec.volumes)

    def _disks_of(
        self, objects: ClusterObjects, namespace: str, claims: Iterable[str], inline: Iterable[Volume]
    ) -> set[str]:
        found = {identity for volume in inline if (identity := self.disks.identity(volume)) is not None}
        for name in claims:
            claim = objects.claims.get(f"{namespace}/{name}")
            identity = None if claim is None else self._disk_of(objects, claim)
            if identity is not None:
                found.add(identity)
        return found

    def _disk_of(self, objects: ClusterObjects, claim: PersistentVolumeClaim) -> str | None:
        """A claim without its volume counts as one, if its class makes such disks."""
        volume = objects.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            return self.disks.identity(volume.spec)
        storage_class = objects.storage_classes.get(claim.spec.storage_class_name or "")
        makes_such = storage_class is not None and storage_class.provisioner == self.disks.plugin
        return f"to be made for {claim.key}" if makes_such else None

    def _failed(self, why: str) -> PluginError:
        return PluginError(f"running {self.name!r} filter plugin: {why}")


class EBSLimits(DiskLimits):
    name = EBS_DISKS.name
    disks = EBS_DISKS


class GCEPDLimits(DiskLimits):
    name = GCE_DISKS.name
    disks = GCE_DISKS


class AzureDiskLimits(DiskLimits):
    name = AZURE_DISKS.name
    disks = AZURE_DISKS


class CinderLimits(DiskLimits):
    name = CINDER_DISKS.name
    disks = CINDER_DISKS
