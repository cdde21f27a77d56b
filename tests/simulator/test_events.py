"""Events are the same objects in both APIs, and expire."""

from typing import Any

import pytest

from testing.simulator.cluster import EVENT_TTL
from tests.simulator.support import MERGE, Desk, events_of

OLD = "/api/v1/namespaces/default/events"
NEW = "/apis/events.k8s.io/v1/namespaces/default/events"


def event(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "note": "bound",
        "reason": "Scheduled",
        "type": "Normal",
        "action": "Binding",
        "reportingController": "flotilla",
        "reportingInstance": "flotilla-0",
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    }


def test_a_new_event_is_readable_as_v1() -> None:
    desk = Desk()
    created = desk.post(NEW, event("e"))
    assert (created["note"], created["apiVersion"]) == ("bound", "events.k8s.io/v1")
    old = desk.get(f"{OLD}/e")
    assert (old["message"], old["involvedObject"]["name"]) == ("bound", "p")
    assert (old["reportingComponent"], old["apiVersion"]) == ("flotilla", "v1")


def test_a_v1_event_is_readable_as_events_k8s_io() -> None:
    desk = Desk()
    source = {"component": "kubelet"}
    desk.post(
        OLD, {"metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "message": "m", "count": 2, "source": source}
    )
    new = desk.get(f"{NEW}/e")
    assert (new["note"], new["deprecatedCount"], new["deprecatedSource"]) == ("m", 2, source)
    assert [item["note"] for item in desk.get(NEW)["items"]] == ["m"]


def test_a_new_event_is_patched_in_its_own_version() -> None:
    desk = Desk()
    desk.post(NEW, event("e"))
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}
    patched = desk.patch(f"{NEW}/e", {"series": series}, MERGE)
    assert (patched["note"], patched["series"]) == ("bound", series)
    assert desk.get(f"{OLD}/e")["series"] == series


def test_events_are_selected_by_their_object() -> None:
    desk = Desk()
    desk.post(NEW, event("e"))
    assert len(desk.get(f"{OLD}?fieldSelector=involvedObject.name%3Dp,reason=Scheduled,type=Normal")["items"]) == 1
    assert len(desk.get(f"{OLD}?fieldSelector=involvedObject.name%3Dq")["items"]) == 0
    assert len(desk.get(f"{NEW}?fieldSelector=regarding.name%3Dp")["items"]) == 1


def test_watches_of_both_versions_see_an_event() -> None:
    desk = Desk()
    old, new = desk.watch(f"{OLD}?watch=1"), desk.watch(f"{NEW}?watch=1")
    desk.post(NEW, event("e"))
    assert [(e["type"], e["object"]["message"]) for e in events_of(old)] == [("ADDED", "bound")]
    assert [(e["type"], e["object"]["note"]) for e in events_of(new)] == [("ADDED", "bound")]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("eventTime", None, "eventTime"),
        ("reportingInstance", "", "reportingInstance"),
        ("reportingController", None, "reportingController"),
        ("action", "", "action"),
        ("reason", "r" * 129, "reason"),
        ("note", "n" * 1025, "message"),
        ("type", "Odd", "type"),
        ("deprecatedCount", 1, "deprecatedCount"),
        ("series", {"count": 2}, "series.lastObservedTime"),
    ],
)
def test_invalid_new_events_are_rejected(field: str, value: Any, complaint: str) -> None:
    refusal = Desk().refused("POST", NEW, {**event("e"), field: value})
    assert (refusal["code"], [cause["field"] for cause in refusal["details"]["causes"]]) == (422, [complaint])


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.001Z", 7, "now"])
def test_micro_times_have_six_digits(time: object) -> None:
    desk = Desk()
    assert desk.refused("POST", NEW, {**event("e"), "eventTime": time})["code"] == 400
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": time}}
    assert desk.refused("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)["code"] == 400


def test_a_lease_duration_must_be_positive() -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}}
    assert Desk().refused("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)["code"] == 422


def test_the_oldest_events_are_removed() -> None:
    desk = Desk(max_events=2)
    for name in ("a", "b", "c"):
        desk.post(NEW, event(name))
    assert [item["metadata"]["name"] for item in desk.get(OLD)["items"]] == ["b", "c"]
    desk.now += EVENT_TTL + 1
    desk.post(NEW, event("d"))
    assert [item["metadata"]["name"] for item in desk.get(OLD)["items"]] == ["d"]
