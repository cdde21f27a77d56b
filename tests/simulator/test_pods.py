"""Pods get defaults and are validated when they are created."""

from typing import Any

import pytest

from tests.simulator.support import MERGE, PODS, Desk, Object, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_a_new_pod_gets_defaults() -> None:
    created = Desk().post(PODS, pod("p"))
    spec = created["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_explicit_values_are_not_defaulted() -> None:
    mine = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    spec = Desk().post(PODS, pod("p", schedulerName="mine", restartPolicy="Never", tolerations=[mine]))["spec"]
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("mine", "Never")
    assert spec["tolerations"][0] == mine
    assert [toleration["key"] for toleration in spec["tolerations"][1:]] == ["node.kubernetes.io/unreachable"]
    everything = {"operator": "Exists"}
    assert Desk().post(PODS, pod("p", tolerations=[everything]))["spec"]["tolerations"] == [everything]


def test_a_status_given_at_creation_is_discarded() -> None:
    claimed = {**pod("p"), "status": {"phase": "Running"}}
    assert Desk().post(PODS, claimed)["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1024Mi"}}, "Guaranteed"),
        ({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}, "Burstable"),
        ({"limits": {"example.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_qos_class(resources: Object, quality: str) -> None:
    container = {"name": "c", "image": "i", "resources": resources}
    assert Desk().post(PODS, pod("p", containers=[container]))["status"]["qosClass"] == quality


def test_requests_default_to_limits() -> None:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
    }
    created = Desk().post(PODS, pod("p", containers=[container]))
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_the_priority_comes_from_the_priority_class() -> None:
    desk = Desk()
    desk.post(CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    spec = desk.post(PODS, pod("p", priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    assert desk.post(PODS, pod("q", priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    refusal = desk.refused("POST", PODS, pod("r", priorityClassName="none"))
    assert (refusal["code"], "no PriorityClass with name none was found" in refusal["message"]) == (403, True)
    assert desk.refused("POST", PODS, pod("r", priority=5))["code"] == 403


def test_the_global_default_priority_class() -> None:
    desk = Desk()
    desk.post(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    spec = desk.post(PODS, pod("p"))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "usual")


def test_a_gated_pod_has_the_scheduling_gated_condition() -> None:
    created = Desk().post(PODS, pod("p", schedulingGates=[{"name": "g"}]))
    condition = created["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


CONTAINER = {"name": "c", "image": "i"}


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"containers": []}, "spec.containers", "FieldValueRequired"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image", "FieldValueRequired"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name", "FieldValueRequired"),
        ({"containers": [{"name": "C_1", "image": "i"}]}, "spec.containers[0].name", "FieldValueInvalid"),
        ({"containers": [CONTAINER, CONTAINER]}, "spec.containers[1].name", "FieldValueDuplicate"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "FieldValueNotSupported"),
        ({"tolerations": [{"key": "a", "operator": "Is"}]}, "spec.tolerations[0].operator", "FieldValueNotSupported"),
        ({"tolerations": [{"operator": "Equal"}]}, "spec.tolerations[0].operator", "FieldValueInvalid"),
        ({"schedulingGates": [{"name": "g"}], "nodeName": "n"}, "spec.nodeName", "FieldValueForbidden"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints[0].maxSkew",
            "FieldValueInvalid",
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]},
            "spec.containers[0].resources.requests",
            "FieldValueInvalid",
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "-1"}}}]},
            "spec.containers[0].resources.requests[cpu]",
            "FieldValueInvalid",
        ),
    ],
)
def test_invalid_pods_are_rejected(spec: dict[str, Any], field: str, reason: str) -> None:
    refusal = Desk().refused("POST", PODS, pod("p", **spec))
    assert (refusal["code"], refusal["reason"]) == (422, "Invalid")
    assert refusal["message"].startswith('Pod "p" is invalid: ')
    assert (field, reason) in [(cause["field"], cause["reason"]) for cause in refusal["details"]["causes"]]


@pytest.mark.parametrize("name", ["P", "-p", "p_", "p" * 254])
def test_bad_names_are_rejected(name: str) -> None:
    refusal = Desk().refused("POST", PODS, pod(name))
    assert [cause["field"] for cause in refusal["details"]["causes"]] == ["metadata.name"]


def test_bad_labels_are_rejected() -> None:
    refusal = Desk().refused("POST", PODS, pod("p", labels={"a b": "c", "d": "e f"}))
    assert len(refusal["details"]["causes"]) == 2


def test_an_invalid_quantity_does_not_decode() -> None:
    container = {**CONTAINER, "resources": {"requests": {"cpu": "much"}}}
    assert Desk().refused("POST", PODS, pod("p", containers=[container]))["code"] == 400


def test_most_of_a_spec_is_immutable() -> None:
    desk = Desk()
    desk.post(PODS, pod("p", schedulingGates=[{"name": "g"}]))
    assert desk.refused("PATCH", f"{PODS}/p", {"spec": {"nodeName": "n"}}, MERGE)["code"] == 422
    ungated = desk.patch(f"{PODS}/p", {"spec": {"schedulingGates": None}}, MERGE)
    assert (ungated["spec"].get("schedulingGates"), ungated["metadata"]["generation"]) == (None, 2)
    refusal = desk.refused("PATCH", f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "h"}]}}, MERGE)
    assert refusal["code"] == 422
    images = {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}
    assert desk.patch(f"{PODS}/p", images)["spec"]["containers"][0]["image"] == "i:2"


def test_a_pod_can_be_replaced_by_its_own_manifest() -> None:
    desk = Desk()
    created = desk.post(PODS, pod("p"))
    assert desk.put(f"{PODS}/p", pod("p"))["spec"] == created["spec"]
