"""Which kinds there are, what is filled in of those that a scheduler reads, and what is refused of them."""

from typing import Any

import pytest

from tests.contract.place import NODES, Place, a_pod
from tests.contract.server import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEEDED = {
    "/api/v1": {
        "pods", "pods/binding", "pods/eviction", "pods/status", "nodes", "nodes/status", "namespaces", "services",
        "replicationcontrollers", "persistentvolumes", "persistentvolumeclaims", "events", "bindings",
    },
    "/apis/apps/v1": {"replicasets", "statefulsets"},
    "/apis/policy/v1": {"poddisruptionbudgets", "poddisruptionbudgets/status"},
    "/apis/storage.k8s.io/v1": {
        "storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments",
    },
    "/apis/scheduling.k8s.io/v1": {"priorityclasses"},
    "/apis/coordination.k8s.io/v1": {"leases"},
    "/apis/events.k8s.io/v1": {"events"},
}  # fmt: skip
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2"


@pytest.mark.parametrize("group", NEEDED)
async def test_what_a_scheduler_needs_is_served(place: Place, group: str) -> None:
    found = await place.server.get(group)
    assert (found["kind"], found["groupVersion"]) == (
        "APIResourceList",
        group.removeprefix("/apis/").removeprefix("/api/"),
    )
    by_name = {resource["name"]: resource for resource in found["resources"]}
    assert NEEDED[group] <= by_name.keys()
    for name in NEEDED[group] - {"bindings"}:
        if "/" not in name:
            assert {"get", "list", "watch", "patch"} <= set(by_name[name]["verbs"]), name
    assert (await place.server.get("/version"))["major"]


@pytest.mark.parametrize(
    "path", ["/apis/none.example.com/v1/things", "/api/v1/things", "/apis/apps/v1/things", "/none"]
)
async def test_what_is_not_served_is_not_found(place: Place, path: str) -> None:
    assert (await place.server.ask("GET", path)).status == 404


async def test_pod_groups_where_they_are_served(place: Place) -> None:
    folder = f"{GROUPS}/namespaces/{place.name}/podgroups"
    if (await place.server.ask("GET", GROUPS)).status == 404:
        assert (await place.server.ask("GET", folder)).status == 404
        return
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    made = await place.server.post(folder, group)
    assert made["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    status = {"conditions": [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}]}
    status["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    patched = await place.server.patch(f"{folder}/g/status", {"status": status})
    assert patched["status"]["conditions"][0]["type"] == "PodGroupScheduled"
    more = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    await place.server.refused(422, "Invalid", "PATCH", f"{folder}/g", more, "application/merge-patch+json")
    pod = await place.pod("grouped", schedulingGroup={"podGroupName": "g"})
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "g"}


async def test_who_nobody_knows_is_told_so(place: Place) -> None:
    answer = await place.server.ask_as_nobody(place.pods)
    assert answer.status == 401
    status = answer.body
    said = [status[key] for key in ("kind", "status", "reason", "code", "message")]
    assert said == ["Status", "Failure", "Unauthorized", 401, "Unauthorized"]


# Pods


async def test_a_pod_is_completed(place: Place) -> None:
    made = await place.pod("completed")
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    metadata, spec = made["metadata"], made["spec"]
    assert metadata["namespace"] == place.name
    assert place.is_of_generation(made, 1)
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert (spec["schedulerName"], spec["serviceAccountName"]) == ("default-scheduler", "default")
    assert (spec["terminationGracePeriodSeconds"], spec["restartPolicy"]) == (30, "Always")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert {(each["key"], each["effect"], each["tolerationSeconds"]) for each in spec["tolerations"]} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    }
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "BestEffort")
    assert "conditions" not in made["status"]


async def test_requests_come_from_limits(place: Place) -> None:
    resources = {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}
    made = await place.pod("limited", containers=[{"name": "c", "image": "i:1", "resources": resources}])
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "250m", "memory": "1Gi"}
    assert made["status"]["qosClass"] == "Burstable"


async def test_a_pod_has_the_priority_of_its_class(place: Place) -> None:
    await place.make(PRIORITIES, "high", value=1000, preemptionPolicy="Never")
    name = place.unique("high")
    made = await place.pod("prior", priorityClassName=name)
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
    missing = a_pod("unknown-class", priorityClassName=place.unique("none"))
    status = await place.server.refused(403, "Forbidden", "POST", place.pods, missing)
    assert f"no PriorityClass with name {place.unique('none')} was found" in status["message"]
    await place.server.refused(403, "Forbidden", "POST", place.pods, a_pod("forged", priority=5))


async def test_a_status_is_not_created(place: Place) -> None:
    pod = {**a_pod("fresh"), "status": {"phase": "Running", "nominatedNodeName": "n"}}
    made = await place.server.post(place.pods, pod)
    assert made["status"]["phase"] == "Pending"
    assert "nominatedNodeName" not in made["status"]


