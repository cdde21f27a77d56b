"""Patches of a pod's status and spec: what they change, what they keep, and when they fail."""

import pytest

from tests.contract.sandbox import Sandbox, condition_of
from tests.contract.server import JSON, JSON_PATCH, MERGE, STRATEGIC, Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/0 nodes are available",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}


async def patch_status(sandbox: Sandbox, name: str, status: Object, **metadata: str) -> Object:
    body: Object = {"status": status}
    if metadata:
        body["metadata"] = metadata
    return await sandbox.server.patch(f"{sandbox.pods}/{name}/status", body, STRATEGIC)


async def test_conditions_are_merged_by_type(sandbox: Sandbox) -> None:
    await sandbox.pod("conditions")
    await patch_status(sandbox, "conditions", {"conditions": [UNSCHEDULABLE]})
    patched = await patch_status(sandbox, "conditions", {"conditions": [TARGET]})
    assert {condition["type"] for condition in patched["status"]["conditions"]} == {"PodScheduled", "DisruptionTarget"}
    changed = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "x"}
    patched = await patch_status(sandbox, "conditions", {"conditions": [changed]})
    kept = condition_of(patched, "PodScheduled")
    assert (kept["reason"], kept["lastTransitionTime"]) == ("SchedulerError", "2026-01-02T03:04:05Z")
    assert len(patched["status"]["conditions"]) == 2


