"""NodeUnschedulable keeps pods off cordoned nodes, unless they tolerate the taint that goes with a cordon."""

from collections.abc import Hashable, Sequence

from flotilla.plugin import (
    Action,
    ClassState,
    ClusterObjects,
    FilterPlugin,
    Node,
    NodeView,
    Pod,
    PodParts,
    Reads,
    Registration,
    Resource,
    unresolvable,
)
from shared.model.affinity import is_tolerated
from shared.model.objects import Taint

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
CORDONED = unresolvable("node(s) were unschedulable")


class NodeUnschedulable(FilterPlugin):
    name = "NodeUnschedulable"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return is_tolerated(CORDON, pod.spec.tolerations)

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_cordon),
            Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, after_toleration),
        )

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        if not is_tolerated(CORDON, state.pod.spec.tolerations):
            nodes.reject(nodes.unschedulable, CORDONED)


def after_cordon(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node is schedulable and was not before."""
    return not now.spec.unschedulable and (before is None or before.spec.unschedulable)


def after_toleration(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself tolerates cordons now."""
    return pod.uid == now.uid and is_tolerated(CORDON, now.spec.tolerations)
