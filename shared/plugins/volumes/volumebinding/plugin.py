"""VolumeBinding keeps a pod to nodes that reach its bound volumes and that its other claims can get a volume for.

The node's volumes are told along with the node, and when the pod is bound they are bound first (PreBind).
"""

from collections.abc import Collection, Generator, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from flotilla.results import SKIP, SUCCESS, ApiAnswer, ApiCall, Pause, PreFilterResult, Status, unresolvable
from shared.cluster.labels import Mask
from shared.cluster.nodetable import NodeTable
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.pernode import FilterFailed
from shared.framework.plugin import (
    DECISION,
    FilterPlugin,
    PodParts,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
    Verdicts,
    VolumePlugin,
)
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import PersistentVolumeClaim, Pod
from shared.plugins.hints import volumes as hints
from shared.plugins.volumes.migration import Untranslatable, migration_of_volume
from shared.plugins.volumes.podvolumes import claim_uses, volume_signature
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
"""A verdict is a sum of these; the reasons come in this order."""


class _Work(NamedTuple):
    """What PreFilter found out."""

    claims: PodClaims
    matching: Matching


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
            Registration(Resource.STORAGE_CLASS, Action.ADD | Action.UPDATE, hints.after_storage_class),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, hints.after_claim),
            Registration(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            Registration(Resource.CSI_NODE, Action.ADD | Action.UPDATE, hints.after_migration),
            Registration(Resource.CSI_DRIVER, Action.UPDATE, hints.after_driver),
            Registration(Resource.CSI_STORAGE_CAPACITY, Action.ADD | Action.UPDATE, hints.after_capacity),
        )

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        if not claim_uses(state.pod):
            return ()
        kinds = {ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.PERSISTENT_VOLUME, ObjectKind.STORAGE_CLASS}
        work: _Work | None = state.read(self.name, "work")
        if work is None:
            return kinds
        if _reads_migrations(work.claims.bound, state.objects):
            kinds.add(ObjectKind.CSI_NODE)
        if work.claims.selected or work.claims.unbound:
            kinds.add(ObjectKind.CSI_DRIVER)
        if _reads_capacities((*work.claims.selected, *work.claims.unbound), state.objects):
            kinds.add(ObjectKind.CSI_STORAGE_CAPACITY)
        return kinds

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        claims = claims_of(state.pod, state.objects)
        if claims is None:
            return PreFilterResult(SKIP)
        if isinstance(claims, Status):
            return PreFilterResult(claims)
        state.write(self.name, "work", _Work(claims, Matching(claims.unbound, state.objects)))
        return PreFilterResult()

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        work = self._work(state)
        try:
            verdicts = _out_of_reach(view, work.claims.bound, state.objects)
            if work.claims.selected or work.claims.unbound:
                verdicts |= _not_to_be_had(view, work, state.objects)
        except (Untranslatable, NoClass) as cause:
            raise self._failed(str(cause)) from cause
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable(*(reason for fault, reason in REASONS.items() if verdict & fault))

    def volumes_for(self, state: CycleState, table: NodeTable, row: int) -> VolumeDecision | None:
        work: _Work | None = state.read(self.name, "work")
        if work is None or not (work.claims.selected or work.claims.unbound):
            return None
        chosen: list[int] = [NOTHING] * len(work.claims.unbound)
        if not work.matching.is_empty:
            chosen = work.matching.choose(NodeView(table, np.array([row], dtype=np.intp)))[:, 0].tolist()
        pairs = list(zip(work.claims.unbound, chosen, strict=True))
        return VolumeDecision(
            bindings=[(claim.key, work.matching.volumes[at].name) for claim, at in pairs if at != NOTHING],
            provisions=[claim.key for claim in work.claims.selected]
            + [claim.key for claim, at in pairs if at == NOTHING],
        )

    def pre_score(self, state: CycleState) -> Status:
        return SKIP

    def score(self, state: CycleState, view: NodeView) -> Scores:
        return np.zeros(len(view), dtype=np.int64)

    def reserve(self, state: CycleState, node: str) -> Status:
        """The decision holds the volumes: it is part of what the snapshot has taken."""
        return SUCCESS

    def unreserve(self, state: CycleState, node: str) -> None:
        """Likewise: the snapshot gives them back."""

    def pre_bind(self, state: CycleState, node: str) -> Status | Generator[ApiCall | Pause, ApiAnswer, Status]:
        decision: VolumeDecision | None = state.read(self.name, DECISION)
        if decision is None or not (decision.bindings or decision.provisions):
            return SUCCESS
        return bind_volumes(state.pod, node, decision, self._patience)

    def _work(self, state: CycleState) -> _Work:
        work: _Work | None = state.read(self.name, "work")
        if work is None:
            raise self._failed("PreFilter has not run")
        return work

    def _failed(self, why: str) -> FilterFailed:
        return FilterFailed(f"running {self.name!r} filter plugin: {why}")


