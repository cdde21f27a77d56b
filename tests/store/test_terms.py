"""One writer at a time: a newer epoch shuts out the older ones."""

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, PodDeleted, PodSeen
from shared.errors import ProtocolError, UserError
from shared.store.errors import Deposed, StateLost
from shared.store.reader import StoreReader, pipeline_of
from shared.store.retry_records import Memory
from shared.store.term import Recovered, open_term
from shared.store.writer import Writer
from testing.builders import pod
from tests.servers import redis_server
from tests.store.support import PREFIX, SHARDS, begin, commit, linked, load, loaded, persists, plain, small_node

pytestmark = pytest.mark.asyncio


def one_node(epoch: int) -> SnapshotCore:
    core = SnapshotCore(epoch)
    persists(core, NodeSeen(small_node("n", cpu=epoch)), PodSeen(pod("p").on("n").build()))
    return core


async def test_the_first_term_finds_nothing() -> None:
    async with redis_server() as server, linked(server) as link:
        assert await load(link) is None
        assert await open_term(link, PREFIX, 7) == Recovered(0, [], None, lost=True)
        assert await load(link) is None


async def test_two_writers() -> None:
    """The older one does nothing more, whether the newer one's state is whole or not."""
    old, new = one_node(1), one_node(2)
    async with redis_server() as server, linked(server) as link, linked(server) as other:
        first = await begin(link, old)
        await open_term(other, PREFIX, 2)
        with pytest.raises(Deposed, match="epoch 1: what is in Redis is of epoch 2"):
            await first.write(persists(old, commit(old, 1, [("a", "n")])))
        with pytest.raises(Deposed):
            await first.rewrite(old.whole(), [], None)
        second = await Writer.open(other, PREFIX, 2, SHARDS)
        await second.rewrite(new.whole(), [], None)
        with pytest.raises(Deposed):
            await first.rewrite(old.whole(), [], None)
        assert plain(await loaded(link)) == plain(new.state())
        await second.write(persists(new, PodDeleted("default/p")))
        assert plain(await loaded(link)) == plain(new.state())
        assert (await open_term(link, PREFIX, 3)).ledger == []


@pytest.mark.parametrize("epoch", [1, 4, 5])
async def test_an_epoch_opens_once_and_never_after_a_newer_one(epoch: int) -> None:
    core = one_node(5)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        with pytest.raises(Deposed) as refused:
            await open_term(link, PREFIX, epoch)
        assert refused.value.newest == 5
        await writer.write(persists(core, PodDeleted("default/p")))


async def test_a_term_that_is_not_open_has_no_writer() -> None:
    async with redis_server() as server, linked(server) as link:
        with pytest.raises(StateLost):
            await Writer.open(link, PREFIX, 1, SHARDS)
        await open_term(link, PREFIX, 2)
        with pytest.raises(Deposed):
            await Writer.open(link, PREFIX, 1, SHARDS)


async def test_large_epochs_compare_exactly() -> None:
    """Their sequence numbers are beyond what a Lua number holds exactly."""
    core = one_node(1 << 20)
    async with redis_server() as server, linked(server) as link:
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [("a", "n")])))
        state = await loaded(link)
        assert (state.epoch, state.seq) == (1 << 20, core.seq)


async def test_prefixes_are_separate() -> None:
    cores = {prefix: one_node(epoch) for epoch, prefix in enumerate(("a", "b"), start=1)}
    async with redis_server() as server, linked(server) as link:
        for prefix, core in cores.items():
            await begin(link, core, prefix=prefix)
        for prefix, core in cores.items():
            assert plain(await loaded(link, prefix=prefix)) == plain(core.state())


