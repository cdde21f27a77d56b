"""The state in Redis in pages of encoded values, for those who reach it only through a worker.

A page is read with scans, so a reader costs Redis and the worker about as much at a time as one commit, and the worker
keeps nothing between two pages. StateRead says what the pages add up to.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from shared.errors import ProtocolError
from shared.messages.inspection import ReadState, StateRead
from shared.messages.limits import HALF_A_MESSAGE
from shared.model.objects import ObjectKind
from shared.store.link import RedisLink
from shared.store.reader import META, StateMeta, read_meta
from shared.store.schema import Keys

PAGE_BYTES = 1 << 20
"""Of values, after which a page ends."""
SCAN_PATIENCE = 5.0
"""Seconds for Redis to answer one scan."""
FIELDS = 2048
"""That a scan looks at; fewer where values are large."""
START = "0"
"""The position where a scan begins, and to which it returns."""

Scanned = tuple[int, Mapping[bytes, bytes]]
"""Where the scan continues, and the fields with their values."""


class PageReader:
    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._prefix = prefix

    async def page(self, asked: ReadState) -> StateRead:
        """The next part of the state. UserError or StoreUnreachable if Redis cannot be read."""
        meta = self._meta(await self._link.call("HMGET", Keys(self._prefix).meta, *META))
        if meta is None:
            return StateRead(problem="the snapshot is writing the state")
        names = _names(meta.shard_count)
        following_key = dict(pairwise([*names, ""]))
        key, position = asked.key or names[0], asked.position or START
        if key not in names or not position.isdecimal():
            raise ProtocolError(f"there is no position {position[:32]!r} in {key[:64]!r}")
        values: dict[str, dict[str, bytes]] = {}
        size, until, fields = 0, meta.seq, FIELDS
        while key and size < PAGE_BYTES:
            raw, (following, found) = await self._scan(key, position, fields)
            now = self._meta(raw)
            if now is None or now.epoch != meta.epoch:
                return StateRead(problem="the snapshot began another term")
            read = sum(map(len, found.values()))
            if size + read > HALF_A_MESSAGE and (values or fields > 1):
                if values:
                    break
                fields //= 8
                continue
            for field, value in found.items():
                values.setdefault(key, {})[field.decode()] = value
            size, until, position = size + read, now.seq, str(following)
            if position == START:
                key = following_key[key]
        position = position if key else ""
        return StateRead(meta.epoch, meta.seq, until, meta.shard_count, values, key, position)

    def _meta(self, raw: Sequence[bytes | None]) -> StateMeta | None:
        return read_meta(raw, self._prefix, self._link.where, pipeline="")

    async def _scan(self, key: str, position: str, fields: int) -> tuple[Sequence[bytes | None], Scanned]:
        """The state's description and the fields, of one moment."""
        async with self._link.client.pipeline(transaction=True) as transaction:
            transaction.execute_command("HMGET", Keys(self._prefix).meta, *META)
            transaction.execute_command("HSCAN", f"{self._prefix}:{key}", position, "COUNT", fields)
            meta, scanned = await self._link.within(SCAN_PATIENCE, transaction.execute())
        return meta, scanned


def _names(shard_count: int) -> list[str]:
    """All keys of the state without the prefix, in the order in which they are read."""
    keys = Keys("")
    shards = range(shard_count)
    every = [keys.cluster, keys.nominations, *map(keys.objects, ObjectKind)]
    every += [key for shard in shards for key in (keys.nodes(shard), keys.pods(shard))]
    return [key.removeprefix(":") for key in every]
