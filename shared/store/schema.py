"""Keys and values in Redis; docs/redis.md has the table.

A change that another release would misread takes a new schema number. Each release reads the ledger and the answer of
schemas from OLDEST_READABLE on; everything else is rewritten when a term begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from shared.errors import ProtocolError, UserError
from shared.messages.state import Committed, Delta, LedgerEntry
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, dec_hook, enc_hook, object_from_msgpack

T = TypeVar("T")

SCHEMA = 2
OLDEST_READABLE = 1

SHARED_HOSTNAMES = "shared_hostnames"
"""A field of Keys.cluster."""


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str

    @property
    def meta(self) -> str:
        return f"{self.prefix}:meta"

    @property
    def answer(self) -> str:
        return f"{self.prefix}:answer"

    @property
    def ledger(self) -> str:
        return f"{self.prefix}:ledger"

    @property
    def next_ledger(self) -> str:
        """The ledger of a state that is being rewritten; until that is complete, the previous ledger counts."""
        return f"{self.prefix}:ledger:next"

    @property
    def nominations(self) -> str:
        return f"{self.prefix}:nominations"

    @property
    def cluster(self) -> str:
        """State of the cluster as a whole."""
        return f"{self.prefix}:cluster"

    def objects(self, kind: ObjectKind) -> str:
        return f"{self.prefix}:objects:{kind}"

    def nodes(self, shard: int) -> str:
        return f"{self.prefix}:nodes:{shard}"

    def pods(self, shard: int) -> str:
        return f"{self.prefix}:pods:{shard}"


@dataclass(frozen=True, slots=True)
class Persist:
    """What must be durable. `settled`: uids that leave the ledger. `answer`: to a repeated commit of the round."""

    delta: Delta | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    settled: tuple[str, ...] = ()
    answer: Committed | None = None


class StoredPod(msgspec.Struct, array_like=True, gc=False):
    """Where a pod is, or is nominated. The load stays encoded: distinct loads are far fewer than pods."""

    node: str
    load: msgspec.Raw
    key: str = ""
    started: float | None = None


_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)
_POD = msgspec.msgpack.Decoder(StoredPod)
_LOAD = msgspec.msgpack.Decoder(PodLoad)
_ENTRY = msgspec.msgpack.Decoder(LedgerEntry, dec_hook=dec_hook)
_NAMES = msgspec.msgpack.Decoder(list[str])
_ANSWER = msgspec.msgpack.Decoder(Committed)


def encode(value: Node | ClusterObject | PodLoad | LedgerEntry | Committed) -> bytes:
    return _ENCODER.encode(value)


def encode_pod(node: str, load: bytes, key: str, started: float | None = None) -> bytes:
    return _ENCODER.encode(StoredPod(node, msgspec.Raw(load), key, started))


def encode_names(names: Sequence[str]) -> bytes:
    return _ENCODER.encode(names)


def decode_node(raw: bytes) -> Node:
    return _decode(_NODE, raw, "node")


def decode_pod(raw: bytes) -> StoredPod:
    return _decode(_POD, raw, "pod")


def decode_load(raw: bytes) -> PodLoad:
    return _decode(_LOAD, raw, "load")


def decode_names(raw: bytes) -> list[str]:
    return _decode(_NAMES, raw, "list of names")


def decode_object(raw: bytes) -> ClusterObject:
    try:
        return object_from_msgpack(raw)
    except ValueError as cause:
        raise ProtocolError(f"not an object as it stands in Redis: {cause}") from cause


def decode_entry(raw: bytes) -> LedgerEntry:
    return _decode(_ENTRY, raw, "ledger entry")


def decode_answer(raw: bytes) -> Committed:
    return _decode(_ANSWER, raw, "answer")


def _decode(decoder: msgspec.msgpack.Decoder[T], raw: bytes, what: str) -> T:
    try:
        return decoder.decode(raw)
    except ValueError as cause:
        raise ProtocolError(f"not a {what} as it stands in Redis: {cause}") from cause


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
