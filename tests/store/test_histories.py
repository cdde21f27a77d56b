"""What a new term makes of a Redis that is not the one which was written to, against the real servers."""

from contextlib import AsyncExitStack

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen
from shared.messages.state import Commit, Outdated
from shared.store.term import open_term
from tests.servers import TriedRedis as Redis
from tests.servers import configured_redis, redis_server, running
from tests.store.support import PREFIX, begin, commit, linked, linked_to, persists, small_node
from tests.store.test_sentinel import part, says, until
from tools.supervisor.servers import temporary_folder

pytestmark = pytest.mark.asyncio


def a_core() -> SnapshotCore:
    core = SnapshotCore(1)
    persists(core, NodeSeen(small_node("n")))
    return core


async def test_the_same_redis_process_has_the_whole_ledger() -> None:
    core = a_core()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [("a", "n")])))
        found = await open_term(link, PREFIX, 2)
        assert (found.epoch, found.lost, [entry.uid for entry in found.ledger]) == (1, False, ["a"])


async def test_a_server_that_starts_from_an_older_dump_has_lost_the_ledger() -> None:
    """Also in the terms after that, until a whole state is there."""
    core = a_core()
    async with temporary_folder() as folder, running(Redis(folder)) as server:
        async with linked(server) as link:
            writer = await begin(link, core)
            await writer.write(persists(core, commit(core, 1, [("a", "n")])))
            await link.call("SAVE")
            await writer.write(persists(core, commit(core, 2, [("b", "n")])))
        await server.stop()
        await server.start()
        async with linked(server) as link:
            assert await link.call("HLEN", f"{PREFIX}:ledger") == 1, "that of b is missing, and nothing shows it"
            for epoch in (2, 3):
                found = await open_term(link, PREFIX, epoch)
                assert (found.epoch, found.lost, found.ledger) == (epoch - 1, True, [])
                assert found.answer is not None and not found.answer.number, "it answers none of a cycle's commits"
            again = SnapshotCore(4)
            await begin(link, again)
            assert not (await open_term(link, PREFIX, 5)).lost


async def test_a_cycle_that_uses_a_term_again_is_refused_though_the_ledger_is_lost() -> None:
    """Its Lease was deleted, so workers hold shards of an earlier cycle in the same term: seed 20261122089."""
    async with temporary_folder() as folder, running(Redis(folder)) as server:
        async with linked(server) as link:
            core = a_core()
            writer = await begin(link, core)
            await writer.write(persists(core, Commit(1, 1, [], [], cycle="first")))
            await link.call("SAVE")
        await server.stop()
        await server.start()
        async with linked(server) as link:
            found = await open_term(link, PREFIX, 2)
        again = SnapshotCore(2, found.ledger, found.answer)
        effects = again.handle(Commit(1, 1, [], [], cycle="second"), 0.0)
        assert effects == [Outdated(1, "second", 1)]


async def test_a_server_whose_append_only_file_ends_early_has_lost_the_ledger() -> None:
    """As after a crash with `appendfsync everysec`; it starts again in another process, with any state of its file."""
    core = a_core()
    async with configured_redis("appendonly yes\nappendfsync everysec") as server:
        async with linked_to(server.url) as link:
            writer = await begin(link, core)
            await writer.write(persists(core, commit(core, 1, [("a", "n")])))
        await server.stop()
        await server.start()
        async with linked_to(server.url) as link:
            found = await open_term(link, PREFIX, 2)
            assert (found.lost, found.ledger) == (True, [])


async def test_a_promoted_replica_has_lost_the_ledger() -> None:
    core = a_core()
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(configured_redis())
        replica = await stack.enter_async_context(configured_redis(f"replicaof 127.0.0.1 {master.port}"))
        link = await stack.enter_async_context(linked_to(master.url))
        other = await stack.enter_async_context(linked_to(replica.url))
        await until(lambda: says(link, "INFO", "replication", text="online"))
        writer = await begin(link, core)
        await link.call("WAIT", 1, 5000)
        await part(link, other)
        await writer.write(persists(core, commit(core, 1, [("a", "n")])))
        await other.call("REPLICAOF", "NO", "ONE")
        found = await open_term(other, PREFIX, 2)
        assert (found.epoch, found.lost) == (1, True)


async def test_a_master_that_was_a_replica_meanwhile_has_lost_the_ledger() -> None:
    """It is the same process, with the data of another."""
    core = a_core()
    async with configured_redis() as first, configured_redis() as second, linked_to(first.url) as link:
        await begin(link, core)
        await link.call("REPLICAOF", "127.0.0.1", str(second.port))
        await until(lambda: says(link, "INFO", "replication", text="'master_link_status': 'up'"))
        await link.call("REPLICAOF", "NO", "ONE")
        assert (await open_term(link, PREFIX, 2)).lost
