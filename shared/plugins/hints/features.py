"""When a pod is worth another attempt that no node declared the features for."""

from flotilla.objects import ClusterObjects
from shared.model.objects import Node, Pod
from shared.plugins.features import required_features


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """Which features they are is not looked at, only that they are not the same."""
    return before is None or before.status.declared_features != now.status.declared_features


def after_pod_update(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself needs other features now."""
    return pod.uid == now.uid and required_features(before) != required_features(now)
