"""What is written is there, all of it or nothing, and twice is as good as once."""

from collections.abc import Iterator

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Event, NodeGone, NodeSeen, PodDeleted, PodSeen
from shared.cluster.nodetable import shard_of
from shared.errors import InvariantBroken, UserError
from shared.messages.state import Delta, LedgerEntry
from shared.model.objects import Pod
from shared.store import writer as writer_module
from shared.store.errors import StateLost, StoreUnreachable
from shared.store.link import RedisLink
from shared.store.reader import StoreReader
from shared.store.schema import Persist
from shared.store.term import open_term
from shared.store.writer import Writer
from testing.builders import pod
from tests.rounds.support import finished
from tests.servers import redis_server
from tests.store.support import (
    PREFIX,
    SHARDS,
    begin,
    behind_a_relay,
    commit,
    linked,
    linked_to,
    load,
    loaded,
    persists,
    plain,
    relay,
    small_node,
)

pytestmark = pytest.mark.asyncio


def peopled(nodes: int = 8, epoch: int = 1) -> SnapshotCore:
    """Nodes n0, n1, ... with a bound pod each."""
    core = SnapshotCore(epoch)
    persists(core, *(NodeSeen(small_node(f"n{i}")) for i in range(nodes)))
    persists(core, *(PodSeen(pod(f"p{i}").request(cpu=1).on(f"n{i}").build()) for i in range(nodes)))
    return core


async def test_a_state_is_read_as_it_was_written() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        state = await loaded(link)
        assert (state.epoch, state.seq) == (1, core.seq)
        assert plain(state) == plain(core.state())
        assert len(state.loads) == 1  # equal ones are one


async def test_a_worker_that_waits_for_a_state_reads_nothing() -> None:
    """It asks ten times a second, while the snapshot reads the listing on the same cores."""
    async with redis_server() as server, linked(server) as link:
        await open_term(link, PREFIX, 1)
        assert await load(link) is None
        asked = await link.call("INFO", "commandstats")
        assert "cmdstat_hmget" in asked
        assert "cmdstat_hgetall" not in asked


async def test_each_shard_has_its_nodes() -> None:
    core = peopled(20)
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        for shards in ([0], [1, 3], [0, 2]):
            state = await StoreReader(link, PREFIX).load(shards, SHARDS)
            assert state is not None
            assert plain(state) == plain(core.state(shards, SHARDS))


async def test_a_group_is_written_in_order() -> None:
    """A pod moves between shards and is gone, a node goes and comes again with its pod: only the end counts."""
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        moves = [PodSeen(pod("p0").request(cpu=2).on(f"n{i}").build()) for i in range(8)]
        await writer.write(persists(core, *moves, PodDeleted("default/p1"), NodeGone("n2"), NodeSeen(small_node("n2"))))
        assert plain(await loaded(link)) == plain(core.state())
        await writer.write(persists(core, PodDeleted("default/p0"), NodeGone("n3")))
        assert plain(await loaded(link)) == plain(core.state())
        stored = [len(await link.client.hgetall(f"{PREFIX}:pods:{shard}")) for shard in range(SHARDS)]
        assert sum(stored) == 6  # p0 and p1 are gone; that of n3 waits for its node
        await writer.write(persists(core, PodDeleted("default/p3")))
        stored = [len(await link.client.hgetall(f"{PREFIX}:pods:{shard}")) for shard in range(SHARDS)]
        assert sum(stored) == 5


async def test_ledger_and_answer_outlive_the_term() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        decided = persists(core, commit(core, 1, [("a", "n0"), ("b", "n1"), ("c", "n2")]), now=5.0)
        await writer.write(decided)
        (persist,) = decided
        await writer.write(persists(core, finished("a", core.ledger["a"].attempt), PodDeleted("b")))
        await writer.write(list(core.end()))
        left = await open_term(link, PREFIX, 2)
        assert left.epoch == 1
        assert {entry.uid: entry for entry in left.ledger} == core.ledger
        assert left.answer == persist.answer


