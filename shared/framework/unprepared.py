"""Plugins whose Filter or Score is enabled without what prepares it: kube-scheduler's fail every pod that comes so far.

The others, such as NodeAffinity, do without.
"""

from collections.abc import Container, Hashable, Iterable
from typing import ClassVar

import numpy as np

from flotilla.nodes import NodeView
from flotilla.objects import Pod
from flotilla.plugin import ClassState, FilterPlugin, Plugin, Reads
from flotilla.results import Status, error
from shared.plugins.base import InTreePlugin

WITHOUT_PRE_FILTER = {
    "DynamicResources": "not found",
    "InterPodAffinity": 'error reading "PreFilterInterPodAffinity" from cycleState: not found',
    "NodeDeclaredFeatures": 'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found',
    "NodePorts": 'reading "PreFilterNodePorts" from cycleState: not found',
    "NodeResourcesFit": 'error reading "PreFilterNodeResourcesFit" from cycleState: not found',
    "PodTopologySpread": 'reading "PreFilterPodTopologySpread" from cycleState: not found',
    "VolumeBinding": "not found",
    "VolumeRestrictions": 'cannot read "PreFilterVolumeRestrictions" from cycleState',
}
WITHOUT_PRE_SCORE = {
    "InterPodAffinity": 'failed to read "PreScoreInterPodAffinity" from cycleState: not found',
    "PodTopologySpread": 'error reading "PreScorePodTopologySpread" from cycleState: not found',
    "TaintToleration": 'failed to read "PreScoreTaintToleration" from cycleState: not found',
}
SCORES_BY_PRE_FILTER = {"DynamicResources": "not found"}
"""Their Score needs what PreFilter has found."""


class Unprepared(InTreePlugin, FilterPlugin):
    """Stands for the Filter of such a plugin: fails on every node that passed the filters before it."""

    filter_reads: ClassVar[Reads] = Reads.NODE

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # that of the plugin it stands for
        self._failure = error(f'running "{name}" filter plugin: {WITHOUT_PRE_FILTER[name]}')

    def signature(self, pod: Pod) -> Hashable:
        return None

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        nodes.reject(np.ones(len(nodes), dtype=np.bool_), self._failure)


def prepared(filters: Iterable[FilterPlugin], pre_filters: Container[str]) -> list[FilterPlugin]:
    """The filters, in their order; `pre_filters`: names of plugins whose PreFilter is enabled."""
    return [
        Unprepared(each.name) if each.name in WITHOUT_PRE_FILTER and each.name not in pre_filters else each
        for each in filters
    ]


def score_failure(scores: Iterable[Plugin], pre_scores: Container[str], pre_filters: Container[str]) -> Status | None:
    """How scoring fails with these plugins enabled; None if it does not."""
    for each in scores:
        why = WITHOUT_PRE_SCORE.get(each.name) if each.name not in pre_scores else None
        if each.name not in pre_filters:
            why = why or SCORES_BY_PRE_FILTER.get(each.name)
        if why is not None:
            return error(f'running Score plugins: plugin "{each.name}" failed with: {why}').by(each.name)
    return None
