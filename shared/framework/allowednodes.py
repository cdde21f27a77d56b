"""The filter that keeps to the nodes to which PreFilter plugins restricted a pod."""

from collections.abc import Hashable

import numpy as np

from flotilla.results import Status
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, Reads, Verdicts
from shared.framework.profile import PreFiltered
from shared.framework.view import NodeView

_RESTRICTION = "restriction"


class AllowedNodes(FilterPlugin):
    """Not a plugin that anybody names: its statuses carry no plugin, as kube-scheduler's do."""

    name = ""
    filter_reads = Reads.NODE

    @staticmethod
    def restrict(state: CycleState, pre: PreFiltered) -> None:
        state.write(AllowedNodes.name, _RESTRICTION, pre)

    def cache_key(self, state: CycleState) -> Hashable:
        pre: PreFiltered = state.read(self.name, _RESTRICTION)
        return tuple(sorted(pre.nodes or ())), pre.restricted_by

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        pre: PreFiltered = state.read(self.name, _RESTRICTION)
        known = [view.table.row_of(name) for name in pre.nodes or ()]
        return (~np.isin(view.rows, [row for row in known if row is not None])).astype(np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        pre: PreFiltered = state.read(self.name, _RESTRICTION)
        return pre.outside
