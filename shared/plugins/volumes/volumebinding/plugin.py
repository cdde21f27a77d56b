"""VolumeBinding keeps a pod to nodes that reach its bound volumes and that its other claims can get a volume for.

The node's volumes are told along with the node, and when the pod is bound they are bound first (PreBind).
"""

from collections.abc import Collection, Generator, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects, CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from flotilla.plugin import (
    BindingState,
    ClassState,
    FilterPlugin,
    Ints,
    Mask,
    NodeView,
    PluginError,
    PodParts,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
    Scores,
    StateKey,
)
from flotilla.results import SKIP, SUCCESS, ApiAnswer, ApiCall, Pause, PreFilterResult, Status, unresolvable
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.model.kinds import ObjectKind
from shared.model.objects import PersistentVolumeClaim, Pod
from shared.model.quantity import Quantity
from shared.model.storage import MIGRATED_PLUGINS
from shared.plugins.volumes.migration import Untranslatable, migration_of_volume
from shared.plugins.volumes.podvolumes import DECISION, VolumePlugin, after_claim, claim_uses, volume_signature
from shared.plugins.volumes.volumebinding.binding import bind_volumes
from shared.plugins.volumes.volumebinding.claims import PodClaims, claims_of
from shared.plugins.volumes.volumebinding.matching import NOTHING, Choices, Matching
from shared.plugins.volumes.volumebinding.provisioning import (
    IMPOSSIBLE,
    NO_SPACE,
    POSSIBLE,
    NoClass,
    prospects,
    tells_capacity,
)
from shared.plugins.volumes.volumebinding.reaching import reaching_nodes_now

OUT_OF_REACH, NOTHING_TO_BIND, TOO_SMALL, NO_VOLUME = 1, 2, 4, 8
REASONS = {
    OUT_OF_REACH: "node(s) didn't match PersistentVolume's node affinity",
    NOTHING_TO_BIND: "node(s) didn't find available persistent volumes to bind",
    TOO_SMALL: "node(s) did not have enough free storage",
    NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
"""What is wrong with a node is a sum of these; the reasons come in this order."""


class _Work(NamedTuple):
    """What PreFilter found out."""

    claims: PodClaims
    matching: Matching


WORK = StateKey[_Work]("claims and the volumes that match them")


class VolumeBinding(
    PreFilterPlugin, FilterPlugin, VolumePlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    """Scores nothing: preferring nodes by free storage is behind a gate that v1.36 has off."""

    name = "VolumeBinding"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    reads_pod = False

    def __init__(self, args: VolumeBindingArgs) -> None:
        self._patience = float(args.bind_timeout_seconds)

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.STORAGE_CLASS, Action.ADD | Action.UPDATE, after_storage_class),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, after_claim),
            Registration(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            Registration(Resource.CSI_NODE, Action.ADD | Action.UPDATE, after_migration),
            Registration(Resource.CSI_DRIVER, Action.UPDATE, after_driver),
            Registration(Resource.CSI_STORAGE_CAPACITY, Action.ADD | Action.UPDATE, after_capacity),
        )

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        if not claim_uses(state.pod):
            return ()
        kinds = {ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.PERSISTENT_VOLUME, ObjectKind.STORAGE_CLASS}
        work = state.get(WORK)
        if work is None:
            return kinds
        if _reads_migrations(work.claims.bound, state.objects):
            kinds.add(ObjectKind.CSI_NODE)
        if work.claims.selected or work.claims.unbound:
            kinds.add(ObjectKind.CSI_DRIVER)
        if _reads_capacities((*work.claims.selected, *work.claims.unbound), state.objects):
            kinds.add(ObjectKind.CSI_STORAGE_CAPACITY)
        return kinds

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        claims = claims_of(state.pod, state.objects)
        if claims is None:
            return PreFilterResult(SKIP)
        if isinstance(claims, Status):
            return PreFilterResult(claims)
        state[WORK] = _Work(claims, Matching(claims.unbound, state.objects))
        return PreFilterResult()

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        work = self._work(state)
        try:
            faults = _out_of_reach(nodes, work.claims.bound, state.objects)
            if work.claims.selected or work.claims.unbound:
                faults |= _not_to_be_had(nodes, work, state.objects)
        except (Untranslatable, NoClass) as cause:
            raise self._failed(str(cause)) from cause
        for found in np.unique(faults).tolist():
            if found:
                reasons = (reason for fault, reason in REASONS.items() if found & fault)
                nodes.reject(faults == found, unresolvable(*reasons))

    def volumes_for(self, state: ClassState, node: NodeView) -> VolumeDecision | None:
        work = state.get(WORK)
        if work is None or not (work.claims.selected or work.claims.unbound):
            return None
        chosen: list[int] = [NOTHING] * len(work.claims.unbound)
        if not work.matching.is_empty:
            chosen = work.matching.choose(node)[:, 0].tolist()
        pairs = list(zip(work.claims.unbound, chosen, strict=True))
        return VolumeDecision(
            bindings=[(claim.key, work.matching.volumes[at].name) for claim, at in pairs if at != NOTHING],
            provisions=[claim.key for claim in work.claims.selected]
            + [claim.key for claim, at in pairs if at == NOTHING],
        )

    def pre_score(self, state: ClassState) -> Status:
        return SKIP

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return np.zeros(len(nodes), dtype=np.int64)

    def reserve(self, state: BindingState, node: str) -> Status:
        """The decision holds the volumes: it is part of what the snapshot has taken."""
        return SUCCESS

    def unreserve(self, state: BindingState, node: str) -> None:
        """Likewise: the snapshot gives them back."""

    def pre_bind(self, state: BindingState, node: str) -> Status | Generator[ApiCall | Pause, ApiAnswer, Status]:
        decision = state.get(DECISION)
        if decision is None or not (decision.bindings or decision.provisions):
            return SUCCESS
        return bind_volumes(state.pod, node, decision, self._patience)

    def _work(self, state: ClassState) -> _Work:
        work = state.get(WORK)
        if work is None:
            raise self._failed("PreFilter has not run")
        return work

    def _failed(self, why: str) -> PluginError:
        return PluginError(f"running {self.name!r} filter plugin: {why}")


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


