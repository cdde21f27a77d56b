"""VolumeRestrictions and VolumeZone: pods that must not share a volume, and the zones of a pod's bound volumes."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import ABSENT, Ints, NodeView, PodColumn
from flotilla.objects import ClusterObjects, ObjectKind, PersistentVolume, Pod, PodLoad, StorageClass, Volume
from flotilla.plugin import ClassState, FilterPlugin, PreFilterPlugin, Reads, StateKey, SummaryPlugin, Tracker
from flotilla.results import SKIP, NodeDomains, PreFilterResult, Range, Status, Topology, unresolvable, unschedulable
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import view_of
from shared.model.storage import READ_WRITE_ONCE_POD, WAIT_FOR_FIRST_CONSUMER
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from shared.plugins.volumes.migration import BETWEEN_ZONES
from shared.plugins.volumes.podvolumes import (
    ReadsVolumes,
    after_named_claim,
    always,
    can_clash,
    claim_not_found,
    claim_of,
    clash,
    named_claims,
)

NOTHING_SEEN = -1
DISK_TAKEN = unschedulable("node(s) had no available disk")
CLAIM_TAKEN = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

InUse = dict[str, bool]
"""By the name of the claim."""


def after_pod_deletion(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The deleted pod, wherever it was, had a disk or a claim that this one wants."""
    wanted, freed = pod.spec.volumes, before.spec.volumes
    if not wanted or not freed or before.namespace != pod.namespace:
        return False
    if any(can_clash(volume) and clash(volume, other) for volume in wanted for other in freed):
        return True
    return not set(named_claims(pod)).isdisjoint(named_claims(before))


EXCLUSIVE = StateKey[list[str]]("claims with access mode ReadWriteOncePod")
DISKS = StateKey[list["DiskUsers"]]("disks that cannot be shared")


class VolumeRestrictions(ReadsVolumes, PreFilterPlugin, FilterPlugin, SummaryPlugin[InUse, None]):
    """Keeps pods apart that must not share a volume: a disk of a node, or a claim for one pod only.

    Summary: for each of the pod's claims with the access mode ReadWriteOncePod, whether a pod on some node uses it.
    """

    name = "VolumeRestrictions"
    registrations = (
        Registration(Resource.POD, Action.DELETE, after_pod_deletion),
        Registration(Resource.NODE, Action.ADD),
        Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_named_claim, always),
    )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        return (ObjectKind.PERSISTENT_VOLUME_CLAIM,) if named_claims(state.pod) else ()

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        exclusive: list[str] = []
        for name in named_claims(state.pod):
            claim = claim_of(state.objects, state.pod, name)
            if claim is None:
                return PreFilterResult(unresolvable(claim_not_found(name)))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes and name not in exclusive:
                exclusive.append(name)
        unnamed = (msgspec.structs.replace(volume, name="") for volume in state.pod.spec.volumes if can_clash(volume))
        disks = [DiskUsers(msgspec.msgpack.encode(disk), disk) for disk in unnamed]
        state[EXCLUSIVE] = sorted(exclusive)
        state[DISKS] = disks
        return PreFilterResult() if exclusive or disks else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        in_use, disks = self.summary(state), state.get(DISKS) or []
        for disk in disks:
            nodes.reject(nodes.of_pods(disk) > 0, DISK_TAKEN)
        if in_use:
            nodes.reject(_users(state, nodes, in_use, bool(disks)) > 0, CLAIM_TAKEN)

    # The claims that are for one pod only

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        return Topology() if state.get(EXCLUSIVE) else None

    def summarize(self, state: ClassState, nodes: NodeView) -> InUse:
        exclusive = state.get(EXCLUSIVE)
        if not exclusive:
            return {}
        used = claims_in_use(view_of(nodes).table)
        return {name: f"{state.pod.namespace}/{name}" in used for name in exclusive}

    def merge(self, one: InUse, other: InUse) -> InUse:
        return {name: one.get(name, False) or other.get(name, False) for name in sorted({*one, *other})}

    def tracker(self, pod: Pod, summary: InUse | None, feasible: None, scores: Range | None) -> Tracker | None:
        return ClaimTracker(pod.namespace, summary) if summary else None


class ClaimTracker(Tracker):
    """Closes every node once a pod that was decided uses one of the claims."""

    def __init__(self, namespace: str, in_use: InUse) -> None:
        self._namespace = namespace
        self._in_use = dict(in_use)
        self._of_class: dict[str, list[str]] = {}

    def admits(self, place: NodeDomains) -> bool:
        return not any(self._in_use.values())

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        used = self._of_class.get(class_id)
        if used is None:
            mine = self._in_use if load.namespace == self._namespace else ()
            used = self._of_class[class_id] = [name for name in mine if name in load.claims]
        for name in used:
            if not self._in_use[name]:
                self._in_use[name] = self.touched = True

    def summary(self) -> InUse:
        return dict(self._in_use)


@dataclass(frozen=True, slots=True)
class DiskUsers(PodColumn):
    """How many disks of pods on a node are the wanted one, or cannot be on one node with it."""

    key: bytes
    wanted: Volume = field(compare=False)

    def amount(self, pod: PodLoad) -> int:
        return sum(clash(self.wanted, disk) for disk in pod.disks)


@dataclass(frozen=True, slots=True)
class ClaimReferences(PodColumn):
    """How often the pods on a node use the claims."""

    namespace: str
    claims: tuple[str, ...]

    def amount(self, pod: PodLoad) -> int:
        return sum(map(pod.claims.count, self.claims)) if pod.claims and pod.namespace == self.namespace else 0


