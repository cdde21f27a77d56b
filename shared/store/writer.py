"""The writer of a term: writes the complete state once, and from then on what changes."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Self

from shared.errors import InvariantBroken
from shared.messages.state import Committed, LedgerEntry, State
from shared.model.objects import ObjectKind
from shared.store.errors import Deposed, StateLost
from shared.store.link import Argument, RedisLink
from shared.store.schema import Keys, Persist, check_schema, encode
from shared.store.scripts import APPLY, BEGIN, FINISH, Script
from shared.store.term import refuse
from shared.store.write_batch import Group

CHUNK = 512 << 10
"""Bytes of values that a rewrite sends per command, so that Redis is busy for milliseconds."""


class Writer:
    """Not for concurrent use."""

    def __init__(self, link: RedisLink, prefix: str, epoch: int, shard_count: int) -> None:
        self.epoch = epoch
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
    async def open(cls, link: RedisLink, prefix: str, epoch: int, shard_count: int) -> Self:
        """`open_term` has opened the term before."""
        schema, stored = await link.call("HMGET", Keys(prefix).meta, "schema", "epoch")
        check_schema(prefix, schema)
        if stored is None or int(stored) < epoch:
            raise StateLost(f"Redis key {prefix}:meta: the term of epoch {epoch} is not open")
        if int(stored) > epoch:
            raise Deposed(epoch, int(stored))
        return cls(link, prefix, epoch, shard_count)

    async def rewrite(self, state: State, ledger: Iterable[LedgerEntry], answer: Committed | None) -> None:
        """Replace everything. Until it is complete readers see no state, and the previous ledger counts.

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
        entries = await self._write_ledger(ledger)
        ends = [keys.meta, keys.answer, keys.ledger, keys.next_ledger]
        await self._numbered(FINISH, ends, state.seq, answer, [entries])
        self._whole = True

    async def write(self, persists: Sequence[Persist]) -> None:
        """Write all of these in order, in one round trip; on an error the state is unchanged.

        After StoreUnreachable, and only then, the outcome is unknown: repeat the same write before any other.
        """
        if not self._whole:
            raise InvariantBroken("a term begins with the whole state")
        if not persists:
            return
        group = self._group()
        for persist in persists:
            group.add(persist)
        await self._apply(group)

    # Internals

    def _group(self) -> Group:
        return Group(self._keys, self.shard_count, self._shards)

    async def _write_state(self, state: State) -> None:
        loads = [encode(load) for load in state.loads]
        group = self._group()
        for each in state.nodes:
            group.put_node(each.node)
            for uid, pod in each.pods.items():
                group.put_pod(uid, each.node.name, loads[pod.load], pod.key, pod.started)
            group = await self._full(group)
        for obj in state.objects:
            group.put_object(obj)
            group = await self._full(group)
        for nominated in state.nominations:
            group.put_nomination(nominated, loads[nominated.load])
            group = await self._full(group)
        group.put_shared_hostnames(state.shared_hostnames)
        await self._apply(group)

    async def _full(self, group: Group) -> Group:
        """The batch to continue with: this one, or a new one once this one is large enough to be written."""
        if group.size < CHUNK:
            return group
        await self._apply(group)
        return self._group()

    async def _write_ledger(self, ledger: Iterable[LedgerEntry]) -> int:
        """The number of entries."""
        group, uids = self._group(), set[str]()
        for entry in ledger:
            uids.add(entry.uid)
            group.put_next_entry(entry)
            group = await self._full(group)
        await self._apply(group)
        return len(uids)

    async def _apply(self, group: Group) -> None:
        hashes, arguments = group.arguments()
        keys = [self._keys.meta, self._keys.answer, self._keys.ledger, *hashes]
        await self._numbered(APPLY, keys, group.seq, group.answer, arguments)
        for uid, shard in group.moved.items():
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
        arguments: Sequence[Argument] = (),
    ) -> None:
        """The next number. Any number from the last confirmed one up to it may be the last one in Redis."""
        self._last += 1
        told: list[Argument] = [
            self.epoch,
            self._run,
            self._done,
            self._last,
            "" if seq is None else seq,
            b"" if answer is None else encode(answer),
            *arguments,
        ]
        self._check(await self._link.run(script, keys, told))
        self._done = self._last

    def _check(self, answer: list[object]) -> None:
        try:
            refuse(answer, self._prefix, self.epoch)
        except (Deposed, StateLost):
            self._whole = False
            raise
