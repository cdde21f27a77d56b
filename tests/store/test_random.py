"""The store always holds what the snapshot holds, at every write and in every shard."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Event, LookedUp, NodeGone, NodeSeen, PodDeleted, PodSeen, Tick
from shared.messages.state import Committed
from shared.model.load import PodLoad
from shared.store.link import RedisLink, connect
from shared.store.reader import StoreReader
from shared.store.schema import Persist
from shared.store.term import open_term
from shared.store.writer import Writer
from testing.builders import pod
from tests.rounds.support import failed, finished
from tests.servers import redis_server
from tests.store.support import LOG, SHARDS, commit, persists, plain, small_node

NODES = [f"n{i}" for i in range(5)]
UIDS = [f"u{i}" for i in range(6)]
KINDS = ["node", "node-gone", "pod", "pod-gone", "commit", "bound", "failed", "looked-up", "tick"]
ENDS = ["", "", "write", "write", "write twice", "term", "rewrite"]

Step = tuple[str, str, str, int, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.sampled_from(NODES), st.sampled_from(UIDS), st.integers(1, 3), st.sampled_from(ENDS)
    ),
    max_size=40,
)
PREFIXES = count()


def event_of(core: SnapshotCore, number: int, kind: str, node: str, uid: str, amount: int) -> Event:
    entry = core.ledger.get(uid)
    attempt = entry.attempt if entry else 0
    match kind:
        case "node":
            return NodeSeen(small_node(node, cpu=amount))
        case "node-gone":
            return NodeGone(node)
        case "pod":
            return PodSeen(pod(uid).uid(uid).request(cpu=amount).on(node).build())
        case "pod-gone":
            return PodDeleted(uid)
        case "commit":
            places = [(uid, node), (f"{uid}x", NODES[amount])]
            return commit(core, number, places, PodLoad("default", requests={"cpu": amount}))
        case "bound":
            return finished(uid, attempt)
        case "failed":
            return failed(uid, attempt)
        case "looked-up":
            return LookedUp(uid, attempt, (None, node, node, node)[amount])
        case _:
            return Tick()


class Compared:
    """A core, the store it is written to, and what the store must hold."""

    def __init__(self, link: RedisLink) -> None:
        self.link = link
        self.prefix = f"run{next(PREFIXES)}"
        self.core = SnapshotCore(1)
        self.epoch = 0
        self.answer: Committed | None = None
        self.pending: list[Persist] = []

    async def term(self) -> None:
        left = await open_term(self.link, self.prefix, self.epoch + 1)
        assert left.epoch == self.epoch
        assert left.answer == self.answer
        assert {e.uid: (e.attempt, e.node, e.bound) for e in left.ledger} == {
            e.uid: (e.attempt, e.node, e.bound) for e in self.core.ledger.values()
        }
        self.epoch += 1
        self.writer = await Writer.open(self.link, self.prefix, self.epoch, SHARDS)
        await self.rewrite()

    async def rewrite(self) -> None:
        state = replace(self.core.whole(), epoch=self.epoch)
        await self.writer.rewrite(state, self.core.ledger.values(), self.answer)

    async def step(self, number: int, step: Step) -> None:
        kind, node, uid, amount, end = step
        new = persists(self.core, event_of(self.core, number, kind, node, uid, amount), now=20.0 * number)
        self.pending += new
        for persist in new:
            self.answer = persist.answer or self.answer
        if end:
            await self.finish(end)

    async def finish(self, end: str) -> None:
        for _ in range(2 if end == "write twice" else 1):
            await self.writer.write(self.pending)
        self.pending = []
        await self.check()
        if end == "term":
            await self.writer.write(list(self.core.end()))
            await self.term()
            await self.check()
        elif end == "rewrite":
            await self.rewrite()
            await self.check()

    async def check(self) -> None:
        reader = StoreReader(self.link, self.prefix)
        for shards in (range(SHARDS), [1], [0, 3]):
            state = await reader.load(shards, SHARDS)
            assert state is not None
            assert (state.epoch, state.seq) == (self.epoch, self.core.seq)
            assert plain(state) == plain(self.core.state(shards, SHARDS))
            assert len({msgspec.msgpack.encode(load) for load in state.loads}) == len(state.loads)


Setting = tuple[asyncio.Runner, RedisLink]


@pytest.fixture
def setting() -> Iterator[Setting]:
    """A server for all examples; each has a prefix of its own."""
    with asyncio.Runner() as runner:
        context = redis_server()
        server = runner.run(context.__aenter__())
        link = runner.run(connect(server.url, LOG))
        try:
            yield runner, link
        finally:
            runner.run(link.close())
            runner.run(context.__aexit__(None, None, None))


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_the_store_holds_what_the_snapshot_holds(setting: Setting, steps: list[Step]) -> None:
    runner, link = setting

    async def run() -> None:
        compared = Compared(link)
        await compared.term()
        for number, step in enumerate(steps, start=1):
            await compared.step(number, step)
        await compared.finish("term")

    runner.run(run())
