"""VolumeZone keeps a pod to the zones and regions that the labels of its bound volumes name."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import ABSENT, NodeView
from flotilla.objects import ClusterObjects, ObjectKind, PersistentVolume, Pod, StorageClass
from flotilla.plugin import ClassState, FilterPlugin, PreFilterPlugin, Reads, StateKey
from flotilla.results import SKIP, PreFilterResult, Status, unresolvable
from shared.model.storage import WAIT_FOR_FIRST_CONSUMER
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from shared.plugins.volumes.migration import BETWEEN_ZONES
from shared.plugins.volumes.podvolumes import (
    ReadsVolumes,
    after_named_claim,
    claim_not_found,
    claim_of,
    named_claims,
)

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
    name = "VolumeZone"
    filter_reads = Reads.NODE
    registrations = (
        Registration(Resource.STORAGE_CLASS, Action.ADD, after_late_binding_class),
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, after_named_claim),
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
            fault = _why_not_later(objects, claim.storage_class)
            if fault is not None:
                return fault
            continue
        volume = objects.persistent_volumes.get(claim.spec.volume_name)
        if volume is None:
            return unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found')
        zones += zones_of_volume(volume)
    return zones


def _why_not_later(objects: ClusterObjects, class_name: str) -> Status | None:
    if not class_name:
        return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = objects.storage_classes.get(class_name)
    if storage_class is None:
        return unresolvable(f'storageclass.storage.k8s.io "{class_name}" not found')
    if storage_class.volume_binding_mode is None:
        return unresolvable(f'VolumeBindingMode not set for StorageClass "{class_name}"')
    if storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return unresolvable("PersistentVolume had no name")
    return None
