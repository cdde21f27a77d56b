"""What the queue has Redis remember."""

import pytest

from shared.store.errors import Deposed, StoreUnreachable
from shared.store.retry_records import MAX_AT_ONCE, Memory
from tests.servers import redis_server
from tests.store.support import PREFIX, behind_a_relay, linked

pytestmark = pytest.mark.asyncio


async def test_records_stay_until_they_are_deleted() -> None:
    async with redis_server() as server, linked(server) as link:
        memory = Memory(link, PREFIX)
        assert await memory.load() == {}
        await memory.write(1, {"a": b"1", "b": b"2"})
        await memory.write(1, {"a": b"3", "b": None, "never": None})
        assert await memory.load() == {"a": b"3"}
        await memory.write(1, {})
        assert await Memory(link, "other").load() == {}
        await memory.write(1, {"a": None})
        assert await link.call("EXISTS", f"{PREFIX}:queue") == 0


async def test_more_than_one_command_takes() -> None:
    async with redis_server() as server, linked(server) as link:
        memory = Memory(link, PREFIX)
        many = {f"uid-{number}": b"%d" % number for number in range(2 * MAX_AT_ONCE + 1)}
        await memory.write(1, many)
        assert await memory.load() == many
        await memory.write(1, dict.fromkeys(many))
        assert await memory.load() == {}


async def test_keys_of_other_programs_are_not_touched() -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("SET", f"{PREFIX}:queue", "something else")
        memory = Memory(link, PREFIX)
        for doing in (memory.load(), memory.write(1, {"a": b"1"})):
            with pytest.raises(StoreUnreachable, match="refuses the command"):
                await doing
        assert await link.call("GET", f"{PREFIX}:queue") == b"something else"


async def test_an_unreachable_redis_is_reported_and_the_write_can_be_retried() -> None:
    async with redis_server() as server, linked(server) as link:
        memory = Memory(link, PREFIX)
        await memory.write(1, {"a": b"1"})
        await server.kill()
        with pytest.raises(StoreUnreachable):
            await memory.write(1, {"a": b"2"})
        await server.start()
        await memory.write(1, {"a": b"2"})
        assert await memory.load() == {"a": b"2"}


async def test_a_write_with_a_lost_reply_is_repeated() -> None:
    async with behind_a_relay() as (direct, between, link):
        between.loses_answers = True
        with pytest.raises(StoreUnreachable):
            await Memory(link, PREFIX).write(1, {"a": b"1", "b": b"2"})
        between.loses_answers = False
        await Memory(link, PREFIX).write(1, {"a": b"1", "b": b"2"})
        assert await Memory(direct, PREFIX).load() == {"a": b"1", "b": b"2"}


async def test_an_older_queue_cannot_write_after_a_newer_claim() -> None:
    async with redis_server() as server, linked(server) as link:
        memory = Memory(link, PREFIX)
        await memory.claim(4)
        await memory.write(4, {"a": b"1"})
        await memory.claim(5)
        assert await memory.load() == {"a": b"1"}
        with pytest.raises(Deposed, match="epoch 4: what is in Redis is of epoch 5"):
            await memory.write(4, {"a": b"2", "b": b"2"})
        with pytest.raises(Deposed):
            await memory.claim(4)
        await memory.claim(5)
        await memory.write(5, {"a": None, "c": b"3"})
        assert await memory.load() == {"c": b"3"}


async def test_a_term_lost_by_redis_is_written_again() -> None:
    async with redis_server() as server, linked(server) as link:
        memory = Memory(link, PREFIX)
        await memory.claim(4)
        await link.call("FLUSHALL")
        await memory.write(4, {"a": b"1"})
        with pytest.raises(Deposed):
            await memory.write(3, {"a": b"2"})


@pytest.mark.parametrize("absurd", [1 << 31, 1 << 62, "no number"])
async def test_a_claim_that_no_queue_can_have_made_is_replaced(absurd: int | str) -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("SET", f"{PREFIX}:queue:term", absurd)
        memory = Memory(link, PREFIX)
        await memory.claim(4)
        await memory.write(4, {"a": b"1"})
        with pytest.raises(Deposed):
            await memory.claim(3)