def _users(state: ClassState, nodes: NodeView, in_use: InUse, has_disks: bool) -> Ints:
    """How often the pods of each node, hypothetical ones included, and all other nodes' pods use the claims.

    If no pod uses the claims and the pod has no disks, kube-scheduler skips the plugin, so pods that are nominated or
    removed do not count. A pod that was decided does.
    """
    before = sum(in_use.values())
    references = ClaimReferences(state.pod.namespace, tuple(in_use))
    return before + nodes.change_of(references, planned=None if before or has_disks else True)


@dataclass(slots=True)
class ClaimUsers:
    """The claims that the pods of a table use. `rows`: on how many rows each one is used."""

    position: int = NOTHING_SEEN
    rows: Counter[str] = field(default_factory=Counter)
    on_row: dict[int, frozenset[str]] = field(default_factory=dict)


def claims_in_use(table: NodeTable) -> Collection[str]:
    """The keys of the claims that a pod on any row uses."""
    users = _USERS.setdefault(table, ClaimUsers())
    changed = None if users.position == NOTHING_SEEN else table.load_log.since(users.position)
    if changed is None:
        users.rows.clear()
        users.on_row.clear()
    for row in range(table.size) if changed is None else changed.tolist():
        before = users.on_row.pop(row, frozenset())
        now = frozenset(f"{load.namespace}/{name}" for load in table.loads_at(row) for name in load.claims)
        if now:
            users.on_row[row] = now
        for claim in before - now:
            users.rows[claim] -= 1
            if not users.rows[claim]:
                del users.rows[claim]
        users.rows.update(now - before)
    users.position = table.load_log.position
    return users.rows


_USERS: WeakKeyDictionary[NodeTable, ClaimUsers] = WeakKeyDictionary()


SUCCESSORS = {BETA_ZONE: ZONE, BETA_REGION: REGION}

OUTSIDE = unresolvable("node(s) had no available volume zone")
LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)


class Zones(NamedTuple):
    """A node must have one of the values of this label."""

    label: str
    values: frozenset[str]


def zones_of_volume(volume: PersistentVolume) -> list[Zones]:
    """A label that names an empty zone says nothing."""
    zones: list[Zones] = []
    for label in LABELS:
        text = volume.metadata.labels.get(label)
        if text is not None:
            values = frozenset(value.strip() for value in text.split(BETWEEN_ZONES))
            if "" not in values:
                zones.append(Zones(label, values))
    return zones


def after_late_binding_class(pod: Pod, before: None, now: StorageClass, objects: ClusterObjects) -> bool:
    """Its claims need no volume yet."""
    return now.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def after_volume(pod: Pod, before: PersistentVolume | None, now: PersistentVolume, objects: ClusterObjects) -> bool:
    """The volume is new, or in other zones than before."""
    return before is None or (
        before.metadata.labels != now.metadata.labels and zones_of_volume(before) != zones_of_volume(now)
    )


ZONES = StateKey[list[Zones]]("the zones of the pod's volumes")


class VolumeZone(ReadsVolumes, PreFilterPlugin, FilterPlugin):
    """Keeps a pod to the zones and regions that the labels of its bound volumes name."""

    name = "VolumeZone"
    filter_reads = Reads.NODE
    registrations = (
        Registration(Resource.STORAGE_CLASS, Action.ADD, after_late_binding_class),
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, after_named_claim, always),
        Registration(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, after_volume),
    )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        if not named_claims(state.pod):
            return ()
        return (ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.PERSISTENT_VOLUME, ObjectKind.STORAGE_CLASS)

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        zones = _zones_of(state.pod, state.objects)
        if isinstance(zones, Status):
            return PreFilterResult(zones)
        state[ZONES] = zones
        return PreFilterResult() if zones else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        zones: list[Zones] | Status | None = state.get(ZONES)
        if zones is None:  # PreFilter is disabled
            zones = _zones_of(state.pod, state.objects)
        if isinstance(zones, Status):
            nodes.reject(nodes.valid, zones)
            return
        inside = np.ones(len(nodes), dtype=np.bool_)
        for label, values in zones:
            column = nodes.label(label)
            matching = column.any_of(values)
            successor = SUCCESSORS.get(label)
            if successor is not None:  # a node without the beta label is matched by its successor
                matching |= (column.numbers == ABSENT) & nodes.label(successor).any_of(values)
            inside &= matching
        # Nodes without any such label are in a cluster of one zone, where all volumes can be reached.
        labelled = np.zeros(len(nodes), dtype=np.bool_)
        for label in LABELS:
            labelled |= nodes.label(label).numbers != ABSENT
        nodes.reject(~inside & labelled, OUTSIDE)


def _zones_of(pod: Pod, objects: ClusterObjects) -> list[Zones] | Status:
    """Where the volumes of its bound claims are; a status if a claim is neither bound nor to be bound later."""
    zones: list[Zones] = []
    for name in named_claims(pod):
        if not name:
            return unresolvable("PersistentVolumeClaim had no name")
        claim = claim_of(objects, pod, name)
        if claim is None:
            return unresolvable(claim_not_found(name))
        if not claim.spec.volume_name:
            class_name = claim.storage_class
            if not class_name:
                return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
            storage_class = objects.storage_classes.get(class_name)
            if storage_class is None:
                return unresolvable(f'storageclass.storage.k8s.io "{class_name}" not found')
            if storage_class.volume_binding_mode is None:
                return unresolvable(f'VolumeBindingMode not set for StorageClass "{class_name}"')
            if storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
                return unresolvable("PersistentVolume had no name")
            continue
        volume = objects.persistent_volumes.get(claim.spec.volume_name)
        if volume is None:
            return unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found')
        zones += zones_of_volume(volume)
    return zones