@pytest.mark.parametrize(
    ("schema", "told"),
    [("3", "of a newer Flotilla; this one knows 2"), ("0", "too old"), ("x\ny", "none of Flotilla's")],
)
async def test_another_schema_is_not_touched(schema: str, told: str) -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("HSET", f"{PREFIX}:meta", "schema", schema, "epoch", "1", "seq", "5", "shard_count", "4")
        before = await link.call("HGETALL", f"{PREFIX}:meta")
        for attempt in (open_term(link, PREFIX, 2), Writer.open(link, PREFIX, 2, SHARDS), load(link)):
            with pytest.raises(UserError, match=f"{PREFIX}:meta: schema .*{told}") as refused:
                await attempt
            assert "\n" not in str(refused.value)
        assert await link.call("HGETALL", f"{PREFIX}:meta") == before
        assert await link.call("DBSIZE") == 1


async def test_an_invalid_ledger_entry_is_reported() -> None:
    async with redis_server() as server, linked(server) as link:
        core = one_node(1)
        writer = await begin(link, core)
        await writer.write(persists(core, commit(core, 1, [("a", "n")])))
        await link.call("HSET", f"{PREFIX}:ledger", "a", b"\xc1")
        with pytest.raises(ProtocolError, match="not a ledger entry"):
            await open_term(link, PREFIX, 2)


async def test_a_loss_counts_until_a_complete_state_is_written() -> None:
    async with redis_server() as server, linked(server) as link:
        assert (await open_term(link, PREFIX, 3)).lost
        assert (await open_term(link, PREFIX, 4)).lost, "nothing was written in term 3"
        writer = await Writer.open(link, PREFIX, 4, SHARDS)
        core = SnapshotCore(4)
        await writer.rewrite(core.whole(), (), None)
        assert not (await open_term(link, PREFIX, 5)).lost


OURS, OTHERS = "cluster-1/kube-system", "cluster-2/kube-system"


async def test_the_state_of_another_pipeline_is_neither_touched_nor_loaded() -> None:
    core = one_node(1)
    async with redis_server() as server, linked(server) as link:
        await open_term(link, PREFIX, 1, OURS)
        writer = await Writer.open(link, PREFIX, 1, SHARDS)
        await writer.rewrite(core.whole(), [], None)
        before = await link.call("HGETALL", f"{PREFIX}:meta")
        with pytest.raises(
            UserError, match=r"belong to the pipeline of cluster cluster-1 .*set --prefix .* delete them"
        ):
            await open_term(link, PREFIX, 99, OTHERS)
        assert await link.call("HGETALL", f"{PREFIX}:meta") == before
        reader = StoreReader(link, PREFIX)
        with pytest.raises(UserError, match="belong to the pipeline of cluster cluster-1"):
            await reader.load(range(SHARDS), SHARDS, OTHERS)
        assert await reader.load(range(SHARDS), SHARDS, OURS) is not None
        assert (await open_term(link, PREFIX, 2, OURS)).epoch == 1


async def test_state_that_names_no_pipeline_is_adopted() -> None:
    async with redis_server() as server, linked(server) as link:
        assert await pipeline_of(link, PREFIX) is None
        await open_term(link, PREFIX, 1)
        assert await pipeline_of(link, PREFIX) == ""
        assert (await open_term(link, PREFIX, 2, OURS)).epoch == 1
        assert await pipeline_of(link, PREFIX) == OURS


async def test_retry_records_of_another_pipeline_are_not_touched() -> None:
    async with redis_server() as server, linked(server) as link:
        await Memory(link, PREFIX).claim(1)
        ours = Memory(link, PREFIX, OURS)
        await ours.claim(2)
        await ours.write(2, {"a": b"1"})
        with pytest.raises(UserError, match="belong to the pipeline of cluster cluster-1"):
            await Memory(link, PREFIX, OTHERS).claim(9)
        await ours.claim(3)
        assert await ours.load() == {"a": b"1"}


async def test_a_term_that_no_snapshot_can_have_led_counts_as_lost() -> None:
    async with redis_server() as server, linked(server) as link:
        await begin(link, one_node(1))
        await link.call("HSET", f"{PREFIX}:meta", "epoch", 1 << 62)
        recovered = await open_term(link, PREFIX, 5)
        assert (recovered.epoch, recovered.lost) == (0, True)
        with pytest.raises(Deposed):
            await open_term(link, PREFIX, 5)
