"""NodeUnschedulable keeps pods off cordoned nodes, unless they tolerate the taint that goes with it."""

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import Status, unresolvable
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PodParts, Reads, Verdicts
from shared.framework.view import NodeView
from shared.model.affinity import is_tolerated
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod
from shared.plugins.hints import taints as hints
from shared.plugins.hints.taints import UNSCHEDULABLE


class NodeUnschedulable(FilterPlugin):
    name = "NodeUnschedulable"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return is_tolerated(UNSCHEDULABLE, pod.spec.tolerations)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, hints.after_cordon),
            Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, hints.after_toleration_of_cordons),
        )

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        if is_tolerated(UNSCHEDULABLE, state.pod.spec.tolerations):
            return np.zeros(len(view), dtype=np.int64)
        return view.unschedulable.astype(np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable("node(s) were unschedulable")
