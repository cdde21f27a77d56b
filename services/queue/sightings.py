"""What the watcher's stream means to the queue.

It reads pods that wait for a place. Of everything else it remembers just enough to see what has changed that may help
a pod: that a pod has come to a node or left it, which part of a node is another, that an object is not as it was.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from services.queue.events import ClusterChange, PodBound, PodGone, PodPending, PodUnreadable, Seen
from services.queue.waking import ChangeKind
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.objects import Node, ObjectKind, Pod, dec_hook, encode_msgpack

_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)

POD_ADDED = ClusterChange(ChangeKind.ASSIGNED_POD_ADDED)
POD_DELETED = ClusterChange(ChangeKind.ASSIGNED_POD_DELETED)


class _Told(NamedTuple):
    """What it is worth that an object of a kind comes, changes or goes."""

    added: ChangeKind | None = None
    changed: ChangeKind | None = None
    deleted: ChangeKind | None = None


_SELECTOR = _Told(ChangeKind.SELECTOR_CHANGED, ChangeKind.SELECTOR_CHANGED)
_TOLD: Mapping[ObjectKind, _Told] = {
    ObjectKind.NAMESPACE: _Told(ChangeKind.NAMESPACE_CHANGED, ChangeKind.NAMESPACE_CHANGED),
    ObjectKind.SERVICE: _SELECTOR,
    ObjectKind.REPLICA_SET: _SELECTOR,
    ObjectKind.REPLICATION_CONTROLLER: _SELECTOR,
    ObjectKind.STATEFUL_SET: _SELECTOR,
    ObjectKind.PERSISTENT_VOLUME: _Told(ChangeKind.VOLUME_ADDED, ChangeKind.VOLUME_CHANGED),
    ObjectKind.PERSISTENT_VOLUME_CLAIM: _Told(ChangeKind.CLAIM_ADDED, ChangeKind.CLAIM_CHANGED),
    ObjectKind.STORAGE_CLASS: _Told(ChangeKind.CLASS_ADDED, ChangeKind.CLASS_CHANGED),
    ObjectKind.CSI_NODE: _Told(ChangeKind.CSI_NODE_ADDED, ChangeKind.CSI_NODE_CHANGED),
    ObjectKind.CSI_DRIVER: _Told(changed=ChangeKind.CSI_DRIVER_CHANGED),
    ObjectKind.CSI_STORAGE_CAPACITY: _Told(ChangeKind.CAPACITY_ADDED, ChangeKind.CAPACITY_CHANGED),
    ObjectKind.VOLUME_ATTACHMENT: _Told(deleted=ChangeKind.ATTACHMENT_DELETED),
}


class _Facts(NamedTuple):
    """Of a node: hashes of what rejections may rest on."""

    allocatable: int
    labels: int
    taints: int
    unschedulable: bool


class Sightings:
    def __init__(self) -> None:
        self._assigned: set[str] = set()
        self._nodes: dict[str, _Facts] = {}
        self._objects: dict[ObjectKind, dict[str, int]] = {kind: {} for kind in _TOLD}
        """By key, a hash of the object as it was told."""

    def read(self, change: PodChange | NodeChange | ObjectChange | Unreadable, now: float) -> list[Seen]:
        match change:
            case PodChange():
                return self._pod(change, now)
            case NodeChange(name=name, gone=False, body=body):
                return self._node(name, body)
            case NodeChange(name=name) | Unreadable(kind=Kind.NODE, name=name):
                return [] if self._nodes.pop(name, None) is None else [ClusterChange(ChangeKind.NODE_DELETED)]
            case ObjectChange(kind=kind, key=key, gone=gone, body=body):
                return self._object(kind, key, None if gone else hash(bytes(body)))
            case Unreadable(kind=kind) if kind in OBJECT_KINDS:
                return self._object(OBJECT_KINDS[kind], change.key, None)
            case Unreadable(node=node):
                return self._on_node(change.uid) if node else [_unreadable(change, change.problem)]

    def _pod(self, change: PodChange, now: float) -> list[Seen]:
        uid = change.uid
        if change.gone or change.finished:
            gone: list[Seen] = [PodGone(uid)]
            if uid in self._assigned:
                self._assigned.discard(uid)
                gone.append(POD_DELETED)
            return gone
        if change.node:
            return self._on_node(uid)
        try:
            pod = _POD.decode(change.body)
        except msgspec.DecodeError as cause:
            return [_unreadable(change, f"Pod {change.namespace}/{change.name}: {cause}")]
        return [PodPending(pod, change.seen_at or now, len(change.body))]

    def _on_node(self, uid: str) -> list[Seen]:
        if uid in self._assigned:
            return []
        self._assigned.add(uid)
        return [PodBound(uid), POD_ADDED]

    def _node(self, name: str, body: bytes | msgspec.Raw) -> list[Seen]:
        try:
            facts = _facts(_NODE.decode(body))
        except msgspec.DecodeError:
            return []  # who schedules to nodes tells of it
        before = self._nodes.get(name)
        self._nodes[name] = facts
        if before is None:
            return [ClusterChange(ChangeKind.NODE_ADDED)]
        kinds = []
        if before.allocatable != facts.allocatable:
            kinds.append(ChangeKind.NODE_ALLOCATABLE)
        if before.labels != facts.labels:
            kinds.append(ChangeKind.NODE_LABELS)
        if before.taints != facts.taints or (before.unschedulable and not facts.unschedulable):
            kinds.append(ChangeKind.NODE_TAINTS)
        return [ClusterChange(kind) for kind in kinds]

    def _object(self, kind: ObjectKind, key: str, now: int | None) -> list[Seen]:
        """`now`: a hash of it; None where it is gone."""
        known, told = self._objects.get(kind), _TOLD.get(kind)
        if known is None or told is None:
            return []
        before = known.pop(key, None)
        if now is not None:
            known[key] = now
        if before == now:
            return []
        change = told.added if before is None else told.deleted if now is None else told.changed
        return [] if change is None else [ClusterChange(change)]


def _facts(node: Node) -> _Facts:
    return _Facts(
        hash(encode_msgpack(node.status.allocatable)),
        hash(encode_msgpack(node.metadata.labels)),
        hash(encode_msgpack(node.spec.taints)),
        node.spec.unschedulable,
    )


def _unreadable(change: PodChange | Unreadable, problem: str) -> PodUnreadable:
    return PodUnreadable(change.uid, change.namespace, change.name, change.scheduler, problem)
