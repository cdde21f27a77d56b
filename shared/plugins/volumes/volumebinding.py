"""VolumeBinding keeps a pod to nodes that reach its bound volumes and that its other claims can get a volume for.

The volumes are decided along with the node, and bound before the pod is bound (PreBind).
"""

from collections.abc import Collection, Generator
from typing import NamedTuple

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import Ints, NodeView
from flotilla.objects import ClusterObjects, CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from flotilla.plugin import (
    BindingState,
    ClassState,
    FilterPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
    Scores,
    StateKey,
)
from flotilla.results import SKIP, SUCCESS, ApiAnswer, ApiCall, Pause, PreFilterResult, Status, error, unresolvable
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.config.feature_gates import DEFAULT_GATES, Feature, FeatureGates
from shared.errors import ClusterError
from shared.model.kinds import ObjectKind
from shared.model.objects import PersistentVolumeClaim, Pod
from shared.model.storage import MIGRATED_PLUGINS, WAIT_FOR_FIRST_CONSUMER
from shared.plugins.volumes.matching import NOTHING, Choices, Matching, reaching_nodes_now, requested_storage
from shared.plugins.volumes.migration import Untranslatable, migration_of_volume
from shared.plugins.volumes.nodecolumns import nodes_of_topologies
from shared.plugins.volumes.podvolumes import (
    DECISION,
    ReadsVolumes,
    VolumePlugin,
    after_claim,
    always,
    claim_not_found,
    claim_of,
    claim_uses,
    not_owned,
)
from shared.plugins.volumes.pre_bind import bind_volumes
from shared.plugins.volumes.storage_scores import (
    StorageOfClasses,
    StorageScorer,
    first_reached,
    largest_volume,
    sufficient,
)

