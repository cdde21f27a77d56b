"""NodeVolumeLimits keeps nodes below the number of volumes that their CSI drivers can attach.

A volume counts once on a node, however many pods have it. Most nodes are far from their limits: a column tells how many
references to volumes there are on each, and only where these might be too many are the volumes themselves counted.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from flotilla.results import SKIP, PreFilterResult, Status, unresolvable, unschedulable
from shared.cluster.columns import ABSENT, IntColumn, LoadColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.pernode import FilterFailed
from shared.framework.plugin import FilterPlugin, PodParts, PreFilterPlugin, Verdicts
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import Node, PersistentVolumeClaim, Pod, Volume
from shared.plugins.hints import volumelimits as hints
from shared.plugins.hints.volumes import after_claim
from shared.plugins.volumes.migration import (
    BY_PLUGIN,
    Untranslatable,
    handle_of_inline,
    handle_of_volume,
    migration_of_inline,
    migration_of_volume,
)
from shared.plugins.volumes.nodecolumns import object_column
from shared.plugins.volumes.podvolumes import claim_of, claim_uses, may_count, not_owned, volume_signature

TOO_MANY, NO_CLAIM = 1, 2

Attached = dict[str, str]
"""Volumes by `driver/handle`, with their drivers."""


@dataclass(frozen=True, slots=True)
class VolumeReferences(LoadColumn):
    """How often the pods on a node refer to a volume: there are never more volumes than that."""

    def fill(self, table: NodeTable, column: IntColumn) -> None:
        for _, node, load in table.placed():
            row = table.row_of(node) if load.claims or load.disks else None
            if row is not None:
                column[row] += self.amount(load)

    def amount(self, load: PodLoad) -> int:
        return len(load.claims) + len(load.disks)


REFERENCES = VolumeReferences()


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    name = "NodeVolumeLimits"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.CSI_NODE, Action.ADD),
            Registration(Resource.CSI_NODE, Action.UPDATE, hints.after_limits),
            Registration(Resource.POD, Action.DELETE, hints.after_pod_gone),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_claim),
            Registration(Resource.VOLUME_ATTACHMENT, Action.DELETE, hints.after_detachment),
        )

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        if not may_count(state.pod):
            return ()
        return (
            ObjectKind.PERSISTENT_VOLUME_CLAIM,
            ObjectKind.PERSISTENT_VOLUME,
            ObjectKind.STORAGE_CLASS,
            ObjectKind.CSI_NODE,
            ObjectKind.VOLUME_ATTACHMENT,
        )

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        return PreFilterResult() if may_count(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        if _missing(state) is not None:
            return np.full(len(view), NO_CLAIM, dtype=np.int64)
        verdicts = np.zeros(len(view), dtype=np.int64)
        wanted = self._wanted(state)
        near = np.zeros(len(view), dtype=np.bool_)
        for driver, count in Counter(wanted.values()).items():
            limits = _limits(view.table, driver)[view.index]
            attachments = _attachments(view.table)[view.index]
            near |= (limits != ABSENT) & (view.of_loads(REFERENCES) + attachments + count > limits)
        for i in np.flatnonzero(near).tolist():
            verdicts[i] = TOO_MANY if self._exceeds(view, i, wanted) else 0
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        missing = _missing(state)
        if verdict == NO_CLAIM and missing is not None:
            return missing
        return unschedulable("node(s) exceed max volume count")

    def _wanted(self, state: CycleState) -> Attached:
        """The pod's own volumes, on a node that has a CSINode; without one a node has no limits."""
        wanted: Attached | None = state.read(self.name, "wanted")
        if wanted is None:
            pod, objects = state.pod, state.objects
            for name, ephemeral in claim_uses(pod):
                claim = claim_of(objects, pod, name)
                fault = not_owned(pod, claim) if ephemeral and claim is not None else None
                if fault is not None:
                    raise self._failed(fault)
            wanted = self._volumes(objects, pod.namespace, [name for name, _ in claim_uses(pod)], pod.spec.volumes)
            state.write(self.name, "wanted", wanted)
        return wanted

    def _exceeds(self, view: NodeView, i: int, wanted: Attached) -> bool:
        row = int(view.rows[i])
        objects, node = view.table.objects, view.table.names[row]
        loads = view.table.loads_at(row)
        if view.supposed is not None:
            loads = view.supposed.loads(i, loads)
        there: Attached = {}
        for load in loads:
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

    def _failed(self, why: str) -> FilterFailed:
        return FilterFailed(f"running {self.name!r} filter plugin: {why}")


def _missing(state: CycleState) -> Status | None:
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


def _limits(table: NodeTable, driver: str) -> IntColumn:
    return object_column(table, driver, ObjectKind.CSI_NODE, lambda objects, node: _limit(driver, objects, node.name))


def _limit(driver: str, objects: ClusterObjects, node: str) -> int:
    """How many volumes of the driver the node can have; ABSENT if any number. Of several limits the last one counts."""
    csi_node = objects.csi_nodes.get(node)
    limit = ABSENT
    for each in csi_node.spec.drivers if csi_node is not None else ():
        if each.name == driver and each.allocatable is not None and each.allocatable.count is not None:
            limit = each.allocatable.count
    return limit


def _attachments(table: NodeTable) -> IntColumn:
    return object_column(table, "attachments", ObjectKind.VOLUME_ATTACHMENT, _count_attachments)


def _count_attachments(objects: ClusterObjects, node: Node) -> int:
    return len(objects.attachments_on(node.name))