async def test_a_thousand_pods_are_one_write() -> None:
    """More arguments than a Lua call takes at once."""
    core = peopled(1)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [(f"u{i}", "n0") for i in range(6000)])))
        assert plain(await loaded(link)) == plain(core.state())
        await writer.write(persists(core, *(PodDeleted(f"u{i}") for i in range(6000))))
        assert plain(await loaded(link)) == plain(core.state())
        assert (await open_term(link, PREFIX, 2)).ledger == []


async def test_an_empty_write_makes_no_call() -> None:
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, peopled())
        await server.kill()
        await writer.write([])


async def test_scripts_are_reloaded_after_a_script_flush() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await link.call("SCRIPT", "FLUSH")
        await writer.write(persists(core, PodDeleted("default/p0")))
        assert plain(await loaded(link)) == plain(core.state())


async def test_lost_keys_are_noticed() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await link.call("FLUSHALL")
        with pytest.raises(StateLost):
            await writer.write(persists(core, PodDeleted("default/p0")))
        assert await link.call("DBSIZE") == 0
        with pytest.raises(InvariantBroken):
            await writer.write(persists(core, PodDeleted("default/p1")))


async def test_a_restart_without_data_is_noticed() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await server.kill()
        group = persists(core, PodDeleted("default/p0"))
        with pytest.raises(StoreUnreachable, match=r"redis\.sock"):
            await writer.write(group)
        await server.start()
        with pytest.raises(StateLost):
            await writer.write(group)


async def test_an_older_replica_is_noticed() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        keys = await link.call("KEYS", "*")
        before = [(key, await link.call("DUMP", key)) for key in keys]
        await writer.write(persists(core, PodDeleted("default/p0")))
        await link.call("FLUSHALL")
        for key, dump in before:
            await link.call("RESTORE", key, 0, dump)
        with pytest.raises(StateLost):
            await writer.write(persists(core, PodDeleted("default/p1")))


async def test_the_same_group_may_be_written_again() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        moved = PodSeen(pod("p0").request(cpu=2).on("n5").build())
        group = persists(core, moved, commit(core, 1, [("a", "n1")]), PodDeleted("a"), PodDeleted("default/p2"))
        await writer.write(group)
        await writer.write(group)
        assert plain(await loaded(link)) == plain(core.state())
        assert (await open_term(link, PREFIX, 2)).ledger == []


@pytest.mark.parametrize("more", [False, True])
async def test_a_write_with_a_lost_reply_is_written_again(more: bool) -> None:
    core = peopled()
    async with redis_server() as server, relay(server) as between, linked_to(between.url) as link:
        writer = await begin(link, core)
        group = persists(core, PodSeen(pod("p0").request(cpu=2).on("n5").build()), commit(core, 1, [("a", "n1")]))
        between.loses_answers = True
        for _ in range(3):
            with pytest.raises(StoreUnreachable):
                await writer.write(group)
        between.loses_answers = False
        if more:
            group += persists(core, PodDeleted("a"), PodSeen(pod("p0").request(cpu=2).on("n6").build()))
        await writer.write(group)
        assert plain(await loaded(link)) == plain(core.state())
        await writer.write(persists(core, PodDeleted("default/p0")))
        assert plain(await loaded(link)) == plain(core.state())


async def test_a_lost_write_is_written_again() -> None:
    """The pod's old place goes as well, though the writer had put that together once before."""
    core = peopled()
    async with behind_a_relay() as (direct, between, link):
        writer = await begin(link, core)
        group = persists(core, *(PodSeen(pod("p0").request(cpu=2).on(f"n{i}").build()) for i in range(1, 8)))
        between.holds_commands = True
        with pytest.raises(StoreUnreachable):
            await writer.write(group)
        between.holds_commands = False
        await writer.write(group)
        assert plain(await loaded(direct)) == plain(core.state())


