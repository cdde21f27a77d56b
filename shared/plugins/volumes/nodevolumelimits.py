"""NodeVolumeLimits keeps nodes below the number of volumes that their CSI drivers can attach.

A volume counts once on a node, however many pods have it. Most nodes are far from their limits: a column tells how many
references to volumes there are on each, and only where these might be too many are the volumes themselves counted.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects, CSINode, VolumeAttachment
from flotilla.plugin import (
    ABSENT,
    ClassState,
    FilterPlugin,
    Ints,
    NodeView,
    PluginError,
    PodColumn,
    PodParts,
    PreFilterPlugin,
    StateKey,
)
from flotilla.results import SKIP, PreFilterResult, Status, unresolvable, unschedulable
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import CSINodeDriver, Node, PersistentVolumeClaim, Pod, Volume
from shared.plugins.queueing_hints import is_placed
from shared.plugins.volumes.migration import (
    BY_PLUGIN,
    Untranslatable,
    handle_of_inline,
    handle_of_volume,
    migration_of_inline,
    migration_of_volume,
)
from shared.plugins.volumes.nodecolumns import object_column
from shared.plugins.volumes.podvolumes import after_claim, claim_of, claim_uses, may_count, not_owned, volume_signature

TOO_MANY = unschedulable("node(s) exceed max volume count")

Attached = dict[str, str]
"""Volumes by `driver/handle`, with their drivers."""


@dataclass(frozen=True, slots=True)
class VolumeReferences(PodColumn):
    """How often the pods on a node refer to a volume: there are never more volumes than that."""

    def amount(self, pod: PodLoad) -> int:
        return len(pod.claims) + len(pod.disks)


WANTED = StateKey[Attached]("the pod's own volumes")
REFERENCES = VolumeReferences()


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    name = "NodeVolumeLimits"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.CSI_NODE, Action.ADD),
            Registration(Resource.CSI_NODE, Action.UPDATE, after_limits),
            Registration(Resource.POD, Action.DELETE, after_pod_deletion),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_claim),
            Registration(Resource.VOLUME_ATTACHMENT, Action.DELETE, after_detachment),
        )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        if not may_count(state.pod):
            return ()
        return (
            ObjectKind.PERSISTENT_VOLUME_CLAIM,
            ObjectKind.PERSISTENT_VOLUME,
            ObjectKind.STORAGE_CLASS,
            ObjectKind.CSI_NODE,
            ObjectKind.VOLUME_ATTACHMENT,
        )

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult() if may_count(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        missing = _missing(state)
        if missing is not None:
            nodes.reject(nodes.valid, missing)
            return
        wanted = self._wanted(state)
        near = np.zeros(len(nodes), dtype=np.bool_)
        for driver, count in Counter(wanted.values()).items():
            limits = _limits(nodes, driver)
            near |= (limits != ABSENT) & (nodes.of_pods(REFERENCES) + _attachments(nodes) + count > limits)
        exceeding = [i for i in np.flatnonzero(near).tolist() if self._exceeds(state.objects, nodes, i, wanted)]
        nodes.reject(np.array(exceeding, dtype=np.intp), TOO_MANY)

    def _wanted(self, state: ClassState) -> Attached:
        """The pod's own volumes, on a node that has a CSINode; without one a node has no limits."""
        wanted = state.get(WANTED)
        if wanted is None:
            pod, objects = state.pod, state.objects
            for name, ephemeral in claim_uses(pod):
                claim = claim_of(objects, pod, name)
                fault = not_owned(pod, claim) if ephemeral and claim is not None else None
                if fault is not None:
                    raise self._failed(fault)
            names = [name for name, _ in claim_uses(pod)]
            wanted = state[WANTED] = self._volumes(objects, pod.namespace, names, pod.spec.volumes)
        return wanted

    def _exceeds(self, objects: ClusterObjects, nodes: NodeView, i: int, wanted: Attached) -> bool:
        node = nodes.node(i).name
        there: Attached = {}
        for load in nodes.pods(i):
            there |= self._volumes(objects, load.namespace, load.claims, load.disks)
        attached = Counter(there.values())
        attached.update(driver for volume, driver in _attached(objects, node).items() if volume not in there)
        new = Counter(driver for volume, driver in wanted.items() if volume not in there)
        limits = {driver: limit for driver in new if (limit := _limit(driver, objects, node)) != ABSENT}
        return any(attached[driver] + new[driver] > limit for driver, limit in limits.items())

    def _volumes(
        self, objects: ClusterObjects, namespace: str, claims: Iterable[str], inline: Iterable[Volume]
    ) -> Attached:
        volumes: Attached = {}
        for name in claims:
            claim = objects.claims.get(f"{namespace}/{name}")
            found = _volume_of_claim(objects, claim) if claim is not None else None
            if found is not None:
                driver, handle = found
                volumes[f"{driver}/{handle}"] = driver
        for volume in inline:
            migration = migration_of_inline(volume)
            if migration is not None and migration.counts:
                try:
                    volumes[f"{migration.driver}/{handle_of_inline(volume)}"] = migration.driver
                except Untranslatable as cause:
                    raise self._failed(f"converting volume({volume.name}) from inline to csi: {cause}") from cause
        return volumes

    def _failed(self, why: str) -> PluginError:
        return PluginError(f"running {self.name!r} filter plugin: {why}")


