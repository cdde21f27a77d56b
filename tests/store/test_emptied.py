"""A ledger that was emptied from outside does not pass for an empty one."""

from collections.abc import Awaitable, Callable, Iterable

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, PodDeleted
from shared.messages.state import LedgerEntry
from shared.store.errors import StateLost
from shared.store.link import RedisLink
from shared.store.term import open_term
from shared.store.writer import Writer
from tests.servers import redis_server
from tests.store.support import PREFIX, SHARDS, begin, commit, linked, persists, small_node

pytestmark = pytest.mark.asyncio

LEDGER = f"{PREFIX}:ledger"


async def an_assumed_pod(link: RedisLink, *uids: str) -> tuple[SnapshotCore, Writer]:
    core = SnapshotCore(1)
    persists(core, NodeSeen(small_node("n")))
    writer = await begin(link, core)
    await writer.write(persists(core, commit(core, 1, [(uid, "n") for uid in uids or ("a", "b")])))
    return core, writer


async def remove(link: RedisLink) -> None:
    await link.call("DEL", LEDGER)


async def remove_one(link: RedisLink) -> None:
    await link.call("HDEL", LEDGER, "a")


@pytest.mark.parametrize("empty", [remove, remove_one])
async def test_a_new_term_counts_an_emptied_ledger_as_lost(empty: Callable[[RedisLink], Awaitable[None]]) -> None:
    async with redis_server() as server, linked(server) as link:
        await an_assumed_pod(link)
        await empty(link)
        found = await open_term(link, PREFIX, 2)
        assert (found.epoch, found.ledger, found.lost) == (1, [], True)
        assert (await open_term(link, PREFIX, 3)).lost, "until a whole state is there"


async def test_a_ledger_that_became_empty_normally_is_complete() -> None:
    async with redis_server() as server, linked(server) as link:
        core, writer = await an_assumed_pod(link)
        for uid in ("a", "b"):
            await writer.write(persists(core, PodDeleted(uid)))
        found = await open_term(link, PREFIX, 2)
        assert (found.ledger, found.lost) == ([], False)


async def test_the_writer_notices_at_its_next_write() -> None:
    async with redis_server() as server, linked(server) as link:
        core, writer = await an_assumed_pod(link)
        await remove(link)
        with pytest.raises(StateLost):
            await writer.write(persists(core, commit(core, 2, [("c", "n")])))
        await open_term(link, PREFIX, 2)
        core.restate(2)
        again = await Writer.open(link, PREFIX, 2, SHARDS)
        await again.rewrite(core.whole(), core.ledger.values(), None)
        found = await open_term(link, PREFIX, 3)
        assert {entry.uid for entry in found.ledger} == {"a", "b", "c"}
        assert not found.lost


async def test_a_ledger_emptied_during_a_rewrite_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    write_ledger = Writer._write_ledger

    async def and_lose(writer: Writer, ledger: Iterable[LedgerEntry]) -> int:
        entries = await write_ledger(writer, ledger)
        await writer._link.call("DEL", f"{LEDGER}:next")
        return entries

    async with redis_server() as server, linked(server) as link:
        core, _ = await an_assumed_pod(link)
        await open_term(link, PREFIX, 2)
        core.restate(2)
        writer = await Writer.open(link, PREFIX, 2, SHARDS)
        monkeypatch.setattr(Writer, "_write_ledger", and_lose)
        with pytest.raises(StateLost):
            await writer.rewrite(core.whole(), core.ledger.values(), None)
        found = await open_term(link, PREFIX, 3)
        assert {entry.uid for entry in found.ledger} == {"a", "b"}, "the one before"


async def test_a_server_that_may_evict_keys_is_reported() -> None:
    async with redis_server() as server, linked(server) as link:
        assert (await open_term(link, PREFIX, 1)).evicts == ""
        await link.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        assert (await open_term(link, PREFIX, 2)).evicts == "", "nothing of ours expires"
        await link.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert (await open_term(link, PREFIX, 3)).evicts == "allkeys-lru"
