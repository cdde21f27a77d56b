"""NodeDeclaredFeatures keeps a pod off nodes that do not declare the features that it cannot do without.

Of the features that nodes of v1.36 declare, two matter to pods that are to come; the others only to pods that run.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from shared.cluster.columns import NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Reads, Verdicts
from shared.framework.status import SKIP, Status, unresolvable
from shared.framework.view import NodeView
from shared.model.objects import Node, Pod

RESTART_ALL = "RestartAllContainers"


@dataclass(frozen=True, slots=True)
class DeclaresFeature(NodeColumn):
    feature: str

    def value(self, table: NodeTable, node: Node) -> int:
        return self.feature in node.status.declared_features


def required_features(pod: Pod) -> tuple[str, ...]:
    """The features without which a node cannot run the pod, sorted."""
    spec, features = pod.spec, []
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == RESTART_ALL for container in containers for rule in container.restart_policy_rules):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    name = "NodeDeclaredFeatures"
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return required_features(pod)

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        return PreFilterResult() if required_features(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        lacking = np.zeros(len(view), dtype=np.bool_)
        for feature in required_features(state.pod):
            lacking |= view.of_nodes(DeclaresFeature(feature)) != 1
        return lacking.astype(np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable("node(s) didn't match Pod's required features")
