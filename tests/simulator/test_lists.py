"""Lists: selectors, pages, versions."""

from typing import Any

import pytest

from testing.simulator.lists import HELD_LIST_TTL
from tests.simulator.support import NODES, PODS, Desk, binding, node, pod


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("app=web", "a b"),
        ("app==web,tier!=front", "b"),
        ("app in (web,db)", "a b c"),
        ("app notin (web)", "c d"),
        ("tier", "a c"),
        ("!tier", "b d"),
        ("tier,app in (db)", "c"),
        ("app!=web", "c d"),
        ("size>2", "c"),
        ("size<5", "a"),
        ("", "a b c d"),
    ],
)
def test_label_selectors(selector: str, chosen: str) -> None:
    desk = Desk()
    desk.post(PODS, pod("a", labels={"app": "web", "tier": "front", "size": "1"}))
    desk.post(PODS, pod("b", labels={"app": "web"}))
    desk.post(PODS, pod("c", labels={"app": "db", "tier": "back", "size": "5"}))
    desk.post(PODS, pod("d"))
    query = selector.replace("=", "%3D").replace(" ", "+").replace(">", "%3E").replace("<", "%3C")
    assert " ".join(names(desk.get(f"{PODS}?labelSelector={query}"))) == chosen


@pytest.mark.parametrize("selector", ["a b", "a in b", "=", "a>b", "in (a)"])
def test_a_malformed_label_selector_is_rejected(selector: str) -> None:
    query = selector.replace("=", "%3D").replace(" ", "+").replace(">", "%3E")
    assert Desk().refused("GET", f"{PODS}?labelSelector={query}")["code"] == 400


def test_field_selectors() -> None:
    desk = Desk()
    for name in ("a", "b"):
        desk.post(PODS, pod(name))
    desk.post(PODS, pod("c", schedulerName="mine"))
    desk.post(f"{PODS}/b/binding", binding("b", "n"))
    desk.patch(f"{PODS}/b/status", {"status": {"phase": "Running"}})
    assert names(desk.get(f"{PODS}?fieldSelector=spec.nodeName%3Dn")) == ["b"]
    assert names(desk.get(f"{PODS}?fieldSelector=spec.nodeName=")) == ["a", "c"]
    assert names(desk.get(f"{PODS}?fieldSelector=status.phase!=Running,spec.schedulerName==default-scheduler")) == ["a"]
    assert names(desk.get(f"{PODS}?fieldSelector=metadata.name=c")) == ["c"]
    assert names(desk.get("/api/v1/pods?fieldSelector=metadata.namespace=kube-system")) == []
    desk.post(NODES, node("n", unschedulable=True))
    desk.post(NODES, node("m"))
    assert names(desk.get(f"{NODES}?fieldSelector=spec.unschedulable=false")) == ["m"]


def test_an_unknown_field_selector_is_rejected() -> None:
    refusal = Desk().refused("GET", f"{PODS}?fieldSelector=spec.color%3Dred")
    assert (refusal["code"], refusal["reason"]) == (400, "BadRequest")
    assert refusal["message"].endswith("field label not supported: spec.color")


def test_lists_are_sorted_and_carry_a_resource_version() -> None:
    desk = Desk()
    for name in ("b", "c", "a"):
        last = desk.post(PODS, pod(name))
    listed = desk.get(PODS)
    assert (listed["kind"], listed["apiVersion"], names(listed)) == ("PodList", "v1", ["a", "b", "c"])
    assert listed["metadata"] == {"resourceVersion": last["metadata"]["resourceVersion"]}


def test_all_pages_show_the_state_of_the_first() -> None:
    desk = Desk()
    for number in range(5):
        desk.post(PODS, pod(f"p{number}"))
    first = desk.get(f"{PODS}?limit=2")
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["p0", "p1"], 3)
    desk.delete(f"{PODS}/p2")
    desk.post(PODS, pod("p9"))
    token = first["metadata"]["continue"]
    second = desk.get(f"{PODS}?limit=2&continue={token}")
    assert names(second) == ["p2", "p3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert desk.get(f"{PODS}?limit=2&continue={token}") == second
    third = desk.get(f"{PODS}?limit=2&continue={second['metadata']['continue']}")
    assert (names(third), "continue" in third["metadata"]) == (["p4"], False)


def test_an_old_continue_token_is_expired() -> None:
    desk = Desk()
    for number in range(3):
        desk.post(PODS, pod(f"p{number}"))
    token = desk.get(f"{PODS}?limit=1")["metadata"]["continue"]
    desk.now += HELD_LIST_TTL
    refusal = desk.refused("GET", f"{PODS}?limit=1&continue={token}")
    assert (refusal["code"], refusal["reason"]) == (410, "Expired")
    assert desk.refused("GET", f"{PODS}?limit=1&continue=nonsense")["code"] == 400


def test_lists_at_a_resource_version() -> None:
    desk = Desk()
    desk.post(PODS, pod("a"))
    now = int(desk.get(PODS)["metadata"]["resourceVersion"])
    desk.post(PODS, pod("b"))
    assert names(desk.get(f"{PODS}?resourceVersion=0")) == ["a", "b"]
    assert names(desk.get(f"{PODS}?resourceVersion={now}&resourceVersionMatch=NotOlderThan")) == ["a", "b"]
    exactly = f"{PODS}?resourceVersion={now}&resourceVersionMatch=Exact"
    assert names(desk.get(exactly)) == ["a"]
    desk.cluster.store.compact()
    assert desk.refused("GET", exactly)["code"] == 410
    assert desk.refused("GET", f"{PODS}?resourceVersion={now + 99}")["code"] == 504
    assert desk.refused("GET", f"{PODS}?resourceVersion=x")["code"] == 400
    assert desk.refused("GET", f"{PODS}?limit=x")["code"] == 400
