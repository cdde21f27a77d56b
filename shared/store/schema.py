"""Keys and values in Redis; docs/redis.md has the table.

A change that another release would misread takes a new schema number. Each release reads the ledger and the answer of
schemas from OLDEST_READABLE on; everything else is rewritten when a term begins.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from shared.errors import ProtocolError, UserError
from shared.messages.state import Change, Committed, Delta, LedgerEntry
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, dec_hook, enc_hook, object_from_msgpack

T = TypeVar("T")

SCHEMA = 2
OLDEST_READABLE = 1

SHARED_HOSTNAMES = "shared_hostnames"
"""A field of Keys.cluster."""


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.meta = f"{prefix}:meta"
        self.answer = f"{prefix}:answer"
        self.ledger = f"{prefix}:ledger"
        self.next_ledger = f"{prefix}:ledger:next"
        """The ledger of a state that is being rewritten; until that is complete, the previous ledger counts."""
        self.nominations = f"{prefix}:nominations"
        self.cluster = f"{prefix}:cluster"
        """State of the cluster as a whole."""

    def objects(self, kind: ObjectKind) -> str:
        return f"{self.prefix}:objects:{kind}"

    def nodes(self, shard: int) -> str:
        return f"{self.prefix}:nodes:{shard}"

    @property
    def filled(self) -> str:
        """Of a shard, while it is filled; it exists within a transaction only."""
        return f"{self.prefix}:pods:next"

    def pods(self, shard: int) -> str:
        return f"{self.prefix}:pods:{shard}"


@dataclass(frozen=True, slots=True)
class Persist:
    """What must be durable. `settled`: uids that leave the ledger. `answer`: to a repeated commit of the round."""

    delta: Delta | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    settled: tuple[str, ...] = ()
    answer: Committed | None = None


class PlacedPod(Protocol):
    """A pod on a node; fields as in PodPlaced."""

    @property
    def node(self) -> str: ...
    @property
    def load(self) -> PodLoad: ...
    @property
    def key(self) -> str: ...
    @property
    def started(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class WholeState:
    """What a term begins with. It stays as it is while it is written.

    `pods`: by uid; those on other nodes are left out. `others`: what is neither a node nor a pod on one, as changes,
    which refer to `loads`.
    """

    epoch: int
    seq: int
    nodes: Sequence[Node]
    pods: Mapping[str, PlacedPod]
    others: Sequence[Change]
    loads: Sequence[PodLoad]


class ReadPosition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How far the leader of `term` had read the watcher's stream when it wrote last.

    `epoch`, `seq`: of the last message. `version`: the highest resourceVersion of a pod that it was shown.
    """

    term: int
    epoch: int
    seq: int
    version: int


class StoredPod(msgspec.Struct, array_like=True, gc=False):
    """Where a pod is, or is nominated. The load stays encoded: distinct loads are far fewer than pods."""

    node: str
    load: msgspec.Raw
    key: str = ""
    started: float | None = None


_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)


encode: Callable[[Node | ClusterObject | PodLoad | LedgerEntry | Committed | ReadPosition | Sequence[str]], bytes] = (
    _ENCODER.encode
)


def encode_pod(node: str, load: bytes, key: str, started: float | None = None) -> bytes:
    return _ENCODER.encode(StoredPod(node, msgspec.Raw(load), key, started))


def checked(decode: Callable[[bytes], T], what: str) -> Callable[[bytes], T]:
    """Raises ProtocolError instead."""

    def decode_or_refuse(raw: bytes) -> T:
        try:
            return decode(raw)
        except ValueError as cause:
            raise ProtocolError(f"not a {what} as it stands in Redis: {cause}") from cause

    return decode_or_refuse


decode_node = checked(msgspec.msgpack.Decoder(Node, dec_hook=dec_hook).decode, "node")
decode_pod = checked(msgspec.msgpack.Decoder(StoredPod).decode, "pod")
decode_load = checked(msgspec.msgpack.Decoder(PodLoad).decode, "load")
decode_names = checked(msgspec.msgpack.Decoder(list[str]).decode, "list of names")
decode_object = checked(object_from_msgpack, "object")
decode_entry = checked(msgspec.msgpack.Decoder(LedgerEntry, dec_hook=dec_hook).decode, "ledger entry")
decode_read = checked(msgspec.msgpack.Decoder(ReadPosition).decode, "position in the watcher's stream")
decode_answer = checked(msgspec.msgpack.Decoder(Committed).decode, "answer")


def check_schema(prefix: str, stored: bytes | None) -> None:
    """UserError if Redis holds a schema that this release cannot read."""
    if stored is None:
        return
    text = stored.decode(errors="replace")
    if not text.isdecimal():
        raise UserError(f"Redis key {prefix}:meta: schema {text!r} is none of Flotilla's; use another prefix")
    if int(text) > SCHEMA:
        raise UserError(f"Redis key {prefix}:meta: schema {text} is of a newer Flotilla; this one knows {SCHEMA}")
    if int(text) < OLDEST_READABLE:
        raise UserError(f"Redis key {prefix}:meta: schema {text} is too old; the oldest read is {OLDEST_READABLE}")


def others(prefix: str, where: str, pipeline: str) -> str:
    """The error message if these keys belong to another pipeline."""
    cluster, _, namespace = pipeline.partition("/")
    return (
        f"Redis keys {prefix}:* at {where} belong to the pipeline of cluster {cluster} with its Leases in namespace"
        f" {namespace}: set --prefix or FLOTILLA_PREFIX to another one, or delete them if that cluster is gone"
    )