OUT_OF_REACH, NOTHING_TO_BIND, TOO_SMALL, NO_VOLUME = 1, 2, 4, 8
REASONS = {
    OUT_OF_REACH: "node(s) didn't match PersistentVolume's node affinity",
    NOTHING_TO_BIND: "node(s) didn't find available persistent volumes to bind",
    TOO_SMALL: "node(s) did not have enough free storage",
    NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
"""What is wrong with a node is a sum of these; the reasons come in this order."""

NO_PROVISIONER = "kubernetes.io/no-provisioner"
POSSIBLE, IMPOSSIBLE, NO_SPACE = range(3)
"""Whether a volume can be provisioned on a node."""


# The claims of a pod, by what is to become of them


class PodVolumeClaims(NamedTuple):
    """`bound` have their volume. The others get one with the pod's node: for those `selected` a node was chosen before,
    where a volume is to be provisioned; `unbound`, the smallest first, get a volume that is there, or a new one.
    """

    bound: list[PersistentVolumeClaim]
    selected: list[PersistentVolumeClaim]
    unbound: list[PersistentVolumeClaim]


def claims_of(pod: Pod, objects: ClusterObjects) -> PodVolumeClaims | Status | None:
    """A status if the pod cannot run as its claims are, None if it has none."""
    found: list[PersistentVolumeClaim] = []
    for name, ephemeral in claim_uses(pod):
        claim = claim_of(objects, pod, name)
        if claim is None:
            if ephemeral:
                waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                return unresolvable(waiting)
            return unresolvable(claim_not_found(name))
        fault = not_owned(pod, claim) if ephemeral else None
        if claim.status.phase == "Lost":
            fault = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
        elif claim.metadata.deletion_timestamp is not None:
            fault = f'persistentvolumeclaim "{name}" is being deleted'
        if fault is not None:
            return unresolvable(fault)
        found.append(claim)
    return _sorted(found, objects) if found else None


def _sorted(claims: list[PersistentVolumeClaim], objects: ClusterObjects) -> PodVolumeClaims | Status:
    by_kind = PodVolumeClaims([], [], [])
    immediate = False
    for claim in claims:
        if claim.fully_bound:
            by_kind.bound.append(claim)
            continue
        storage_class = objects.storage_classes.get(claim.storage_class) if claim.storage_class else None
        if storage_class is not None and storage_class.volume_binding_mode is None:
            return error(f'VolumeBindingMode not set for StorageClass "{storage_class.name}"')
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if not waits or claim.spec.volume_name:
            immediate = True
        elif claim.selected_node is not None:
            by_kind.selected.append(claim)
        else:
            by_kind.unbound.append(claim)
    if immediate:
        return unresolvable("pod has unbound immediate PersistentVolumeClaims")
    by_kind.unbound.sort(key=lambda claim: requested_storage(claim) or 0)
    return by_kind


# Judging nodes


class NoClass(ClusterError):
    """A claim's storage class is gone."""


class Prepared(NamedTuple):
    """What PreFilter found."""

    claims: PodVolumeClaims
    matching: Matching


def _out_of_reach(nodes: NodeView, bound: list[PersistentVolumeClaim], objects: ClusterObjects) -> Ints:
    """The first bound claim whose volume the node does not reach, or that has none, decides."""
    faults = np.zeros(len(nodes), dtype=np.int64)
    for claim in bound:
        volume = objects.persistent_volumes.get(claim.spec.volume_name)
        if volume is None:
            faults[faults == 0] = NO_VOLUME
            break
        faults[(faults == 0) & ~reaching_nodes_now(nodes, volume)] = OUT_OF_REACH
    return faults


def _not_to_be_had(nodes: NodeView, prepared: Prepared, objects: ClusterObjects) -> Ints:
    """Where a claim without a volume cannot get one."""
    faults = np.zeros(len(nodes), dtype=np.int64)
    choices = prepared.matching.choose(nodes)
    if prepared.claims.selected or not (choices != NOTHING).all():
        prospect = _prospect(nodes, prepared.claims, choices, objects)
        faults[prospect == IMPOSSIBLE] = NOTHING_TO_BIND
        faults[prospect == NO_SPACE] = TOO_SMALL
    for claim in prepared.claims.selected:
        faults[~nodes.named([claim.selected_node or ""])] = NOTHING_TO_BIND
    return faults


def _prospect(nodes: NodeView, claims: PodVolumeClaims, choices: Choices, objects: ClusterObjects) -> Ints:
    """Of the volumes that are to be provisioned: the first one that cannot be decides."""
    found = np.full(len(nodes), POSSIBLE, dtype=np.int64)
    everywhere = np.ones(len(nodes), dtype=np.bool_)
    missing = [(claim, everywhere) for claim in claims.selected]
    missing += [(claim, choice == NOTHING) for claim, choice in zip(claims.unbound, choices, strict=True)]
    for claim, where in missing:
        undecided = where & (found == POSSIBLE)
        if claim.promised:
            found[undecided] = IMPOSSIBLE
        elif where.any():
            found[undecided] = provisioning(nodes, claim, objects)[undecided]
    return found


def provisioning(nodes: NodeView, claim: PersistentVolumeClaim, objects: ClusterObjects) -> Ints:
    """Whether a volume can be provisioned for a claim: POSSIBLE, IMPOSSIBLE or NO_SPACE on each node."""
    storage_class = objects.storage_classes.get(claim.storage_class)
    if storage_class is None:
        raise NoClass(f'failed to find storage class "{claim.storage_class}"')
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return np.full(len(nodes), IMPOSSIBLE, dtype=np.int64)
    found = np.where(nodes_of_topologies(nodes, storage_class.allowed_topologies), POSSIBLE, IMPOSSIBLE)
    size = requested_storage(claim)
    if size is not None and publishes_capacity(objects, storage_class):
        enough = sufficient(objects.capacities_of_class(storage_class.name).values(), size)
        found[(found == POSSIBLE) & (first_reached(nodes, enough) == len(enough))] = NO_SPACE
    return found


def publishes_capacity(objects: ClusterObjects, storage_class: StorageClass) -> bool:
    """Whether the driver publishes how much room there is where."""
    driver = objects.csi_drivers.get(storage_class.provisioner)
    return driver is not None and bool(driver.spec.storage_capacity)


# Queueing hints


def after_storage_class(pod: Pod, before: StorageClass | None, now: StorageClass, objects: ClusterObjects) -> bool:
    """The class is new, or provisions volumes elsewhere than before."""
    return before is None or before.allowed_topologies != now.allowed_topologies


def after_migration(pod: Pod, before: CSINode | None, now: CSINode, objects: ClusterObjects) -> bool:
    """Other in-tree volumes have become the CSI drivers' on the node; or the node's drivers are known at last."""
    return before is None or (
        before.metadata.annotations.get(MIGRATED_PLUGINS, "") != now.metadata.annotations.get(MIGRATED_PLUGINS, "")
    )


def after_capacity(
    pod: Pod, before: CSIStorageCapacity | None, now: CSIStorageCapacity, objects: ClusterObjects
) -> bool:
    """Larger volumes than before can be provisioned."""
    if before is None:
        return True
    old, new = largest_volume(before), largest_volume(now)
    return new is not None and (old is None or new.value > old.value)


def after_driver(pod: Pod, before: CSIDriver, now: CSIDriver, objects: ClusterObjects) -> bool:
    """The driver of a volume that the pod has without a claim no longer asks for capacity to be checked."""
    return (
        before.spec.storage_capacity is True
        and not now.spec.storage_capacity
        and any(volume.csi is not None and volume.csi.driver == now.name for volume in pod.spec.volumes)
    )


# The plugin

PREPARED = StateKey[Prepared]("claims and the volumes that match them")


class VolumeBinding(
    ReadsVolumes,
    PreFilterPlugin,
    FilterPlugin,
    VolumePlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    """Scores by the storage that is left, if the feature gate StorageCapacityScoring is on."""

    name = "VolumeBinding"
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    reads_pod = False
    registrations = (
        Registration(Resource.STORAGE_CLASS, Action.ADD | Action.UPDATE, after_storage_class),
        Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, after_claim, always),
        Registration(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE),
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Registration(Resource.CSI_NODE, Action.ADD | Action.UPDATE, after_migration),
        Registration(Resource.CSI_DRIVER, Action.UPDATE, after_driver),
        Registration(Resource.CSI_STORAGE_CAPACITY, Action.ADD | Action.UPDATE, after_capacity),
    )

    def __init__(self, args: VolumeBindingArgs, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._patience = float(args.bind_timeout_seconds)
        self._scorer = StorageScorer(args.shape or ()) if gates.enabled(Feature.STORAGE_SCORING) else None

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        if not claim_uses(state.pod):
            return ()
        objects, prepared = state.objects, state.get(PREPARED)
        kinds = {ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.PERSISTENT_VOLUME, ObjectKind.STORAGE_CLASS}
        if prepared is None:
            return kinds
        volumes = [objects.persistent_volumes.get(claim.spec.volume_name) for claim in prepared.claims.bound]
        if any(volume is not None and migration_of_volume(volume) is not None for volume in volumes):
            kinds.add(ObjectKind.CSI_NODE)
        without_volume = (*prepared.claims.selected, *prepared.claims.unbound)
        if without_volume:
            kinds.add(ObjectKind.CSI_DRIVER)
        classes = [objects.storage_classes.get(claim.storage_class) for claim in without_volume]
        if any(each is not None and publishes_capacity(objects, each) for each in classes):
            kinds.add(ObjectKind.CSI_STORAGE_CAPACITY)
        return kinds

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        claims = claims_of(state.pod, state.objects)
        if claims is None:
            return PreFilterResult(SKIP)
        if isinstance(claims, Status):
            return PreFilterResult(claims)
        state[PREPARED] = Prepared(claims, Matching(claims.unbound, state.objects))
        return PreFilterResult()

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        prepared = state[PREPARED]
        try:
            faults = _out_of_reach(nodes, prepared.claims.bound, state.objects)
            if prepared.claims.selected or prepared.claims.unbound:
                faults |= _not_to_be_had(nodes, prepared, state.objects)
        except (Untranslatable, NoClass) as cause:
            raise self.failed(str(cause)) from cause
        for found in np.flatnonzero(np.bincount(faults)).tolist():  # faster than np.unique, as there are few bits
            if found:
                reasons = (reason for fault, reason in REASONS.items() if found & fault)
                nodes.reject(faults == found, unresolvable(*reasons))

    def decides(self, state: ClassState) -> bool:
        prepared = state.get(PREPARED)
        return prepared is not None and bool(prepared.claims.selected or prepared.claims.unbound)

    def volumes_for(self, state: ClassState, node: NodeView) -> VolumeDecision:
        claims, matching = state[PREPARED]
        chosen: list[int] = [NOTHING] * len(claims.unbound)
        if not matching.is_empty:
            chosen = matching.choose(node)[:, 0].tolist()
        pairs = list(zip(claims.unbound, chosen, strict=True))
        return VolumeDecision(
            bindings=[(claim.key, matching.volumes[at].name) for claim, at in pairs if at != NOTHING],
            provisions=[claim.key for claim in claims.selected] + [claim.key for claim, at in pairs if at == NOTHING],
        )

    def choices_for(self, state: ClassState, node: NodeView, taken: int) -> list[list[str]]:
        """With StorageCapacityScoring other volumes mean another score, so that there is no choice."""
        matching = state[PREPARED].matching
        chosen = matching.choose(node)[:, 0].tolist()
        return [
            [] if self._scorer is not None else matching.in_order(i, node, taken + i + 1)
            for i, at in enumerate(chosen)
            if at != NOTHING
        ]

    def pre_score(self, state: ClassState) -> Status:
        return SKIP if self._scorer is None or state.get(PREPARED) is None else SUCCESS

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        prepared = state.get(PREPARED)
        if self._scorer is None or prepared is None:
            return np.zeros(len(nodes), dtype=np.int64)
        storage = StorageOfClasses(nodes)
        claims, matching = prepared
        choices = matching.choose(nodes)
        for claim, chosen in zip(claims.unbound, choices, strict=True):
            storage.add_volumes(claim, chosen, matching.volumes)
        found = storage.is_any.copy()
        for claim in (*claims.selected, *claims.unbound):
            storage_class = state.objects.storage_classes.get(claim.storage_class)
            if storage_class is not None and publishes_capacity(state.objects, storage_class):
                storage.add_provision(claim, state.objects.capacities_of_class(storage_class.name), ~found)
        return self._scorer.score(storage)

    def reserve(self, state: BindingState, node: str) -> Status:
        """The decision, which the snapshot committed, reserves the volumes."""
        return SUCCESS

    def unreserve(self, state: BindingState, node: str) -> None:
        """Likewise: the snapshot releases them."""

    def pre_bind(self, state: BindingState, node: str) -> Status | Generator[ApiCall | Pause, ApiAnswer, Status]:
        decision = state.get(DECISION)
        if decision is None or not (decision.bindings or decision.provisions):
            return SKIP
        return bind_volumes(state.pod, node, decision, self._patience)
