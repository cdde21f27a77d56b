"""Patches of a pod's status and of its spec: what they change, what they leave, and when they fail."""

import pytest

from tests.contract.place import Place, condition_of
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


async def patch_status(place: Place, name: str, status: Object, **metadata: str) -> Object:
    body: Object = {"status": status}
    if metadata:
        body["metadata"] = metadata
    return await place.server.patch(f"{place.pods}/{name}/status", body, STRATEGIC)


async def test_conditions_are_merged_by_type(place: Place) -> None:
    await place.pod("conditions")
    await patch_status(place, "conditions", {"conditions": [UNSCHEDULABLE]})
    patched = await patch_status(place, "conditions", {"conditions": [TARGET]})
    assert {condition["type"] for condition in patched["status"]["conditions"]} == {"PodScheduled", "DisruptionTarget"}
    changed = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "x"}
    patched = await patch_status(place, "conditions", {"conditions": [changed]})
    kept = condition_of(patched, "PodScheduled")
    assert (kept["reason"], kept["lastTransitionTime"]) == ("SchedulerError", "2026-01-02T03:04:05Z")
    assert len(patched["status"]["conditions"]) == 2


async def test_a_condition_says_of_which_generation_it_is(place: Place) -> None:
    pod = await place.pod("generation")
    assert place.is_of_generation(pod, 1)
    patched = await patch_status(place, "generation", {"conditions": [{**UNSCHEDULABLE, "observedGeneration": 1}]})
    if place.server.since(34):
        assert condition_of(patched, "PodScheduled")["observedGeneration"] == 1
    assert place.is_of_generation(patched, 1)


async def test_a_nomination_is_written_and_taken_back(place: Place) -> None:
    await place.pod("nominated")
    assert (await patch_status(place, "nominated", {"nominatedNodeName": "n"}))["status"]["nominatedNodeName"] == "n"
    status = (await patch_status(place, "nominated", {"nominatedNodeName": None}))["status"]
    assert "nominatedNodeName" not in status
    assert status["phase"] == "Pending"


async def test_a_binding_takes_the_nomination_back(place: Place) -> None:
    await place.pod("arrives")
    await patch_status(place, "arrives", {"nominatedNodeName": "n"})
    await place.bind("arrives", "m")
    bound = await place.server.get(f"{place.pods}/arrives")
    assert bound["spec"]["nodeName"] == "m"
    assert not place.server.since(35) or "nominatedNodeName" not in bound["status"]


async def test_a_patch_may_say_which_pod_it_means(place: Place) -> None:
    pod = await place.pod("meant")
    await patch_status(place, "meant", {"nominatedNodeName": "n"}, uid=pod["metadata"]["uid"])
    other = {"metadata": {"uid": "another"}, "status": {"nominatedNodeName": "m"}}
    path = f"{place.pods}/meant/status"
    status = await place.server.refused(422, "Invalid", "PATCH", path, other, STRATEGIC)
    assert 'metadata.uid: Invalid value: "another": field is immutable' in status["message"]
    assert {cause["field"] for cause in status["details"]["causes"]} == {"metadata.uid"}
    assert (await place.server.get(path))["status"]["nominatedNodeName"] == "n"


async def test_a_patch_may_say_which_version_it_means(place: Place) -> None:
    pod = await place.pod("version")
    version = pod["metadata"]["resourceVersion"]
    await patch_status(place, "version", {"nominatedNodeName": "n"}, resourceVersion=version)
    stale = {"metadata": {"resourceVersion": version}, "status": {"nominatedNodeName": "m"}}
    path = f"{place.pods}/version/status"
    status = await place.server.refused(409, "Conflict", "PATCH", path, stale, STRATEGIC)
    assert "the object has been modified" in status["message"]


async def test_a_json_patch_tests_before_it_changes(place: Place) -> None:
    pod = await place.pod("tested")
    await patch_status(place, "tested", {"nominatedNodeName": "n"})
    path = f"{place.pods}/tested/status"
    remove = {"op": "remove", "path": "/status/nominatedNodeName"}

    def steps(uid: str, node: str) -> list[Object]:
        test = {"op": "test", "path": "/metadata/uid", "value": uid}
        return [test, {"op": "test", "path": "/status/nominatedNodeName", "value": node}, remove]

    uid = pod["metadata"]["uid"]
    for wrong in (steps("another", "n"), steps(uid, "m")):
        await place.server.refused(422, "Invalid", "PATCH", path, wrong, JSON_PATCH)
    patched = await place.server.patch(path, steps(uid, "n"), JSON_PATCH)
    assert "nominatedNodeName" not in patched["status"]
    for gone in (steps(uid, "n"), [remove]):
        await place.server.refused(422, "Invalid", "PATCH", path, gone, JSON_PATCH)


