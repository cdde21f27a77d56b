"""Events as events.k8s.io/v1 has them: created, made a series, seen by those who read the older form, refused."""

from typing import Any

import pytest

from tests.contract.place import Place
from tests.contract.server import MERGE, STRATEGIC, Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT = "2026-01-02T03:04:05.000006Z"
LATER = "2026-01-02T03:05:05.000006Z"


def event(place: Place, name: str, **fields: Any) -> Object:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": place.name, "name": "p", "uid": "u"}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": AT,
        "reportingController": "flotilla",
        "reportingInstance": "flotilla-0",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": about,
        "note": "it is so",
        "type": "Normal",
        **fields,
    }


async def test_an_event_is_created(place: Place) -> None:
    related = {"apiVersion": "v1", "kind": "Pod", "namespace": place.name, "name": "q", "uid": "v"}
    made = await place.server.post(place.events, event(place, "created", related=related))
    for field, value in event(place, "created", related=related).items():
        assert field == "metadata" or made[field] == value
    await place.server.refused(409, "AlreadyExists", "POST", place.events, event(place, "created"))


async def test_the_older_form_says_the_same(place: Place) -> None:
    await place.server.post(place.events, event(place, "older"))
    older = await place.server.get(f"/api/v1/namespaces/{place.name}/events/older")
    assert (older["message"], older["involvedObject"]["name"]) == ("it is so", "p")
    assert (older["reportingComponent"], older["reportingInstance"]) == ("flotilla", "flotilla-0")
    chosen = await place.server.get(
        f"/api/v1/namespaces/{place.name}/events?fieldSelector=involvedObject.name%3Dp%2Creason%3DScheduled"
    )
    assert "older" in [item["metadata"]["name"] for item in chosen["items"]]
    assert (await place.server.get(f"{place.events}?fieldSelector=regarding.name%3Dnobody"))["items"] == []


@pytest.mark.parametrize("media", [STRATEGIC, MERGE])
async def test_an_event_becomes_a_series(place: Place, media: str) -> None:
    name = f"series-{media.partition('-')[0].partition('/')[2]}"
    await place.server.post(place.events, event(place, name))
    for count in (2, 3):
        series = {"series": {"count": count, "lastObservedTime": LATER}}
        patched = await place.server.patch(f"{place.events}/{name}", series, media)
        assert patched["series"] == {"count": count, "lastObservedTime": LATER}
        assert (patched["eventTime"], patched["note"]) == (AT, "it is so")


async def test_an_event_that_is_gone_cannot_become_a_series(place: Place) -> None:
    series = {"series": {"count": 2, "lastObservedTime": LATER}}
    await place.server.refused(404, "NotFound", "PATCH", f"{place.events}/missing", series, STRATEGIC)


async def test_nothing_but_the_series_changes(place: Place) -> None:
    await place.server.post(place.events, event(place, "fixed"))
    for change in ({"reason": "Other"}, {"action": "Other"}, {"note": "other"}, {"type": "Warning"}):
        await place.server.refused(422, "Invalid", "PATCH", f"{place.events}/fixed", change, MERGE)


REFUSED: list[tuple[int, dict[str, Any]]] = [
    (422, {"note": "x" * 1025}),
    (422, {"note": "\u00e9" * 513}),
    (422, {"action": ""}),
    (422, {"action": "x" * 129}),
    (422, {"reason": ""}),
    (422, {"reason": "x" * 129}),
    (422, {"reportingController": ""}),
    (422, {"reportingController": "not a name"}),
    (422, {"reportingInstance": ""}),
    (422, {"reportingInstance": "x" * 129}),
    (422, {"type": "Dreadful"}),
    (422, {"eventTime": None}),
    (400, {"eventTime": "2026-01-02T03:04:05Z"}),
    (422, {"series": {"count": 1, "lastObservedTime": LATER}}),
    (422, {"series": {"count": 2}}),
    (422, {"deprecatedCount": 3}),
    (422, {"regarding": {"kind": "Node", "name": "n"}}),
]


@pytest.mark.parametrize(("code", "fields"), REFUSED, ids=lambda value: str(value)[:40])
async def test_events_that_are_refused(place: Place, code: int, fields: dict[str, Any]) -> None:
    reason = {422: "Invalid", 400: "BadRequest"}[code]
    await place.server.refused(code, reason, "POST", place.events, event(place, "refused", **fields))


ACCEPTED: list[dict[str, Any]] = [
    {"note": "x" * 1024},
    {"note": ""},
    {"reportingController": "example.com/flotilla"},
    {"reason": "x" * 128, "action": "x" * 128, "reportingInstance": "x" * 128},
    {"series": {"count": 2, "lastObservedTime": LATER}},
    {"regarding": {"kind": "Pod", "namespace": "elsewhere", "name": "p"}},
]


@pytest.mark.parametrize("fields", ACCEPTED, ids=lambda value: str(value)[:40])
async def test_events_that_are_accepted(place: Place, fields: dict[str, Any]) -> None:
    await place.server.post(f"{place.events}?dryRun=All", event(place, "accepted", **fields))
