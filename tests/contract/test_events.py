"""Events of events.k8s.io/v1: created, made a series, read as v1, refused."""

from typing import Any

import pytest

from tests.contract.sandbox import Sandbox
from tests.contract.server import MERGE, STRATEGIC, Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT = "2026-01-02T03:04:05.000006Z"
LATER = "2026-01-02T03:05:05.000006Z"


def event(sandbox: Sandbox, name: str, **fields: Any) -> Object:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": sandbox.name, "name": "p", "uid": "u"}
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


async def test_an_event_is_created(sandbox: Sandbox) -> None:
    related = {"apiVersion": "v1", "kind": "Pod", "namespace": sandbox.name, "name": "q", "uid": "v"}
    made = await sandbox.server.post(sandbox.events, event(sandbox, "created", related=related))
    for field, value in event(sandbox, "created", related=related).items():
        assert field == "metadata" or made[field] == value
    await sandbox.server.refused(409, "AlreadyExists", "POST", sandbox.events, event(sandbox, "created"))


async def test_an_event_is_readable_as_v1(sandbox: Sandbox) -> None:
    await sandbox.server.post(sandbox.events, event(sandbox, "older"))
    older = await sandbox.server.get(f"/api/v1/namespaces/{sandbox.name}/events/older")
    assert (older["message"], older["involvedObject"]["name"]) == ("it is so", "p")
    assert (older["reportingComponent"], older["reportingInstance"]) == ("flotilla", "flotilla-0")
    chosen = await sandbox.server.get(
        f"/api/v1/namespaces/{sandbox.name}/events?fieldSelector=involvedObject.name%3Dp%2Creason%3DScheduled"
    )
    assert "older" in [item["metadata"]["name"] for item in chosen["items"]]
    assert (await sandbox.server.get(f"{sandbox.events}?fieldSelector=regarding.name%3Dnobody"))["items"] == []


@pytest.mark.parametrize("media", [STRATEGIC, MERGE])
async def test_an_event_becomes_a_series(sandbox: Sandbox, media: str) -> None:
    name = f"series-{media.partition('-')[0].partition('/')[2]}"
    await sandbox.server.post(sandbox.events, event(sandbox, name))
    for count in (2, 3):
        series = {"series": {"count": count, "lastObservedTime": LATER}}
        patched = await sandbox.server.patch(f"{sandbox.events}/{name}", series, media)
        assert patched["series"] == {"count": count, "lastObservedTime": LATER}
        assert (patched["eventTime"], patched["note"]) == (AT, "it is so")


async def test_a_removed_event_cannot_become_a_series(sandbox: Sandbox) -> None:
    series = {"series": {"count": 2, "lastObservedTime": LATER}}
    await sandbox.server.refused(404, "NotFound", "PATCH", f"{sandbox.events}/missing", series, STRATEGIC)


async def test_only_the_series_can_change(sandbox: Sandbox) -> None:
    await sandbox.server.post(sandbox.events, event(sandbox, "fixed"))
    for change in ({"reason": "Other"}, {"action": "Other"}, {"note": "other"}, {"type": "Warning"}):
        await sandbox.server.refused(422, "Invalid", "PATCH", f"{sandbox.events}/fixed", change, MERGE)


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
async def test_events_that_are_refused(sandbox: Sandbox, code: int, fields: dict[str, Any]) -> None:
    reason = {422: "Invalid", 400: "BadRequest"}[code]
    await sandbox.server.refused(code, reason, "POST", sandbox.events, event(sandbox, "refused", **fields))


ACCEPTED: list[dict[str, Any]] = [
    {"note": "x" * 1024},
    {"note": ""},
    {"reportingController": "example.com/flotilla"},
    {"reason": "x" * 128, "action": "x" * 128, "reportingInstance": "x" * 128},
    {"series": {"count": 2, "lastObservedTime": LATER}},
    {"regarding": {"kind": "Pod", "namespace": "elsewhere", "name": "p"}},
]


@pytest.mark.parametrize("fields", ACCEPTED, ids=lambda value: str(value)[:40])
async def test_events_that_are_accepted(sandbox: Sandbox, fields: dict[str, Any]) -> None:
    await sandbox.server.post(f"{sandbox.events}?dryRun=All", event(sandbox, "accepted", **fields))
