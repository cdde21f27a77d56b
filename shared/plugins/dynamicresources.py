"""DynamicResources finds devices for pods that claim some; so far it can only tell whether a pod claims any.

A pod without claims is let through everywhere and scored nought. One with claims is rejected, saying why: it must not
be put on a node whose devices nobody has looked at.
"""

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import (
    SKIP,
    SUCCESS,
    ApiCall,
    PostFilterResult,
    PreFilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import (
    FilterPlugin,
    PodParts,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
    Verdicts,
)
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod
from shared.plugins.hints import devices as hints

NOT_SUPPORTED = "resource claims (dynamic resource allocation) are not supported yet"
_LOOKED_AT = "looked at"


class DynamicResources(
    PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, PostFilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    name = "DynamicResources"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    reads_pod = False

    def signature(self, pod: Pod) -> Hashable:
        return bool(pod.spec.resource_claims)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
            Registration(Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE, hints.after_claim),
            Registration(Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, hints.after_own_claims),
            Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
            Registration(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
        )

    def pre_enqueue(self, pod: Pod) -> Status:
        """A pod with claims is to be tried as well: its attempt tells its owner what is wrong."""
        return SUCCESS

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        state.write(self.name, _LOOKED_AT, True)
        return PreFilterResult(unresolvable(NOT_SUPPORTED) if state.pod.spec.resource_claims else SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        return np.zeros(len(view), dtype=np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable(NOT_SUPPORTED)

    def post_filter(self, state: CycleState, statuses: dict[str, Status]) -> PostFilterResult:
        """`not found` is how kube-scheduler says that an earlier plugin's PreFilter has ended the attempt already."""
        if state.read(self.name, _LOOKED_AT) is None:
            return PostFilterResult(error("not found"))
        return PostFilterResult(unschedulable("no new claims to deallocate"))

    def score(self, state: CycleState, view: NodeView) -> Scores:
        return np.zeros(len(view), dtype=np.int64)

    def reserve(self, state: CycleState, node: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, node: str) -> None:
        """Nothing was reserved."""

    def pre_bind(self, state: CycleState, node: str) -> Status | Collection[ApiCall]:
        return SUCCESS
