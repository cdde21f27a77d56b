"""The writer of a term: writes the complete state once, and from then on what changes."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Self

from shared.cluster.nodetable import shard_of
from shared.errors import InvariantBroken
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
from shared.model.objects import ObjectKind, key_of, kind_of
from shared.store.errors import Deposed, StateLost
from shared.store.link import Argument, RedisLink
from shared.store.schema import (
    SHARED_HOSTNAMES,
    Keys,
    Persist,
    PlacedPod,
    ReadPosition,
    WholeState,
    check_schema,
    encode,
    encode_pod,
)
from shared.store.scripts import APPLY, BEGIN, CONTINUE, FINISH, Script
from shared.store.term import refuse

CHUNK = 64 << 10
"""Bytes of values that a rewrite sends per command, so that Redis is busy for milliseconds."""
PIECE = 16 << 10
"""Bytes encoded between two turns of the event loop, which sends what is left of a command: a socket takes a part."""


class WriteBatch:
    """What one write does to Redis, collected before anything is sent.

    Of several changes to one field the last one counts, so order does not matter within one write. `moved`: the shards
    of pods after this write; None for nowhere.
    """

    def __init__(self, keys: Keys, shard_count: int, shards: Mapping[str, int], *, others: bool = False) -> None:
        """`shards`: of pods before this write. `others`: further pods may be in any shard."""
        self.hashes: dict[str, dict[str, bytes | None]] = {}
        """By key: the fields with their values; None removes the field."""
        self.moved: dict[str, int | None] = {}
        self.seq: int | None = None
        self.answer: Committed | None = None
        self.size = 0
        self._keys = keys
        self._shard_count = shard_count
        self._shards = shards
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

    def add_new(self, uid: str, pod: PlacedPod, load: bytes, shard: int) -> None:
        """A pod that was nowhere before this write."""
        self.put(self._keys.pods(shard), uid, encode_pod(pod.node, load, pod.key, pod.started))
        self.moved[uid] = shard

    def _put_pod(self, uid: str, node: str, load: bytes, key: str, started: float | None) -> None:
        shard = shard_of(node, self._shard_count)
        self._move(uid, shard)
        self.put(self._keys.pods(shard), uid, encode_pod(node, load, key, started))

    def _move(self, uid: str, shard: int | None) -> None:
        """Removes the pod from another shard than this."""
        before = self.moved[uid] if uid in self.moved else self._shards.get(uid)
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


class _EncodedOnce:
    """The loads of the pods of a state, each object encoded once."""

    def __init__(self) -> None:
        self._encoded: dict[int, bytes] = {}

    def __getitem__(self, load: PodLoad) -> bytes:
        encoded = self._encoded.get(id(load))
        if encoded is None:
            encoded = self._encoded[id(load)] = encode(load)
        return encoded


def _not_known() -> None:
    return None


class _InParts:
    """Writes batches one after the other. While Redis writes one, the next one is made."""

    def __init__(self, new_batch: Callable[[], WriteBatch], apply: Callable[[WriteBatch], Awaitable[None]]) -> None:
        self.batch = new_batch()
        self._new_batch = new_batch
        self._apply = apply
        self._writing: asyncio.Future[None] | None = None
        self._go_on_at = PIECE

    async def go_on(self) -> None:
        """Something was added to the batch."""
        if self.batch.size >= CHUNK:
            await self._write()
            self.batch = self._new_batch()
            self._go_on_at = PIECE
        elif self.batch.size >= self._go_on_at:
            await asyncio.sleep(0)
            self._go_on_at = self.batch.size + PIECE

    async def _write(self) -> None:
        if self._writing is not None:
            await self._writing
        self._writing = asyncio.ensure_future(self._apply(self.batch))
        await asyncio.sleep(0)  # it is sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            await self._write()
            assert self._writing is not None
            await self._writing
        elif self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)


class Writer:
    """Not for concurrent use."""

    def __init__(
        self,
        link: RedisLink,
        prefix: str,
        epoch: int,
        shard_count: int,
        read: Callable[[], ReadPosition | None] = _not_known,
    ) -> None:
        """`read`: how far the leader has read the watcher's stream; None if the next one must not rely on it."""
        self.epoch = epoch
        self._read = read
        self.shard_count = shard_count
        self._link = link
        self._prefix = prefix
        self._keys = Keys(prefix)
        self._shards: dict[str, int] = {}
        self._run = ""
        self._done = 0
        self._last = 0
        self._whole = False

    @classmethod
    async def open(
        cls,
        link: RedisLink,
        prefix: str,
        epoch: int,
        shard_count: int,
        read: Callable[[], ReadPosition | None] = _not_known,
    ) -> Self:
        """`open_term` has opened the term before."""
        schema, stored = await link.call("HMGET", Keys(prefix).meta, "schema", "epoch")
        check_schema(prefix, schema)
        if stored is None or int(stored) < epoch:
            raise StateLost(f"Redis key {prefix}:meta: the term of epoch {epoch} is not open")
        if int(stored) > epoch:
            raise Deposed(epoch, int(stored))
        return cls(link, prefix, epoch, shard_count, read)

    async def rewrite(self, state: WholeState, ledger: Iterable[LedgerEntry], answer: Committed | None) -> None:
        """Replaces everything. Until it is complete readers see no state, and the previous ledger counts.

        After StoreUnreachable, start again.
        """
        if state.epoch != self.epoch:
            raise InvariantBroken(f"the writer of epoch {self.epoch} is given a state of epoch {state.epoch}")
        self._run, self._done, self._last, self._whole = secrets.token_hex(8), 0, 0, False
        self._shards = {}
        keys = self._keys
        begin: list[Argument] = [self.epoch, self._run, self.shard_count, self._prefix]
        emptied = [keys.next_ledger, keys.nominations, keys.cluster, *map(keys.objects, ObjectKind)]
        self._check(await self._link.run(BEGIN, [keys.meta, keys.ledger, *emptied], begin))
        await self._write_state(state)
        await self._finish(state.seq, ledger, answer)

    async def go_on(
        self,
        deltas: Iterable[Delta],
        seq: int,
        shards: dict[str, int],
        ledger: Iterable[LedgerEntry],
        answer: Committed | None,
        before: Mapping[str, int],
    ) -> None:
        """Continues the complete state of the term before: writes what differs, and the ledger. Instead of `rewrite`.

        `deltas` lead from that state to the one of `seq`, which the caller knows; `shards`: of all pods in the latter;
        `before`: of pods in the former, as far as they are known. Others are removed from all other shards.
        After StoreUnreachable, start again.
        """
        self._run, self._done, self._last, self._whole = secrets.token_hex(8), 0, 0, False
        self._shards = shards
        keys = self._keys
        begin: list[Argument] = [self.epoch, self._run, self.shard_count]
        self._check(await self._link.run(CONTINUE, [keys.meta, keys.ledger, keys.next_ledger], begin))
        for delta in deltas:
            batch = WriteBatch(keys, self.shard_count, before, others=True)
            loads = EncodedLoads(delta.loads)
            for change in delta.changes:
                batch.add_change(change, loads)
            await self._apply(batch)
        await self._finish(seq, ledger, answer)

    async def write(self, persists: Sequence[Persist]) -> None:
        """Writes all of these in order, in one round trip; on an error the state is unchanged.

        After StoreUnreachable, and only then, the outcome is unknown: repeat the same write before any other.
        """
        if not self._whole:
            raise InvariantBroken("a term begins with the whole state")
        if not persists:
            return
        batch = self._batch()
        for persist in persists:
            batch.add(persist)
        await self._apply(batch)

    # Internals

    def _batch(self) -> WriteBatch:
        return WriteBatch(self._keys, self.shard_count, self._shards)

    async def _finish(self, seq: int, ledger: Iterable[LedgerEntry], answer: Committed | None) -> None:
        entries, keys = await self._write_ledger(ledger), self._keys
        ends = [keys.meta, keys.answer, keys.ledger, keys.next_ledger]
        await self._numbered(FINISH, ends, seq, answer, [entries])
        self._whole = True

    async def _write_state(self, state: WholeState) -> None:
        shards: dict[str, int] = {}
        encoded, loads = _EncodedOnce(), EncodedLoads(state.loads)
        async with _InParts(self._batch, self._apply) as parts:
            for node in state.nodes:
                shards[node.name] = shard = shard_of(node.name, self.shard_count)
                parts.batch.put(self._keys.nodes(shard), node.name, encode(node))
                await parts.go_on()
            for uid, pod in state.pods.items():
                if (of_pod := shards.get(pod.node)) is not None:
                    parts.batch.add_new(uid, pod, encoded[pod.load], of_pod)
                    await parts.go_on()
            for change in state.others:
                parts.batch.add_change(change, loads)
                await parts.go_on()

    async def _write_ledger(self, ledger: Iterable[LedgerEntry]) -> int:
        """The number of entries."""
        uids = set[str]()
        async with _InParts(self._batch, self._apply) as parts:
            for entry in ledger:
                uids.add(entry.uid)
                parts.batch.put(self._keys.next_ledger, entry.uid, encode(entry))
                await parts.go_on()
        return len(uids)

    async def _apply(self, batch: WriteBatch) -> None:
        keys = [self._keys.meta, self._keys.answer, self._keys.ledger, *batch.hashes]
        await self._numbered(APPLY, keys, batch.seq, batch.answer, batch.arguments())
        for uid, shard in batch.moved.items():
            if shard is None:
                self._shards.pop(uid, None)
            else:
                self._shards[uid] = shard

    async def _numbered(
        self,
        script: Script,
        keys: Sequence[str],
        seq: int | None,
        answer: Committed | None,
        arguments: Sequence[Argument],
    ) -> None:
        """The next number. Any number from the last confirmed one up to it may be the last one in Redis."""
        self._last += 1
        numbers: list[Argument] = [self.epoch, self._run, self._done, self._last, "" if seq is None else seq]
        encoded = b"" if answer is None else encode(answer)
        read = self._read()
        where = b"" if read is None else encode(read)
        self._check(await self._link.run(script, keys, [*numbers, encoded, where, *arguments]))
        self._done = self._last

    def _check(self, answer: list[object]) -> None:
        try:
            refuse(answer, self._prefix, self.epoch)
        except (Deposed, StateLost):
            self._whole = False
            raise
