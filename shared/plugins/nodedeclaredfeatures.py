"""NodeDeclaredFeatures keeps a pod off nodes that do not declare the features that it cannot do without."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import SKIP, PreFilterResult, Status, unresolvable
from shared.cluster.columns import NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PodParts, PreFilterPlugin, Reads, Verdicts
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Node, Pod
from shared.plugins.features import required_features
from shared.plugins.hints import features as hints


@dataclass(frozen=True, slots=True)
class DeclaresFeature(NodeColumn):
    feature: str

    def value(self, table: NodeTable, node: Node) -> int:
        return self.feature in node.status.declared_features


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    name = "NodeDeclaredFeatures"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return required_features(pod)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, hints.after_node_change),
            Registration(Resource.POD, Action.UPDATE, hints.after_pod_update),
        )

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        return PreFilterResult() if required_features(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        lacking = np.zeros(len(view), dtype=np.bool_)
        for feature in required_features(state.pod):
            lacking |= view.of_nodes(DeclaresFeature(feature)) != 1
        return lacking.astype(np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable("node(s) didn't match Pod's required features")
