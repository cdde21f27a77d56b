"""Queueing hints that several plugins share.

A hint takes the pod, the object before and now, and the cluster's objects after the event; one that raises counts as
yes. It may be asked about every waiting pod, so it looks at little and keeps nothing.
"""

from typing import Any

from flotilla.objects import ClusterObjects, Pod


def after_own_update(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """Only the rejected pod's own change helps it."""
    return pod.uid == now.uid


def never(pod: Pod, before: Any, now: Any, objects: ClusterObjects) -> bool:
    return False


def is_placed(pod: Pod) -> bool:
    """Whether other pods must reckon with it: it is on a node, or nominated to one."""
    return bool(pod.spec.node_name or pod.status.nominated_node_name)
