"""Leases: whoever writes last has read what was there."""

import pytest

from tests.contract.place import Place
from tests.contract.server import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT = "2026-01-02T03:04:05.000006Z"


def lease(name: str, holder: str, **spec: object) -> Object:
    given = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": AT, "renewTime": AT}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {**given, "leaseTransitions": 1, **spec},
    }


async def test_a_lease_is_created_once(place: Place) -> None:
    made = await place.server.post(place.leases, lease("once", "a"))
    assert made["spec"] == lease("once", "a")["spec"]
    assert "generation" not in made["metadata"]
    status = await place.server.refused(409, "AlreadyExists", "POST", place.leases, lease("once", "b"))
    assert status["message"] == 'leases.coordination.k8s.io "once" already exists'
    assert status["details"] == {"name": "once", "group": "coordination.k8s.io", "kind": "leases"}


async def test_a_lease_is_written_by_who_has_read_it(place: Place) -> None:
    read = await place.server.post(place.leases, lease("read", "a"))
    first = {**read, "spec": {**read["spec"], "holderIdentity": "b", "leaseTransitions": 2}}
    written = await place.server.put(f"{place.leases}/read", first)
    assert written["spec"]["holderIdentity"] == "b"
    assert int(written["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    second = {**read, "spec": {**read["spec"], "holderIdentity": "c"}}
    status = await place.server.refused(409, "Conflict", "PUT", f"{place.leases}/read", second)
    assert status["message"] == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "read": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert (await place.server.get(f"{place.leases}/read"))["spec"]["holderIdentity"] == "b"


async def test_a_lease_is_released_by_who_holds_it(place: Place) -> None:
    read = await place.server.post(place.leases, lease("released", "a"))
    read["spec"] = {**read["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
    written = await place.server.put(f"{place.leases}/released", read)
    assert written["spec"].get("holderIdentity", "") == ""
    assert written["spec"]["leaseTransitions"] == 1


async def test_without_a_version_nothing_is_overwritten(place: Place) -> None:
    await place.server.post(place.leases, lease("blind", "a"))
    status = await place.server.refused(422, "Invalid", "PUT", f"{place.leases}/blind", lease("blind", "b"))
    assert "metadata.resourceVersion" in status["message"]


async def test_a_lease_that_is_gone_cannot_be_renewed(place: Place) -> None:
    read = await place.server.post(place.leases, lease("gone", "a"))
    await place.server.delete(f"{place.leases}/gone")
    answer = await place.server.ask("PUT", f"{place.leases}/gone", read)
    assert answer.status in (404, 409), answer


async def test_who_has_read_another_of_this_name_cannot_write(place: Place) -> None:
    read = await place.server.post(place.leases, lease("anew", "a"))
    await place.server.delete(f"{place.leases}/anew")
    await place.server.post(place.leases, lease("anew", "b"))
    await place.server.refused(409, "Conflict", "PUT", f"{place.leases}/anew", read)


async def test_leases_that_make_no_sense(place: Place) -> None:
    wrong: list[tuple[int, Object]] = [
        (422, {"leaseDurationSeconds": 0}),
        (422, {"leaseTransitions": -1}),
        (400, {"renewTime": "2026-01-02T03:04:05Z"}),
        (400, {"acquireTime": "yesterday"}),
        (400, {"leaseTransitions": "1"}),
    ]
    for code, spec in wrong:
        reason = {422: "Invalid", 400: "BadRequest"}[code]
        await place.server.refused(code, reason, "POST", place.leases, lease("senseless", "a", **spec))
