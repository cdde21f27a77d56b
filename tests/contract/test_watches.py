"""Watches: where they begin, their events, and how they end."""

import pytest

from tests.contract.sandbox import Sandbox, a_binding
from tests.contract.server import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMING = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
BRIEF = 3
"""Seconds of a watch that ends during a test."""


def version_of(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def chosen(sandbox: Sandbox, name: str) -> str:
    return f"{sandbox.pods}?labelSelector=watch%3D{name}"


async def test_a_watch_resumes_after_a_version(sandbox: Sandbox) -> None:
    path = chosen(sandbox, "after")
    await sandbox.pod("after-a", {"watch": "after"})
    version = version_of(await sandbox.server.get(path))
    await sandbox.pod("after-b", {"watch": "after"})
    await sandbox.server.patch(f"{sandbox.pods}/after-a", {"metadata": {"labels": {"x": "y"}}})
    await sandbox.server.delete(f"{sandbox.pods}/after-b")
    async with sandbox.server.watching(f"{path}&resourceVersion={version}") as watch:
        events = await watch.events(4)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "after-b"),
        ("MODIFIED", "after-a"),
        ("MODIFIED", "after-b"),
        ("DELETED", "after-b"),
    ]
    versions = [int(version_of(event["object"])) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    assert {(event["object"]["kind"], event["object"]["apiVersion"]) for event in events} == {("Pod", "v1")}


async def test_a_watch_from_any_version_begins_with_the_state(sandbox: Sandbox) -> None:
    path = chosen(sandbox, "any")
    for name in ("any-b", "any-a"):
        await sandbox.pod(name, {"watch": "any"})
    for version in ("", "&resourceVersion=0"):
        async with sandbox.server.watching(f"{path}{version}") as watch:
            assert sorted(await watch.told(2)) == [("ADDED", "any-a"), ("ADDED", "any-b")]
            await sandbox.server.patch(
                f"{sandbox.pods}/any-a", {"metadata": {"labels": {"version": f"v{len(version)}"}}}
            )
            assert await watch.told(1) == [("MODIFIED", "any-a")]


async def test_a_list_can_be_streamed(sandbox: Sandbox) -> None:
    """Servers before v1.34 refuse it."""
    if not sandbox.server.since(34):
        return
    path = chosen(sandbox, "stream")
    for name in ("stream-b", "stream-a"):
        await sandbox.pod(name, {"watch": "stream"})
    newest = int(version_of(await sandbox.server.get(path)))
    for version in ("", f"&resourceVersion={newest}"):
        async with sandbox.server.watching(f"{path}&{STREAMING}{version}") as watch:
            assert sorted(await watch.told(2)) == [("ADDED", "stream-a"), ("ADDED", "stream-b")]
            end = await watch.event(bookmarks=True)
            assert end["type"] == "BOOKMARK"
            assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            assert (end["object"]["kind"], end["object"]["apiVersion"]) == ("Pod", "v1")
            assert int(version_of(end["object"])) >= newest
            name = f"stream-later-{len(version)}"
            await sandbox.pod(name, {"watch": "stream"})
            assert await watch.told(1) == [("ADDED", name)]
        await sandbox.server.delete(f"{sandbox.pods}/{name}")


async def test_an_empty_list_can_be_streamed(sandbox: Sandbox) -> None:
    if not sandbox.server.since(34):
        return
    async with sandbox.server.watching(f"{chosen(sandbox, 'nothing')}&{STREAMING}") as watch:
        end = await watch.event(bookmarks=True)
    assert (end["type"], end["object"]["metadata"]["annotations"]) == (
        "BOOKMARK",
        {"k8s.io/initial-events-end": "true"},
    )


async def test_contradictory_options_of_streamed_lists_are_refused(sandbox: Sandbox) -> None:
    if not sandbox.server.since(34):
        return
    watch = f"{sandbox.pods}?watch=1"
    for options in ("sendInitialEvents=true", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5"):
        status = await sandbox.server.refused(422, "Invalid", "GET", f"{watch}&{options}")
        assert status["details"]["kind"] == "ListOptions"
    await sandbox.server.refused(422, "Invalid", "GET", f"{watch}&resourceVersionMatch=NotOlderThan&resourceVersion=5")
    await sandbox.server.refused(422, "Invalid", "GET", f"{sandbox.pods}?{STREAMING}")


async def test_objects_enter_and_leave_a_selector(sandbox: Sandbox) -> None:
    path = chosen(sandbox, "moves")
    await sandbox.pod("moves", {"watch": "moves"})
    version = version_of(await sandbox.server.get(path))
    async with sandbox.server.watching(f"{path}&resourceVersion={version}") as watch:
        for label in ("elsewhere", "else", "moves"):
            await sandbox.server.patch(f"{sandbox.pods}/moves", {"metadata": {"labels": {"watch": label}}})
        gone, back = await watch.events(2)
    assert (gone["type"], back["type"]) == ("DELETED", "ADDED")
    assert gone["object"]["metadata"]["labels"] == {"watch": "moves"}
    assert int(version_of(gone["object"])) > int(version)


async def test_a_finished_pod_leaves_a_watch_of_unfinished_pods(sandbox: Sandbox) -> None:
    unfinished = f"{sandbox.pods}?fieldSelector=status.phase!%3DSucceeded%2Cstatus.phase!%3DFailed"
    await sandbox.pod("ends")
    version = version_of(await sandbox.server.get(sandbox.pods))
    async with sandbox.server.watching(f"{unfinished}&resourceVersion={version}") as watch:
        await sandbox.server.patch(f"{sandbox.pods}/ends/status", {"status": {"phase": "Succeeded"}})
        event = await watch.event()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "ends")
        await sandbox.server.delete(f"{sandbox.pods}/ends")
        await sandbox.pod("begins")
        assert await watch.told(1) == [("ADDED", "begins")]


async def test_a_bound_pod_leaves_a_watch_of_unassigned_pods(sandbox: Sandbox) -> None:
    path = f"{chosen(sandbox, 'bound')}&fieldSelector=spec.nodeName%3D"
    async with sandbox.server.watching(path) as watch:
        await sandbox.pod("bound", {"watch": "bound"})
        await sandbox.server.post(f"{sandbox.pods}/bound/binding", a_binding("bound", sandbox.unique("n")))
        assert await watch.told(2) == [("ADDED", "bound"), ("DELETED", "bound")]


async def test_a_deletion_with_grace_is_three_watch_events(sandbox: Sandbox) -> None:
    path = chosen(sandbox, "grace")
    await sandbox.pod("grace", {"watch": "grace"})
    await sandbox.bind("grace", sandbox.unique("n"))
    version = version_of(await sandbox.server.get(path))
    async with sandbox.server.watching(f"{path}&resourceVersion={version}") as watch:
        await sandbox.server.delete(f"{sandbox.pods}/grace")
        await sandbox.server.delete(f"{sandbox.pods}/grace?gracePeriodSeconds=0")
        events = await watch.events(3)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert all(event["object"]["metadata"]["deletionTimestamp"] for event in events)
    assert [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events] == [30, 0, 0]


async def test_a_watch_ends_in_time_after_a_last_bookmark(sandbox: Sandbox) -> None:
    """Only with allowWatchBookmarks."""
    path = chosen(sandbox, "brief")
    version = version_of(await sandbox.server.get(path))
    brief = f"{path}&resourceVersion={version}&timeoutSeconds={BRIEF}"
    async with (
        sandbox.server.watching(f"{brief}&allowWatchBookmarks=true") as asked,
        sandbox.server.watching(brief) as unasked,
    ):
        elsewhere = version_of(await sandbox.pod("elsewhere"))
        told = await asked.rest()
        assert await unasked.rest() == []
    assert {event["type"] for event in told} == {"BOOKMARK"}
    assert int(version_of(told[-1]["object"])) >= int(elsewhere)
    assert told[-1]["object"]["metadata"].get("annotations", {}) == {}


async def test_a_watch_from_a_compacted_version_is_expired(sandbox: Sandbox) -> None:
    """The error is in the stream, because the response has begun.

    It is the first version: a server that has compacted nothing yet still has all that happened since.
    """
    sandbox.server.forget()
    async with sandbox.server.watching(f"{sandbox.pods}?resourceVersion=1&timeoutSeconds={BRIEF}") as watch:
        event, *others = await watch.rest()
    if event["type"] == "ADDED" and sandbox.server.is_real:
        return
    assert (event["type"], others) == ("ERROR", [])
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_a_watch_from_an_invalid_version_is_refused(sandbox: Sandbox) -> None:
    answer = await sandbox.server.ask("GET", f"{sandbox.pods}?watch=1&resourceVersion=abc")
    assert answer.status >= 400, answer


async def test_watches_of_cluster_scoped_kinds(sandbox: Sandbox) -> None:
    version = version_of(await sandbox.server.get("/api/v1/nodes"))
    async with sandbox.server.watching(f"/api/v1/nodes?resourceVersion={version}") as watch:
        name = await sandbox.node("watched")
        await sandbox.server.delete(f"/api/v1/nodes/{name}")
        types = []
        while "DELETED" not in types:
            event = await watch.event()
            if event["object"]["metadata"]["name"] == name:
                types.append(event["type"])
    assert types[0] == "ADDED"
