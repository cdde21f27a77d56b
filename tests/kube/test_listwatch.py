"""List and watch against a (simulated) API server: nothing is lost when connections break."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Unauthorized, Unreachable
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
from shared.kube.wire import Lines
from testing.simulator.service import Simulator, SimulatorOptions
from tests.kube.support import PATIENCE, api_server, client_of, raw_pod, until

FAST = Timing(first_wait=0.02, longest_wait=0.1)


class Ear:
    """A follower that keeps the objects it was given, with their versions."""

    def __init__(self, on_first_page: Callable[[], None]) -> None:
        self.on_first_page = on_first_page
        self.heard: list[ListWatchEvent] = []
        self.world: dict[str, str] = {}
        self.listed: set[str] = set()

    async def __call__(self, heard: ListWatchEvent) -> None:
        self.heard.append(heard)
        match heard:
            case ListStarted():
                self.listed = set()
            case ListPage(objects=objects):
                self.listed |= {self.put(raw) for raw in objects}
                if self.count(ListPage) == 1:
                    self.on_first_page()
            case ListDone():
                self.world = {name: version for name, version in self.world.items() if name in self.listed}
            case ObjectEvents(events=events):
                for event in events:
                    name = self.put(event.object)
                    if event.type == "DELETED":
                        del self.world[name]

    def put(self, raw: msgspec.Raw) -> str:
        metadata = msgspec.json.decode(raw)["metadata"]
        name = str(metadata["name"])
        self.world[name] = metadata["resourceVersion"]
        return name

    def count(self, what: type) -> int:
        return sum(isinstance(heard, what) for heard in self.heard)

    @property
    def troubles(self) -> list[Interruption]:
        return [heard for heard in self.heard if isinstance(heard, Interruption)]

    @property
    def events(self) -> list[str]:
        return [event.type for heard in self.heard if isinstance(heard, ObjectEvents) for event in heard.events]


@asynccontextmanager
async def following(
    client: KubeClient,
    timing: Timing = FAST,
    selector: str = "",
    on_first_page: Callable[[], None] = lambda: None,
    paths: Sequence[str] = ("/api/v1/pods",),
) -> AsyncIterator[tuple[Ear, ListWatch]]:
    ear = Ear(on_first_page)
    path, *others = paths
    listwatch = ListWatch(client, path, ear, random.Random(1), selector=selector, others=others, timing=timing)
    task = asyncio.create_task(listwatch.run())
    try:
        yield ear, listwatch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def put(server: Simulator, *names: str) -> None:
    for name in names:
        server.store_raw("pods", raw_pod(name))


def world(server: Simulator, *names: str) -> dict[str, str]:
    return {name: server.stored("pods", name, "default")["metadata"]["resourceVersion"] for name in names}


async def delete(client: KubeClient, name: str) -> None:
    assert (await client.try_call("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")).ok


@pytest.mark.asyncio
async def test_objects_are_listed_and_changes_follow() -> None:
    async with api_server() as server, client_of(server) as client, following(client) as (ear, _):
        await until(lambda: ear.count(WatchStarted))
        put(server, "a", "b")
        put(server, "a")
        await until(lambda: ear.world == world(server, "a", "b"))
        await delete(client, "b")
        await until(lambda: ear.world == world(server, "a"))
        assert ear.events == ["ADDED", "ADDED", "MODIFIED", "MODIFIED", "DELETED"]
        assert (ear.count(ListStarted), ear.count(ListDone), ear.troubles) == (1, 1, [])


def streams_no_lists(server: Simulator) -> None:
    server.faults.fail("GET", "pods", 422, reason="Invalid")


@pytest.mark.asyncio
async def test_a_long_list_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.listwatch.PAGE", 10)
    names = [f"p{i:03}" for i in range(35)]
    async with api_server() as server, client_of(server) as client:
        put(server, *names)
        streams_no_lists(server)
        async with following(client) as (ear, _):
            await until(lambda: ear.count(ListDone))
            assert [len(heard.objects) for heard in ear.heard if isinstance(heard, ListPage)] == [10, 10, 10, 5]
            assert ear.world == world(server, *names)


@pytest.mark.asyncio
async def test_a_list_that_expires_restarts_with_larger_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.listwatch.PAGE", 10)
    async with api_server() as server, client_of(server) as client:
        put(server, *[f"p{i:03}" for i in range(35)])
        streams_no_lists(server)
        async with following(client, on_first_page=server.compact) as (ear, _):
            await until(lambda: ear.count(ListDone))
            assert [type(trouble.cause) for trouble in ear.troubles] == [Gone]
            assert [len(heard.objects) for heard in ear.heard if isinstance(heard, ListPage)] == [10, 35]
            assert ear.count(ListStarted) == 2
            assert len(ear.world) == 35


@pytest.mark.asyncio
async def test_a_watch_that_ends_resumes_from_its_version() -> None:
    async with api_server() as server, client_of(server) as client, following(client) as (ear, _):
        await until(lambda: ear.count(WatchStarted))
        for round_, name in enumerate("abc", 2):
            server.close_watches()
            put(server, name)
            await until(lambda round_=round_: ear.count(WatchStarted) >= round_)  # type: ignore[misc]
        await until(lambda: ear.world == world(server, "a", "b", "c"))
        assert ear.events == ["ADDED"] * 3
        assert ear.count(ListStarted) == 1


@pytest.mark.asyncio
async def test_a_server_ends_a_watch_when_its_time_is_over() -> None:
    short = Timing(shortest_watch=1.0, longest_watch=1.0, first_wait=0.02)
    async with api_server() as server, client_of(server) as client, following(client, short) as (ear, _):
        await until(lambda: ear.count(WatchStarted) == 2)
        put(server, "a")
        await until(lambda: ear.world == world(server, "a"))
        assert (ear.count(ListStarted), ear.troubles) == (1, [])


@pytest.mark.asyncio
async def test_a_watch_from_too_long_ago_lists_again() -> None:
    async with api_server() as server, client_of(server) as client, following(client) as (ear, _):
        put(server, "a", "b")
        await until(lambda: ear.world == world(server, "a", "b"))
        server.faults.fail("GET", "pods", 503, times=1)
        server.close_watches()
        await delete(client, "a")
        put(server, "c")
        server.compact()
        await until(lambda: ear.count(ListDone) == 2)
        assert any(isinstance(trouble.cause, Gone) for trouble in ear.troubles)
        assert ear.world == world(server, "b", "c")


@pytest.mark.asyncio
async def test_an_unreachable_server_is_retried() -> None:
    async with api_server() as server, client_of(server) as client, following(client) as (ear, _):
        put(server, "a")
        await until(lambda: ear.world == world(server, "a"))
        server.faults.drop("GET", "pods", times=4)
        server.close_watches()
        put(server, "b")
        await until(lambda: ear.world == world(server, "a", "b"))
        assert any(isinstance(trouble.cause, Unreachable) for trouble in ear.troubles)
        assert ear.count(ListStarted) == 1
        waits = [trouble.wait for trouble in ear.troubles]
        assert all(0.01 <= wait <= 0.1 for wait in waits)


@pytest.mark.asyncio
async def test_a_busy_servers_retry_after_is_respected() -> None:
    async with api_server() as server, client_of(server) as client:
        server.faults.fail("GET", "pods", 429, times=2, reason="TooManyRequests")
        async with following(client) as (ear, _):
            await until(lambda: ear.troubles)
            assert 1.0 <= ear.troubles[0].wait <= 1.25


@pytest.mark.asyncio
async def test_a_silent_watch_is_given_up() -> None:
    impatient = Timing(shortest_watch=0.2, longest_watch=0.2, silence=0.1, first_wait=0.02)
    async with api_server() as server, client_of(server) as client, following(client, impatient) as (ear, _):
        await until(lambda: ear.count(WatchStarted) >= 2)
        assert isinstance(ear.troubles[0].cause, Unreachable)


@pytest.mark.asyncio
async def test_wrong_credentials_are_reported_and_retried() -> None:
    async with api_server(SimulatorOptions(kubelet=False)) as server, client_of(server) as client:
        server.faults.fail("GET", "pods", 401, times=3, reason="Unauthorized")
        async with following(client) as (ear, _):
            await until(lambda: ear.count(WatchStarted))
            assert [type(trouble.cause) for trouble in ear.troubles] == [Unauthorized] * 3


@pytest.mark.asyncio
async def test_a_requested_listing_starts_at_once() -> None:
    slow = Timing(first_wait=60.0)
    async with api_server() as server, client_of(server) as client, following(client, slow) as (ear, listwatch):
        put(server, "a")
        await until(lambda: ear.count(WatchStarted) == 1 and ear.world == world(server, "a"))
        for lists in (2, 3):
            listwatch.list_again()
            await until(lambda lists=lists: ear.count(ListDone) == lists and ear.count(WatchStarted) == lists)  # type: ignore[misc]
        put(server, "b")
        await until(lambda: ear.world == world(server, "a", "b"))
        assert ear.troubles == []


@pytest.mark.asyncio
async def test_a_requested_listing_does_not_wait_until_a_watch_has_begun() -> None:
    """Some proxies let a watch begin with its first event only."""
    async with api_server() as server, client_of(server) as client:
        put(server, "a")
        ear = Ear(lambda: None)
        listwatch = ListWatch(client, "/api/v1/pods", ear, random.Random(1))
        listwatch.resume(world(server, "a")["a"])
        server.faults.delay("GET", "pods", 2 * PATIENCE)
        running = asyncio.create_task(listwatch.run())
        try:
            await until(lambda: not server.faults)
            listwatch.list_again()
            listwatch.list_again()
            await until(lambda: ear.count(ListDone) and ear.count(WatchStarted))
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        assert (ear.count(ListDone), ear.troubles) == (1, [])


@pytest.mark.asyncio
async def test_a_listing_requested_during_another_follows_it() -> None:
    async with api_server() as server, client_of(server) as client, following(client) as (ear, listwatch):
        await until(lambda: ear.count(ListStarted))
        listwatch.list_again()
        listwatch.list_again()
        await until(lambda: ear.count(ListDone) == 2 and ear.count(WatchStarted))
        marks = [type(heard) for heard in ear.heard if isinstance(heard, ListStarted | ListDone)]
        assert marks == [ListStarted, ListDone, ListStarted, ListDone]


@pytest.mark.asyncio
@pytest.mark.parametrize("streams", [True, False])
async def test_a_listing_that_has_just_started_is_restarted(streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks at its beginning need not wait for the end of one that is of no use to it."""
    monkeypatch.setattr("shared.kube.listwatch.PAGE", 1)
    marks: list[type[ListWatchEvent]] = []

    async def hear(said: ListWatchEvent) -> None:
        marks.append(type(said))
        if marks == [ListStarted]:
            listwatch.list_again()

    async with api_server() as server, client_of(server) as client:
        put(server, "a")
        put(server, "b")
        if not streams:
            server.faults.fail("GET", "^/api/v1/pods", 422, reason="Invalid")  # the first, which asks for a stream
        listwatch = ListWatch(client, "/api/v1/pods", hear, random.Random(1))
        running = asyncio.create_task(listwatch.run())
        await until(lambda: WatchStarted in marks)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [mark for mark in marks if mark is not ListPage] == [ListStarted, ListStarted, ListDone, WatchStarted]


