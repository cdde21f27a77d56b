"""NodeName keeps a pod that names a node in its spec off every other node."""

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import Status, unresolvable
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PodParts, Reads, Verdicts
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod


class NodeName(FilterPlugin):
    name = "NodeName"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.node_name

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (Registration(Resource.NODE, Action.ADD),)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        wanted = state.pod.spec.node_name
        if not wanted:
            return np.zeros(len(view), dtype=np.int64)
        row = view.table.row_of(wanted)
        elsewhere: Verdicts = (view.rows != (-1 if row is None else row)).astype(np.int64)
        return elsewhere

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable("node(s) didn't match the requested node name")
