"""Decodes the watcher's stream into the queue's events.

It decodes pods that have no node. Of everything else it keeps what it needs to tell which events an update is. An
object that is repeated unchanged is no event.

Assigned pods and nodes are reduced to what queueing hints and events need. A process may hold half a million assigned
pods, so equal parts are kept once: labels, the spec without node and volumes, and the status's resources and claims.
Annotations, owners, times and the rest of the status are dropped: hints do not get them, and changes of them are no
event. Nodes are kept encoded, without heartbeats and images.
"""

from collections.abc import Iterable
from sys import intern

import msgspec
from msgspec.structs import replace

from services.queue.events import GroupUnreadable, PodBound, PodGone, PodPending, PodStale, PodUnreadable, WatchEvent
from services.queue.scheduling.cluster_event import ClusterChange, freed_devices, node_events, object_events, pod_events
from shared.bounded import BoundedDict
from shared.cluster.objects import ClusterObjects
from shared.framework.clusterevents import ClusterEvent
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.devices import ResourceClaim, ResourceClaimStatus
from shared.model.kinds import STILL_COUNTED
from shared.model.objects import (
    ClusterObject,
    ContainerStatus,
    GroupApi,
    GroupRef,
    Node,
    ObjectKind,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Volume,
    dec_hook,
    encode_msgpack,
    object_from_msgpack,
)
from shared.model.shared_parts import PodDecoder

IGNORED_KINDS = frozenset({ObjectKind.POD_DISRUPTION_BUDGET})
"""No hint reads them."""
GROUP_APIS = {
    ObjectKind.POD_GROUP: GroupApi.SCHEDULING,
    ObjectKind.COSCHEDULING_POD_GROUP: GroupApi.COSCHEDULING,
}
MAX_PARTS = 1 << 14
"""Different parts of one sort that are shared."""

_NONE = msgspec.Raw(b"")
_NO_LABELS: dict[str, str] = {}
_NO_VOLUMES: list[Volume] = []
_NO_SPEC = PodSpec()
_NO_STATUS = PodStatus()
_NODE_NAME = encode_msgpack("nodeName")
_RESIZE = "PodResizePending"
"""The condition that affects a pod's requests."""


class _Labels(msgspec.Struct, frozen=True, gc=False):
    labels: msgspec.Raw = _NONE


