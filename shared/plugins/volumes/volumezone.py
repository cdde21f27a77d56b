"""VolumeZone keeps a pod to the zones and regions that the labels of its bound volumes name."""

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from flotilla.results import SKIP, PreFilterResult, Status, unresolvable
from shared.cluster.columns import ABSENT
from shared.cluster.labels import LabelValue, Mask, match_requirement
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PodParts, PreFilterPlugin, Reads, Verdicts
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import NodeSelectorRequirement, Pod
from shared.model.storage import WAIT_FOR_FIRST_CONSUMER
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from shared.plugins.hints import volumes as hints
from shared.plugins.volumes.podvolumes import claim_not_found, claim_of, named_claims, volume_signature
from shared.plugins.volumes.zones import LABELS, Zones, zones_of_volume

SUCCESSORS = {BETA_ZONE: ZONE, BETA_REGION: REGION}

OUTSIDE, UNKNOWN = 1, 2


class VolumeZone(PreFilterPlugin, FilterPlugin):
    name = "VolumeZone"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.STORAGE_CLASS, Action.ADD, hints.after_late_binding_class),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, hints.after_named_claim),
            Registration(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, hints.after_volume),
        )

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        if not named_claims(state.pod):
            return ()
        return (ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.PERSISTENT_VOLUME, ObjectKind.STORAGE_CLASS)

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        zones = _zones_of(state.pod, state.objects)
        if isinstance(zones, Status):
            return PreFilterResult(zones)
        state.write(self.name, "zones", zones)
        return PreFilterResult() if zones else PreFilterResult(SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        zones: list[Zones] | Status | None = state.read(self.name, "zones")
        if zones is None:  # PreFilter is switched off
            zones = _zones_of(state.pod, state.objects)
        if isinstance(zones, Status):
            return np.full(len(view), UNKNOWN, dtype=np.int64)
        inside = np.ones(len(view), dtype=np.bool_)
        for each in zones:
            inside &= _matches(view, each)
        return np.where(inside | ~_is_labelled(view), 0, OUTSIDE)

    def explain(self, state: CycleState, verdict: int) -> Status:
        zones = _zones_of(state.pod, state.objects) if verdict == UNKNOWN else None
        return zones if isinstance(zones, Status) else unresolvable("node(s) had no available volume zone")


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


def _matches(view: NodeView, zones: Zones) -> Mask:
    """A node without the beta label is asked for its successor."""
    matching = _has_one_of(view, zones.label, zones.values)
    successor = SUCCESSORS.get(zones.label)
    if successor is not None:
        lacks = view.of_nodes(LabelValue(zones.label)) == ABSENT
        matching |= lacks & _has_one_of(view, successor, zones.values)
    return matching


def _has_one_of(view: NodeView, label: str, values: frozenset[str]) -> Mask:
    requirement = NodeSelectorRequirement(key=label, operator="In", values=sorted(values))
    return match_requirement(view.table, requirement, view.of_nodes(LabelValue(label)))


def _is_labelled(view: NodeView) -> Mask:
    """Nodes without any such label are in a cluster of one zone, where all volumes can be reached."""
    labelled = np.zeros(len(view), dtype=np.bool_)
    for label in LABELS:
        labelled |= view.of_nodes(LabelValue(label)) != ABSENT
    return labelled
