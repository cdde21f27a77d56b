"""docs/redis.md names every key that there is, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, ObjectSeen, PodSeen
from shared.messages.state import LedgerEntry
from shared.model.objects import ObjectKind
from shared.store.link import RedisLink
from shared.store.retry_records import Memory
from shared.store.term import open_term
from shared.store.writer import Writer
from testing.builders import pod
from tests.samples import an_object
from tests.servers import redis_server
from tests.store.support import PIPELINE, PREFIX, SHARDS, begin, commit, linked, persists, small_node

pytestmark = pytest.mark.asyncio

PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<kind>[^|]+?) \|", re.MULTILINE)


def rows(heading: str) -> dict[str, str]:
    """The first column of the table under a heading, and what the second one says of it."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = {row["name"]: row["kind"] for row in ROW.finditer(section)}
    assert found
    return found


async def seen(link: RedisLink) -> dict[str, str]:
    """The keys there are, as the page writes them, with their types."""
    kinds = {}
    for key in await link.call("KEYS", "*"):
        kind = await link.call("TYPE", key)
        name = key.decode().replace(PREFIX, "<prefix>")
        name = re.sub(r":objects:\w+$", ":objects:<kind>", re.sub(r":\d+$", ":<shard>", name))
        kinds[name] = kind if isinstance(kind, str) else kind.decode()
    return kinds


class Interrupted(Exception):
    pass


async def test_the_page_names_the_keys() -> None:
    core = SnapshotCore(1)
    persists(core, *(NodeSeen(small_node(f"n{i}")) for i in range(8)))
    promised = pod("promised").build()
    status = msgspec.structs.replace(promised.status, nominated_node_name="n1")
    persists(core, PodSeen(msgspec.structs.replace(promised, status=status)))
    persists(core, *(ObjectSeen(an_object(kind)) for kind in ObjectKind))

    def entries() -> Iterator[LedgerEntry]:
        for _ in range(2):
            yield from core.ledger.values()
        raise Interrupted

    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [("a", "n1")])))
        await Memory(link, PREFIX, PIPELINE).claim(1)
        await Memory(link, PREFIX).write(1, {"uid": b"record"})
        whole = await seen(link)
        fields = {field.decode() for field in await link.call("HKEYS", f"{PREFIX}:meta")}
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr("shared.store.writer.CHUNK", 1)
            await writer.rewrite(core.whole(), entries(), None)
        half = await seen(link)
    assert whole | half == rows("Keys")
    assert half.keys() - whole.keys() == {"<prefix>:ledger:next"}
    assert fields == set(rows("Meta"))


async def test_a_newly_opened_term_has_the_documented_fields() -> None:
    async with redis_server() as server, linked(server) as link:
        await open_term(link, PREFIX, 1)
        await Writer.open(link, PREFIX, 1, SHARDS)
        assert set(await link.call("HGETALL", f"{PREFIX}:meta")) == {b"schema", b"epoch", b"history", b"lost"}
