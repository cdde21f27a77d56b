"""Kinds: which are served, their defaults, and what is refused."""

from typing import Any

import pytest

from shared.model.objects import ObjectKind, PodGroup, TopologyConstraint, object_from
from tests.contract.sandbox import NODES, Sandbox, a_pod
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
async def test_kinds_that_a_scheduler_reads_are_served(sandbox: Sandbox, group: str) -> None:
    found = await sandbox.server.get(group)
    assert (found["kind"], found["groupVersion"]) == (
        "APIResourceList",
        group.removeprefix("/apis/").removeprefix("/api/"),
    )
    by_name = {resource["name"]: resource for resource in found["resources"]}
    assert NEEDED[group] <= by_name.keys()
    for name in NEEDED[group] - {"bindings"}:
        if "/" not in name:
            assert {"get", "list", "watch", "patch"} <= set(by_name[name]["verbs"]), name
    assert (await sandbox.server.get("/version"))["major"]


@pytest.mark.parametrize(
    "path", ["/apis/none.example.com/v1/things", "/api/v1/things", "/apis/apps/v1/things", "/none"]
)
async def test_unknown_kinds_are_not_found(sandbox: Sandbox, path: str) -> None:
    assert (await sandbox.server.ask("GET", path)).status == 404


async def test_pod_groups_where_they_are_served(sandbox: Sandbox) -> None:
    folder = f"{GROUPS}/namespaces/{sandbox.name}/podgroups"
    if (await sandbox.server.ask("GET", GROUPS)).status == 404:
        assert (await sandbox.server.ask("GET", folder)).status == 404
        return
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    made = await sandbox.server.post(folder, group)
    assert made["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    status = {"conditions": [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}]}
    status["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    patched = await sandbox.server.patch(f"{folder}/g/status", {"status": status})
    assert patched["status"]["conditions"][0]["type"] == "PodGroupScheduled"
    more = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    await sandbox.server.refused(422, "Invalid", "PATCH", f"{folder}/g", more, "application/merge-patch+json")
    pod = await sandbox.pod("grouped", schedulingGroup={"podGroupName": "g"})
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "g"}


async def test_what_a_server_adds_to_a_pod_group(sandbox: Sandbox) -> None:
    """A priority that no class gave it says nothing about the pods of the group."""
    folder = f"{GROUPS}/namespaces/{sandbox.name}/podgroups"
    if (await sandbox.server.ask("GET", GROUPS)).status == 404:
        return
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    racks = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    plain = await sandbox.server.post(folder, {"metadata": {"name": "plain"}, "spec": policy | racks})
    if "priority" not in plain["spec"]:  # the gate WorkloadAwarePreemption is off
        return
    assert (plain["spec"]["priority"], plain["spec"]["disruptionMode"]) == (0, "Pod")
    assert "priorityClassName" not in plain["spec"]
    await sandbox.make(PRIORITIES, "groups", value=700)
    named = policy | {"priorityClassName": sandbox.unique("groups"), "disruptionMode": "PodGroup"}
    made = await sandbox.of_new_class(folder, {"metadata": {"name": "named"}, "spec": named})
    assert (made["spec"]["priority"], made["spec"]["disruptionMode"]) == (700, "PodGroup")
    group = object_from(ObjectKind.POD_GROUP, made)
    other = object_from(ObjectKind.POD_GROUP, plain)
    assert isinstance(group, PodGroup) and isinstance(other, PodGroup)
    assert (group.priority, group.is_evicted_whole) == (700, True)
    assert (other.priority, other.is_evicted_whole) == (None, False)
    if "schedulingConstraints" in plain["spec"]:  # the gate TopologyAwareWorkloadScheduling is on
        assert other.topology == (TopologyConstraint(key="example.com/rack"),)


async def test_an_unknown_token_is_unauthorized(sandbox: Sandbox) -> None:
    answer = await sandbox.server.ask_with_unknown_token(sandbox.pods)
    assert answer.status == 401
    status = answer.body
    said = [status[key] for key in ("kind", "status", "reason", "code", "message")]
    assert said == ["Status", "Failure", "Unauthorized", 401, "Unauthorized"]


# Pods


async def test_defaults_of_a_pod(sandbox: Sandbox) -> None:
    made = await sandbox.pod("completed")
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    metadata, spec = made["metadata"], made["spec"]
    assert metadata["namespace"] == sandbox.name
    assert sandbox.is_of_generation(made, 1)
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


async def test_requests_default_to_limits(sandbox: Sandbox) -> None:
    resources = {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}
    made = await sandbox.pod("limited", containers=[{"name": "c", "image": "i:1", "resources": resources}])
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "250m", "memory": "1Gi"}
    assert made["status"]["qosClass"] == "Burstable"


