"""Pod groups of both APIs, and workloads."""

from typing import Any

import pytest

from testing.simulator.requests import Response
from tests.simulator.support import MERGE, PODS, Desk, names_of, pod

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
WORKLOADS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def group(name: str = "g", **policy: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy or {"gang": {"minCount": 3}}}}


def test_groups_of_both_apis_are_stored_separately() -> None:
    desk = Desk()
    assert desk.post(GROUPS, group())["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    theirs = desk.post(COSCHEDULING, {"metadata": {"name": "g"}, "spec": {"minMember": 2}})
    assert (theirs["apiVersion"], theirs["kind"]) == ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    defaults = {"disruptionMode": "Pod", "priority": 0}
    assert desk.get(f"{GROUPS}/g")["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}} | defaults
    assert desk.get(f"{COSCHEDULING}/g")["spec"] == {"minMember": 2}
    desk.delete(f"{COSCHEDULING}/g")
    assert desk.get(COSCHEDULING)["items"] == []
    assert [item["metadata"]["name"] for item in desk.get(GROUPS)["items"]] == ["g"]


def test_the_status_of_a_group_is_a_subresource() -> None:
    desk = Desk()
    desk.post(GROUPS, group())
    watch = desk.watch(f"{GROUPS}?watch=1")
    conditions = [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}]
    patched = desk.patch(f"{GROUPS}/g/status", {"status": {"conditions": conditions}}, MERGE)
    assert (patched["status"]["conditions"], patched["metadata"]["generation"]) == (conditions, 1)
    assert names_of(watch) == [("ADDED", "g"), ("MODIFIED", "g")]
    assert desk.refused("PATCH", f"{GROUPS}/g", {"spec": {"priority": 3}}, MERGE)["code"] == 422


def test_the_spec_of_a_coscheduling_group_is_mutable() -> None:
    desk = Desk()
    desk.post(COSCHEDULING, {"metadata": {"name": "g"}, "spec": {"minMember": 2}})
    changed = desk.patch(f"{COSCHEDULING}/g", {"spec": {"minMember": 5, "scheduleTimeoutSeconds": 10}}, MERGE)
    assert changed["spec"] == {"minMember": 5, "scheduleTimeoutSeconds": 10}
    assert changed["metadata"]["generation"] == 2
    assert desk.refused("PATCH", f"{COSCHEDULING}/g", {"spec": {"minMember": 0}}, MERGE)["code"] == 422


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"none": {}}, "spec.schedulingPolicy"),
        ({"basic": {}, "gang": {"minCount": 1}}, "spec.schedulingPolicy"),
        ({"gang": {}}, "spec.schedulingPolicy.gang.minCount"),
        ({"gang": {"minCount": -1}}, "spec.schedulingPolicy.gang.minCount"),
    ],
)
def test_a_group_needs_exactly_one_valid_policy(policy: dict[str, Any], field: str) -> None:
    desk = Desk()
    refused = desk.refused("POST", GROUPS, group(**policy))
    assert (refused["code"], refused["details"]["causes"][0]["field"]) == (422, field)
    assert desk.post(GROUPS, group(basic={}))["spec"]["schedulingPolicy"] == {"basic": {}}


@pytest.mark.parametrize("policy", [[], "gang", {"gang": 3}, {"gang": {"minCount": "3"}}])
def test_a_malformed_policy_does_not_decode(policy: Any) -> None:
    spec = {"schedulingPolicy": policy}
    assert Desk().refused("POST", GROUPS, {"metadata": {"name": "g"}, "spec": spec})["code"] == 400


def test_a_workload_needs_templates() -> None:
    desk = Desk()
    template = {"name": "workers", **group()["spec"]}
    desk.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})
    assert desk.get(f"{WORKLOADS}/w")["spec"]["podGroupTemplates"] == [template]
    for templates in ([], [{"name": "x"}], [group()["spec"]], [template] * 9):
        refused = desk.refused("POST", WORKLOADS, {"metadata": {"name": "x"}, "spec": {"podGroupTemplates": templates}})
        assert refused["code"] == 422


