"""Lists: their order, pages, versions and selectors, and what is refused."""

from urllib.parse import quote

import pytest

from tests.contract.sandbox import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOO_FAR = 10**15
"""A version in the future of any server."""


async def five(sandbox: Sandbox, name: str) -> str:
    """The path of a list of five pods, to be completed by a query."""
    for i in (3, 1, 4, 0, 2):
        await sandbox.pod(f"{name}-{i}", {"list": name})
    return f"{sandbox.pods}?labelSelector=list%3D{name}"


def names(listed: dict[str, object]) -> list[str]:
    items = listed["items"]
    assert isinstance(items, list)
    return [item["metadata"]["name"] for item in items]


async def test_lists_are_sorted_by_name(sandbox: Sandbox) -> None:
    path = await five(sandbox, "ordered")
    listed = await sandbox.server.get(path)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert names(listed) == [f"ordered-{i}" for i in range(5)]
    assert int(listed["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in listed["items"]
    )
    assert "continue" not in listed["metadata"]


async def test_items_of_a_list_have_no_kind(sandbox: Sandbox) -> None:
    await sandbox.pod("kindless")
    item = (await sandbox.server.get(f"{sandbox.pods}?fieldSelector=metadata.name%3Dkindless"))["items"][0]
    assert "kind" not in item
    assert "apiVersion" not in item


async def test_an_empty_list_has_items(sandbox: Sandbox) -> None:
    listed = await sandbox.server.get(f"{sandbox.pods}?labelSelector=list%3Dnone")
    assert listed["items"] == []


async def test_pages_show_the_state_of_the_first(sandbox: Sandbox) -> None:
    path = f"{await five(sandbox, 'paged')}&limit=2"
    first = await sandbox.server.get(path)
    assert names(first) == ["paged-0", "paged-1"]
    await sandbox.server.delete(f"{sandbox.pods}/paged-2")
    await sandbox.pod("paged-25", {"list": "paged"})
    second = await sandbox.server.get(f"{path}&continue={quote(first['metadata']['continue'])}")
    third = await sandbox.server.get(f"{path}&continue={quote(second['metadata']['continue'])}")
    assert names(second) == ["paged-2", "paged-3"]
    assert names(third) == ["paged-4"]
    assert "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1


async def test_lists_without_selectors_count_the_remaining_items(sandbox: Sandbox) -> None:
    for i in range(3):
        await sandbox.server.post(sandbox.configs, {"metadata": {"name": f"left-{i}"}})
    everything = names(await sandbox.server.get(sandbox.configs))
    listed = await sandbox.server.get(f"{sandbox.configs}?limit=1")
    assert listed["metadata"]["remainingItemCount"] == len(everything) - 1
    chosen = await sandbox.server.get(f"{await five(sandbox, 'left')}&limit=1")
    assert "remainingItemCount" not in chosen["metadata"]


async def test_a_list_of_any_version_has_no_pages(sandbox: Sandbox) -> None:
    """With resourceVersion=0 the server ignores the limit."""
    path = await five(sandbox, "any")
    await sandbox.until(lambda: shows(sandbox, f"{path}&resourceVersion=0", 5), "version 0 does not show what there is")
    listed = await sandbox.server.get(f"{path}&resourceVersion=0&limit=2")
    assert len(listed["items"]) == 5
    assert "continue" not in listed["metadata"]


async def shows(sandbox: Sandbox, path: str, count: int) -> bool:
    return len((await sandbox.server.get(path))["items"]) == count


async def test_a_list_not_older_than_a_version_has_its_write(sandbox: Sandbox) -> None:
    path = await five(sandbox, "recent")
    last = await sandbox.pod("recent-5", {"list": "recent"})
    version = last["metadata"]["resourceVersion"]
    for match in ("", "&resourceVersionMatch=NotOlderThan"):
        listed = await sandbox.server.get(f"{path}&resourceVersion={version}{match}")
        assert len(listed["items"]) == 6
        assert int(listed["metadata"]["resourceVersion"]) >= int(version)


async def test_a_list_of_exactly_a_version_shows_the_past(sandbox: Sandbox) -> None:
    path = await five(sandbox, "past")
    then = await sandbox.pod("past-5", {"list": "past"})
    version = then["metadata"]["resourceVersion"]
    await sandbox.server.delete(f"{sandbox.pods}/past-0")
    await sandbox.server.patch(f"{sandbox.pods}/past-1", {"metadata": {"labels": {"list": "other"}}})
    await sandbox.pod("past-6", {"list": "past"})
    asked = f"{path}&resourceVersion={version}&resourceVersionMatch=Exact"
    listed = await sandbox.server.get(asked)
    assert names(listed) == [f"past-{i}" for i in range(6)]
    assert listed["metadata"]["resourceVersion"] == version
    page = await sandbox.server.get(f"{asked}&limit=4")
    rest = await sandbox.server.get(f"{path}&limit=4&continue={quote(page['metadata']['continue'])}")
    assert names(page) + names(rest) == names(listed)


async def test_a_compacted_version_is_expired(sandbox: Sandbox) -> None:
    """The first version: a server that has compacted nothing yet still has it."""
    sandbox.server.forget()
    answer = await sandbox.server.ask("GET", f"{sandbox.pods}?resourceVersion=1&resourceVersionMatch=Exact")
    assert answer.status in (200, 410), answer
    if answer.status == 410:
        assert (answer.body["kind"], answer.body["reason"]) == ("Status", "Expired")


async def test_a_future_version_is_refused(sandbox: Sandbox) -> None:
    status = await sandbox.server.refused(504, "Timeout", "GET", f"{sandbox.pods}?resourceVersion={TOO_FAR}")
    assert f"Too large resource version: {TOO_FAR}" in status["message"]
    assert [cause["reason"] for cause in status["details"]["causes"]] == ["ResourceVersionTooLarge"]


async def test_invalid_versions_and_pages_are_refused(sandbox: Sandbox) -> None:
    server = sandbox.server
    await server.refused(400, "BadRequest", "GET", f"{sandbox.pods}?limit=1&continue=nonsense")
    await server.refused(422, "Invalid", "GET", f"{sandbox.pods}?resourceVersionMatch=Exact")
    await server.refused(422, "Invalid", "GET", f"{sandbox.pods}?resourceVersion=0&resourceVersionMatch=Exact")
    await server.refused(422, "Invalid", "GET", f"{sandbox.pods}?resourceVersion=1&resourceVersionMatch=Perhaps")
    answer = await server.ask("GET", f"{sandbox.pods}?resourceVersion=abc")
    assert 400 <= answer.status < 500
    await five(sandbox, "senseless")
    token = (await server.get(f"{sandbox.pods}?limit=1"))["metadata"]["continue"]
    both = f"{sandbox.pods}?limit=1&resourceVersion=5&continue={quote(token)}"
    assert (await server.ask("GET", both)).status in (400, 422)


async def test_field_selectors_of_pods(sandbox: Sandbox) -> None:
    await sandbox.pod("waits", {"chosen": "yes"})
    await sandbox.pod("placed", {"chosen": "yes"})
    await sandbox.bind("placed", sandbox.unique("n"))
    for name, phase in (("done", "Succeeded"), ("broken", "Failed")):
        await sandbox.pod(name, {"chosen": "yes"})
        await sandbox.server.patch(f"{sandbox.pods}/{name}/status", {"status": {"phase": phase}})
    expected = {
        "status.phase!=Succeeded,status.phase!=Failed": ["placed", "waits"],
        "status.phase=Failed": ["broken"],
        "spec.nodeName=": ["broken", "done", "waits"],
        f"spec.nodeName={sandbox.unique('n')}": ["placed"],
        "metadata.name=waits": ["waits"],
        f"metadata.namespace={sandbox.name},spec.schedulerName=default-scheduler,status.phase==Succeeded": ["done"],
    }
    for fields, wanted in expected.items():
        listed = await sandbox.server.get(f"{sandbox.pods}?labelSelector=chosen%3Dyes&fieldSelector={quote(fields)}")
        assert names(listed) == wanted, fields


async def test_label_selectors(sandbox: Sandbox) -> None:
    for name, labels in {"a": {"k": "1"}, "b": {"k": "2"}, "c": {"other": "1"}}.items():
        await sandbox.pod(f"labelled-{name}", {**labels, "set": "labels"})
    expected = {"k=1": "a", "k!=1": "bc", "k in (1,2)": "ab", "k notin (1)": "bc", "k": "ab", "!k": "c", "k>1": "b"}
    for selector, wanted in expected.items():
        listed = await sandbox.server.get(f"{sandbox.pods}?labelSelector={quote('set=labels,' + selector)}")
        assert names(listed) == [f"labelled-{each}" for each in wanted], selector


async def test_invalid_selectors_are_refused(sandbox: Sandbox) -> None:
    status = await sandbox.server.refused(400, "BadRequest", "GET", f"{sandbox.pods}?fieldSelector=spec.color%3Dred")
    assert "field label not supported: spec.color" in status["message"]
    await sandbox.server.refused(400, "BadRequest", "GET", f"{sandbox.pods}?fieldSelector=spec.nodeName")
    await sandbox.server.refused(400, "BadRequest", "GET", f"{sandbox.pods}?labelSelector=%3D%3D%3Dx")


async def test_a_compacted_page_is_expired(sandbox: Sandbox) -> None:
    """A real server may not have compacted it yet."""
    path = f"{await five(sandbox, 'forgotten')}&limit=2"
    token = (await sandbox.server.get(path))["metadata"]["continue"]
    sandbox.server.forget()
    answer = await sandbox.server.ask("GET", f"{path}&continue={quote(token)}")
    assert answer.status in (200, 410), answer
    if answer.status == 410:
        assert (answer.body["kind"], answer.body["reason"], answer.body["code"]) == ("Status", "Expired", 410)
