"""Whether a group was placed is written into its status, under the name of its API's version, and never taken back."""

from typing import Any

import pytest

from shared.messages.binding import GroupNotice, Notices
from tests.binder.world import World, until, world

pytestmark = pytest.mark.asyncio

GROUP = "scheduling.k8s.io"
KEY, UID = "default/g", "g-uid"
V1_36, V1_37 = ("v1", "v1alpha2"), ("v1", "v1beta1", "v1alpha3")


def store(w: World, *conditions: dict[str, Any]) -> None:
    body = {
        "metadata": {"name": "g", "namespace": "default", "uid": UID, "generation": 4},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": list(conditions)},
    }
    w.simulator.store_raw("podgroups", body, group=GROUP)


def conditions(w: World) -> list[dict[str, Any]]:
    status = w.simulator.stored("podgroups", "g", "default", group=GROUP).get("status") or {}
    return list(status.get("conditions") or ())


def tell(w: World, *notices: GroupNotice, epoch: int = 0) -> None:
    w.bus.post("binder.notices", Notices([], epoch, list(notices)))


def patches(w: World) -> float:
    return w.metric("rest_client_requests_total", method="PATCH", code="200")


@pytest.mark.parametrize(
    ("versions", "name"),
    [(V1_36, "PodGroupScheduled"), (V1_37, "PodGroupInitiallyScheduled")],
    ids=["v1.36", "v1.37"],
)
async def test_the_condition_has_the_name_of_the_version(versions: tuple[str, ...], name: str) -> None:
    async with world() as w:
        w.simulator.serve(GROUP, *versions)
        store(w)
        tell(w, GroupNotice(KEY, UID, "Unschedulable", "no room"))
        await until(lambda: bool(conditions(w)))
        (told,) = conditions(w)
        assert told.pop("lastTransitionTime")
        assert told == {
            "type": name,
            "status": "False",
            "reason": "Unschedulable",
            "message": "no room",
            "observedGeneration": 4,
        }
        tell(w, GroupNotice(KEY, UID, "Scheduled"))
        await until(lambda: conditions(w)[0]["status"] == "True")
        assert (conditions(w)[0]["reason"], conditions(w)[0]["message"]) == ("Scheduled", "")


async def test_a_composite_group_has_a_condition_of_its_own() -> None:
    async with world() as w:
        w.simulator.serve(GROUP, *V1_37)
        spec = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
        body = {"metadata": {"name": "g", "namespace": "default", "uid": UID, "generation": 4}, "spec": spec}
        w.simulator.store_raw("compositepodgroups", body, group=GROUP)
        store(w)
        tell(
            w, GroupNotice(KEY, UID, "Scheduled", composite=True), GroupNotice("default/h", "u", "Scheduled", "", True)
        )
        composite: list[dict[str, Any]] = []

        def is_told() -> bool:
            found = w.simulator.stored("compositepodgroups", "g", "default", group=GROUP)
            composite[:] = (found.get("status") or {}).get("conditions") or ()
            return bool(composite)

        await until(is_told)
        (told,) = composite
        assert (told["type"], told["status"]) == ("CompositePodGroupInitiallyScheduled", "True")
        assert conditions(w) == [], "the pod group of the same name"


async def test_nothing_is_written_that_is_shown_or_would_take_the_placement_back() -> None:
    async with world() as w:
        store(w, {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""})
        tell(w, GroupNotice(KEY, UID, "Unschedulable", "no room"), GroupNotice(KEY, UID, "Scheduled"))
        tell(
            w,
            GroupNotice("default/g", "another", "Unschedulable", "no room"),
            GroupNotice("default/h", "u", "Scheduled"),
        )
        await until(lambda: w.metric("rest_client_requests_total", method="GET", code="200") == 3)
        assert patches(w) == 0
        assert [each["status"] for each in conditions(w)] == ["True"]


async def test_a_queue_that_leads_no_more_writes_nothing() -> None:
    async with world() as w:
        store(w)
        tell(w, epoch=7)
        tell(w, GroupNotice(KEY, UID, "Unschedulable", "late"), epoch=6)
        tell(w, GroupNotice(KEY, UID, "Scheduled"), epoch=7)
        await until(lambda: bool(conditions(w)))
        assert [each["reason"] for each in conditions(w)] == ["Scheduled"]
        assert patches(w) == 1
