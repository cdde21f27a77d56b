"""Decodes the watcher's stream into events, as far as the snapshot needs it."""

from collections.abc import Callable, Sequence
from sys import intern

import msgspec

from services.snapshot.events import (
    AlikePodsSeen,
    AssignedPodSeen,
    NodeGone,
    NodeSeen,
    NodeUnreadable,
    ObjectGone,
    ObjectSeen,
    PodDeleted,
    PodSeen,
    PodUnreadable,
    WatchEvent,
)
from services.snapshot.state.pending_pods import PendingPods
from shared.bounded import BoundedDict
from shared.errors import FlotillaError, ProtocolError
from shared.messages.watch import OBJECT_KINDS, AlikePods, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.assigned_parts import AlikeKey, decode_assigned
from shared.model.composite_groups import CompositePodGroup
from shared.model.kinds import STILL_COUNTED, UNPUBLISHED_KINDS, ObjectKind
from shared.model.load import PodLoad, load_of
from shared.model.objects import ClusterObject, PodGroup, object_from_msgpack
from shared.model.pod import unix_time
from shared.model.shared_parts import MAX_PARTS, NodeDecoder, PodDecoder
from shared.watch import Seen, SeenOne


class WatchDecoder:
    """Decodes nodes, and pods that are, were or will be on a node; what cannot be decoded becomes an event as well."""

    def __init__(
        self, schedulers: frozenset[str], is_bound: Callable[[str], bool], pending: PendingPods | None = None
    ) -> None:
        """`schedulers`: whose pods this pipeline schedules; nominations of other pods are ignored.

        `is_bound`: whether the watch has shown the pod of this uid on a node, and not finished or gone since.
        `pending` gets the pending pods of these schedulers.
        """
        self._schedulers = schedulers
        self._is_bound = is_bound
        self._pending = PendingPods() if pending is None else pending
        self._decode_pod = PodDecoder().decode
        self._decode_node = NodeDecoder().decode
        self._loads: BoundedDict[AlikeKey | bytes, PodLoad] = BoundedDict(MAX_PARTS)
        """Of pods on nodes that are alike; without pods that have volumes. By body where that is shared."""
        self._nodes: set[str] = set()
        self._nominated: set[str] = set()

    def decode_all(self, change: Seen) -> Sequence[WatchEvent]:
        """Raises ProtocolError if the body of another object cannot be decoded."""
        if isinstance(change, AlikePods):
            return self._alike_pods(change)
        event = self.decode(change)
        return () if event is None else (event,)

    def decode(self, change: SeenOne) -> WatchEvent | None:
        """Raises ProtocolError if the body of another object cannot be decoded."""
        try:
            return self._decode(change)
        except msgspec.DecodeError as cause:
            name = change.key if isinstance(change, ObjectChange) else change.name
            raise ProtocolError(f"watch: {name}: {cause}") from cause

    def _decode(self, change: SeenOne) -> WatchEvent | None:
        match change:
            case PodChange():
                return self._pod(change)
            case NodeChange(gone=False):
                self._nodes.add(change.name)
                return self._node(change)
            case NodeChange(name=name):
                was_known = name in self._nodes
                self._nodes.discard(name)
                return NodeGone(name) if was_known else None
            case ObjectChange(kind=ObjectKind.COSCHEDULING_POD_GROUP):
                return None
            case ObjectChange(gone=False, body=body, version=version):
                return ObjectSeen(_without_status(object_from_msgpack(body)), version)
            case ObjectChange(kind=kind, key=key):
                return ObjectGone(kind, key)
            case Unreadable(kind=Kind.POD):
                return self._unreadable(change)
            case Unreadable(kind=Kind.NODE, name=name):
                self._nodes.add(name)
                return NodeUnreadable(name, change.problem)
            case Unreadable():
                kind = OBJECT_KINDS[change.kind]
                return None if kind in UNPUBLISHED_KINDS or kind in STILL_COUNTED else ObjectGone(kind, change.key)

    def _pod(self, change: PodChange) -> WatchEvent | None:
        uid = change.uid
        nominated = bool(change.nominated) and change.scheduler in self._schedulers
        waits = not (change.gone or change.finished or change.node)
        if waits and change.scheduler in self._schedulers:
            self._pending.upsert(change)
        elif change.node and not change.finished:
            self._pending.remove(uid)
        else:
            self._pending.forget(uid)
        was_nominated = uid in self._nominated
        if waits and nominated:
            self._nominated.add(uid)
        else:
            self._nominated.discard(uid)
        if change.gone or change.finished:
            return PodDeleted(uid)
        if change.node:
            return self._assigned(change)
        is_read = nominated or was_nominated or self._is_bound(uid)
        return PodSeen(self._decode_pod(change.body)) if is_read else None

    def _unreadable(self, change: Unreadable) -> PodUnreadable | None:
        """The queue reports unreadable pending pods."""
        self._pending.remove(change.uid)
        if not change.node:
            return None
        return PodUnreadable(change.uid, f"{change.namespace}/{change.name}", change.node, change.problem)

    def _alike_pods(self, alike: AlikePods) -> Sequence[WatchEvent]:
        for pod in alike.pods:
            self._pending.remove(pod.uid)
        if self._nominated:
            self._nominated.difference_update(pod.uid for pod in alike.pods)
        try:
            load = self._loads.obtain(bytes(alike.body), lambda: load_of(self._decode_pod(alike.body)))
        except (msgspec.DecodeError, FlotillaError, ValueError) as cause:
            namespace, problem = alike.namespace, str(cause)
            return [PodUnreadable(pod.uid, f"{namespace}/{pod.name}", pod.node, problem) for pod in alike.pods]
        return (AlikePodsSeen(alike.namespace, load, alike.pods),)

    def _assigned(self, change: PodChange) -> AssignedPodSeen | PodUnreadable:
        name = f"{change.namespace}/{change.name}"
        try:
            if change.closes:
                return PodUnreadable(change.uid, name, change.node, change.problem, self._decode_pod(change.body))
            node = intern(change.node)
            body = decode_assigned(change.body)
            key = body.key(change.namespace, node)
            load = self._loads.get(key)
            if load is None:
                load = load_of(self._decode_pod(change.body))
                if not body.split_spec()[1]:
                    self._loads[key] = load
        except (msgspec.DecodeError, FlotillaError, ValueError) as cause:
            return PodUnreadable(change.uid, name, change.node, str(cause))
        return AssignedPodSeen(change.uid, name, node, load, unix_time(body.status.start_time))

    def _node(self, change: NodeChange) -> NodeSeen | NodeUnreadable:
        try:
            return NodeSeen(self._decode_node(change.body), change.problem)
        except msgspec.DecodeError as cause:
            return NodeUnreadable(change.name, str(cause))


def _without_status(obj: ClusterObject) -> ClusterObject:
    """No worker reads the status of a group, which changes whenever the group is tried."""
    return msgspec.structs.replace(obj, status=None) if isinstance(obj, PodGroup | CompositePodGroup) else obj
