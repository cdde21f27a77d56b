"""The nodes of the cluster, as far as pods that wait for a place may profit from what happens to them.

Most of what a node reports is read by nobody here: heartbeats, images, the reasons of its conditions. What is left is
kept encoded, which takes a fraction of the memory, and is decoded only when it has become another.
"""

import msgspec

from shared.model.objects import Node, dec_hook, encode_msgpack

_NONE = msgspec.Raw(b"")


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    name: str = ""
    labels: msgspec.Raw = _NONE
    annotations: dict[str, str] = {}


class _Condition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    allocatable: msgspec.Raw = _NONE
    conditions: list[_Condition] = []
    declared_features: msgspec.Raw = _NONE


class _Read(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The parts of a Node that are kept."""

    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = _NONE
    status: _Status = _Status()


_READ = msgspec.msgpack.Decoder(_Read)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)


class Nodes:
    def __init__(self, *, annotations: bool = False) -> None:
        """`annotations`: keep them, for somebody waits for changes of them."""
        self._annotations = annotations
        self._kept: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def see(self, name: str, body: bytes | msgspec.Raw) -> tuple[Node | None, Node] | None:
        """As it was known, if it was, and as it is; None if that is the same. Raises msgspec.DecodeError."""
        read = _READ.decode(body)
        if not self._annotations and read.metadata.annotations:
            read = msgspec.structs.replace(read, metadata=msgspec.structs.replace(read.metadata, annotations={}))
        now, before = encode_msgpack(read), self._kept.get(name)
        if now == before:
            return None
        node = _NODE.decode(now)
        self._kept[name] = now
        return None if before is None else _NODE.decode(before), node

    def drop(self, name: str) -> Node | None:
        """As it was known, if it was."""
        kept = self._kept.pop(name, None)
        return None if kept is None else _NODE.decode(kept)
