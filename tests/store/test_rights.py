"""The ACL user of docs/redis.md can do all that is done, and nothing else."""

import re
from pathlib import Path

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen
from shared.errors import UserError
from shared.store.link import RedisLink
from shared.store.memory import Memory
from tests.servers import redis_server
from tests.store.support import PREFIX, begin, commit, linked, linked_to, loaded, persists, small_node

pytestmark = pytest.mark.asyncio

PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
RULE = re.compile(r"^    (ACL SETUSER flotilla .*)$", re.MULTILINE)
PASSWORD = "hunter2"
NOT_BY_US = {"auth", "acl", "info", "config", "client", "hello"}
"""Commands that come from connecting, or from this test; a user needs no right for them, or goes on without it."""


def rule() -> list[str]:
    """As the page has it."""
    (found,) = RULE.findall(PAGE.read_text())
    return [word.strip("'") for word in str(found).replace("PASSWORD", PASSWORD).split()]


def granted() -> set[str]:
    return {word.removeprefix("+") for word in rule() if word.startswith("+")}


async def all_that_is_done(link: RedisLink) -> None:
    """A term, writes, loads, the next term, and the queue's memory."""
    core = SnapshotCore(1)
    writer = await begin(link, core)
    await writer.write(persists(core, NodeSeen(small_node("a"))))
    await writer.write(persists(core, commit(core, 1, [("pod", "a")])))
    await loaded(link)
    core = SnapshotCore(2, core.ledger.values())
    await begin(link, core)
    memory = Memory(link, PREFIX)
    await memory.claim(1)
    await memory.write(1, {"a": b"x", "b": None})
    assert await memory.load() == {"a": b"x"}


async def test_the_user_can_do_all_and_needs_all() -> None:
    async with redis_server() as server, linked(server) as admin:
        await admin.call(*rule())
        await admin.call("CONFIG", "RESETSTAT")
        async with linked_to(f"{server.url.replace('unix://', f'unix://flotilla:{PASSWORD}@')}?db=1") as link:
            await all_that_is_done(link)
        used = {name.removeprefix("cmdstat_") for name in await admin.call("INFO", "commandstats")}
        assert used - NOT_BY_US == granted()


@pytest.mark.parametrize(
    "command",
    [
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
    ],
)
async def test_the_user_can_do_nothing_else(command: tuple[str, ...]) -> None:
    async with redis_server() as server, linked(server) as admin:
        await admin.call(*rule())
        async with linked_to(server.url.replace("unix://", f"unix://flotilla:{PASSWORD}@")) as link:
            with pytest.raises(UserError, match=r"^Redis at .* refuses access: "):
                await link.call(*command)
