"""NodeDeclaredFeatures keeps a pod off nodes that do not declare the features it requires.

Of the features that nodes of v1.36 declare, two matter to new pods; the others only to pods that run.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from flotilla.plugin import (
    SKIP,
    Action,
    ClassState,
    ClusterObjects,
    FilterPlugin,
    Node,
    NodeColumn,
    NodeView,
    Pod,
    PodParts,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Registration,
    Resource,
    unresolvable,
)

RESTART_ALL = "RestartAllContainers"
LACKING = unresolvable("node(s) didn't match Pod's required features")


def required_features(pod: Pod) -> tuple[str, ...]:
    """The features without which a node cannot run the pod, sorted."""
    spec, features = pod.spec, []
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == RESTART_ALL for container in containers for rule in container.restart_policy_rules):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)


@dataclass(frozen=True, slots=True)
class DeclaresFeature(NodeColumn):
    feature: str

    def value(self, node: Node) -> int:
        return self.feature in node.status.declared_features


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    name = "NodeDeclaredFeatures"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return required_features(pod)

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, after_node_change),
            Registration(Resource.POD, Action.UPDATE, after_pod_update),
        )

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult() if required_features(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        for feature in required_features(state.pod):
            nodes.reject(nodes.of_nodes(DeclaresFeature(feature)) != 1, LACKING)


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node declares other features now, whichever."""
    return before is None or before.status.declared_features != now.status.declared_features


def after_pod_update(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself requires other features now."""
    return pod.uid == now.uid and required_features(before) != required_features(now)
