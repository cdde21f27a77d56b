"""What several plugins say of events that are about pods."""

from typing import Any

from flotilla.objects import ClusterObjects
from shared.model.objects import Pod


def after_own_update(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """Only the rejected pod's own change helps it."""
    return pod.uid == now.uid


def never(pod: Pod, before: Any, now: Any, objects: ClusterObjects) -> bool:
    return False


def holds_place(pod: Pod) -> bool:
    """Whether other pods have to reckon with it: it is on a node, or room is kept for it on one."""
    return bool(pod.spec.node_name or pod.status.nominated_node_name)
