"""Watches: from a version, from the state, by selector; and how they end."""

import asyncio
import contextlib
from random import Random

import pytest

from testing.simulator.requests import JSON
from testing.simulator.store import Bucket
from tests.simulator.support import (
    DEADLINE,
    NODES,
    PODS,
    STRATEGIC,
    Desk,
    Object,
    binding,
    events_of,
    names_of,
    node,
    pod,
    running,
)

PLACED = f"{PODS}?watch=1&fieldSelector=spec.nodeName!%3D"


def test_a_watch_without_a_version_begins_with_the_state() -> None:
    desk = Desk()
    desk.post(PODS, pod("b"))
    desk.post(PODS, pod("a"))
    watch = desk.watch(f"{PODS}?watch=true")
    desk.delete(f"{PODS}/b")
    assert names_of(watch) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]


def test_a_watch_resumes_from_a_version() -> None:
    desk = Desk()
    version = desk.post(PODS, pod("a"))["metadata"]["resourceVersion"]
    desk.post(PODS, pod("b"))
    watch = desk.watch(f"{PODS}?watch=1&resourceVersion={version}")
    desk.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    desk.delete(f"{PODS}/b")
    assert names_of(watch) == [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]


def test_every_event_has_a_later_version() -> None:
    desk = Desk()
    watch = desk.watch("/api/v1/pods?watch=1")
    desk.post(PODS, pod("a"))
    desk.post(f"{PODS}/a/binding", binding("a", "n"))
    desk.delete(f"{PODS}/a")
    desk.delete(f"{PODS}/a?gracePeriodSeconds=0")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events_of(watch)]
    assert len(versions) == 5
    assert versions == sorted(set(versions))


def test_leaving_a_selector_is_deleted_and_entering_it_is_added() -> None:
    desk = Desk()
    version = desk.post(PODS, pod("a", labels={"app": "x"}))["metadata"]["resourceVersion"]
    watch = desk.watch(f"{PODS}?watch=1&labelSelector=app%3Dx&resourceVersion={version}")
    desk.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "y"}}})
    desk.patch(f"{PODS}/a", {"metadata": {"labels": {"other": "z"}}})
    desk.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "x"}}})
    desk.patch(f"{PODS}/a", {"metadata": {"labels": {"other": None}}})
    events = events_of(watch)
    assert [event["type"] for event in events] == ["DELETED", "ADDED", "MODIFIED"]
    gone = events[0]["object"]["metadata"]
    assert gone["labels"] == {"app": "x"}
    assert int(gone["resourceVersion"]) > int(version)


def test_watches_select_by_field_and_by_name() -> None:
    desk = Desk()
    placed = desk.watch(PLACED)
    only_b = desk.watch(f"{PODS}/b?watch=1")
    for name in ("a", "b"):
        desk.post(PODS, pod(name))
    desk.post(f"{PODS}/b/binding", binding("b", "n"))
    assert names_of(placed) == [("ADDED", "b")]
    assert names_of(only_b) == [("ADDED", "b"), ("MODIFIED", "b")]


def test_a_watch_of_a_namespace_sees_only_that_namespace() -> None:
    desk = Desk()
    watch = desk.watch("/api/v1/namespaces/kube-system/pods?watch=1")
    desk.post(PODS, pod("a"))
    desk.post("/api/v1/namespaces/kube-system/pods", pod("b"))
    assert names_of(watch) == [("ADDED", "b")]


def test_a_compacted_version_is_an_error_event() -> None:
    desk = Desk(history=3)
    version = desk.post(PODS, pod("a"))["metadata"]["resourceVersion"]
    for number in range(4):
        desk.patch(f"{PODS}/a", {"metadata": {"labels": {"n": str(number)}}})
    watch = desk.watch(f"{PODS}?watch=1&resourceVersion={version}")
    (event,) = events_of(watch)
    assert watch.closed
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    kept = desk.get(f"{PODS}/a")["metadata"]["resourceVersion"]
    assert names_of(desk.watch(f"{PODS}?watch=1&resourceVersion={int(kept) - 3}")) == [("MODIFIED", "a")] * 3


def test_a_backlog_over_the_limit_counts_as_compacted() -> None:
    desk = Desk(max_pending_bytes=10_000)
    version = desk.post(PODS, pod("first"))["metadata"]["resourceVersion"]
    for number in range(20):
        desk.post(PODS, pod(f"p{number}"))
    (event,) = events_of(desk.watch(f"{PODS}?watch=1&resourceVersion={version}"))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_future_version_is_an_error_event() -> None:
    desk = Desk()
    (event,) = events_of(desk.watch(f"{PODS}?watch=1&resourceVersion=999999"))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_send_initial_events_streams_the_state() -> None:
    desk = Desk()
    for name in ("a", "b"):
        desk.post(PODS, pod(name))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watch = desk.watch(f"{PODS}?{query}")
    desk.post(PODS, pod("c"))
    events = events_of(watch)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK", "ADDED"]
    bookmark = events[2]["object"]
    assert bookmark["kind"] == "Pod"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["metadata"]["resourceVersion"] == events[1]["object"]["metadata"]["resourceVersion"]
    refusal = desk.refused("GET", f"{PODS}?watch=1&sendInitialEvents=true")
    assert (refusal["code"], refusal["details"]["kind"]) == (422, "ListOptions")
    assert desk.refused("GET", f"{PODS}?watch=1&resourceVersionMatch=NotOlderThan")["code"] == 422


