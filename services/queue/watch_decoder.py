"""Decodes the watcher's stream into the queue's events.

It decodes pods that have no node. Of everything else it keeps what it needs to tell which events an update is. An
object that is repeated unchanged is no event.

Assigned pods (`assigned_pods`) and nodes are reduced to what queueing hints and events need. Nodes are kept encoded,
without heartbeats and images.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from services.queue.assigned_pods import AssignedPods
from services.queue.events import (
    GroupUnreadable,
    PodBound,
    PodGone,
    PodPending,
    PodsBound,
    PodStale,
    PodUnreadable,
    WatchEvent,
)
from services.queue.scheduling.assigned_pod import AssignedPod
from services.queue.scheduling.cluster_event import (
    ASSIGNED_POD_ADDED,
    ASSIGNED_POD_DELETED,
    ClusterChange,
    freed_devices,
    node_events,
    object_events,
    pod_events,
)
from shared.cluster.objects import ClusterObjects
from shared.framework.clusterevents import ClusterEvent
from shared.messages.watch import OBJECT_KINDS, AlikePods, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.devices import ResourceClaim, ResourceClaimStatus
from shared.model.kinds import STILL_COUNTED
from shared.model.objects import (
    ClusterObject,
    GroupApi,
    GroupRef,
    Node,
    ObjectKind,
    dec_hook,
    encode_msgpack,
    object_from_msgpack,
)
from shared.model.shared_parts import PodDecoder
from shared.watch import Seen

IGNORED_KINDS = frozenset({ObjectKind.POD_DISRUPTION_BUDGET})
"""No hint reads them."""
GROUP_APIS = {
    ObjectKind.POD_GROUP: GroupApi.SCHEDULING,
    ObjectKind.COSCHEDULING_POD_GROUP: GroupApi.COSCHEDULING,
}

_NONE = msgspec.Raw(b"")


class _NodeMetadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    name: str = ""
    labels: msgspec.Raw = _NONE
    annotations: dict[str, str] = {}


class _NodeCondition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    type: str = ""
    status: str = ""


class _NodeStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    allocatable: msgspec.Raw = _NONE
    conditions: list[_NodeCondition] = []
    declared_features: msgspec.Raw = _NONE


class _RelevantNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    metadata: _NodeMetadata = _NodeMetadata()
    spec: msgspec.Raw = _NONE
    status: _NodeStatus = _NodeStatus()


_RELEVANT_NODE = msgspec.msgpack.Decoder(_RelevantNode)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)


class NodeCache:
    def __init__(self, *, annotations: bool = False) -> None:
        """`annotations`: keeps them, because a plugin waits for changes of them."""
        self._annotations = annotations
        self._encoded: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._encoded)

    def update(self, name: str, body: bytes | msgspec.Raw) -> tuple[Node | None, Node] | None:
        """The node before, if it was known, and now; None if it is unchanged. Raises msgspec.DecodeError."""
        relevant = _RELEVANT_NODE.decode(body)
        if not self._annotations and relevant.metadata.annotations:
            relevant = replace(relevant, metadata=replace(relevant.metadata, annotations={}))
        now, before = encode_msgpack(relevant), self._encoded.get(name)
        if now == before:
            return None
        node = _NODE.decode(now)
        self._encoded[name] = now
        return None if before is None else _NODE.decode(before), node

    def delete(self, name: str) -> Node | None:
        """The node, if it was known."""
        known = self._encoded.pop(name, None)
        return None if known is None else _NODE.decode(known)


class WatchDecoder:
    def __init__(self, objects: ClusterObjects | None = None, *, annotations: bool = False) -> None:
        """Keeps `objects` up to date. `annotations`: a plugin waits for changes of nodes' annotations."""
        self.objects = ClusterObjects() if objects is None else objects
        self._assigned = AssignedPods()
        self._unreadable_groups: set[GroupRef] = set()
        self._pods = PodDecoder()
        self._nodes = NodeCache(annotations=annotations)

    def decode(self, change: Seen, now: float) -> list[WatchEvent]:
        match change:
            case PodChange():
                return self._pod(change, now)
            case AlikePods():
                return self._alike_pods(change)
            case NodeChange(name=name, gone=False, body=body):
                return self._node(name, body)
            case NodeChange(name=name):
                deleted = self._nodes.delete(name)
                return _changes(node_events(deleted, None), deleted, None)
            case Unreadable(kind=Kind.NODE):
                return []  # it takes no more pods, and those on it stay
            case ObjectChange(kind=kind, key=key, gone=gone, body=body):
                readable = self._group_is_unreadable(kind, key, "")
                return [*readable, *(self._object_deleted(kind, key) if gone else self._object(kind, key, body))]
            case Unreadable(kind=kind) if kind in OBJECT_KINDS:
                if OBJECT_KINDS[kind] in STILL_COUNTED:
                    return []
                lost = self._object_deleted(OBJECT_KINDS[kind], change.key)
                return [*lost, *self._group_is_unreadable(OBJECT_KINDS[kind], change.key, change.problem)]
            case Unreadable(node=node):
                if node:
                    return self._assigned_pod(change)
                return self._stale(change) or [_unreadable(change, change.problem)]

    def _pod(self, change: PodChange, now: float) -> list[WatchEvent]:
        if change.gone or change.finished:
            before = self._assigned.delete(change.uid)
            gone = [] if before is None else [ClusterChange(ASSIGNED_POD_DELETED, before, None)]
            return [PodGone(change.uid, change.finished), *gone]
        if change.node:
            return self._assigned_pod(change)
        if stale := self._stale(change):
            return stale
        try:
            pod = self._pods.decode(change.body)
        except msgspec.DecodeError as cause:
            return [_unreadable(change, f"Pod {change.namespace}/{change.name}: {cause}")]
        if pod.uid != change.uid:  # the cycle reads the uid from the body, and names it in the outcome
            return [_unreadable(change, f"Pod {change.namespace}/{change.name}: its body is that of pod {pod.uid}")]
        return [PodPending(pod, now, change.body.copy())]

    def _stale(self, change: PodChange | Unreadable) -> list[WatchEvent]:
        """An assigned pod never loses its node: a version without one is old."""
        return [PodStale(f"{change.namespace}/{change.name}")] if change.uid in self._assigned else []

    def _assigned_pod(self, change: PodChange | Unreadable) -> list[WatchEvent]:
        versions = self._assigned.update(change)
        if versions is None:
            return []
        before, now = versions
        if before is None:
            return [ClusterChange(ASSIGNED_POD_ADDED, None, now), PodBound(change.uid)]
        return [ClusterChange(event, before, now) for event in pod_events(before.pod(), now.pod())]

    def _alike_pods(self, alike: AlikePods) -> list[WatchEvent]:
        new: list[AssignedPod] = []
        events: list[WatchEvent] = [PodsBound(new)]
        for before, now in self._assigned.update_alike(alike):
            if before is None:
                new.append(now)
            else:
                events += [ClusterChange(event, before, now) for event in pod_events(before.pod(), now.pod())]
        return events if new else events[1:]

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

    def _group_is_unreadable(self, kind: ObjectKind, key: str, problem: str) -> list[WatchEvent]:
        """Only what is news."""
        api = GROUP_APIS.get(kind)
        if api is None:
            return []
        ref = GroupRef(api, key)
        if not problem and ref not in self._unreadable_groups:
            return []
        self._unreadable_groups.discard(ref) if not problem else self._unreadable_groups.add(ref)
        return [GroupUnreadable(ref, problem)]

    def _object_deleted(self, kind: ObjectKind, key: str) -> list[WatchEvent]:
        before: ClusterObject | None = self.objects.of(kind).get(key)
        self.objects.remove(kind, key)
        changes = _changes(object_events(kind, before, None), before, None)
        if isinstance(before, ResourceClaim) and before.is_allocated:  # the devices are free, too
            freed = replace(before, status=ResourceClaimStatus())
            changes += _changes(object_events(kind, before, freed), before, freed)
        elif isinstance(before, ResourceClaim) and before.is_special:  # it kept its pod waiting
            changes.append(freed_devices())
        return changes


def _changes(
    events: Iterable[ClusterEvent], before: Node | ClusterObject | None, now: Node | ClusterObject | None
) -> list[WatchEvent]:
    return [ClusterChange(event, before, now) for event in events]


def _unreadable(change: PodChange | Unreadable, problem: str) -> PodUnreadable:
    return PodUnreadable(change.uid, change.namespace, change.name, change.scheduler, problem)
