"""Shards of a new state are filled by plain commands: only a writer that may write gives them their name."""

import pytest

from services.snapshot.events import PodSeen
from shared.store import writer as writer_module
from shared.store.errors import Deposed, StateLost, StoreUnreachable
from shared.store.link import Argument
from shared.store.rights import rule
from shared.store.writer import Writer
from testing.builders import pod
from tests.servers import redis_server
from tests.store.support import PREFIX, SHARDS, begin, behind_a_relay, linked, linked_to, load, loaded, persists, plain
from tests.store.test_writing import peopled

pytestmark = pytest.mark.asyncio

FILLED = f"{PREFIX}:pods:next"


async def test_a_deposed_writer_fills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another leader writes its whole state between two shards of this one."""
    async with redis_server() as server, linked(server) as link, linked(server) as other:
        writer, later = await begin(link, peopled(40)), peopled(3, epoch=2)
        fill, filled = writer._fill, list[str]()

        async def overtaken(key: str, fields: list[Argument]) -> None:
            filled.append(key)
            if len(filled) == 3:
                await begin(other, later)
            await fill(key, fields)

        monkeypatch.setattr(writer, "_fill", overtaken)
        with pytest.raises(Deposed):
            await writer.rewrite(peopled(40).whole(), [], None)
        assert len(filled) == 3
        assert plain(await loaded(link)) == plain(later.state())
        assert not await link.call("EXISTS", FILLED)


async def test_a_shard_that_arrives_late_is_dropped() -> None:
    """The leader has begun again meanwhile."""
    async with behind_a_relay() as (direct, between, link):
        writer, core = await begin(link, peopled(40)), peopled(3)
        between.holds_commands = True
        with pytest.raises(StoreUnreachable):
            await writer._fill(f"{PREFIX}:nodes:0", ["a node that is gone", b"\x80"])
        again = await Writer.open(direct, PREFIX, 1, SHARDS)
        await again.rewrite(core.whole(), [], None)
        await between.deliver()
        assert plain(await loaded(direct)) == plain(core.state())
        assert not await direct.call("EXISTS", FILLED)


async def test_in_a_server_that_was_emptied_nothing_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, peopled(40))
        fill = writer._fill

        async def emptied(key: str, fields: list[Argument]) -> None:
            await link.call("FLUSHALL")
            await fill(key, fields)

        monkeypatch.setattr(writer, "_fill", emptied)
        with pytest.raises(StateLost):
            await writer.rewrite(peopled(40).whole(), [], None)
        assert await link.call("DBSIZE") == 0


async def test_what_a_broken_transaction_has_left_is_removed() -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("HSET", FILLED, "a node that is gone", b"\x80")
        core = peopled(40)
        await begin(link, core)
        assert plain(await loaded(link)) == plain(core.state())
        assert not await link.call("EXISTS", FILLED)


async def test_nobody_sees_a_part_of_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    core = peopled(40)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        fill, filled = writer._fill, list[str]()

        async def with_a_reader(key: str, fields: list[Argument]) -> None:
            await fill(key, fields)
            filled.append(key)
            assert await load(link) is None
            assert not await link.call("EXISTS", FILLED)

        monkeypatch.setattr(writer, "_fill", with_a_reader)
        await writer.rewrite(core.whole(), [], None)
        assert len(set(filled)) == len(filled) == 2 * SHARDS
        assert plain(await loaded(link)) == plain(core.state())


@pytest.mark.parametrize("most", [1, 400])
async def test_what_is_too_much_at_once_follows_as_changes(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MAX_FILL", most)
    monkeypatch.setattr(writer_module, "CHUNK", 256)
    core = peopled(60)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        applied = await link.call("HGET", f"{PREFIX}:meta", "write")
        assert int(applied) > 3 * SHARDS
        assert plain(await loaded(link)) == plain(core.state())
        moves = [PodSeen(pod("p0").request(cpu=2).on(f"n{number}").build()) for number in range(1, 8)]
        for move in moves:  # out of shards that were filled, and out of those that followed
            await writer.write(persists(core, move))
            assert plain(await loaded(link)) == plain(core.state())


async def test_a_user_without_transactions_writes_all_by_scripts() -> None:
    """As the rules of release 0.1.0 have it."""
    core = peopled(40)
    async with redis_server() as server, linked(server) as admin:
        rights = rule("snapshot", ">x").replace(" +multi", "").replace(" +exec", "")
        await admin.call("ACL", "SETUSER", *rights.split())
        await admin.call("CONFIG", "RESETSTAT")
        async with linked_to(server.url.replace("unix://", "unix://snapshot:x@")) as link:
            await begin(link, core)
        assert (await admin.call("INFO", "commandstats"))["cmdstat_exec"]["calls"] == 0
        assert plain(await loaded(admin)) == plain(core.state())
