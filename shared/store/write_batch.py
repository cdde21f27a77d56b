"""What one write does to Redis, collected before anything is sent."""

from collections.abc import Callable, Sequence

from shared.cluster.nodetable import shard_of
from shared.messages.state import (
    Change,
    Committed,
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
from shared.model.objects import key_of, kind_of
from shared.store.link import Argument
from shared.store.schema import SHARED_HOSTNAMES, Keys, Persist, encode, encode_pod


class WriteBatch:
    """What one write does to Redis, collected before anything is sent.

    Of several changes to one field the last one counts, so order does not matter within one write. `moved`: the shards
    of pods after this write; None for nowhere.
    """

    def __init__(
        self, keys: Keys, shard_count: int, shard: Callable[[str], int | None], *, others: bool = False
    ) -> None:
        """`shard`: that of a pod before this write, by uid. `others`: further pods may be in any shard."""
        self.hashes: dict[str, dict[str, bytes | None]] = {}
        """By key: the fields with their values; None removes the field."""
        self.moved: dict[str, int | None] = {}
        self.seq: int | None = None
        self.answer: Committed | None = None
        self.size = 0
        self._keys = keys
        self._shard_count = shard_count
        self._shard = shard
        self._others = others

    def add(self, persist: Persist) -> None:
        if persist.delta is not None:
            loads = EncodedLoads(persist.delta.loads)
            for change in persist.delta.changes:
                self.add_change(change, loads)
            self.seq = persist.delta.seq
        for entry in persist.ledger:
            self.put(self._keys.ledger, entry.uid, encode(entry))
        for uid in persist.settled:
            self.put(self._keys.ledger, uid, None)
        if persist.answer is not None:
            self.answer = persist.answer

    def add_change(self, change: Change, loads: "EncodedLoads") -> None:
        keys = self._keys
        match change:
            case PodPlaced(uid=uid, node=name, load=load, key=key, started=started):
                self._put_pod(uid, name, loads[load], key, started)
            case PodGone(uid=uid):
                self._move(uid, None)
            case NodeUpserted(node=node):
                self.put(keys.nodes(shard_of(node.name, self._shard_count)), node.name, encode(node))
            case NodeRemoved(name=name):
                self.put(keys.nodes(shard_of(name, self._shard_count)), name, None)
            case ObjectUpserted(object=obj):
                self.put(keys.objects(kind_of(obj)), key_of(obj), encode(obj))
            case ObjectRemoved(kind=kind, key=key):
                self.put(keys.objects(kind), key, None)
            case PodNominated(uid=uid, node=name, load=load, key=key):
                self.put(keys.nominations, uid, encode_pod(name, loads[load], key))
            case NominationGone(uid=uid):
                self.put(keys.nominations, uid, None)
            case SharedHostnames(values=values):
                self.put(keys.cluster, SHARED_HOSTNAMES, encode(values))

    def put(self, key: str, field: str, value: bytes | None) -> None:
        fields = self.hashes.get(key)
        if fields is None:
            fields = self.hashes[key] = {}
        fields[field] = value
        if value is not None:
            self.size += len(value)

    def _put_pod(self, uid: str, node: str, load: bytes, key: str, started: float | None) -> None:
        shard = shard_of(node, self._shard_count)
        self._move(uid, shard)
        self.put(self._keys.pods(shard), uid, encode_pod(node, load, key, started))

    def _move(self, uid: str, shard: int | None) -> None:
        """Removes the pod from another shard than this."""
        before = self.moved[uid] if uid in self.moved else self._shard(uid)
        if before is not None and before != shard:
            self.put(self._keys.pods(before), uid, None)
        elif before is None and self._others:
            for other in range(self._shard_count):
                if other != shard:
                    self.put(self._keys.pods(other), uid, None)
        self.moved[uid] = shard

    def arguments(self) -> list[Argument]:
        """The script's arguments for each of the hashes in turn."""
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
        return arguments


class EncodedLoads:
    """The loads of one message, each encoded once, and only if a pod has it."""

    def __init__(self, loads: Sequence[PodLoad]) -> None:
        self._loads = loads
        self._encoded: dict[int, bytes] = {}

    def __getitem__(self, number: int) -> bytes:
        encoded = self._encoded.get(number)
        if encoded is None:
            encoded = self._encoded[number] = encode(self._loads[number])
        return encoded
