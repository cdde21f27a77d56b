"""Watches: where they begin, what they tell, and how they end."""

import pytest

from tests.contract.place import Place, a_binding
from tests.contract.server import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMING = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
BRIEF = 3
"""Seconds of a watch whose end is waited for."""


def version_of(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def chosen(place: Place, name: str) -> str:
    return f"{place.pods}?labelSelector=watch%3D{name}"


async def test_a_watch_goes_on_after_a_version(place: Place) -> None:
    path = chosen(place, "after")
    await place.pod("after-a", {"watch": "after"})
    version = version_of(await place.server.get(path))
    await place.pod("after-b", {"watch": "after"})
    await place.server.patch(f"{place.pods}/after-a", {"metadata": {"labels": {"x": "y"}}})
    await place.server.delete(f"{place.pods}/after-b")
    async with place.server.watching(f"{path}&resourceVersion={version}") as watch:
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


async def test_a_watch_from_any_version_begins_with_what_is_there(place: Place) -> None:
    path = chosen(place, "any")
    for name in ("any-b", "any-a"):
        await place.pod(name, {"watch": "any"})
    for version in ("", "&resourceVersion=0"):
        async with place.server.watching(f"{path}{version}") as watch:
            assert sorted(await watch.told(2)) == [("ADDED", "any-a"), ("ADDED", "any-b")]
            await place.server.patch(f"{place.pods}/any-a", {"metadata": {"labels": {"version": f"v{len(version)}"}}})
            assert await watch.told(1) == [("MODIFIED", "any-a")]


async def test_a_list_can_be_streamed(place: Place) -> None:
    """Of any server since v1.34; others refuse it."""
    if not place.server.since(34):
        return
    path = chosen(place, "stream")
    for name in ("stream-b", "stream-a"):
        await place.pod(name, {"watch": "stream"})
    newest = int(version_of(await place.server.get(path)))
    for version in ("", f"&resourceVersion={newest}"):
        async with place.server.watching(f"{path}&{STREAMING}{version}") as watch:
            assert sorted(await watch.told(2)) == [("ADDED", "stream-a"), ("ADDED", "stream-b")]
            end = await watch.event(bookmarks=True)
            assert end["type"] == "BOOKMARK"
            assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            assert (end["object"]["kind"], end["object"]["apiVersion"]) == ("Pod", "v1")
            assert int(version_of(end["object"])) >= newest
            name = f"stream-later-{len(version)}"
            await place.pod(name, {"watch": "stream"})
            assert await watch.told(1) == [("ADDED", name)]
        await place.server.delete(f"{place.pods}/{name}")


async def test_an_empty_list_can_be_streamed(place: Place) -> None:
    if not place.server.since(34):
        return
    async with place.server.watching(f"{chosen(place, 'nothing')}&{STREAMING}") as watch:
        end = await watch.event(bookmarks=True)
    assert (end["type"], end["object"]["metadata"]["annotations"]) == (
        "BOOKMARK",
        {"k8s.io/initial-events-end": "true"},
    )


async def test_what_does_not_go_with_streaming_is_refused(place: Place) -> None:
    if not place.server.since(34):
        return
    watch = f"{place.pods}?watch=1"
    for options in ("sendInitialEvents=true", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5"):
        status = await place.server.refused(422, "Invalid", "GET", f"{watch}&{options}")
        assert status["details"]["kind"] == "ListOptions"
    await place.server.refused(422, "Invalid", "GET", f"{watch}&resourceVersionMatch=NotOlderThan&resourceVersion=5")
    await place.server.refused(422, "Invalid", "GET", f"{place.pods}?{STREAMING}")


async def test_what_stops_to_be_chosen_is_deleted_and_what_starts_to_be_is_added(place: Place) -> None:
    path = chosen(place, "moves")
    await place.pod("moves", {"watch": "moves"})
    version = version_of(await place.server.get(path))
    async with place.server.watching(f"{path}&resourceVersion={version}") as watch:
        for label in ("elsewhere", "else", "moves"):
            await place.server.patch(f"{place.pods}/moves", {"metadata": {"labels": {"watch": label}}})
        gone, back = await watch.events(2)
    assert (gone["type"], back["type"]) == ("DELETED", "ADDED")
    assert gone["object"]["metadata"]["labels"] == {"watch": "moves"}
    assert int(version_of(gone["object"])) > int(version)


async def test_a_pod_that_ends_is_gone_for_those_who_watch_the_unfinished(place: Place) -> None:
    unfinished = f"{place.pods}?fieldSelector=status.phase!%3DSucceeded%2Cstatus.phase!%3DFailed"
    await place.pod("ends")
    version = version_of(await place.server.get(place.pods))
    async with place.server.watching(f"{unfinished}&resourceVersion={version}") as watch:
        await place.server.patch(f"{place.pods}/ends/status", {"status": {"phase": "Succeeded"}})
        event = await watch.event()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "ends")
        await place.server.delete(f"{place.pods}/ends")
        await place.pod("begins")
        assert await watch.told(1) == [("ADDED", "begins")]


async def test_a_watch_of_the_unassigned_sees_a_binding_as_their_end(place: Place) -> None:
    path = f"{chosen(place, 'bound')}&fieldSelector=spec.nodeName%3D"
    async with place.server.watching(path) as watch:
        await place.pod("bound", {"watch": "bound"})
        await place.server.post(f"{place.pods}/bound/binding", a_binding("bound", place.unique("n")))
        assert await watch.told(2) == [("ADDED", "bound"), ("DELETED", "bound")]


async def test_a_deletion_with_grace_is_told_in_three_steps(place: Place) -> None:
    path = chosen(place, "grace")
    await place.pod("grace", {"watch": "grace"})
    await place.bind("grace", place.unique("n"))
    version = version_of(await place.server.get(path))
    async with place.server.watching(f"{path}&resourceVersion={version}") as watch:
        await place.server.delete(f"{place.pods}/grace")
        await place.server.delete(f"{place.pods}/grace?gracePeriodSeconds=0")
        events = await watch.events(3)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert all(event["object"]["metadata"]["deletionTimestamp"] for event in events)
    assert [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events] == [30, 0, 0]


async def test_a_watch_ends_in_time_and_says_before_up_to_where_it_was(place: Place) -> None:
    """To those who asked for that."""
    path = chosen(place, "brief")
    version = version_of(await place.server.get(path))
    brief = f"{path}&resourceVersion={version}&timeoutSeconds={BRIEF}"
    async with (
        place.server.watching(f"{brief}&allowWatchBookmarks=true") as asked,
        place.server.watching(brief) as unasked,
    ):
        elsewhere = version_of(await place.pod("elsewhere"))
        told = await asked.rest()
        assert await unasked.rest() == []
    assert {event["type"] for event in told} == {"BOOKMARK"}
    assert int(version_of(told[-1]["object"])) >= int(elsewhere)
    assert told[-1]["object"]["metadata"].get("annotations", {}) == {}


async def test_a_watch_from_what_is_remembered_no_more_is_expired(place: Place) -> None:
    """Said in the stream, as the answer to a watch has begun by then."""
    place.server.forget()
    async with place.server.watching(f"{place.pods}?resourceVersion=1&timeoutSeconds={BRIEF}") as watch:
        (event,) = await watch.rest()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_a_watch_from_no_version_at_all_is_refused(place: Place) -> None:
    answer = await place.server.ask("GET", f"{place.pods}?watch=1&resourceVersion=abc")
    assert answer.status >= 400, answer


async def test_kinds_in_no_namespace_are_watched_alike(place: Place) -> None:
    version = version_of(await place.server.get("/api/v1/nodes"))
    async with place.server.watching(f"/api/v1/nodes?resourceVersion={version}") as watch:
        name = await place.node("watched")
        await place.server.delete(f"/api/v1/nodes/{name}")
        types = []
        while "DELETED" not in types:
            event = await watch.event()
            if event["object"]["metadata"]["name"] == name:
                types.append(event["type"])
    assert types[0] == "ADDED"
