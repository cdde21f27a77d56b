"""When a pod that taints, or a cordon, kept off nodes is worth another attempt: TaintToleration, NodeUnschedulable."""

from flotilla.objects import ClusterObjects
from shared.model.affinity import is_tolerated, repel
from shared.model.objects import Node, Pod, Taint

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def after_taints(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node lets the pod in and did not do so before."""
    tolerations = pod.spec.tolerations
    if repel(now.spec.taints, tolerations):
        return False
    return before is None or repel(before.spec.taints, tolerations)


def after_cordon(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node is open and was not before."""
    return not now.spec.unschedulable and (before is None or before.spec.unschedulable)


def after_toleration_of_cordons(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself puts up with cordons now."""
    return pod.uid == now.uid and is_tolerated(UNSCHEDULABLE, now.spec.tolerations)