async def test_a_patch_of_the_status_leaves_the_spec_and_the_other_way_round(place: Place) -> None:
    await place.pod("apart")
    both = {"spec": {"activeDeadlineSeconds": 5}, "status": {"nominatedNodeName": "n"}}
    patched = await place.server.patch(f"{place.pods}/apart/status", both, STRATEGIC)
    assert "activeDeadlineSeconds" not in patched["spec"]
    assert patched["status"]["nominatedNodeName"] == "n"
    both["status"] = {"nominatedNodeName": "m"}
    patched = await place.server.patch(f"{place.pods}/apart", both, STRATEGIC)
    assert patched["spec"]["activeDeadlineSeconds"] == 5
    assert patched["status"]["nominatedNodeName"] == "n"
    assert place.is_of_generation(patched, 2)


async def test_a_patch_that_changes_nothing_writes_nothing(place: Place) -> None:
    await place.pod("same", {"a": "b"})
    before = (await patch_status(place, "same", {"conditions": [UNSCHEDULABLE]}))["metadata"]["resourceVersion"]
    again = await patch_status(place, "same", {"conditions": [UNSCHEDULABLE]})
    assert again["metadata"]["resourceVersion"] == before
    again = await place.server.patch(f"{place.pods}/same", {"metadata": {"labels": {"a": "b"}}})
    assert again["metadata"]["resourceVersion"] == before


async def test_most_of_a_spec_is_fixed(place: Place) -> None:
    await place.pod("fixed")
    path = f"{place.pods}/fixed"
    for change in ({"nodeSelector": {"a": "b"}}, {"priority": 7}, {"schedulerName": "other"}, {"nodeName": "n"}):
        status = await place.server.refused(422, "Invalid", "PATCH", path, {"spec": change}, MERGE)
        assert "pod updates may not change fields other than" in status["message"], change
    taint = {"key": "a", "operator": "Exists"}
    pod = await place.server.get(path)
    tolerations = [*pod["spec"].get("tolerations", []), taint]
    patched = await place.server.patch(path, {"spec": {"tolerations": tolerations}})
    assert place.is_of_generation(patched, 2)


async def test_gates_are_taken_away_and_a_gated_pod_is_narrowed(place: Place) -> None:
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    pod = await place.pod("gated", schedulingGates=gates)
    gated = condition_of(pod, "PodScheduled")
    assert (gated["status"], gated["reason"]) == ("False", "SchedulingGated")
    path = f"{place.pods}/gated"
    more = {"spec": {"schedulingGates": [*gates, {"name": "example.com/c"}]}}
    await place.server.refused(422, "Invalid", "PATCH", path, more, MERGE)
    await place.server.patch(path, {"spec": {"nodeSelector": {"a": "b"}}})
    patched = await place.server.patch(path, {"spec": {"schedulingGates": gates[:1]}})
    assert patched["spec"]["schedulingGates"] == gates[:1]
    patched = await place.server.patch(path, {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in patched["spec"]
    assert place.is_of_generation(patched, 4)
    assert condition_of(patched, "PodScheduled")["reason"] == "SchedulingGated"
    await place.server.refused(422, "Invalid", "PATCH", path, {"spec": {"nodeSelector": {"a": "c"}}}, MERGE)


async def test_patches_that_cannot_be_read(place: Place) -> None:
    await place.pod("unread")
    path = f"{place.pods}/unread/status"
    assert (await place.server.ask("PATCH", path, {}, JSON)).status == 415
    assert (await place.server.ask("PATCH", path, b"{", MERGE)).status == 400
    assert (await place.server.ask("PATCH", path, {"op": "test"}, JSON_PATCH)).status == 400
    wrong = {"status": {"conditions": {"type": "PodScheduled"}}}
    answer = await place.server.ask("PATCH", path, wrong, STRATEGIC)
    assert answer.status in (400, 422, 500), answer
    await place.server.refused(404, "NotFound", "PATCH", f"{place.pods}/missing/status", {}, STRATEGIC)