async def test_conditions_have_an_observed_generation(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("generation")
    assert sandbox.is_of_generation(pod, 1)
    patched = await patch_status(sandbox, "generation", {"conditions": [{**UNSCHEDULABLE, "observedGeneration": 1}]})
    if sandbox.server.since(34):
        assert condition_of(patched, "PodScheduled")["observedGeneration"] == 1
    assert sandbox.is_of_generation(patched, 1)


async def test_a_nomination_is_written_and_removed(sandbox: Sandbox) -> None:
    await sandbox.pod("nominated")
    assert (await patch_status(sandbox, "nominated", {"nominatedNodeName": "n"}))["status"]["nominatedNodeName"] == "n"
    status = (await patch_status(sandbox, "nominated", {"nominatedNodeName": None}))["status"]
    assert "nominatedNodeName" not in status
    assert status["phase"] == "Pending"


async def test_a_binding_clears_the_nomination(sandbox: Sandbox) -> None:
    await sandbox.pod("arrives")
    await patch_status(sandbox, "arrives", {"nominatedNodeName": "n"})
    await sandbox.bind("arrives", "m")
    bound = await sandbox.server.get(f"{sandbox.pods}/arrives")
    assert bound["spec"]["nodeName"] == "m"
    assert not sandbox.server.since(35) or "nominatedNodeName" not in bound["status"]


async def test_a_patch_can_require_a_uid(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("meant")
    await patch_status(sandbox, "meant", {"nominatedNodeName": "n"}, uid=pod["metadata"]["uid"])
    other = {"metadata": {"uid": "another"}, "status": {"nominatedNodeName": "m"}}
    path = f"{sandbox.pods}/meant/status"
    status = await sandbox.server.refused(422, "Invalid", "PATCH", path, other, STRATEGIC)
    assert 'metadata.uid: Invalid value: "another": field is immutable' in status["message"]
    assert {cause["field"] for cause in status["details"]["causes"]} == {"metadata.uid"}
    assert (await sandbox.server.get(path))["status"]["nominatedNodeName"] == "n"


async def test_a_patch_can_require_a_version(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("version")
    version = pod["metadata"]["resourceVersion"]
    await patch_status(sandbox, "version", {"nominatedNodeName": "n"}, resourceVersion=version)
    stale = {"metadata": {"resourceVersion": version}, "status": {"nominatedNodeName": "m"}}
    path = f"{sandbox.pods}/version/status"
    status = await sandbox.server.refused(409, "Conflict", "PATCH", path, stale, STRATEGIC)
    assert "the object has been modified" in status["message"]


async def test_a_json_patch_tests_before_it_changes(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("tested")
    await patch_status(sandbox, "tested", {"nominatedNodeName": "n"})
    path = f"{sandbox.pods}/tested/status"
    remove = {"op": "remove", "path": "/status/nominatedNodeName"}

    def steps(uid: str, node: str) -> list[Object]:
        test = {"op": "test", "path": "/metadata/uid", "value": uid}
        return [test, {"op": "test", "path": "/status/nominatedNodeName", "value": node}, remove]

    uid = pod["metadata"]["uid"]
    for wrong in (steps("another", "n"), steps(uid, "m")):
        await sandbox.server.refused(422, "Invalid", "PATCH", path, wrong, JSON_PATCH)
    patched = await sandbox.server.patch(path, steps(uid, "n"), JSON_PATCH)
    assert "nominatedNodeName" not in patched["status"]
    for gone in (steps(uid, "n"), [remove]):
        await sandbox.server.refused(422, "Invalid", "PATCH", path, gone, JSON_PATCH)


async def test_patches_of_the_status_keep_the_spec_and_vice_versa(sandbox: Sandbox) -> None:
    await sandbox.pod("apart")
    both = {"spec": {"activeDeadlineSeconds": 5}, "status": {"nominatedNodeName": "n"}}
    patched = await sandbox.server.patch(f"{sandbox.pods}/apart/status", both, STRATEGIC)
    assert "activeDeadlineSeconds" not in patched["spec"]
    assert patched["status"]["nominatedNodeName"] == "n"
    both["status"] = {"nominatedNodeName": "m"}
    patched = await sandbox.server.patch(f"{sandbox.pods}/apart", both, STRATEGIC)
    assert patched["spec"]["activeDeadlineSeconds"] == 5
    assert patched["status"]["nominatedNodeName"] == "n"
    assert sandbox.is_of_generation(patched, 2)


async def test_a_patch_that_changes_nothing_writes_nothing(sandbox: Sandbox) -> None:
    await sandbox.pod("same", {"a": "b"})
    before = (await patch_status(sandbox, "same", {"conditions": [UNSCHEDULABLE]}))["metadata"]["resourceVersion"]
    again = await patch_status(sandbox, "same", {"conditions": [UNSCHEDULABLE]})
    assert again["metadata"]["resourceVersion"] == before
    again = await sandbox.server.patch(f"{sandbox.pods}/same", {"metadata": {"labels": {"a": "b"}}})
    assert again["metadata"]["resourceVersion"] == before


async def test_most_of_a_spec_is_immutable(sandbox: Sandbox) -> None:
    await sandbox.pod("fixed")
    path = f"{sandbox.pods}/fixed"
    for change in ({"nodeSelector": {"a": "b"}}, {"priority": 7}, {"schedulerName": "other"}, {"nodeName": "n"}):
        status = await sandbox.server.refused(422, "Invalid", "PATCH", path, {"spec": change}, MERGE)
        assert "pod updates may not change fields other than" in status["message"], change
    taint = {"key": "a", "operator": "Exists"}
    pod = await sandbox.server.get(path)
    tolerations = [*pod["spec"].get("tolerations", []), taint]
    patched = await sandbox.server.patch(path, {"spec": {"tolerations": tolerations}})
    assert sandbox.is_of_generation(patched, 2)


async def test_gates_can_be_removed_and_gated_pods_get_more_selectors(sandbox: Sandbox) -> None:
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    pod = await sandbox.pod("gated", schedulingGates=gates)
    gated = condition_of(pod, "PodScheduled")
    assert (gated["status"], gated["reason"]) == ("False", "SchedulingGated")
    path = f"{sandbox.pods}/gated"
    more = {"spec": {"schedulingGates": [*gates, {"name": "example.com/c"}]}}
    await sandbox.server.refused(422, "Invalid", "PATCH", path, more, MERGE)
    await sandbox.server.patch(path, {"spec": {"nodeSelector": {"a": "b"}}})
    patched = await sandbox.server.patch(path, {"spec": {"schedulingGates": gates[:1]}})
    assert patched["spec"]["schedulingGates"] == gates[:1]
    patched = await sandbox.server.patch(path, {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in patched["spec"]
    assert sandbox.is_of_generation(patched, 4)
    assert condition_of(patched, "PodScheduled")["reason"] == "SchedulingGated"
    await sandbox.server.refused(422, "Invalid", "PATCH", path, {"spec": {"nodeSelector": {"a": "c"}}}, MERGE)


async def test_malformed_patches_are_refused(sandbox: Sandbox) -> None:
    await sandbox.pod("unread")
    path = f"{sandbox.pods}/unread/status"
    assert (await sandbox.server.ask("PATCH", path, {}, JSON)).status == 415
    assert (await sandbox.server.ask("PATCH", path, b"{", MERGE)).status == 400
    assert (await sandbox.server.ask("PATCH", path, {"op": "test"}, JSON_PATCH)).status == 400
    wrong = {"status": {"conditions": {"type": "PodScheduled"}}}
    answer = await sandbox.server.ask("PATCH", path, wrong, STRATEGIC)
    assert answer.status in (400, 422, 500), answer
    await sandbox.server.refused(404, "NotFound", "PATCH", f"{sandbox.pods}/missing/status", {}, STRATEGIC)
