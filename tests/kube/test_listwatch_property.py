"""For any behaviour of a server, a listing yields a state that existed and that is not older than the known one; from
there on every change arrives once, in order, until the next listing.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Silent
from shared.kube.listwatch import (
    Interruption,
    ListDone,
    ListPage,
    ListStarted,
    ListWatch,
    ListWatchEvent,
    ObjectEvents,
    Timing,
    WatchStarted,
)
from tests.kube.scripted import PATH, Change, ScriptedServer, Step, World, scripted
from tests.kube.support import until

QUICK = Timing(0.3, 0.3, silence=0.1, bookmark_silence=0.15, list_silence=0.15, first_wait=0.001, longest_wait=0.004)

FAULTS = st.sampled_from(["", "", "429", "503", "500", "cut", "410", "end", "cut", "gone", "busy", "broken", "dead"])
STEPS = st.lists(st.builds(Step, FAULTS, st.integers(0, 5)), max_size=12)
NAMES = st.sampled_from("abcdef")
CHANGES = st.lists(
    st.one_of(*[st.builds(Change, NAMES, st.booleans())] * 4, st.just(Change(""))), min_size=4, max_size=30
)


class Follower:
    """A follower that refuses impossible events."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.heard: list[ListWatchEvent] = []
        self.world: World = {}
        self.at: set[int] = set()
        """Versions of which the world is the one that is known; empty while it is listed."""
        self.asked_at = 0
        self.listed: set[str] = set()

    async def __call__(self, heard: ListWatchEvent) -> None:
        self.heard.append(heard)
        match heard:
            case ListStarted():
                self.listed, self.at, self.asked_at = set(), set(), max(self.at, default=self.asked_at)
            case ListPage(objects=objects):
                assert not self.at
                for raw in objects:
                    name, version = read(raw)
                    self.world[name] = version
                    self.listed.add(name)
            case ListDone():
                self.world = {name: version for name, version in self.world.items() if name in self.listed}
                versions = range(self.asked_at, self.server.version + 1)
                self.at = {version for version in versions if self.server.world(version) == self.world}
                assert self.at, "the world is one that never was, or that is over"
            case ObjectEvents(events=events):
                for event in events:
                    self.apply(event.type, *read(event.object))
        if isinstance(heard, ObjectEvents | ListPage):
            await asyncio.sleep(0)

    def apply(self, type_: str, name: str, version: int) -> None:
        assert version - 1 in self.at, f"{type_} {version} is doubled, or something before it is lost: {self.at}"
        if type_ == "DELETED":
            del self.world[name]
        else:
            self.world[name] = version
        assert self.world == self.server.world(version)
        self.at = {version}

    def count(self, what: type) -> int:
        return sum(isinstance(heard, what) for heard in self.heard)

    @property
    def troubles(self) -> list[Interruption]:
        return [heard for heard in self.heard if isinstance(heard, Interruption)]


def read(raw: msgspec.Raw) -> tuple[str, int]:
    metadata = msgspec.json.decode(raw)["metadata"]
    return metadata["name"], int(metadata["resourceVersion"])


@asynccontextmanager
async def following(server: ScriptedServer, timing: Timing = QUICK) -> AsyncIterator[tuple[Follower, ListWatch]]:
    client = await KubeClient.open(ApiSettings(server=server.url))
    follower = Follower(server)
    listwatch = ListWatch(client, PATH, follower, random.Random(1), timing=timing)
    task = asyncio.create_task(listwatch.run())
    try:
        yield follower, listwatch
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, CHANGES, st.sampled_from(["yes", "yes", "refuses", "ignores"]), st.lists(NAMES, min_size=2, max_size=6))
def test_no_event_is_lost_or_duplicated(
    script: list[Step], churn: list[Change], streams: str, names: list[str]
) -> None:
    async def run() -> None:
        async with scripted(script, churn, streams, names) as server, following(server) as (follower, listwatch):
            rng = random.Random(len(script))
            for _ in range(20):
                await asyncio.sleep(0.002)
                server.move()
                if rng.random() < 0.1:
                    listwatch.list_again()
            await until(lambda: not server.churn)
            await until(lambda: server.version in follower.at, f"{server.version} in {follower.at}")
            assert follower.world == server.world(server.version)

    asyncio.run(run())


