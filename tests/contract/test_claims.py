"""Resource claims, as binders write them and the snapshot fences them: one version each, one reservation a pod."""

from typing import Any

import pytest

from tests.contract.sandbox import Sandbox
from tests.contract.server import STRATEGIC, Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

FINALIZER = "resource.kubernetes.io/delete-protection"
REQUEST = {"name": "r", "exactly": {"deviceClassName": "any"}}


def claims(sandbox: Sandbox) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{sandbox.name}/resourceclaims"


def allocation(device: str = "d0") -> Object:
    return {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": device}]}}


def user(name: str) -> Object:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


async def a_claim(sandbox: Sandbox, name: str, **metadata: Any) -> Object:
    body = {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": [REQUEST]}}}
    made = await sandbox.server.post(claims(sandbox), body)
    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    return made


async def allocated(sandbox: Sandbox, claim: Object, *names: str) -> Object:
    """The claim after the two writes of a binder."""
    path = f"{claims(sandbox)}/{claim['metadata']['name']}"
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = await sandbox.server.put(path, claim)
    claim["status"] = {"allocation": allocation(), "reservedFor": [user(name) for name in names]}
    return await sandbox.server.put(f"{path}/status", claim)


async def test_an_allocation_needs_the_version_that_was_read(sandbox: Sandbox) -> None:
    made = await a_claim(sandbox, "once")
    path = f"{claims(sandbox)}/once/status"
    late = {**made, "status": {"allocation": allocation("d1"), "reservedFor": [user("q")]}}
    done = await allocated(sandbox, made, "p")
    assert done["status"]["reservedFor"] == [user("p")]
    assert done["metadata"]["finalizers"] == [FINALIZER]
    refused = await sandbox.server.refused(409, "Conflict", "PUT", path, late)
    assert "the object has been modified" in refused["message"]


async def test_a_claim_can_be_reserved_for_a_pod_group(sandbox: Sandbox) -> None:
    claim = await a_claim(sandbox, "of-group")
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
    claim["status"] = {"allocation": allocation(), "reservedFor": [consumer]}
    path = f"{claims(sandbox)}/of-group"
    assert (await sandbox.server.put(f"{path}/status", claim))["status"]["reservedFor"] == [consumer]


async def test_a_status_write_changes_no_metadata(sandbox: Sandbox) -> None:
    made = await a_claim(sandbox, "plain")
    made["metadata"]["finalizers"] = [FINALIZER]
    made["status"] = {"reservedFor": []}
    written = await sandbox.server.put(f"{claims(sandbox)}/plain/status", made)
    assert "finalizers" not in written["metadata"]


async def test_an_annotation_gives_the_claim_another_version_once(sandbox: Sandbox) -> None:
    made = await a_claim(sandbox, "fenced")
    path = f"{claims(sandbox)}/fenced"
    mark = {"metadata": {"uid": made["metadata"]["uid"], "annotations": {"flotilla.io/fenced": "1"}}}
    touched = await sandbox.server.patch(path, mark, STRATEGIC)
    assert touched["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    again = await sandbox.server.patch(path, mark, STRATEGIC)
    assert again["metadata"]["resourceVersion"] == touched["metadata"]["resourceVersion"]
    late = {**made, "status": {"allocation": allocation()}}
    await sandbox.server.refused(409, "Conflict", "PUT", f"{path}/status", late)
    other = {"metadata": {"uid": "another", "annotations": {"flotilla.io/fenced": "2"}}}
    answer = await sandbox.server.ask("PATCH", path, other, STRATEGIC)
    assert answer.status in (409, 422)


async def test_a_claim_may_begin_with_a_finalizer_and_an_owner(sandbox: Sandbox) -> None:
    """As the claim for a pod's extended resources does."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    made = await a_claim(sandbox, "special", finalizers=[FINALIZER], ownerReferences=[owner], annotations=annotations)
    assert made["metadata"]["finalizers"] == [FINALIZER]
    await sandbox.server.refused(
        409, "AlreadyExists", "POST", claims(sandbox), {**made, "metadata": {"name": "special"}}
    )


async def test_a_reservation_needs_an_allocation(sandbox: Sandbox) -> None:
    made = await a_claim(sandbox, "bare")
    made["status"] = {"reservedFor": [user("p")]}
    await sandbox.server.refused(422, "Invalid", "PUT", f"{claims(sandbox)}/bare/status", made)


async def test_an_allocation_cannot_be_replaced_or_lost_while_it_is_reserved(sandbox: Sandbox) -> None:
    done = await allocated(sandbox, await a_claim(sandbox, "kept"), "p")
    path = f"{claims(sandbox)}/kept/status"
    later = {**done["status"]["allocation"], "allocationTimestamp": "2026-01-01T00:00:00Z"}
    for other in (allocation("d1"), later):
        changed = {**done, "status": {**done["status"], "allocation": other}}
        await sandbox.server.refused(422, "Invalid", "PUT", path, changed)
    await sandbox.server.refused(422, "Invalid", "PUT", path, {**done, "status": {"reservedFor": [user("p")]}})
    free = await sandbox.server.put(path, {**done, "status": {}})
    assert "allocation" not in free.get("status", {})


async def test_a_claim_in_use_stays_until_its_finalizer_is_gone(sandbox: Sandbox) -> None:
    done = await allocated(sandbox, await a_claim(sandbox, "leaving"), "p")
    path = f"{claims(sandbox)}/leaving"
    preconditions = {"uid": done["metadata"]["uid"], "resourceVersion": done["metadata"]["resourceVersion"]}
    stale = {"preconditions": {**preconditions, "resourceVersion": "1"}}
    assert (await sandbox.server.ask("DELETE", path, stale)).status == 409
    assert (await sandbox.server.ask("DELETE", path, {"preconditions": preconditions})).status == 200
    going = await sandbox.server.get(path)
    assert going["metadata"]["deletionTimestamp"]
    going["status"] = {}
    free = await sandbox.server.put(f"{path}/status", going)
    free["metadata"]["finalizers"] = []
    await sandbox.server.put(path, free)
    assert (await sandbox.server.ask("GET", path)).status == 404


async def test_a_pod_names_the_claim_for_its_extended_resources(sandbox: Sandbox) -> None:
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    made = await sandbox.pod("named", containers=[{"name": "c", "image": "app:1", "resources": resources}])
    named = {
        "resourceClaimName": "special",
        "requestMappings": [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}],
    }
    made["status"]["extendedResourceClaimStatus"] = named
    path = f"{sandbox.pods}/named/status"
    written = await sandbox.server.put(path, made)
    assert written["status"]["extendedResourceClaimStatus"] == named
    await sandbox.server.refused(409, "Conflict", "PUT", path, {**made, "status": {}})