async def test_a_delayed_duplicate_write_does_nothing() -> None:
    core = peopled()
    async with behind_a_relay() as (direct, between, link):
        writer = await begin(link, core)
        group = persists(core, commit(core, 1, [("a", "n1")]))
        between.holds_commands = True
        with pytest.raises(StoreUnreachable):
            await writer.write(group)
        between.holds_commands = False
        await writer.write([*group, *persists(core, PodDeleted("a"))])
        await between.deliver()
        assert plain(await loaded(direct)) == plain(core.state())
        await writer.write(persists(core, PodDeleted("default/p0")))
        assert plain(await loaded(direct)) == plain(core.state())
        assert (await open_term(direct, PREFIX, 2)).ledger == []


# Whole states


async def test_a_rewrite_removes_the_previous_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there were more shards."""
    monkeypatch.setattr(writer_module, "CHUNK", 64)
    async with redis_server() as server, linked(server) as link:
        await open_term(link, PREFIX, 1)
        before = await Writer.open(link, PREFIX, 1, 3 * SHARDS)
        core = peopled(40)
        persists(core, commit(core, 1, [("a", "n1")]))
        await before.rewrite(core.whole(), core.ledger.values(), None)
        after = peopled(3, epoch=2)
        await begin(link, after)
        assert plain(await loaded(link)) == plain(after.state())
        assert (await open_term(link, PREFIX, 3)).ledger == []
        names = {key.decode().split(":")[1] for key in await link.call("KEYS", "*")}
        assert names == {"meta", "nodes", "pods", "cluster"}
        shards = {int(key.decode().split(":")[2]) for key in await link.call("KEYS", "*:*:*")}
        assert shards <= set(range(SHARDS))


async def test_a_half_written_state_is_not_read_and_the_previous_ledger_counts() -> None:
    class Interrupted(Exception):
        pass

    def entries() -> Iterator[LedgerEntry]:
        yield from core.ledger.values()
        raise Interrupted

    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [("a", "n1"), ("b", "n2")])))
        next_core = peopled(epoch=2)
        await open_term(link, PREFIX, 2)
        assert await load(link) is None
        second = await Writer.open(link, PREFIX, 2, SHARDS)
        with pytest.raises(Interrupted):
            await second.rewrite(next_core.whole(), entries(), None)
        assert await load(link) is None
        with pytest.raises(InvariantBroken):
            await second.write([Persist(settled=("a",))])
        left = await open_term(link, PREFIX, 3)
        assert {entry.uid for entry in left.ledger} == {"a", "b"}
        assert left.answer is not None


async def test_a_read_during_a_rewrite_gets_all_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "CHUNK", 256)
    core = peopled(30)
    seen = set()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        numbered = writer._numbered

        async def with_a_reader(*arguments: object) -> None:
            await numbered(*arguments)  # type: ignore[arg-type]
            state = await load(link)
            seen.add(None if state is None else len(state.nodes))

        monkeypatch.setattr(writer, "_numbered", with_a_reader)
        await writer.rewrite(core.whole(), [], None)
    assert seen == {None, 30}


async def test_a_failed_rewrite_is_repeated() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await server.kill()
        with pytest.raises(StoreUnreachable):
            await writer.rewrite(core.whole(), [], None)
        await server.start()
        with pytest.raises(StateLost):
            await writer.rewrite(core.whole(), [], None)
        await begin(link, core)
        assert plain(await loaded(link)) == plain(core.state())


async def test_a_state_of_another_epoch_is_not_written() -> None:
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, peopled())
        with pytest.raises(InvariantBroken):
            await writer.rewrite(peopled(epoch=2).whole(), [], None)


async def test_another_shard_count_is_reported() -> None:
    async with redis_server() as server, linked(server) as link:
        await begin(link, peopled())
        with pytest.raises(UserError, match="shard_count: 5 here, but 4"):
            await StoreReader(link, PREFIX).load([0], 5)


@pytest.mark.parametrize("known", [True, False])
async def test_a_term_continues_the_state_of_the_one_before(known: bool) -> None:
    """A pod is gone, one has moved to another shard, a node is new; and what follows is written as ever.

    Whether or not it is `known` in which shards the pods were.
    """
    core = peopled()
    before = {uid: shard_of(placed.node, SHARDS) for uid, placed in core.cluster.pods.items()} if known else {}
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        recovered = await open_term(link, PREFIX, 2)
        assert (recovered.epoch, recovered.seq, recovered.shard_count) == (1, core.seq, SHARDS)
        core.restate(2)
        changes: list[Event] = [
            NodeSeen(small_node("new")),
            PodDeleted(pod("p0").build().uid),
            PodSeen(bound_to("p1", "new")),
        ]
        deltas = [persist.delta for persist in persists(core, *changes) if persist.delta is not None]
        writer = await Writer.open(link, PREFIX, 2, SHARDS)
        await writer.go_on(deltas, core.seq, core.cluster.pods.copied(), [], None, before)
        state = await loaded(link)
        assert (state.epoch, state.seq) == (2, core.seq)
        assert plain(state) == plain(core.state())
        await writer.write(persists(core, PodDeleted(pod("p1").build().uid), NodeGone("new")))
        assert plain(await loaded(link)) == plain(core.state())
        for target in ("n3", "n4", "n5"):  # out of its first shard, and out of those since
            await writer.write(persists(core, PodSeen(bound_to("p2", target))))
            assert plain(await loaded(link)) == plain(core.state())
        await writer.write(persists(core, PodDeleted(pod("p2").build().uid), PodDeleted(pod("p6").build().uid)))
        assert plain(await loaded(link)) == plain(core.state())
        assert await stored_pods(link) == len(core.cluster.pods)


async def stored_pods(link: RedisLink) -> int:
    return sum([await link.call("HLEN", f"{PREFIX}:pods:{shard}") for shard in range(SHARDS)])


async def test_a_continuation_that_failed_begins_again_with_the_same_pods() -> None:
    """Redis does not answer after the first differences are written: what moved then has moved from where it was."""
    core = peopled()
    before = {uid: shard_of(placed.node, SHARDS) for uid, placed in core.cluster.pods.items()}
    async with behind_a_relay() as (direct, between, link):
        await begin(direct, core)
        await open_term(direct, PREFIX, 2)
        core.restate(2)
        seen = persists(core, *(PodSeen(bound_to(f"p{number}", f"n{number + 1}")) for number in range(6)))
        deltas = [persist.delta for persist in seen if persist.delta is not None]
        pods, writer = core.cluster.pods.copied(), await Writer.open(link, PREFIX, 2, SHARDS)

        def interrupted() -> Iterator[Delta]:
            yield from deltas
            between.loses_answers = True

        with pytest.raises(StoreUnreachable):
            await writer.go_on(interrupted(), core.seq, pods, [], None, before)
        again = await Writer.open(direct, PREFIX, 2, SHARDS)
        await again.go_on(deltas, core.seq, pods, [], None, before)
        for number in range(6):
            await again.write(persists(core, PodSeen(bound_to(f"p{number}", f"n{number + 2}"))))
            assert plain(await loaded(direct)) == plain(core.state())
        assert await stored_pods(direct) == len(core.cluster.pods)


def bound_to(name: str, node: str) -> Pod:
    return pod(name).request(cpu=1).on(node).build()


async def test_a_state_that_is_not_complete_cannot_be_continued() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        await open_term(link, PREFIX, 2)
        assert (await open_term(link, PREFIX, 3)).seq == 0


async def test_another_number_of_shards_cannot_be_continued() -> None:
    core = peopled()
    async with redis_server() as server, linked(server) as link:
        await begin(link, core)
        await open_term(link, PREFIX, 2)
        writer = await Writer.open(link, PREFIX, 2, SHARDS + 1)
        with pytest.raises(StateLost):
            await writer.go_on([], core.seq, {}, [], None, {})