async def test_a_pod_has_the_priority_of_its_class(sandbox: Sandbox) -> None:
    await sandbox.make(PRIORITIES, "high", value=1000, preemptionPolicy="Never")
    name = sandbox.unique("high")
    made = await sandbox.pod("prior", priorityClassName=name)
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
    missing = a_pod("unknown-class", priorityClassName=sandbox.unique("none"))
    status = await sandbox.server.refused(403, "Forbidden", "POST", sandbox.pods, missing)
    assert f"no PriorityClass with name {sandbox.unique('none')} was found" in status["message"]
    await sandbox.server.refused(403, "Forbidden", "POST", sandbox.pods, a_pod("forged", priority=5))


async def test_the_status_of_a_new_pod_is_ignored(sandbox: Sandbox) -> None:
    pod = {**a_pod("fresh"), "status": {"phase": "Running", "nominatedNodeName": "n"}}
    made = await sandbox.server.post(sandbox.pods, pod)
    assert made["status"]["phase"] == "Pending"
    assert "nominatedNodeName" not in made["status"]


async def test_a_pod_can_be_created_for_a_node(sandbox: Sandbox) -> None:
    made = await sandbox.pod("made-for", nodeName=sandbox.unique("absent"))
    assert made["spec"]["nodeName"] == sandbox.unique("absent")
    assert made["status"].get("conditions", []) == []


async def test_names_are_generated(sandbox: Sandbox) -> None:
    pod = a_pod("")
    pod["metadata"] = {"generateName": "made-up-"}
    made = await sandbox.server.post(sandbox.pods, pod)
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
async def test_pods_that_are_refused(sandbox: Sandbox, code: int, name: str, spec: dict[str, Any]) -> None:
    reason = {422: "Invalid", 400: "BadRequest"}[code]
    status = await sandbox.server.refused(code, reason, "POST", sandbox.pods, a_pod(name, **spec))
    if code == 422:
        assert status["details"]["kind"] == "Pod"
        assert all(cause["field"] and cause["reason"] for cause in status["details"]["causes"])


async def test_names_are_unique(sandbox: Sandbox) -> None:
    await sandbox.pod("once")
    status = await sandbox.server.refused(409, "AlreadyExists", "POST", sandbox.pods, a_pod("once"))
    assert status["message"] == 'pods "once" already exists'
    missing = sandbox.pods.replace(sandbox.name, sandbox.unique("none"))
    status = await sandbox.server.refused(404, "NotFound", "POST", missing, a_pod("p"))
    assert status["message"] == f'namespaces "{sandbox.unique("none")}" not found'
    assert (await sandbox.server.get(missing))["items"] == []


# Nodes


async def test_a_node_keeps_its_initial_status(sandbox: Sandbox) -> None:
    name = await sandbox.node("kept", {"zone": "a"})
    node = await sandbox.server.get(f"{NODES}/{name}")
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert node["metadata"]["labels"]["zone"] == "a"
    assert "taints" not in node["spec"]
    patched = await sandbox.server.patch(f"{NODES}/{name}/status", {"status": {"allocatable": {"cpu": "3"}}})
    assert patched["status"]["allocatable"] == {"cpu": "3", "memory": "8Gi", "pods": "110"}
    patched = await sandbox.server.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
    assert patched["spec"]["unschedulable"] is True


async def test_taints_that_are_refused(sandbox: Sandbox) -> None:
    name = await sandbox.node("tainted")
    for wrong in ({"key": "", "effect": "NoSchedule"}, {"key": "a", "effect": "Perhaps"}, {"key": "a", "effect": ""}):
        body = {"spec": {"taints": [wrong]}}
        await sandbox.server.refused(422, "Invalid", "PATCH", f"{NODES}/{name}", body, "application/merge-patch+json")
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    patched = await sandbox.server.patch(f"{NODES}/{name}", {"spec": {"taints": [taint]}})
    assert patched["spec"]["taints"] == [taint]


async def test_only_changes_of_the_spec_change_the_generation(sandbox: Sandbox) -> None:
    folder = f"/apis/apps/v1/namespaces/{sandbox.name}/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await sandbox.server.post(folder, {"metadata": {"name": "counted"}, "spec": spec})
    assert made["metadata"]["generation"] == 1
    changed = await sandbox.server.patch(f"{folder}/counted", {"spec": {"minReadySeconds": 5}})
    assert changed["metadata"]["generation"] == 2
    observed = {"status": {"replicas": 0, "observedGeneration": 2}}
    changed = await sandbox.server.patch(f"{folder}/counted/status", observed)
    assert (changed["metadata"]["generation"], changed["status"]["observedGeneration"]) == (2, 2)
    changed = await sandbox.server.patch(f"{folder}/counted", {"metadata": {"labels": {"x": "y"}}})
    assert changed["metadata"]["generation"] == 2
