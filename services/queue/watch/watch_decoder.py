"""Decodes the watcher's stream into the queue's events.

It decodes pods that have no node. Of everything else it keeps what it needs to tell which events an update is. An
object that is repeated unchanged is no event.
"""

from collections.abc import Iterable

import msgspec

from services.queue.events import PodBound, PodGone, PodPending, PodStale, PodUnreadable, WatchEvent
from services.queue.scheduling.cluster_event import ClusterChange, node_events, object_events, pod_events
from services.queue.watch.object_cache import AssignedPods, Nodes
from shared.cluster.objects import ClusterObjects
from shared.framework.clusterevents import ClusterEvent
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.kinds import STILL_COUNTED
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, object_from_msgpack, pod_from_msgpack

IGNORED_KINDS = frozenset({ObjectKind.POD_DISRUPTION_BUDGET})
"""No hint reads them."""


class WatchDecoder:
    def __init__(self, objects: ClusterObjects | None = None, *, annotations: bool = False) -> None:
        """Keeps `objects` up to date. `annotations`: a plugin waits for changes of nodes' annotations."""
        self.objects = ClusterObjects() if objects is None else objects
        self._assigned = AssignedPods()
        self._nodes = Nodes(annotations=annotations)

    def decode(self, change: PodChange | NodeChange | ObjectChange | Unreadable, now: float) -> list[WatchEvent]:
        match change:
            case PodChange():
                return self._pod(change, now)
            case NodeChange(name=name, gone=False, body=body):
                return self._node(name, body)
            case NodeChange(name=name):
                deleted = self._nodes.delete(name)
                return _changes(node_events(deleted, None), deleted, None)
            case Unreadable(kind=Kind.NODE):
                return []  # it takes no more pods, and those on it stay
            case ObjectChange(kind=kind, key=key, gone=gone, body=body):
                return self._object_deleted(kind, key) if gone else self._object(kind, key, body)
            case Unreadable(kind=kind) if kind in OBJECT_KINDS:
                is_kept = OBJECT_KINDS[kind] in STILL_COUNTED
                return [] if is_kept else self._object_deleted(OBJECT_KINDS[kind], change.key)
            case Unreadable(node=node):
                if node:
                    return self._assigned_pod(change)
                return self._stale(change) or [_unreadable(change, change.problem)]

    def _pod(self, change: PodChange, now: float) -> list[WatchEvent]:
        if change.gone or change.finished:
            before = self._assigned.delete(change.uid)
            return [PodGone(change.uid), *_changes(pod_events(before, None), before, None)]
        if change.node:
            return self._assigned_pod(change)
        if stale := self._stale(change):
            return stale
        try:
            pod = pod_from_msgpack(change.body)
        except msgspec.DecodeError as cause:
            return [_unreadable(change, f"Pod {change.namespace}/{change.name}: {cause}")]
        return [PodPending(pod, now, change.body.copy())]

    def _stale(self, change: PodChange | Unreadable) -> list[WatchEvent]:
        """An assigned pod never loses its node: a version without one is old."""
        return [PodStale(f"{change.namespace}/{change.name}")] if change.uid in self._assigned else []

    def _assigned_pod(self, change: PodChange | Unreadable) -> list[WatchEvent]:
        versions = self._assigned.update(change)
        if versions is None:
            return []
        before, now = versions
        changes = _changes(pod_events(before, now), before, now)
        return changes if before is not None else [*changes, PodBound(change.uid)]

    def _node(self, name: str, body: bytes | msgspec.Raw) -> list[WatchEvent]:
        try:
            versions = self._nodes.update(name, body)
        except msgspec.DecodeError:
            return []  # the snapshot reports it
        return [] if versions is None else _changes(node_events(*versions), *versions)

    def _object(self, kind: ObjectKind, key: str, body: bytes | msgspec.Raw) -> list[WatchEvent]:
        if kind in IGNORED_KINDS:
            return []
        try:
            now = object_from_msgpack(body)
        except msgspec.DecodeError:
            return []  # the snapshot reports it
        before: ClusterObject | None = self.objects.of(kind).get(key)
        return _changes(object_events(kind, before, now), before, now) if self.objects.upsert(now) else []

    def _object_deleted(self, kind: ObjectKind, key: str) -> list[WatchEvent]:
        before: ClusterObject | None = self.objects.of(kind).get(key)
        self.objects.remove(kind, key)
        return _changes(object_events(kind, before, None), before, None)


def _changes(
    events: Iterable[ClusterEvent], before: Node | Pod | ClusterObject | None, now: Node | Pod | ClusterObject | None
) -> list[WatchEvent]:
    return [ClusterChange(event, before, now) for event in events]


def _unreadable(change: PodChange | Unreadable, problem: str) -> PodUnreadable:
    return PodUnreadable(change.uid, change.namespace, change.name, change.scheduler, problem)