def _missing(state: ClassState) -> Status | None:
    pod = state.pod
    for name, _ in claim_uses(pod):
        if claim_of(state.objects, pod, name) is None:
            reason = f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found'
            return unresolvable(reason)
    return None


def _volume_of_claim(objects: ClusterObjects, claim: PersistentVolumeClaim) -> tuple[str, str] | None:
    """The driver and handle of a claim's volume, or of the one that is to be made for it."""
    volume = objects.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _volume_to_be(objects, claim)
    if volume.spec.csi is not None:
        driver, handle = volume.spec.csi.driver, volume.spec.csi.volume_handle
        return (driver, handle) if driver and handle else None
    migration = migration_of_volume(volume)
    if migration is None or not migration.counts:
        return None
    try:
        handle = handle_of_volume(volume)
    except Untranslatable:
        return None
    return (migration.driver, handle) if handle else None


def _volume_to_be(objects: ClusterObjects, claim: PersistentVolumeClaim) -> tuple[str, str] | None:
    storage_class = objects.storage_classes.get(claim.storage_class) if claim.storage_class else None
    if storage_class is None or not storage_class.provisioner:
        return None
    migration = BY_PLUGIN.get(storage_class.provisioner)
    if migration is None:
        driver = storage_class.provisioner
    elif migration.counts:
        driver = migration.driver
    else:
        return None
    return driver, f"to be made for {claim.key}"


def _attached(objects: ClusterObjects, node: str) -> Attached:
    """What the node has according to VolumeAttachments, whether a pod has it or not."""
    attached: Attached = {}
    for attachment in objects.attachments_on(node).values():
        spec = attachment.spec
        volume = objects.persistent_volumes.get(spec.source.persistent_volume_name or "")
        if spec.attacher and volume is not None and volume.spec.csi is not None:
            attached[f"{spec.attacher}/{volume.spec.csi.volume_handle}"] = spec.attacher
    return attached


def _limits(nodes: NodeView, driver: str) -> Ints:
    return object_column(nodes, driver, ObjectKind.CSI_NODE, lambda objects, node: _limit(driver, objects, node.name))


def _limit(driver: str, objects: ClusterObjects, node: str) -> int:
    """How many volumes of the driver the node can have; ABSENT if any number. Of several limits the last one counts."""
    csi_node = objects.csi_nodes.get(node)
    limit = ABSENT
    for each in csi_node.spec.drivers if csi_node is not None else ():
        if each.name == driver and each.allocatable is not None and each.allocatable.count is not None:
            limit = each.allocatable.count
    return limit


def _attachments(nodes: NodeView) -> Ints:
    return object_column(nodes, "attachments", ObjectKind.VOLUME_ATTACHMENT, _count_attachments)


def _count_attachments(objects: ClusterObjects, node: Node) -> int:
    return len(objects.attachments_on(node.name))


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
    old = {driver.name: _count(driver) for driver in before.spec.drivers}
    return any(_count(driver) > old.get(driver.name, 0) for driver in now.spec.drivers)


def _count(driver: CSINodeDriver) -> int:
    return driver.allocatable.count or 0 if driver.allocatable is not None else 0