class _Resources(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The parts of a status that determine requests and claims."""

    conditions: msgspec.Raw = _NONE
    container_statuses: msgspec.Raw = _NONE
    init_container_statuses: msgspec.Raw = _NONE
    resources: msgspec.Raw = _NONE
    allocated_resources: msgspec.Raw = _NONE
    resource_claim_statuses: msgspec.Raw = _NONE


class _Body(msgspec.Struct, frozen=True, gc=False):
    metadata: _Labels = _Labels()
    spec: msgspec.Raw = _NONE
    status: _Resources = _Resources()


class _Volumes(msgspec.Struct, frozen=True, gc=False):
    volumes: msgspec.Raw = _NONE


class _AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """Equal parts of two pods are mostly one object, so comparing them is cheap."""

    namespace: str
    name: str
    node: str
    labels: dict[str, str] = _NO_LABELS
    spec: PodSpec = _NO_SPEC
    volumes: list[Volume] = _NO_VOLUMES
    status: PodStatus = _NO_STATUS

    def pod(self, uid: str) -> Pod:
        return Pod(
            metadata=ObjectMeta(name=self.name, namespace=self.namespace, uid=uid, labels=self.labels),
            spec=replace(self.spec, node_name=self.node, volumes=self.volumes),
            status=self.status,
        )


_BODY = msgspec.msgpack.Decoder(_Body)
_RAW_VOLUMES = msgspec.msgpack.Decoder(_Volumes)
_LABELS = msgspec.msgpack.Decoder(dict[str, str])
_SPEC = msgspec.msgpack.Decoder(PodSpec, dec_hook=dec_hook)
_VOLUMES = msgspec.msgpack.Decoder(list[Volume], dec_hook=dec_hook)
_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)


class AssignedPods:
    def __init__(self) -> None:
        self._pods: dict[str, _AssignedPod] = {}
        self._labels: BoundedDict[bytes, dict[str, str]] = BoundedDict(MAX_PARTS)
        self._specs: BoundedDict[bytes, PodSpec] = BoundedDict(MAX_PARTS)
        self._statuses: BoundedDict[tuple[bytes, ...], PodStatus] = BoundedDict(MAX_PARTS)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def update(self, change: PodChange | Unreadable) -> tuple[Pod | None, Pod] | None:
        """The pod before, if known, and now; None if it is unchanged. Of an unreadable pod only the node counts."""
        before, now = self._pods.get(change.uid), None
        if isinstance(change, PodChange):
            try:
                now = self._decode(change)
            except msgspec.DecodeError:
                now = None
        if now is None:
            now = before or _AssignedPod(intern(change.namespace), change.name, intern(change.node))
        if now == before:
            return None
        self._pods[change.uid] = now
        return None if before is None else before.pod(change.uid), now.pod(change.uid)

    def delete(self, uid: str) -> Pod | None:
        """The pod, if it was known."""
        known = self._pods.pop(uid, None)
        return None if known is None else known.pod(uid)

    def _decode(self, change: PodChange) -> _AssignedPod:
        body = _BODY.decode(change.body)
        labels, spec = bytes(body.metadata.labels), bytes(body.spec)
        volumes = bytes(_RAW_VOLUMES.decode(spec).volumes) if spec else b""
        return _AssignedPod(
            intern(change.namespace),
            change.name,
            intern(change.node),
            self._labels.obtain(labels, lambda: _LABELS.decode(labels)) if labels else _NO_LABELS,
            self._spec(spec, volumes, change.node) if spec else _NO_SPEC,
            _relevant_volumes(volumes) if volumes else _NO_VOLUMES,
            self._status(body.status, change),
        )

    def _spec(self, raw: bytes, volumes: bytes, node: str) -> PodSpec:
        """Pods of one template differ only in node and volumes."""
        template = raw.replace(_NODE_NAME + encode_msgpack(node), b"", 1).replace(volumes, b"", 1)
        return self._specs.obtain(template, lambda: replace(_SPEC.decode(raw), node_name="", volumes=_NO_VOLUMES))

    def _status(self, raw: _Resources, change: PodChange) -> PodStatus:
        conditions = bytes(raw.conditions)
        key = (
            conditions if _RESIZE.encode() in conditions else b"",
            bytes(raw.container_statuses),
            bytes(raw.init_container_statuses),
            bytes(raw.resources),
            bytes(raw.allocated_resources),
            bytes(raw.resource_claim_statuses),
        )
        if not any(key):
            return _NO_STATUS
        return self._statuses.obtain(key, lambda: _relevant_status(_POD.decode(change.body).status))


def _relevant_volumes(raw: bytes) -> list[Volume]:
    """Most volumes have only a name here, a different one in each pod."""
    volumes = [volume for volume in _VOLUMES.decode(raw) if volume != Volume(name=volume.name)]
    return volumes or _NO_VOLUMES


def _relevant_status(status: PodStatus) -> PodStatus:
    def granted(statuses: list[ContainerStatus]) -> list[ContainerStatus]:
        return [each for each in statuses if each.resources is not None or each.allocated_resources]

    return PodStatus(
        conditions=[condition for condition in status.conditions if condition.type == _RESIZE],
        container_statuses=granted(status.container_statuses),
        init_container_statuses=granted(status.init_container_statuses),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
        resource_claim_statuses=status.resource_claim_statuses,
    )


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
            return [PodGone(change.uid, change.finished), *_changes(pod_events(before, None), before, None)]
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
    events: Iterable[ClusterEvent], before: Node | Pod | ClusterObject | None, now: Node | Pod | ClusterObject | None
) -> list[WatchEvent]:
    return [ClusterChange(event, before, now) for event in events]


def _unreadable(change: PodChange | Unreadable, problem: str) -> PodUnreadable:
    return PodUnreadable(change.uid, change.namespace, change.name, change.scheduler, problem)