def watches(server: ScriptedServer) -> list[str]:
    return [query for query in server.requests if "watch=1" in query]


async def settled(server: ScriptedServer, follower: Follower) -> None:
    await until(lambda: server.version in follower.at and follower.count(WatchStarted))


@pytest.mark.asyncio
async def test_a_streamed_list_continues_as_a_watch() -> None:
    async with scripted(names="abc") as server, following(server) as (follower, _):
        await settled(server, follower)
        server.put(Change("d"))
        await settled(server, follower)
        assert len(server.requests) == 1
        assert "sendInitialEvents=true&resourceVersionMatch=NotOlderThan" in server.requests[0]
        assert "resourceVersion=&" in server.requests[0]
        assert follower.troubles == []


@pytest.mark.asyncio
async def test_deletions_during_a_streamed_list_follow_it() -> None:
    churn = [Change("x"), Change("a", False), Change("b"), Change("a"), Change("c", False), Change("b")]
    async with scripted(churn=churn, names="abc") as server, following(server) as (follower, _):
        await until(lambda: not server.churn)
        await settled(server, follower)
        assert set(follower.world) == {"a", "b", "x"}
        assert len(server.requests) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("streams", ["refuses", "ignores"])
async def test_a_server_without_streamed_lists_is_asked_once(streams: str) -> None:
    async with scripted(streams=streams, names="abc") as server, following(server) as (follower, listwatch):
        await settled(server, follower)
        for lists in (2, 3):
            listwatch.list_again()
            await until(lambda lists=lists: follower.count(ListDone) == lists)  # type: ignore[misc]
        await settled(server, follower)
        assert sum("sendInitialEvents" in query for query in server.requests) == 1
        assert sum("limit=" in query for query in server.requests) == 3 * 2


@pytest.mark.asyncio
async def test_a_broken_streamed_list_is_followed_by_pages() -> None:
    async with scripted([Step("cut", 2)], names="abcd") as server, following(server) as (follower, listwatch):
        await settled(server, follower)
        assert ["limit=" in query for query in server.requests[:3]] == [False, True, True]
        listwatch.list_again()
        await until(lambda: follower.count(ListDone) == 2)
        assert not any("sendInitialEvents" in query for query in server.requests[1:]), (
            "later lists name their version first"
        )


@pytest.mark.asyncio
async def test_a_failed_page_is_retried() -> None:
    script = [Step(), Step(), *[Step("429")] * 5, *[Step("503")] * 5]
    async with scripted(script, streams="refuses", names="abcdef") as server, following(server) as (follower, _):
        await settled(server, follower)
        assert follower.count(ListStarted) == 1
        assert {trouble.cause.status for trouble in follower.troubles if isinstance(trouble.cause, Refused)} == {
            429,
            503,
        }


@pytest.mark.asyncio
async def test_a_watch_without_its_bookmarks_is_given_up() -> None:
    patient = Timing(60.0, 60.0, bookmark_silence=0.2, first_wait=0.001)
    async with scripted([Step("dead", 5)], names="abc") as server, following(server, patient) as (follower, _):
        await until(lambda: any(isinstance(trouble.cause, Silent) for trouble in follower.troubles))
        server.put(Change("d"))
        await settled(server, follower)
        assert follower.count(ListStarted) == 1
        assert "resourceVersion=3&" in watches(server)[-1]


@pytest.mark.asyncio
async def test_failed_resumptions_lead_to_a_relist() -> None:
    script = [Step("end", 3), *[Step("500")] * 30]
    async with scripted(script, names="ab") as server, following(server) as (follower, _):
        await until(lambda: follower.count(ListDone) == 2)
        assert len(follower.troubles) > 10
