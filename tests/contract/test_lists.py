"""Lists: their order, pages, versions and selectors, and what is refused."""

from urllib.parse import quote

import pytest

from tests.contract.place import Place

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOO_FAR = 10**15
"""A version that no server has yet."""


async def five(place: Place, name: str) -> str:
    """A list of five pods, but for what else is to be asked of it."""
    for i in (3, 1, 4, 0, 2):
        await place.pod(f"{name}-{i}", {"list": name})
    return f"{place.pods}?labelSelector=list%3D{name}"


def names(listed: dict[str, object]) -> list[str]:
    items = listed["items"]
    assert isinstance(items, list)
    return [item["metadata"]["name"] for item in items]


async def test_a_list_is_in_the_order_of_names(place: Place) -> None:
    path = await five(place, "ordered")
    listed = await place.server.get(path)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert names(listed) == [f"ordered-{i}" for i in range(5)]
    assert int(listed["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in listed["items"]
    )
    assert "continue" not in listed["metadata"]


async def test_items_of_a_list_do_not_say_of_what_kind_they_are(place: Place) -> None:
    await place.pod("kindless")
    item = (await place.server.get(f"{place.pods}?fieldSelector=metadata.name%3Dkindless"))["items"][0]
    assert "kind" not in item
    assert "apiVersion" not in item


async def test_an_empty_list_has_items(place: Place) -> None:
    listed = await place.server.get(f"{place.pods}?labelSelector=list%3Dnone")
    assert listed["items"] == []


async def test_pages_show_the_state_of_the_first(place: Place) -> None:
    path = f"{await five(place, 'paged')}&limit=2"
    first = await place.server.get(path)
    assert names(first) == ["paged-0", "paged-1"]
    await place.server.delete(f"{place.pods}/paged-2")
    await place.pod("paged-25", {"list": "paged"})
    second = await place.server.get(f"{path}&continue={quote(first['metadata']['continue'])}")
    third = await place.server.get(f"{path}&continue={quote(second['metadata']['continue'])}")
    assert names(second) == ["paged-2", "paged-3"]
    assert names(third) == ["paged-4"]
    assert "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1


async def test_how_many_are_left_is_said_where_nothing_is_selected(place: Place) -> None:
    for i in range(3):
        await place.server.post(place.configs, {"metadata": {"name": f"left-{i}"}})
    everything = names(await place.server.get(place.configs))
    listed = await place.server.get(f"{place.configs}?limit=1")
    assert listed["metadata"]["remainingItemCount"] == len(everything) - 1
    chosen = await place.server.get(f"{await five(place, 'left')}&limit=1")
    assert "remainingItemCount" not in chosen["metadata"]


async def test_a_list_of_any_version_is_whole(place: Place) -> None:
    """With resourceVersion=0 there are no pages: the server gives all it has at hand."""
    path = await five(place, "any")
    await place.until(lambda: shows(place, f"{path}&resourceVersion=0", 5), "version 0 does not show what there is")
    listed = await place.server.get(f"{path}&resourceVersion=0&limit=2")
    assert len(listed["items"]) == 5
    assert "continue" not in listed["metadata"]


async def shows(place: Place, path: str, count: int) -> bool:
    return len((await place.server.get(path))["items"]) == count


async def test_a_list_not_older_than_a_version_has_what_was_written_then(place: Place) -> None:
    path = await five(place, "recent")
    last = await place.pod("recent-5", {"list": "recent"})
    version = last["metadata"]["resourceVersion"]
    for match in ("", "&resourceVersionMatch=NotOlderThan"):
        listed = await place.server.get(f"{path}&resourceVersion={version}{match}")
        assert len(listed["items"]) == 6
        assert int(listed["metadata"]["resourceVersion"]) >= int(version)


async def test_a_list_of_exactly_a_version_shows_the_past(place: Place) -> None:
    path = await five(place, "past")
    then = await place.pod("past-5", {"list": "past"})
    version = then["metadata"]["resourceVersion"]
    await place.server.delete(f"{place.pods}/past-0")
    await place.server.patch(f"{place.pods}/past-1", {"metadata": {"labels": {"list": "other"}}})
    await place.pod("past-6", {"list": "past"})
    asked = f"{path}&resourceVersion={version}&resourceVersionMatch=Exact"
    listed = await place.server.get(asked)
    assert names(listed) == [f"past-{i}" for i in range(6)]
    assert listed["metadata"]["resourceVersion"] == version
    page = await place.server.get(f"{asked}&limit=4")
    rest = await place.server.get(f"{path}&limit=4&continue={quote(page['metadata']['continue'])}")
    assert names(page) + names(rest) == names(listed)


async def test_a_version_that_is_remembered_no_more_is_expired(place: Place) -> None:
    """The first one there ever was: a server that has compacted nothing yet still knows it."""
    place.server.forget()
    answer = await place.server.ask("GET", f"{place.pods}?resourceVersion=1&resourceVersionMatch=Exact")
    assert answer.status in (200, 410), answer
    if answer.status == 410:
        assert (answer.body["kind"], answer.body["reason"]) == ("Status", "Expired")


async def test_a_version_that_is_still_to_come_is_asked_for_in_vain(place: Place) -> None:
    status = await place.server.refused(504, "Timeout", "GET", f"{place.pods}?resourceVersion={TOO_FAR}")
    assert f"Too large resource version: {TOO_FAR}" in status["message"]
    assert [cause["reason"] for cause in status["details"]["causes"]] == ["ResourceVersionTooLarge"]


async def test_versions_and_pages_that_make_no_sense(place: Place) -> None:
    server = place.server
    await server.refused(400, "BadRequest", "GET", f"{place.pods}?limit=1&continue=nonsense")
    await server.refused(422, "Invalid", "GET", f"{place.pods}?resourceVersionMatch=Exact")
    await server.refused(422, "Invalid", "GET", f"{place.pods}?resourceVersion=0&resourceVersionMatch=Exact")
    await server.refused(422, "Invalid", "GET", f"{place.pods}?resourceVersion=1&resourceVersionMatch=Perhaps")
    answer = await server.ask("GET", f"{place.pods}?resourceVersion=abc")
    assert 400 <= answer.status < 500
    await five(place, "senseless")
    token = (await server.get(f"{place.pods}?limit=1"))["metadata"]["continue"]
    both = f"{place.pods}?limit=1&resourceVersion=5&continue={quote(token)}"
    assert (await server.ask("GET", both)).status in (400, 422)


async def test_pods_are_chosen_by_their_phase_and_node(place: Place) -> None:
    await place.pod("waits", {"chosen": "yes"})
    await place.pod("placed", {"chosen": "yes"})
    await place.bind("placed", place.unique("n"))
    for name, phase in (("done", "Succeeded"), ("broken", "Failed")):
        await place.pod(name, {"chosen": "yes"})
        await place.server.patch(f"{place.pods}/{name}/status", {"status": {"phase": phase}})
    expected = {
        "status.phase!=Succeeded,status.phase!=Failed": ["placed", "waits"],
        "status.phase=Failed": ["broken"],
        "spec.nodeName=": ["broken", "done", "waits"],
        f"spec.nodeName={place.unique('n')}": ["placed"],
        "metadata.name=waits": ["waits"],
        f"metadata.namespace={place.name},spec.schedulerName=default-scheduler,status.phase==Succeeded": ["done"],
    }
    for fields, wanted in expected.items():
        listed = await place.server.get(f"{place.pods}?labelSelector=chosen%3Dyes&fieldSelector={quote(fields)}")
        assert names(listed) == wanted, fields


async def test_labels_choose(place: Place) -> None:
    for name, labels in {"a": {"k": "1"}, "b": {"k": "2"}, "c": {"other": "1"}}.items():
        await place.pod(f"labelled-{name}", {**labels, "set": "labels"})
    expected = {"k=1": "a", "k!=1": "bc", "k in (1,2)": "ab", "k notin (1)": "bc", "k": "ab", "!k": "c", "k>1": "b"}
    for selector, wanted in expected.items():
        listed = await place.server.get(f"{place.pods}?labelSelector={quote('set=labels,' + selector)}")
        assert names(listed) == [f"labelled-{each}" for each in wanted], selector


async def test_selectors_that_make_no_sense(place: Place) -> None:
    status = await place.server.refused(400, "BadRequest", "GET", f"{place.pods}?fieldSelector=spec.color%3Dred")
    assert "field label not supported: spec.color" in status["message"]
    await place.server.refused(400, "BadRequest", "GET", f"{place.pods}?fieldSelector=spec.nodeName")
    await place.server.refused(400, "BadRequest", "GET", f"{place.pods}?labelSelector=%3D%3D%3Dx")


async def test_a_page_that_is_remembered_no_more_is_expired(place: Place) -> None:
    """A server that forgets when it likes may still have it."""
    path = f"{await five(place, 'forgotten')}&limit=2"
    token = (await place.server.get(path))["metadata"]["continue"]
    place.server.forget()
    answer = await place.server.ask("GET", f"{path}&continue={quote(token)}")
    assert answer.status in (200, 410), answer
    if answer.status == 410:
        assert (answer.body["kind"], answer.body["reason"], answer.body["code"]) == ("Status", "Expired", 410)
