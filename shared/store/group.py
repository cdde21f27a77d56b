"""What one write does to Redis, put together before anything is sent.

Of several changes to one field the last one counts, so no order has to be kept when they are written at once.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from shared.cluster.load import PodLoad
from shared.cluster.shards import shard_of
from shared.messages.state import (
    Change,
    Committed,
    Delta,
    LedgerEntry,
    NodeRemoved,
    NodeUpserted,
    PodGone,
    PodPlaced,
)
from shared.model.objects import Node
from shared.store.link import Argument
from shared.store.schema import Keys, encode, encode_pod

Fields = dict[str, bytes | None]
"""None: the field goes."""


class Persisted(Protocol):
    """What the snapshot wants durable: a delta, ledger entries, uids that leave the ledger, the answer to a commit."""

    @property
    def delta(self) -> Delta | None: ...
    @property
    def ledger(self) -> Sequence[LedgerEntry]: ...
    @property
    def settled(self) -> Sequence[str]: ...
    @property
    def answer(self) -> Committed | None: ...


class Group:
    """`shards` tells where pods are to be found so far; `moved` where they are once this is written (None: nowhere)."""

    def __init__(self, keys: Keys, shard_count: int, shards: Mapping[str, int]) -> None:
        self.hashes: dict[str, Fields] = {}
        self.moved: dict[str, int | None] = {}
        self.seq: int | None = None
        self.answer: Committed | None = None
        self.size = 0
        self._keys = keys
        self._shard_count = shard_count
        self._shards = shards

    def add(self, persisted: Persisted) -> None:
        if persisted.delta is not None:
            self._add_delta(persisted.delta)
        if persisted.ledger or persisted.settled:
            ledger = self._fields(self._keys.ledger)
            for entry in persisted.ledger:
                ledger[entry.uid] = encode(entry)
            for uid in persisted.settled:
                ledger[uid] = None
        if persisted.answer is not None:
            self.answer = persisted.answer

    def put_node(self, node: Node) -> None:
        value = self._fields(self._keys.nodes(self._shard(node.name)))[node.name] = encode(node)
        self.size += len(value)

    def put_pod(self, uid: str, node: str, load: bytes) -> None:
        shard = self._shard(node)
        before = self._shard_of_pod(uid)
        if before is not None and before != shard:
            self._fields(self._keys.pods(before))[uid] = None
        value = self._fields(self._keys.pods(shard))[uid] = encode_pod(node, load)
        self.moved[uid] = shard
        self.size += len(value)

    def put_next_entry(self, entry: LedgerEntry) -> None:
        value = self._fields(self._keys.next_ledger)[entry.uid] = encode(entry)
        self.size += len(value)

    def arguments(self) -> tuple[list[str], list[Argument]]:
        """The hashes' keys, and what the script is told about each in turn."""
        arguments: list[Argument] = []
        for fields in self.hashes.values():
            sets: list[Argument] = []
            removes: list[Argument] = []
            for field, value in fields.items():
                if value is None:
                    removes.append(field)
                else:
                    sets += (field, value)
            arguments += (len(sets), len(removes))
            arguments += sets
            arguments += removes
        return list(self.hashes), arguments

    # Inside

    def _add_delta(self, delta: Delta) -> None:
        loads = _Encoded(delta.loads)
        for change in delta.changes:
            self._add_change(change, loads)
        self.seq = delta.seq

    def _add_change(self, change: Change, loads: "_Encoded") -> None:
        match change:
            case PodPlaced(uid=uid, node=node, load=load):
                self.put_pod(uid, node, loads[load])
            case PodGone(uid=uid):
                shard = self._shard_of_pod(uid)
                if shard is not None:
                    self._fields(self._keys.pods(shard))[uid] = None
                    self.moved[uid] = None
            case NodeUpserted(node=node_object):
                self.put_node(node_object)
            case NodeRemoved(name=name):
                self._fields(self._keys.nodes(self._shard(name)))[name] = None

    def _fields(self, key: str) -> Fields:
        fields = self.hashes.get(key)
        if fields is None:
            fields = self.hashes[key] = {}
        return fields

    def _shard(self, node: str) -> int:
        return shard_of(node, self._shard_count)

    def _shard_of_pod(self, uid: str) -> int | None:
        return self.moved[uid] if uid in self.moved else self._shards.get(uid)


class _Encoded:
    """The loads of one message, each encoded once, and only if a pod has it."""

    def __init__(self, loads: Sequence[PodLoad]) -> None:
        self._loads = loads
        self._encoded: dict[int, bytes] = {}

    def __getitem__(self, number: int) -> bytes:
        encoded = self._encoded.get(number)
        if encoded is None:
            encoded = self._encoded[number] = encode(self._loads[number])
        return encoded