def test_without_initial_events_a_watch_begins_now() -> None:
    desk = Desk()
    desk.post(PODS, pod("a"))
    watch = desk.watch(f"{PODS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
    desk.post(PODS, pod("b"))
    assert names_of(watch) == [("ADDED", "b")]


def test_an_unread_watch_ends() -> None:
    desk = Desk(max_pending_bytes=10_000)
    watch = desk.watch(f"{PODS}?watch=1")
    aborted: list[bool] = []
    watch.on_overflow = lambda: aborted.append(True)
    for number in range(20):
        desk.post(PODS, pod(f"p{number}"))
    assert (watch.closed, watch.overflowed, aborted) == (True, True, [True])
    assert _listeners(desk.cluster.store.bucket(watch.resource)) == 0


def _listeners(bucket: Bucket) -> int:
    return len(bucket.listeners)


@pytest.mark.asyncio
async def test_events_arrive_over_http_as_they_happen() -> None:
    async with running(kubelet=False) as (_, client), client.watch("/api/v1/nodes?watch=1") as stream:
        await client.fine("POST", NODES, node("n"))
        event = await stream.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "n")
        await client.fine("DELETE", f"{NODES}/n")
        assert (await stream.next())["type"] == "DELETED"


@pytest.mark.asyncio
async def test_bookmarks_carry_the_version() -> None:
    async with running(bookmark_seconds=0.02) as (_, client):
        created = await client.fine("POST", NODES, node("n"))
        async with client.watch("/api/v1/pods?watch=1&allowWatchBookmarks=true") as stream:
            bookmark = await stream.next()
            assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Pod")
            assert bookmark["object"]["metadata"] == {"resourceVersion": created["metadata"]["resourceVersion"]}


@pytest.mark.asyncio
async def test_a_watch_ends_after_its_time_out() -> None:
    async with running() as (_, client), client.watch("/api/v1/pods?watch=1&timeoutSeconds=1") as stream:
        assert await stream.next() == {}


@pytest.mark.asyncio
async def test_a_disconnected_client_is_forgotten() -> None:
    async with running(kubelet=False) as (simulator, client):
        async with client.watch("/api/v1/nodes?watch=1"):
            (bucket,) = [b for b in simulator.cluster.store.buckets() if b.resource.plural == "nodes"]
            assert _listeners(bucket) == 1
        while _listeners(bucket):
            await client.fine("GET", "/version")


@pytest.mark.asyncio
async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with running(kubelet=False, max_pending_bytes=1 << 20) as (simulator, client):
        host, port = simulator.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        (bucket,) = [b for b in simulator.cluster.store.buckets() if b.resource.plural == "configmaps"]
        async with asyncio.timeout(DEADLINE):
            while not _listeners(bucket):
                await asyncio.sleep(0)
            while _listeners(bucket):
                simulator.store_raw(
                    "configmaps", {"metadata": {"name": "c", "namespace": "default"}, "d": "x" * 100_000}
                )
                await asyncio.sleep(0)
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 20):
                    pass
        writer.close()
        await client.fine("GET", "/version")


def replay(state: dict[str, str], events: list[Object]) -> None:
    for event in events:
        metadata = event["object"]["metadata"]
        if event["type"] == "DELETED":
            del state[metadata["name"]]
        else:
            assert (event["type"] == "ADDED") == (metadata["name"] not in state)
            state[metadata["name"]] = metadata["resourceVersion"]


@pytest.mark.parametrize("query", ["", "&labelSelector=a%3D1", "&fieldSelector=spec.nodeName%3D", "&labelSelector=!b"])
def test_following_a_watch_gives_the_same_state_as_a_list(query: str) -> None:
    """Any changes, and any breaks at which the watch is resumed from the last version seen."""
    dice = Random(7)
    desk = Desk()
    state: dict[str, str] = {}
    version = desk.get(PODS)["metadata"]["resourceVersion"]
    for _ in range(60):
        watch = desk.watch(f"{PODS}?watch=1&resourceVersion={version}{query}")
        for _ in range(dice.randrange(8)):
            name = dice.choice("xyz")
            labels = {"a": dice.choice("12"), "b": dice.choice(["1", None])}
            method, url, body = dice.choice(
                [
                    ("POST", PODS, pod(name, labels={"a": "1"})),
                    ("PATCH", f"{PODS}/{name}", {"metadata": {"labels": labels}}),
                    ("POST", f"{PODS}/{name}/binding", binding(name, "n")),
                    ("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", None),
                ]
            )
            desk.call(method, url, body, STRATEGIC if method == "PATCH" else JSON)
        replay(state, events_of(watch))
        watch.close()
        listed = desk.get(f"{PODS}?{query}")
        version = listed["metadata"]["resourceVersion"]
        assert state == {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