async def test_a_pod_may_be_made_for_a_node(place: Place) -> None:
    made = await place.pod("made-for", nodeName=place.unique("nobody"))
    assert made["spec"]["nodeName"] == place.unique("nobody")
    assert made["status"].get("conditions", []) == []


async def test_names_are_made_up(place: Place) -> None:
    pod = a_pod("")
    pod["metadata"] = {"generateName": "made-up-"}
    made = await place.server.post(place.pods, pod)
    assert made["metadata"]["name"].startswith("made-up-")
    assert len(made["metadata"]["name"]) == len("made-up-") + 5


def with_container(**fields: object) -> Object:
    return {"containers": [{"name": "c", "image": "i:1", **fields}]}


REFUSED: list[tuple[int, str, dict[str, Any]]] = [
    (422, "p", {"containers": []}),
    (422, "p", {"containers": [{"name": "c"}, {"name": "c"}]}),
    (422, "UPPER", {}),
    (422, "p", {"restartPolicy": "Perhaps"}),
    (422, "p", {"tolerations": [{"key": "a", "operator": "Like"}]}),
    (422, "p", {"nodeName": "n", "schedulingGates": [{"name": "example.com/a"}]}),
    (
        422,
        "p",
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
    ),
    (422, "p", with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
    (422, "p", with_container(resources={"requests": {"cpu": "-1"}})),
    (400, "p", with_container(resources={"requests": {"cpu": "much"}})),
    (400, "p", {"containers": {"name": "c"}}),
    (400, "p", {"priority": "high"}),
]


@pytest.mark.parametrize(("code", "name", "spec"), REFUSED, ids=lambda value: str(value)[:60])
async def test_pods_that_are_refused(place: Place, code: int, name: str, spec: dict[str, Any]) -> None:
    reason = {422: "Invalid", 400: "BadRequest"}[code]
    status = await place.server.refused(code, reason, "POST", place.pods, a_pod(name, **spec))
    if code == 422:
        assert status["details"]["kind"] == "Pod"
        assert all(cause["field"] and cause["reason"] for cause in status["details"]["causes"])


async def test_a_name_is_taken_once(place: Place) -> None:
    await place.pod("once")
    status = await place.server.refused(409, "AlreadyExists", "POST", place.pods, a_pod("once"))
    assert status["message"] == 'pods "once" already exists'
    missing = place.pods.replace(place.name, place.unique("none"))
    status = await place.server.refused(404, "NotFound", "POST", missing, a_pod("p"))
    assert status["message"] == f'namespaces "{place.unique("none")}" not found'
    assert (await place.server.get(missing))["items"] == []


# Nodes


async def test_a_node_keeps_the_status_it_was_made_with(place: Place) -> None:
    name = await place.node("kept", {"zone": "a"})
    node = await place.server.get(f"{NODES}/{name}")
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert node["metadata"]["labels"]["zone"] == "a"
    assert "taints" not in node["spec"]
    patched = await place.server.patch(f"{NODES}/{name}/status", {"status": {"allocatable": {"cpu": "3"}}})
    assert patched["status"]["allocatable"] == {"cpu": "3", "memory": "8Gi", "pods": "110"}
    patched = await place.server.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
    assert patched["spec"]["unschedulable"] is True


async def test_taints_that_are_refused(place: Place) -> None:
    name = await place.node("tainted")
    for wrong in ({"key": "", "effect": "NoSchedule"}, {"key": "a", "effect": "Perhaps"}, {"key": "a", "effect": ""}):
        body = {"spec": {"taints": [wrong]}}
        await place.server.refused(422, "Invalid", "PATCH", f"{NODES}/{name}", body, "application/merge-patch+json")
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    patched = await place.server.patch(f"{NODES}/{name}", {"spec": {"taints": [taint]}})
    assert patched["spec"]["taints"] == [taint]


async def test_a_spec_that_changes_is_counted_and_a_status_is_not(place: Place) -> None:
    folder = f"/apis/apps/v1/namespaces/{place.name}/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await place.server.post(folder, {"metadata": {"name": "counted"}, "spec": spec})
    assert made["metadata"]["generation"] == 1
    changed = await place.server.patch(f"{folder}/counted", {"spec": {"minReadySeconds": 5}})
    assert changed["metadata"]["generation"] == 2
    observed = {"status": {"replicas": 0, "observedGeneration": 2}}
    changed = await place.server.patch(f"{folder}/counted/status", observed)
    assert (changed["metadata"]["generation"], changed["status"]["observedGeneration"]) == (2, 2)
    changed = await place.server.patch(f"{folder}/counted", {"metadata": {"labels": {"x": "y"}}})
    assert changed["metadata"]["generation"] == 2
