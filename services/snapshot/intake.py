"""What the watcher's stream means to the snapshot."""

import msgspec

from services.snapshot.events import NodeGone, NodeSeen, PodDeleted, PodSeen
from shared.errors import ProtocolError
from shared.messages.watch import Kind, NodeChange, PodChange, Unreadable
from shared.model.objects import Node, Pod, dec_hook

_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)

Seen = NodeSeen | NodeGone | PodSeen | PodDeleted


class Intake:
    """Reads only what concerns the snapshot: nodes, and pods that are on one, or were."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()

    def read(self, change: PodChange | NodeChange | Unreadable) -> Seen | None:
        """ProtocolError if the body is none."""
        try:
            return self._read(change)
        except msgspec.DecodeError as cause:
            raise ProtocolError(f"watch: {change.name}: {cause}") from cause

    def _read(self, change: PodChange | NodeChange | Unreadable) -> Seen | None:
        match change:
            case PodChange():
                return _read_pod(change)
            case NodeChange(name=name, gone=False, body=body):
                self._nodes.add(name)
                return NodeSeen(_NODE.decode(body))
            case NodeChange(name=name) | Unreadable(kind=Kind.NODE, name=name):
                # What cannot be read any more is not to be scheduled to.
                if name not in self._nodes:
                    return None
                self._nodes.discard(name)
                return NodeGone(name)
            case Unreadable():
                return None  # where it was, it most likely still is


def _read_pod(change: PodChange) -> Seen | None:
    if change.gone or change.finished:
        return PodDeleted(change.uid)
    return PodSeen(_POD.decode(change.body)) if change.node else None