def _not_to_be_had(nodes: NodeView, work: _Work, objects: ClusterObjects) -> Ints:
    faults = np.zeros(len(nodes), dtype=np.int64)
    elsewhere = _elsewhere(nodes, work.claims.selected)
    choices = work.matching.choose(nodes)
    complete = (choices != NOTHING).all(axis=0)
    if work.claims.selected or not complete.all():
        prospect = _prospect(nodes, work.claims, choices, objects)
        faults[prospect == IMPOSSIBLE] = NOTHING_TO_BIND
        faults[prospect == NO_SPACE] = TOO_SMALL
    faults[elsewhere] = NOTHING_TO_BIND
    return faults


def _elsewhere(nodes: NodeView, selected: list[PersistentVolumeClaim]) -> Mask:
    """Nodes other than the one that was chosen for a claim before."""
    elsewhere = np.zeros(len(nodes), dtype=np.bool_)
    for claim in selected:
        elsewhere |= ~nodes.named([claim.selected_node or ""])
    return elsewhere


def _prospect(nodes: NodeView, claims: PodClaims, choices: Choices, objects: ClusterObjects) -> Ints:
    """Of the volumes that are to be made: the first one that cannot be decides."""
    found = np.full(len(nodes), POSSIBLE, dtype=np.int64)
    for claim in claims.selected:
        _decide(found, np.ones(len(nodes), dtype=np.bool_), prospects(nodes, claim, objects))
    for claim, choice in zip(claims.unbound, choices, strict=True):
        missing = choice == NOTHING
        if claim.promised:
            found[missing & (found == POSSIBLE)] = IMPOSSIBLE
        elif missing.any():
            _decide(found, missing, prospects(nodes, claim, objects))
    return found


def _decide(found: Ints, where: Mask, prospect: Ints) -> None:
    undecided = where & (found == POSSIBLE)
    found[undecided] = prospect[undecided]


def _reads_migrations(bound: list[PersistentVolumeClaim], objects: ClusterObjects) -> bool:
    volumes = (objects.persistent_volumes.get(claim.spec.volume_name) for claim in bound)
    return any(volume is not None and migration_of_volume(volume) is not None for volume in volumes)


def _reads_capacities(claims: Collection[PersistentVolumeClaim], objects: ClusterObjects) -> bool:
    classes = (objects.storage_classes.get(claim.storage_class) for claim in claims)
    return any(each is not None and tells_capacity(objects, each) for each in classes)


# Queueing hints


def after_storage_class(pod: Pod, before: StorageClass | None, now: StorageClass, objects: ClusterObjects) -> bool:
    """It is new, or makes volumes elsewhere than before."""
    return before is None or before.allowed_topologies != now.allowed_topologies


def after_migration(pod: Pod, before: CSINode | None, now: CSINode, objects: ClusterObjects) -> bool:
    """Other in-tree volumes have become the CSI drivers' on the node; or the node's drivers are known at last."""
    return before is None or _migrated(before) != _migrated(now)


def after_capacity(
    pod: Pod, before: CSIStorageCapacity | None, now: CSIStorageCapacity, objects: ClusterObjects
) -> bool:
    """Larger volumes than before can be had."""
    if before is None:
        return True
    old, new = _largest_volume(before), _largest_volume(now)
    return new is not None and (old is None or new.value > old.value)


def after_driver(pod: Pod, before: CSIDriver, now: CSIDriver, objects: ClusterObjects) -> bool:
    """The driver of a volume that the pod has without a claim no longer asks for capacity to be looked at."""
    return (
        before.spec.storage_capacity is True
        and not now.spec.storage_capacity
        and any(volume.csi is not None and volume.csi.driver == now.name for volume in pod.spec.volumes)
    )


def _migrated(node: CSINode) -> str:
    return node.metadata.annotations.get(MIGRATED_PLUGINS, "")


def _largest_volume(capacity: CSIStorageCapacity) -> Quantity | None:
    return capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
