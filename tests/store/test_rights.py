"""The ACL users of docs/redis.md can do all that their services do, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen
from shared.errors import UserError
from shared.messages.inspection import ReadState
from shared.store.link import RedisLink
from shared.store.pages import PageReader
from shared.store.retry_records import Memory
from shared.store.rights import EVERY_USER, RIGHTS, USERS, rule
from tests.servers import redis_server
from tests.store.support import PREFIX, begin, commit, linked, linked_to, loaded, persists, small_node
from tools.supervisor.servers import Server

pytestmark = pytest.mark.asyncio

PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
PASSWORD = "hunter2"
NOT_BY_US = {"auth", "acl", "config", "client", "hello"}
"""Commands that come from connecting, or from this test; a user needs no right for them, or goes on without it."""


@asynccontextmanager
async def with_users() -> AsyncIterator[tuple[Server, RedisLink]]:
    """A server that has them, and who may do everything there."""
    async with redis_server() as server, linked(server) as admin:
        for user in USERS:
            await admin.call("ACL", "SETUSER", *rule(user, f">{PASSWORD}").split())
        yield server, admin


def as_user(server: Server, user: str) -> str:
    return f"{server.url.replace('unix://', f'unix://{user}:{PASSWORD}@')}?db=1"


async def write_the_state(link: RedisLink) -> None:
    """A term, writes, and the next term."""
    core = SnapshotCore(1)
    writer = await begin(link, core)
    await writer.write(persists(core, NodeSeen(small_node("a"))))
    await writer.write(persists(core, commit(core, 1, [("pod", "a")])))
    await loaded(link)  # as a standby
    core = SnapshotCore(2, core.ledger.values())
    await begin(link, core)


async def read_the_state(link: RedisLink) -> None:
    await loaded(link)
    assert not (await PageReader(link, PREFIX).page(ReadState())).problem


async def remember(link: RedisLink) -> None:
    memory = Memory(link, PREFIX)
    await memory.claim(1)
    await memory.write(1, {"a": b"x", "b": None})
    assert await memory.load() == {"a": b"x"}


DONE = {"snapshot": write_the_state, "worker": read_the_state, "queue": remember}
"""In this order: what one writes, the next one reads."""


async def test_the_page_is_current() -> None:
    page = PAGE.read_text().splitlines()
    for user in USERS:
        assert f"    ACL SETUSER {rule(user, '>PASSWORD')}" in page


async def test_each_user_needs_and_has_its_rights() -> None:
    assert DONE.keys() == RIGHTS.keys()
    async with with_users() as (server, admin):
        for user, does in DONE.items():
            await admin.call("CONFIG", "RESETSTAT")
            async with linked_to(as_user(server, user)) as link:
                await does(link)
            used = {command_of(name) for name in await admin.call("INFO", "commandstats")}
            assert used - NOT_BY_US == {*EVERY_USER, *RIGHTS[user].commands}, user


def command_of(statistic: str) -> str:
    """`cmdstat_config|get` is how Redis 7 names what Redis 6.2 calls `cmdstat_config`."""
    return statistic.removeprefix("cmdstat_").partition("|")[0]


FORBIDDEN = {
    "worker": [
        ("HSET", "flotilla:nodes:1", "a", "b"),
        ("UNLINK", "flotilla:meta"),
        ("EVAL", "return redis.call('HSET', KEYS[1], 'a', 'b')", "1", "flotilla:meta"),
        ("HGETALL", "flotilla:ledger"),
        ("HVALS", "flotilla:ledger"),
        ("HGETALL", "flotilla:queue"),
    ],
    "queue": [
        ("HSET", "flotilla:ledger", "a", "b"),
        ("HGETALL", "flotilla:ledger"),
        ("EVAL", "return redis.call('HDEL', KEYS[1], 'seq')", "1", "flotilla:meta"),
        ("EVAL", "return redis.call('SET', 'flotilla:answer', 'x')", "1", "flotilla:queue"),
    ],
    "snapshot": [("HGETALL", "flotilla:queue"), ("SET", "flotilla:queue:term", "99"), ("UNLINK", "flotilla:queue")],
    "core": [],
}
FORBIDDEN_TO_ALL = [
    ("GET", "other:meta"),
    ("HGETALL", "other:queue"),
    ("EVAL", "return redis.call('GET', KEYS[1])", "1", "other:meta"),
    ("EVAL", "return redis.call('KEYS', '*')", "0"),
    ("FLUSHALL",),
    ("KEYS", "*"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("REPLICAOF", "NO", "ONE"),
    ("PUBLISH", "a", "b"),
    ("DEL", "flotilla:meta"),
]


@pytest.mark.parametrize("user", USERS)
async def test_a_user_has_no_further_rights(user: str) -> None:
    async with with_users() as (server, _), linked_to(as_user(server, user)) as link:
        for command in FORBIDDEN[user] + FORBIDDEN_TO_ALL:
            with pytest.raises(UserError, match=r"^Redis at .* refuses access: "):
                await link.call(*command)