@pytest.mark.asyncio
async def test_every_api_version_is_tried_before_a_failure_is_reported() -> None:
    paths = [f"/apis/resource.k8s.io/{version}/deviceclasses" for version in ("v1", "v1beta2", "v1beta1")]
    async with api_server() as server, client_of(server) as client:
        server.serve("resource.k8s.io")
        async with following(client, paths=paths) as (ear, _):
            await until(lambda: len(ear.troubles) == 2)
            assert all(paths[-1] in str(trouble.cause) for trouble in ear.troubles), "the last one of each round"
            server.serve("resource.k8s.io", "v1beta2")
            await until(lambda: ear.count(WatchStarted) == 1)
            server.store_raw("deviceclasses", {"metadata": {"name": "x"}}, group="resource.k8s.io")
            await until(lambda: "x" in ear.world)
            troubles = len(ear.troubles)
            server.serve("resource.k8s.io", "v1beta1")
            server.close_watches()
            server.store_raw("deviceclasses", {"metadata": {"name": "y"}}, group="resource.k8s.io")
            await until(lambda: "y" in ear.world)
            assert (ear.count(ListDone), ear.events) == (1, ["ADDED", "ADDED"])
            assert not [trouble for trouble in ear.troubles[troubles:] if "404" in str(trouble.cause)]


@pytest.mark.asyncio
async def test_the_server_applies_the_selector() -> None:
    async with api_server() as server, client_of(server) as client:
        put(server, "a")
        server.store_raw("pods", raw_pod("done") | {"status": {"phase": "Succeeded"}})
        async with following(client, selector="fieldSelector=status.phase%21%3DSucceeded") as (ear, _):
            await until(lambda: ear.count(WatchStarted))
            assert set(ear.world) == {"a"}
            server.store_raw("pods", raw_pod("a") | {"status": {"phase": "Succeeded"}})
            await until(lambda: not ear.world)
            assert ear.events == ["DELETED"]


@pytest.mark.parametrize("cuts", [1, 2, 3, 7, 1000])
def test_lines_are_reassembled_from_any_chunks(cuts: int) -> None:
    text = b'{"a":1}\n{"bb":22}\n\n{"ccc":333}\n'
    lines = Lines()
    pieces = [lines.take(text[start : start + cuts]) for start in range(0, len(text), cuts)]
    assert b"".join(pieces) == text
    assert all(piece.endswith(b"\n") for piece in pieces if piece)
