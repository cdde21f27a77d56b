"""What the watcher's stream means to the snapshot."""

import msgspec

from services.snapshot.events import NodeGone, NodeSeen, ObjectGone, ObjectSeen, PodDeleted, PodSeen, Seen
from shared.errors import ProtocolError
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.kinds import QUEUE_KINDS
from shared.model.objects import Node, Pod, dec_hook, object_from_msgpack

_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)


class Intake:
    """Reads only what concerns the snapshot: of pods, those that are on a node or are to be, or were."""

    def __init__(self, schedulers: frozenset[str]) -> None:
        """`schedulers`: whose pods are ours to schedule. Where those of others are to go, we do not look at."""
        self._schedulers = schedulers
        self._nodes: set[str] = set()
        self._nominated: set[str] = set()

    def read(self, change: PodChange | NodeChange | ObjectChange | Unreadable) -> Seen | None:
        """ProtocolError if the body is none."""
        try:
            return self._read(change)
        except msgspec.DecodeError as cause:
            name = change.key if isinstance(change, ObjectChange) else change.name
            raise ProtocolError(f"watch: {name}: {cause}") from cause

    def _read(self, change: PodChange | NodeChange | ObjectChange | Unreadable) -> Seen | None:
        match change:
            case PodChange():
                return self._pod(change)
            case NodeChange(name=name, gone=False, body=body):
                self._nodes.add(name)
                return NodeSeen(_NODE.decode(body))
            case NodeChange(name=name):
                return self._node_gone(name)
            case ObjectChange(kind=kind) if kind in QUEUE_KINDS:
                return None
            case ObjectChange(gone=False, body=body):
                return ObjectSeen(object_from_msgpack(body))
            case ObjectChange(kind=kind, key=key):
                return ObjectGone(kind, key)
            case Unreadable(kind=Kind.POD):
                return None  # where it was, it most likely still is
            case Unreadable(kind=Kind.NODE, name=name):
                return self._node_gone(name)
            case Unreadable():
                kind = OBJECT_KINDS[change.kind]
                return None if kind in QUEUE_KINDS else ObjectGone(kind, change.key)

    def _pod(self, change: PodChange) -> Seen | None:
        uid = change.uid
        nominated = bool(change.nominated) and change.scheduler in self._schedulers
        waits = not (change.gone or change.finished or change.node)
        was_nominated = uid in self._nominated
        if waits and nominated:
            self._nominated.add(uid)
        else:
            self._nominated.discard(uid)
        if change.gone or change.finished:
            return PodDeleted(uid)
        return PodSeen(_POD.decode(change.body)) if change.node or nominated or was_nominated else None

    def _node_gone(self, name: str) -> NodeGone | None:
        """Also of what cannot be read any more: it is not to be scheduled to."""
        if name not in self._nodes:
            return None
        self._nodes.discard(name)
        return NodeGone(name)
