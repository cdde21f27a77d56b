"""Leases: a write must be based on the current version."""

import pytest

from tests.contract.sandbox import Sandbox
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


async def test_a_lease_is_created_once(sandbox: Sandbox) -> None:
    made = await sandbox.server.post(sandbox.leases, lease("once", "a"))
    assert made["spec"] == lease("once", "a")["spec"]
    assert "generation" not in made["metadata"]
    status = await sandbox.server.refused(409, "AlreadyExists", "POST", sandbox.leases, lease("once", "b"))
    assert status["message"] == 'leases.coordination.k8s.io "once" already exists'
    assert status["details"] == {"name": "once", "group": "coordination.k8s.io", "kind": "leases"}


async def test_a_lease_is_updated_with_the_version_that_was_read(sandbox: Sandbox) -> None:
    read = await sandbox.server.post(sandbox.leases, lease("read", "a"))
    first = {**read, "spec": {**read["spec"], "holderIdentity": "b", "leaseTransitions": 2}}
    written = await sandbox.server.put(f"{sandbox.leases}/read", first)
    assert written["spec"]["holderIdentity"] == "b"
    assert int(written["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    second = {**read, "spec": {**read["spec"], "holderIdentity": "c"}}
    status = await sandbox.server.refused(409, "Conflict", "PUT", f"{sandbox.leases}/read", second)
    assert status["message"] == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "read": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert (await sandbox.server.get(f"{sandbox.leases}/read"))["spec"]["holderIdentity"] == "b"


async def test_a_holder_releases_its_lease(sandbox: Sandbox) -> None:
    read = await sandbox.server.post(sandbox.leases, lease("released", "a"))
    read["spec"] = {**read["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
    written = await sandbox.server.put(f"{sandbox.leases}/released", read)
    assert written["spec"].get("holderIdentity", "") == ""
    assert written["spec"]["leaseTransitions"] == 1


async def test_an_update_without_a_version_is_refused(sandbox: Sandbox) -> None:
    await sandbox.server.post(sandbox.leases, lease("blind", "a"))
    status = await sandbox.server.refused(422, "Invalid", "PUT", f"{sandbox.leases}/blind", lease("blind", "b"))
    assert "metadata.resourceVersion" in status["message"]


async def test_a_deleted_lease_cannot_be_renewed(sandbox: Sandbox) -> None:
    read = await sandbox.server.post(sandbox.leases, lease("gone", "a"))
    await sandbox.server.delete(f"{sandbox.leases}/gone")
    answer = await sandbox.server.ask("PUT", f"{sandbox.leases}/gone", read)
    assert answer.status in (404, 409), answer


async def test_a_recreated_lease_cannot_be_updated_with_the_old_version(sandbox: Sandbox) -> None:
    read = await sandbox.server.post(sandbox.leases, lease("recreated", "a"))
    await sandbox.server.delete(f"{sandbox.leases}/recreated")
    await sandbox.server.post(sandbox.leases, lease("recreated", "b"))
    await sandbox.server.refused(409, "Conflict", "PUT", f"{sandbox.leases}/recreated", read)


async def test_invalid_leases_are_refused(sandbox: Sandbox) -> None:
    wrong: list[tuple[int, Object]] = [
        (422, {"leaseDurationSeconds": 0}),
        (422, {"leaseTransitions": -1}),
        (400, {"renewTime": "2026-01-02T03:04:05Z"}),
        (400, {"acquireTime": "yesterday"}),
        (400, {"leaseTransitions": "1"}),
    ]
    for code, spec in wrong:
        reason = {422: "Invalid", 400: "BadRequest"}[code]
        await sandbox.server.refused(code, reason, "POST", sandbox.leases, lease("senseless", "a", **spec))
