"""For plugins that look at one node at a time and do not care for vectors.

The runtime asks such a plugin only about nodes that passed every columnar filter, and again only when a node changed.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from shared.framework.cyclestate import CycleState
from shared.framework.nodeinfo import NodeInfo
from shared.framework.normalize import MAX_NODE_SCORE, Scores
from shared.framework.plugin import FilterPlugin, ScorePlugin, Verdicts
from shared.framework.status import Status
from shared.framework.view import NodeView

_STATUSES = "statuses by verdict"


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
                verdicts[i] = statuses.setdefault(status, len(statuses) + 1)
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        statuses: dict[Status, int] = state.read(self.name, _STATUSES)
        return next(status for status, number in statuses.items() if number == verdict)


class ScoreOutOfRange(ValueError):
    """A plugin without a normaliser answered a score that is not from 0 to 100."""

    def __init__(self, plugin: str, node: str, score: Any) -> None:
        super().__init__(f"plugin {plugin!r} returns an invalid score {score!r} for node {node}, wanted 0 to 100")


class PerNodeScore(ScorePlugin):
    @abstractmethod
    def score_node(self, state: CycleState, node: NodeInfo) -> int: ...

    def score(self, state: CycleState, view: NodeView) -> Scores:
        scores = np.zeros(len(view), dtype=np.int64)
        for i in range(len(view)):
            info = view.info(i)
            score = self.score_node(state, info)
            if self.normalizer is None and not 0 <= score <= MAX_NODE_SCORE:
                raise ScoreOutOfRange(self.name, info.node.metadata.name, score)
            scores[i] = score
        return scores