def test_a_pods_scheduling_group_is_immutable() -> None:
    desk = Desk()
    desk.post(PODS, pod("p", schedulingGroup={"podGroupName": "g"}))
    assert desk.get(f"{PODS}/p")["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    other = {"spec": {"schedulingGroup": {"podGroupName": "h"}}}
    assert desk.refused("PATCH", f"{PODS}/p", other, MERGE)["code"] == 422
    assert desk.refused("POST", PODS, pod("q", schedulingGroup={}))["code"] == 422
    assert desk.refused("POST", PODS, pod("q", schedulingGroup="g"))["code"] == 400


def test_groups_are_discovered_and_shown_in_tables() -> None:
    desk = Desk()
    found = {resource["name"] for resource in desk.get("/apis/scheduling.k8s.io/v1alpha2")["resources"]}
    assert {"podgroups", "podgroups/status", "workloads"} == found
    assert desk.get("/apis/scheduling.k8s.io")["preferredVersion"]["version"] == "v1"
    theirs = {resource["name"]: resource for resource in desk.get("/apis/scheduling.x-k8s.io/v1alpha1")["resources"]}
    assert theirs["podgroups"]["shortNames"] == ["pg", "pgs"]
    desk.post(GROUPS, group())
    desk.post(COSCHEDULING, {"metadata": {"name": "g"}, "spec": {"minMember": 2}})
    assert cells(desk, GROUPS)["Policy"] == "gang"
    assert cells(desk, COSCHEDULING)["MinMember"] == 2


LATER = "/apis/scheduling.k8s.io/{}/namespaces/default/{}"


def later_desk() -> Desk:
    """As a server of Kubernetes v1.37."""
    desk = Desk()
    desk.cluster.catalog.serve("scheduling.k8s.io", ("v1", "v1beta1", "v1alpha3"))
    return desk


def test_a_later_server_has_other_versions_and_groups_of_groups() -> None:
    assert Desk().refused("GET", LATER.format("v1beta1", "podgroups"))["code"] == 404
    desk = later_desk()
    assert desk.refused("GET", GROUPS)["code"] == 404
    names = {version: desk.get(f"/apis/scheduling.k8s.io/{version}")["resources"] for version in ("v1beta1", "v1")}
    assert {each["name"] for each in names["v1beta1"]} == {"workloads", "podgroups", "podgroups/status"}
    assert {each["name"] for each in names["v1"]} == {"priorityclasses"}
    desk.post(LATER.format("v1beta1", "podgroups"), group())
    defaults = {"disruptionMode": {"single": {}}, "priority": 0}
    assert desk.get(f"{LATER.format('v1alpha3', 'podgroups')}/g")["spec"] == group()["spec"] | defaults
    composite = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "workloadRef": {"workloadName": "w"}}
    path = LATER.format("v1alpha3", "compositepodgroups")
    desk.post(path, {"metadata": {"name": "c"}, "spec": composite})
    assert cells(desk, path)["Policy"] == "gang"
    assert (
        desk.refused("POST", path, {"metadata": {"name": "d"}, "spec": {"schedulingPolicy": {"basic": {}}}})["code"]
        == 422
    )


def test_only_the_minimum_of_a_later_group_may_change() -> None:
    desk, path = later_desk(), LATER.format("v1beta1", "podgroups")
    desk.post(path, group())
    changed = desk.patch(f"{path}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}, MERGE)
    assert changed["spec"]["schedulingPolicy"] == {"gang": {"minCount": 5}}
    assert desk.refused("PATCH", f"{path}/g", {"spec": {"priority": 5}}, MERGE)["code"] == 422


@pytest.mark.parametrize(
    ("later", "mode", "is_valid"),
    [
        (False, "PodGroup", True),
        (False, "All", False),
        (True, {"all": {}}, True),
        (True, {"all": {}, "single": {}}, False),
        (True, {}, False),
    ],
)
def test_each_version_has_its_own_form_of_disruption_mode(later: bool, mode: Any, is_valid: bool) -> None:
    desk, path = (later_desk(), LATER.format("v1beta1", "podgroups")) if later else (Desk(), GROUPS)
    body = group()
    body["spec"]["disruptionMode"] = mode
    if is_valid:
        assert desk.post(path, body)["spec"]["disruptionMode"] == mode
    else:
        assert desk.refused("POST", path, body)["code"] == 422


def test_a_group_has_the_priority_of_its_class() -> None:
    desk = later_desk()
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    desk.post(classes, {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"})
    body = group()
    body["spec"]["priorityClassName"] = "high"
    made = desk.post(LATER.format("v1beta1", "podgroups"), body)
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (100, "Never")
    unknown = group("h")
    unknown["spec"]["priorityClassName"] = "none"
    assert desk.refused("POST", LATER.format("v1beta1", "podgroups"), unknown)["code"] == 403


def cells(desk: Desk, path: str) -> dict[str, Any]:
    assert isinstance(desk.ask("GET", path, accept=TABLE), Response)
    _, table = desk.call("GET", path, accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))
