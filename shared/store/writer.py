"""The writer of a term: writes the complete state once, and from then on what changes."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

from shared.cluster.nodetable import shard_of
from shared.errors import InvariantBroken
from shared.messages.state import Committed, Delta, LedgerEntry
from shared.model.load import PodLoad
from shared.model.objects import Node, ObjectKind
from shared.store.errors import Deposed, StateLost
from shared.store.link import Argument, RedisLink
from shared.store.pod_shards import PodShards
from shared.store.schema import Keys, Persist, PlacedPod, ReadPosition, WholeState, check_schema, encode, encode_pod
from shared.store.scripts import APPLY, BEGIN, CONTINUE, FINISH, NAME, Script
from shared.store.term import refuse
from shared.store.whole_keys import fill, may_fill
from shared.store.write_batch import EncodedLoads, WriteBatch

CHUNK = 64 << 10
"""Bytes of values that a script gets, so that Redis is busy for milliseconds."""
MAX_FILL = 16 << 20
"""Bytes of values of a shard that are written at once: Redis is busy with them for tens of milliseconds."""
AT_ONCE = 1 << 12
"""Nodes or pods that are looked at between two turns of the event loop."""
PIECE = 16 << 10
"""Bytes encoded between two turns of the event loop, which sends what is left of a command: a socket takes a part."""


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
    """Writes batches and whole keys one after the other. While Redis writes one, the next one is made."""

    def __init__(
        self,
        new_batch: Callable[[], WriteBatch],
        apply: Callable[[WriteBatch], Coroutine[None, None, None]],
        fill: Callable[[str, list[Argument]], Coroutine[None, None, None]],
        most: int,
    ) -> None:
        """`most`: bytes that `fill` may get."""
        self.batch = new_batch()
        self._new_batch = new_batch
        self._apply = apply
        self._fill = fill
        self._most = most
        self._writing: asyncio.Future[None] | None = None
        self._go_on_at = PIECE

    async def go_on(self) -> None:
        """Something was added to the batch."""
        if self.batch.size >= CHUNK:
            await self._write(partial(self._apply, self.batch))
            self.batch = self._new_batch()
            self._go_on_at = PIECE
        elif self.batch.size >= self._go_on_at:
            await asyncio.sleep(0)
            self._go_on_at = self.batch.size + PIECE

    async def put_all(self, key: str, fields: Iterable[tuple[str, bytes]]) -> None:
        """All fields of a key that does not exist yet: at once as far as that may be, and the rest as changes."""
        arguments: list[Argument] = []
        size, go_on_at = 0, PIECE
        for field, value in fields:
            if size < self._most:
                arguments += (field, value)
                size += len(value)
                if size >= go_on_at:
                    await asyncio.sleep(0)
                    go_on_at = size + PIECE
                continue
            if arguments:
                await self._write(partial(self._fill, key, arguments))
                arguments = []
            self.batch.put(key, field, value)
            await self.go_on()
        if arguments:
            await self._write(partial(self._fill, key, arguments))

    async def _write(self, write: Callable[[], Coroutine[None, None, None]]) -> None:
        if self._writing is not None:
            await self._writing
        self._writing = asyncio.ensure_future(write())
        await asyncio.sleep(0)  # it is sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            await self._write(partial(self._apply, self.batch))
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
        self._shards = PodShards({}, shard_count)
        self._run = ""
        self._done = 0
        self._last = 0
        self._whole = False
        self._most_filled = 0
        """Bytes of a key that may be written at once."""

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
        self._shards = PodShards(state.pods, self.shard_count)
        keys = self._keys
        begin: list[Argument] = [self.epoch, self._run, self.shard_count, self._prefix]
        emptied = [keys.next_ledger, keys.nominations, keys.cluster, *map(keys.objects, ObjectKind)]
        self._check(await self._link.run(BEGIN, [keys.meta, keys.ledger, *emptied], begin))
        self._most_filled = MAX_FILL if await may_fill(self._link, keys.ledger) else 0
        await self._write_state(state)
        await self._finish(state.seq, ledger, answer)

    async def go_on(
        self,
        deltas: Iterable[Delta],
        seq: int,
        pods: Mapping[str, PlacedPod],
        ledger: Iterable[LedgerEntry],
        answer: Committed | None,
        before: Mapping[str, int],
    ) -> None:
        """Continues the complete state of the term before: writes what differs, and the ledger. Instead of `rewrite`.

        `deltas` lead from that state to the one of `seq`, which the caller knows and which has these `pods`; no two of
        them change the same one. `before`: the shards of pods in the former, as far as they are known. Others are
        removed from all other shards.
        After StoreUnreachable, start again.
        """
        self._run, self._done, self._last, self._whole = secrets.token_hex(8), 0, 0, False
        self._shards = PodShards(pods, self.shard_count)
        keys = self._keys
        begin: list[Argument] = [self.epoch, self._run, self.shard_count]
        self._check(await self._link.run(CONTINUE, [keys.meta, keys.ledger, keys.next_ledger], begin))
        for delta in deltas:
            batch = WriteBatch(keys, self.shard_count, before.get, others=True)
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
        return WriteBatch(self._keys, self.shard_count, self._shards.get)

    def _in_parts(self) -> _InParts:
        return _InParts(self._batch, self._apply, self._fill, self._most_filled)

    async def _finish(self, seq: int, ledger: Iterable[LedgerEntry], answer: Committed | None) -> None:
        entries, keys = await self._write_ledger(ledger), self._keys
        ends = [keys.meta, keys.answer, keys.ledger, keys.next_ledger]
        await self._numbered(FINISH, ends, seq, answer, [entries])
        self._whole = True

    async def _write_state(self, state: WholeState) -> None:
        nodes, uids = await self._by_shard(state)
        encoded, loads = _EncodedOnce(), EncodedLoads(state.loads)

        def pods(shard: int) -> Iterator[tuple[str, bytes]]:
            for uid in uids[shard]:
                pod = state.pods[uid]
                yield uid, encode_pod(pod.node, encoded[pod.load], pod.key, pod.started)

        async with self._in_parts() as parts:
            for shard in range(self.shard_count):
                await parts.put_all(self._keys.nodes(shard), ((node.name, encode(node)) for node in nodes[shard]))
                await parts.put_all(self._keys.pods(shard), pods(shard))
            for change in state.others:
                parts.batch.add_change(change, loads)
                await parts.go_on()

    async def _by_shard(self, state: WholeState) -> tuple[list[list[Node]], list[list[str]]]:
        """The nodes, and the uids of the pods on them."""
        nodes: list[list[Node]] = [[] for _ in range(self.shard_count)]
        uids: list[list[str]] = [[] for _ in range(self.shard_count)]
        shards: dict[str, int] = {}
        for number, node in enumerate(state.nodes):
            shards[node.name] = shard = shard_of(node.name, self.shard_count)
            nodes[shard].append(node)
            if not number % AT_ONCE:
                await asyncio.sleep(0)
        for number, (uid, pod) in enumerate(state.pods.items()):
            if (of_pod := shards.get(pod.node)) is not None:
                uids[of_pod].append(uid)
            if not number % AT_ONCE:
                await asyncio.sleep(0)
        return nodes, uids

    async def _write_ledger(self, ledger: Iterable[LedgerEntry]) -> int:
        """The number of entries."""
        uids = set[str]()
        async with self._in_parts() as parts:
            for entry in ledger:
                uids.add(entry.uid)
                parts.batch.put(self._keys.next_ledger, entry.uid, encode(entry))
                await parts.go_on()
        return len(uids)

    async def _apply(self, batch: WriteBatch) -> None:
        keys = [self._keys.meta, self._keys.answer, self._keys.ledger, *batch.hashes]
        await self._numbered(APPLY, keys, batch.seq, batch.answer, batch.arguments())
        self._shards.move(batch.moved)

    async def _fill(self, key: str, fields: list[Argument]) -> None:
        """Writes a whole key, which does not exist yet."""
        keys = [self._keys.meta, self._keys.answer, self._keys.ledger, self._keys.filled, key]
        self._check(await fill(self._link, NAME, keys, self._next_number(None, None), fields))
        self._done = self._last

    async def _numbered(
        self,
        script: Script,
        keys: Sequence[str],
        seq: int | None,
        answer: Committed | None,
        arguments: Sequence[Argument],
    ) -> None:
        self._check(await self._link.run(script, keys, [*self._next_number(seq, answer), *arguments]))
        self._done = self._last

    def _next_number(self, seq: int | None, answer: Committed | None) -> list[Argument]:
        """The first arguments of a script. Any number from the last confirmed one up to this may be that in Redis."""
        self._last += 1
        numbers: list[Argument] = [self.epoch, self._run, self._done, self._last, "" if seq is None else seq]
        encoded = b"" if answer is None else encode(answer)
        read = self._read()
        where = b"" if read is None else encode(read)
        return [*numbers, encoded, where]

    def _check(self, answer: list[object]) -> None:
        try:
            refuse(answer, self._prefix, self.epoch)
        except (Deposed, StateLost):
            self._whole = False
            raise
