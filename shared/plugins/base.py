"""What in-tree plugins share: their base class, and queueing hints.

A hint takes the pod, the object before and now, and the cluster's objects after the event; one that raises counts as
yes. It may be asked about every waiting pod, so it looks at little and keeps nothing.
"""

from collections.abc import Collection, Sequence
from typing import Any

from flotilla.events import ANY_EVENT, Registration
from flotilla.objects import ClusterObjects, ObjectKind, Pod
from flotilla.plugin import ClassState, Plugin, PodParts


class InTreePlugin(Plugin):
    """Reads a pod's template only, and no objects but nodes and pods; `registrations` are its events."""

    reads_of_pod = PodParts.TEMPLATE
    registrations: Sequence[Registration] = ANY_EVENT

    def events(self) -> Sequence[Registration]:
        return self.registrations

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        return ()


def after_own_update(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """Only the rejected pod's own change helps it."""
    return pod.uid == now.uid


def never(pod: Pod, before: Any, now: Any, objects: ClusterObjects) -> bool:
    return False


def is_placed(pod: Pod) -> bool:
    """Whether the pod counts for other pods: it is on a node, or nominated to one."""
    return bool(pod.spec.node_name or pod.status.nominated_node_name)
