"""Limits of how many volumes a node can have: NodeVolumeLimits for CSI drivers, and the plugins of in-tree volumes."""

import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import ABSENT, Mask, NodeView, PodColumn
from flotilla.objects import ClusterObjects, CSINode, VolumeAttachment
from flotilla.plugin import ClassState, FilterPlugin, PreFilterPlugin, StateKey
from flotilla.results import SKIP, PreFilterResult, unresolvable, unschedulable
from shared.config.feature_gates import DEFAULT_GATES, Feature, FeatureGates
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad, claim_names
from shared.model.objects import CSINodeDriver, Node, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume
from shared.model.wellknown import BETA_INSTANCE_TYPE, INSTANCE_TYPE
from shared.plugins.base import is_placed
from shared.plugins.volumes.migration import (
    AZURE_DISK,
    BY_PLUGIN,
    CINDER,
    EBS,
    GCE_PD,
    Untranslatable,
    handle_of_inline,
    handle_of_volume,
    is_migrated_on,
    migration_of_inline,
    migration_of_volume,
)
from shared.plugins.volumes.nodecolumns import object_column
from shared.plugins.volumes.own_claims import OWN_CLAIMS
from shared.plugins.volumes.podvolumes import (
    ReadsVolumes,
    after_claim,
    always,
    claim_not_found,
    claim_of,
    claim_uses,
    may_count,
    not_owned,
)

TOO_MANY = unschedulable("node(s) exceed max volume count")

READ = (
    ObjectKind.PERSISTENT_VOLUME_CLAIM,
    ObjectKind.PERSISTENT_VOLUME,
    ObjectKind.STORAGE_CLASS,
    ObjectKind.CSI_NODE,
)

Attached = dict[str, str]
"""Volumes by `driver/handle`, with their drivers."""