def _out_of_reach(view: NodeView, bound: list[PersistentVolumeClaim], objects: ClusterObjects) -> Verdicts:
    """The first bound claim whose volume the node does not reach, or that has none, decides."""
    verdicts = np.zeros(len(view), dtype=np.int64)
    for claim in bound:
        volume = objects.persistent_volumes.get(claim.spec.volume_name)
        if volume is None:
            verdicts[verdicts == 0] = NO_VOLUME
            break
        verdicts[(verdicts == 0) & ~reaching_nodes_now(view, volume)] = OUT_OF_REACH
    return verdicts


def _not_to_be_had(view: NodeView, work: _Work, objects: ClusterObjects) -> Verdicts:
    verdicts = np.zeros(len(view), dtype=np.int64)
    elsewhere = _elsewhere(view, work.claims.selected)
    choices = work.matching.choose(view)
    complete = (choices != NOTHING).all(axis=0)
    if work.claims.selected or not complete.all():
        prospect = _prospect(view, work.claims, choices, objects)
        verdicts[prospect == IMPOSSIBLE] = NOTHING_TO_BIND
        verdicts[prospect == NO_SPACE] = TOO_SMALL
    verdicts[elsewhere] = NOTHING_TO_BIND
    return verdicts


def _elsewhere(view: NodeView, selected: list[PersistentVolumeClaim]) -> Mask:
    """Nodes other than the one that was chosen for a claim before."""
    elsewhere = np.zeros(len(view), dtype=np.bool_)
    for claim in selected:
        row = view.table.row_of(claim.selected_node or "")
        elsewhere |= view.rows != (-1 if row is None else row)
    return elsewhere


def _prospect(view: NodeView, claims: PodClaims, choices: Choices, objects: ClusterObjects) -> Verdicts:
    """Of the volumes that are to be made: the first one that cannot be decides."""
    found = np.full(len(view), POSSIBLE, dtype=np.int64)
    for claim in claims.selected:
        _decide(found, np.ones(len(view), dtype=np.bool_), prospects(view, claim, objects))
    for claim, choice in zip(claims.unbound, choices, strict=True):
        missing = choice == NOTHING
        if claim.promised:
            found[missing & (found == POSSIBLE)] = IMPOSSIBLE
        elif missing.any():
            _decide(found, missing, prospects(view, claim, objects))
    return found


def _decide(found: Verdicts, where: Mask, prospect: Verdicts) -> None:
    undecided = where & (found == POSSIBLE)
    found[undecided] = prospect[undecided]


def _reads_migrations(bound: list[PersistentVolumeClaim], objects: ClusterObjects) -> bool:
    volumes = (objects.persistent_volumes.get(claim.spec.volume_name) for claim in bound)
    return any(volume is not None and migration_of_volume(volume) is not None for volume in volumes)


def _reads_capacities(claims: Collection[PersistentVolumeClaim], objects: ClusterObjects) -> bool:
    classes = (objects.storage_classes.get(claim.storage_class) for claim in claims)
    return any(each is not None and tells_capacity(objects, each) for each in classes)
