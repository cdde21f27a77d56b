"""WriteBatch: collects what one write does to Redis before anything is sent.

Of several changes to one field the last one counts, so order does not matter within one write.
"""

from collections.abc import Mapping, Sequence

from shared.cluster.nodetable import shard_of
from shared.messages.state import (
    Change,
    Committed,
    Delta,
    LedgerEntry,
    NodeRemoved,
    NodeUpserted,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodPlaced,
    SharedHostnames,
)
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, key_of, kind_of
from shared.store.link import Argument
from shared.store.schema import SHARED_HOSTNAMES, Keys, Persist, encode, encode_names, encode_pod

Fields = dict[str, bytes | None]
"""None deletes the field."""


class Group:
    """`shards`: where pods are now. `moved`: where they are after this write; None for nowhere."""

    def __init__(self, keys: Keys, shard_count: int, shards: Mapping[str, int]) -> None:
        self.hashes: dict[str, Fields] = {}
        self.moved: dict[str, int | None] = {}
        self.seq: int | None = None
        self.answer: Committed | None = None
        self.size = 0
        self._keys = keys
        self._shard_count = shard_count
        self._shards = shards

    def add(self, persist: Persist) -> None:
        if persist.delta is not None:
            self._add_delta(persist.delta)
        if persist.ledger or persist.settled:
            ledger = self._fields(self._keys.ledger)
            for entry in persist.ledger:
                ledger[entry.uid] = encode(entry)
            for uid in persist.settled:
                ledger[uid] = None
        if persist.answer is not None:
            self.answer = persist.answer

    def put_node(self, node: Node) -> None:
        value = self._fields(self._keys.nodes(self._shard(node.name)))[node.name] = encode(node)
        self.size += len(value)

    def put_object(self, obj: ClusterObject) -> None:
        value = self._fields(self._keys.objects(kind_of(obj)))[key_of(obj)] = encode(obj)
        self.size += len(value)

    def put_nomination(self, nominated: PodNominated, load: bytes) -> None:
        value = encode_pod(nominated.node, load, nominated.key)
        self._fields(self._keys.nominations)[nominated.uid] = value
        self.size += len(value)

    def put_shared_hostnames(self, values: Sequence[str]) -> None:
        value = self._fields(self._keys.cluster)[SHARED_HOSTNAMES] = encode_names(values)
        self.size += len(value)

    def put_pod(self, uid: str, node: str, load: bytes, key: str, started: float | None) -> None:
        shard = self._shard(node)
        before = self._shard_of_pod(uid)
        if before is not None and before != shard:
            self._fields(self._keys.pods(before))[uid] = None
        value = self._fields(self._keys.pods(shard))[uid] = encode_pod(node, load, key, started)
        self.moved[uid] = shard
        self.size += len(value)

    def put_next_entry(self, entry: LedgerEntry) -> None:
        value = self._fields(self._keys.next_ledger)[entry.uid] = encode(entry)
        self.size += len(value)

    def arguments(self) -> tuple[list[str], list[Argument]]:
        """The hashes' keys, and the script's arguments for each in turn."""
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

    # Internals

    def _add_delta(self, delta: Delta) -> None:
        loads = _Encoded(delta.loads)
        for change in delta.changes:
            self._add_change(change, loads)
        self.seq = delta.seq

    def _add_change(self, change: Change, loads: "_Encoded") -> None:
        match change:
            case PodPlaced(uid=uid, node=node, load=load, key=key, started=started):
                self.put_pod(uid, node, loads[load], key, started)
            case PodGone(uid=uid):
                shard = self._shard_of_pod(uid)
                if shard is not None:
                    self._fields(self._keys.pods(shard))[uid] = None
                    self.moved[uid] = None
            case NodeUpserted(node=node_object):
                self.put_node(node_object)
            case NodeRemoved(name=name):
                self._fields(self._keys.nodes(self._shard(name)))[name] = None
            case ObjectUpserted(object=obj):
                self.put_object(obj)
            case ObjectRemoved(kind=kind, key=key):
                self._fields(self._keys.objects(kind))[key] = None
            case PodNominated(load=load):
                self.put_nomination(change, loads[load])
            case NominationGone(uid=uid):
                self._fields(self._keys.nominations)[uid] = None
            case SharedHostnames(values=values):
                self.put_shared_hostnames(values)

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