def after_pod_deletion(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The deleted pod had a volume that may have counted."""
    return bool(before.spec.volumes) and is_placed(before) and may_count(before)


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
    """The node can have more volumes of some driver; no limit at all counts as 0."""

    def count(driver: CSINodeDriver) -> int:
        return driver.allocatable.count or 0 if driver.allocatable is not None else 0

    old = {driver.name: count(driver) for driver in before.spec.drivers}
    return any(count(driver) > old.get(driver.name, 0) for driver in now.spec.drivers)


@dataclass(frozen=True, slots=True)
class VolumeReferences(PodColumn):
    """How often the pods on a node refer to a volume: there are never more volumes than that."""

    def amount(self, pod: PodLoad) -> int:
        return len(pod.claims) + len(pod.disks)


WANTED = StateKey[Attached]("the pod's own volumes")
REFERENCES = VolumeReferences()


class NodeVolumeLimits(ReadsVolumes, PreFilterPlugin, FilterPlugin):
    """Keeps nodes below the number of volumes that their CSI drivers can attach.

    A volume counts once on a node, however many pods have it. Most nodes are far from their limits: a column tells how
    many references to volumes there are on each, and only where these might be too many are the volumes counted.
    """

    name = "NodeVolumeLimits"

    def __init__(self, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._requires_drivers = gates.enabled(Feature.VOLUME_DRIVERS)

    registrations = (
        Registration(Resource.CSI_NODE, Action.ADD),
        Registration(Resource.CSI_NODE, Action.UPDATE, after_limits),
        Registration(Resource.POD, Action.DELETE, after_pod_deletion),
        Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_claim, always),
        Registration(Resource.VOLUME_ATTACHMENT, Action.DELETE, after_detachment),
    )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        if not may_count(state.pod):
            return ()
        drivers = (ObjectKind.CSI_DRIVER,) if self._requires_drivers else ()
        return (*READ, ObjectKind.VOLUME_ATTACHMENT, *drivers)

    def cache_key(self, state: ClassState) -> Hashable:
        """Pods that are judged by the names of the same claims may share a volume."""
        return self.signature(state.pod), state.get(OWN_CLAIMS)

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult() if may_count(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        for name, _ in claim_uses(state.pod):
            if claim_of(state.objects, state.pod, name) is None:
                nodes.reject(nodes.valid, unresolvable(_not_found(state.pod, name)))
                return
        wanted = self._wanted(state)

        def limit(driver: str, objects: ClusterObjects, node: Node) -> int:
            return _limit(driver, objects, node.name)

        def attachments(objects: ClusterObjects, node: Node) -> int:
            return len(objects.attachments_on(node.name))

        without_driver = self._reject_without_drivers(state, wanted, nodes) if self._requires_drivers else False
        near = np.zeros(len(nodes), dtype=np.bool_)
        for driver, count in Counter(wanted.values()).items():
            limits = object_column(nodes, driver, ObjectKind.CSI_NODE, partial(limit, driver))
            attached = object_column(nodes, "attachments", ObjectKind.VOLUME_ATTACHMENT, attachments)
            near |= (limits != ABSENT) & (nodes.of_pods(REFERENCES) + attached + count > limits)
        near &= ~np.asarray(without_driver)
        exceeding = [i for i in np.flatnonzero(near).tolist() if self._exceeds(state, nodes, i, wanted)]
        nodes.reject(np.array(exceeding, dtype=np.intp), TOO_MANY)

    def _reject_without_drivers(self, state: ClassState, wanted: Attached, nodes: NodeView) -> Mask:
        """Reject nodes on which a driver is not installed that asks for that; the first one by name is the reason.

        On a node without CSINode the volumes that CSI drivers have taken over from in-tree ones do not count.
        """
        pod, objects = state.pod, state.objects
        rejected = np.zeros(len(nodes), dtype=np.bool_)
        for name in sorted(set(wanted.values())):
            driver = objects.csi_drivers.get(name)
            if driver is None or not driver.spec.prevent_pod_scheduling_if_missing:
                continue
            claims = [claim for claim, _ in claim_uses(pod)]
            counts_anywhere = name in self._volumes(objects, pod.namespace, claims, (), migrates=False).values()
            installed = object_column(nodes, ("installed", name), ObjectKind.CSI_NODE, partial(_is_installed, name))
            missing = (installed == 0) | (counts_anywhere & (installed == ABSENT) & nodes.valid)
            nodes.reject(missing & ~rejected, unschedulable(f"{name} CSI driver is not installed on the node"))
            rejected |= missing
        return rejected

    def _wanted(self, state: ClassState) -> Attached:
        """The pod's own volumes, on a node that has a CSINode; without one a node has no limits."""
        wanted = state.get(WANTED)
        if wanted is None:
            pod, objects = state.pod, state.objects
            for name, ephemeral in claim_uses(pod):
                claim = claim_of(objects, pod, name)
                fault = not_owned(pod, claim) if ephemeral and claim is not None else None
                if fault is not None:
                    raise self.failed(fault)
            names = [name for name, _ in claim_uses(pod)]
            wanted = state[WANTED] = self._volumes(objects, pod.namespace, names, pod.spec.volumes)
        return wanted

    def _exceeds(self, state: ClassState, nodes: NodeView, i: int, wanted: Attached) -> bool:
        objects, node = state.objects, nodes.node(i).name
        there: Attached = {}
        attached: Counter[str] = Counter()
        own = (state.pod.namespace, claim_names(state.pod)) if state.get(OWN_CLAIMS) else None
        for load in nodes.pods(i):
            if (load.namespace, load.claims) == own:
                attached.update(wanted.values())  # another pod of the class, with claims like these
                there |= self._volumes(objects, load.namespace, (), load.disks)
            else:
                there |= self._volumes(objects, load.namespace, load.claims, load.disks)
        attached.update(there.values())
        attached.update(driver for volume, driver in _attached(objects, node).items() if volume not in there)
        new = Counter(driver for volume, driver in wanted.items() if volume not in there)
        limits = {driver: limit for driver in new if (limit := _limit(driver, objects, node)) != ABSENT}
        return any(attached[driver] + new[driver] > limit for driver, limit in limits.items())

    def _volumes(
        self,
        objects: ClusterObjects,
        namespace: str,
        claims: Iterable[str],
        inline: Iterable[Volume],
        *,
        migrates: bool = True,
    ) -> Attached:
        """`migrates`: with volumes that CSI drivers have taken over from in-tree ones."""
        volumes: Attached = {}
        for name in claims:
            claim = objects.claims.get(f"{namespace}/{name}")
            found = _volume_of_claim(objects, claim, migrates) if claim is not None else None
            if found is not None:
                driver, handle = found
                volumes[f"{driver}/{handle}"] = driver
        for volume in inline:
            migration = migration_of_inline(volume)
            if migration is not None and migration.counts:
                try:
                    volumes[f"{migration.driver}/{handle_of_inline(volume)}"] = migration.driver
                except Untranslatable as cause:
                    raise self.failed(f"converting volume({volume.name}) from inline to csi: {cause}") from cause
        return volumes


def _not_found(pod: Pod, claim: str) -> str:
    return f"looking up PVC {pod.namespace}/{claim}: {claim_not_found(claim)}"


def _volume_of_claim(objects: ClusterObjects, claim: PersistentVolumeClaim, migrates: bool) -> tuple[str, str] | None:
    """The driver and handle of a claim's volume, or of the one that is to be made for it."""
    volume = objects.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage_class = objects.storage_classes.get(claim.storage_class) if claim.storage_class else None
        if storage_class is None or not storage_class.provisioner:
            return None
        migration = BY_PLUGIN.get(storage_class.provisioner)
        if migration is not None and not (migrates and migration.counts):
            return None
        return storage_class.provisioner if migration is None else migration.driver, f"to be made for {claim.key}"
    if volume.spec.csi is not None:
        driver, handle = volume.spec.csi.driver, volume.spec.csi.volume_handle
        return (driver, handle) if driver and handle else None
    migration = migration_of_volume(volume)
    if migration is None or not (migrates and migration.counts):
        return None
    try:
        handle = handle_of_volume(volume)
    except Untranslatable:
        return None
    return (migration.driver, handle) if handle else None


def _attached(objects: ClusterObjects, node: str) -> Attached:
    """What the node has according to VolumeAttachments, whether a pod has it or not."""
    attached: Attached = {}
    for attachment in objects.attachments_on(node).values():
        spec = attachment.spec
        volume = objects.persistent_volumes.get(spec.source.persistent_volume_name or "")
        if spec.attacher and volume is not None and volume.spec.csi is not None:
            attached[f"{spec.attacher}/{volume.spec.csi.volume_handle}"] = spec.attacher
    return attached


def _limit(driver: str, objects: ClusterObjects, node: str) -> int:
    """How many volumes of the driver the node can have; ABSENT if any number. Of several limits the last one counts."""
    csi_node = objects.csi_nodes.get(node)
    limit = ABSENT
    for each in csi_node.spec.drivers if csi_node is not None else ():
        if each.name == driver and each.allocatable is not None and each.allocatable.count is not None:
            limit = each.allocatable.count
    return limit


def _is_installed(driver: str, objects: ClusterObjects, node: Node) -> int:
    """1 or 0; ABSENT for a node without CSINode."""
    csi_node = objects.csi_nodes.get(node.name)
    return ABSENT if csi_node is None else int(any(each.name == driver for each in csi_node.spec.drivers))


# Limits of in-tree volumes, for which kube-scheduler had a plugin each. v1.36 has none of them, as the volumes are CSI
# drivers' by now; they are here for clusters that name them. On a node whose kubelet leaves the volumes to the CSI
# driver, NodeVolumeLimits decides.

LIMIT_FOR_ALL = "KUBE_MAX_PD_VOLS"
"""The environment variable that overrides the limits known here, but not what a node says itself."""
INSTANCE_TYPES = (INSTANCE_TYPE, BETA_INSTANCE_TYPE)

_NITRO = re.compile(r"^[cmr]5.*|t3|z1d")
_NITRO_LIMIT = 25


class DiskLimits(ReadsVolumes, FilterPlugin):
    """A kind of in-tree volume. `source`: the field of a volume that holds it, and `identity` the field of that.

    `resource`: by which a node says how many it can have; `limit`: where it does not.
    """

    plugin: ClassVar[str]
    source: ClassVar[str]
    identity: ClassVar[str]
    resource: ClassVar[str]
    limit: ClassVar[int]
    registrations = (
        Registration(Resource.NODE, Action.ADD),
        Registration(Resource.POD, Action.DELETE, after_pod_deletion),
        Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_claim, always),
    )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        return READ if state.pod.spec.volumes else ()

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        wanted = self._wanted(state.pod, state.objects)
        looked_at = np.flatnonzero(nodes.valid).tolist() if wanted else ()
        exceeding = [i for i in looked_at if self._exceeds(state.objects, nodes, i, wanted)]
        nodes.reject(np.array(exceeding, dtype=np.intp), TOO_MANY)

    def _exceeds(self, objects: ClusterObjects, nodes: NodeView, i: int, wanted: set[str]) -> bool:
        node = nodes.node(i)
        if is_migrated_on(objects.csi_nodes.get(node.name), self.plugin):
            return False
        there: set[str] = set()
        for load in nodes.pods(i):
            there |= self._disks_of(objects, load.namespace, load.claims, load.disks)
        return len(there | wanted) > self._limit(nodes, i, node)

    def _limit(self, nodes: NodeView, i: int, node: Node) -> int:
        if self.resource in node.status.allocatable:
            return int(nodes.allocatable(self.resource)[0, i])
        for_all = os.environ.get(LIMIT_FOR_ALL, "")
        if for_all.isascii() and for_all.isdigit() and int(for_all) > 0:
            return int(for_all)
        return self._default_limit(node)

    def _default_limit(self, node: Node) -> int:
        return self.limit

    def _identity(self, volume: Volume | PersistentVolumeSpec) -> str | None:
        source = getattr(volume, self.source)
        identity: str | None = None if source is None else getattr(source, self.identity)
        return identity

    def _wanted(self, pod: Pod, objects: ClusterObjects) -> set[str]:
        for name, ephemeral in claim_uses(pod):
            claim = claim_of(objects, pod, name)
            if claim is None:
                raise self.failed(_not_found(pod, name))
            fault = not_owned(pod, claim) if ephemeral else None
            if fault is not None:
                raise self.failed(fault)
        return self._disks_of(objects, pod.namespace, [use.name for use in claim_uses(pod)], pod.spec.volumes)

    def _disks_of(
        self, objects: ClusterObjects, namespace: str, claims: Iterable[str], inline: Iterable[Volume]
    ) -> set[str]:
        found = {identity for volume in inline if (identity := self._identity(volume)) is not None}
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
            return self._identity(volume.spec)
        storage_class = objects.storage_classes.get(claim.spec.storage_class_name or "")
        makes_such = storage_class is not None and storage_class.provisioner == self.plugin
        return f"to be made for {claim.key}" if makes_such else None


class EBSLimits(DiskLimits):
    name = "EBSLimits"
    plugin = EBS
    source, identity = "aws_elastic_block_store", "volume_id"
    resource, limit = "attachable-volumes-aws-ebs", 39

    def _default_limit(self, node: Node) -> int:
        kind = next((node.metadata.labels[key] for key in INSTANCE_TYPES if key in node.metadata.labels), "")
        return _NITRO_LIMIT if _NITRO.search(kind) else self.limit


class GCEPDLimits(DiskLimits):
    name = "GCEPDLimits"
    plugin = GCE_PD
    source, identity = "gce_persistent_disk", "pd_name"
    resource, limit = "attachable-volumes-gce-pd", 16


class AzureDiskLimits(DiskLimits):
    name = "AzureDiskLimits"
    plugin = AZURE_DISK
    source, identity = "azure_disk", "disk_name"
    resource, limit = "attachable-volumes-azure-disk", 16


class CinderLimits(DiskLimits):
    name = "CinderLimits"
    plugin = CINDER
    source, identity = "cinder", "volume_id"
    resource, limit = "attachable-volumes-cinder", 256
