"""What the watcher's stream means to the queue.

It reads pods that wait for a place. Of everything else it remembers what is needed to tell what has changed, as events
that may help a pod; an object that is told again as it was is none.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from services.queue.events import ClusterChange, PodBound, PodGone, PodPending, PodStale, PodUnreadable, Seen
from services.queue.nodes import Nodes
from services.queue.scheduling.cluster_event import node_events, object_events, pod_events
from services.queue.watch.object_cache import AssignedPods
from shared.cluster.objects import ClusterObjects
from shared.framework.clusterevents import ClusterEvent
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.kinds import STILL_COUNTED
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, dec_hook, object_from_msgpack

_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)

UNREAD = frozenset({ObjectKind.POD_DISRUPTION_BUDGET})
"""Kinds that have no say in whether a pod is worth another attempt."""


class Sightings:
    def __init__(self, objects: ClusterObjects | None = None, *, annotations: bool = False) -> None:
        """`objects` are kept up to date. `annotations`: somebody waits for changes of those of nodes."""
        self.objects = ClusterObjects() if objects is None else objects
        self._assigned = AssignedPods()
        self._nodes = Nodes(annotations=annotations)

    def read(self, change: PodChange | NodeChange | ObjectChange | Unreadable, now: float) -> list[Seen]:
        match change:
            case PodChange():
                return self._pod(change, now)
            case NodeChange(name=name, gone=False, body=body):
                return self._node(name, body)
            case NodeChange(name=name):
                gone = self._nodes.drop(name)
                return _told(node_events(gone, None), gone, None)
            case Unreadable(kind=Kind.NODE):
                return []  # it takes no pod, and those on it stay
            case ObjectChange(kind=kind, key=key, gone=gone, body=body):
                return self._object_gone(kind, key) if gone else self._object(kind, key, body)
            case Unreadable(kind=kind) if kind in OBJECT_KINDS:
                is_kept = OBJECT_KINDS[kind] in STILL_COUNTED
                return [] if is_kept else self._object_gone(OBJECT_KINDS[kind], change.key)
            case Unreadable(node=node):
                if node:
                    return self._on_node(change)
                return self._refuse(change) or [_unreadable(change, change.problem)]

    def _pod(self, change: PodChange, now: float) -> list[Seen]:
        if change.gone or change.finished:
            before = self._assigned.drop(change.uid)
            return [PodGone(change.uid), *_told(pod_events(before, None), before, None)]
        if change.node:
            return self._on_node(change)
        if stale := self._refuse(change):
            return stale
        try:
            pod = _POD.decode(change.body)
        except msgspec.DecodeError as cause:
            return [_unreadable(change, f"Pod {change.namespace}/{change.name}: {cause}")]
        return [PodPending(pod, now, len(change.body))]

    def _refuse(self, change: PodChange | Unreadable) -> list[Seen]:
        """What the watch shows of a pod that is on a node, if it shows the pod without it: a binding is for life."""
        return [PodStale(f"{change.namespace}/{change.name}")] if change.uid in self._assigned else []

    def _on_node(self, change: PodChange | Unreadable) -> list[Seen]:
        seen = self._assigned.see(change)
        if seen is None:
            return []
        before, now = seen
        told = _told(pod_events(before, now), before, now)
        return told if before is not None else [*told, PodBound(change.uid)]

    def _node(self, name: str, body: bytes | msgspec.Raw) -> list[Seen]:
        try:
            seen = self._nodes.see(name, body)
        except msgspec.DecodeError:
            return []  # who schedules to nodes tells of it
        if seen is None:
            return []
        before, now = seen
        return _told(node_events(before, now), before, now)

    def _object(self, kind: ObjectKind, key: str, body: bytes | msgspec.Raw) -> list[Seen]:
        if kind in UNREAD:
            return []
        try:
            now = object_from_msgpack(body)
        except msgspec.DecodeError:
            return []  # who reads such objects tells of it
        before: ClusterObject | None = self.objects.of(kind).get(key)
        return _told(object_events(kind, before, now), before, now) if self.objects.upsert(now) else []

    def _object_gone(self, kind: ObjectKind, key: str) -> list[Seen]:
        before: ClusterObject | None = self.objects.of(kind).get(key)
        self.objects.remove(kind, key)
        return _told(object_events(kind, before, None), before, None)


def _told(
    events: Iterable[ClusterEvent], before: Node | Pod | ClusterObject | None, now: Node | Pod | ClusterObject | None
) -> list[Any]:
    return [ClusterChange(event, before, now) for event in events]


def _unreadable(change: PodChange | Unreadable, problem: str) -> PodUnreadable:
    return PodUnreadable(change.uid, change.namespace, change.name, change.scheduler, problem)
