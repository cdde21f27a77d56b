"""For plugins that look at one node at a time and do not care for vectors.

The runtime asks such a plugin only about nodes that passed every columnar filter, and again only when a node changed.
"""

from abc import abstractmethod

import numpy as np

from flotilla.results import Status
from shared.framework.cyclestate import CycleState
from shared.framework.nodeinfo import NodeInfo
from shared.framework.normalize import Scores
from shared.framework.plugin import FilterPlugin, ScorePlugin, Verdicts
from shared.framework.view import NodeView

_STATUSES = "statuses by verdict"


class FilterFailed(ValueError):
    """A filter neither let a node pass nor rejected it; the pod's attempt ends."""


class PerNodeFilter(FilterPlugin):
    @abstractmethod
    def filter_node(self, state: CycleState, node: NodeInfo) -> Status: ...

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        statuses: dict[Status, int] = state.read(self.name, _STATUSES) or {}
        state.write(self.name, _STATUSES, statuses)
        verdicts = np.zeros(len(view), dtype=np.int64)
        for i in range(len(view)):
            status = self.filter_node(state, view.info(i))
            if not status.ok:
                if not status.rejected:
                    raise FilterFailed(f"running {self.name!r} filter plugin: {status.message or status.code}")
                verdicts[i] = statuses.setdefault(status, len(statuses) + 1)
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        statuses: dict[Status, int] = state.read(self.name, _STATUSES)
        return next(status for status, number in statuses.items() if number == verdict)


class PerNodeScore(ScorePlugin):
    @abstractmethod
    def score_node(self, state: CycleState, node: NodeInfo) -> int: ...

    def score(self, state: CycleState, view: NodeView) -> Scores:
        scores = np.zeros(len(view), dtype=np.int64)
        for i in range(len(view)):
            scores[i] = self.score_node(state, view.info(i))
        return scores
