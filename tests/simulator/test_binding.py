"""A pod is bound once; an eviction asks the disruption budgets."""

from typing import Any

from tests.simulator.support import PODS, Desk, binding, pod

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def test_a_binding_assigns_the_node() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    answer = desk.post(f"{PODS}/p/binding", binding("p", "n"))
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    bound = desk.get(f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n"
    condition = bound["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"] == "2023-11-14T22:13:20Z"


def test_a_binding_can_be_posted_to_the_collection() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    desk.post("/api/v1/namespaces/default/bindings", binding("p", "n"))
    assert desk.get(f"{PODS}/p")["spec"]["nodeName"] == "n"


def test_a_binding_replaces_the_failed_condition() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    desk.patch(f"{PODS}/p/status", {"status": {"conditions": [unschedulable]}})
    desk.post(f"{PODS}/p/binding", binding("p", "n"))
    conditions = desk.get(f"{PODS}/p")["status"]["conditions"]
    assert [(condition["type"], condition["status"]) for condition in conditions] == [("PodScheduled", "True")]


def test_binding_a_bound_pod_is_a_conflict() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    desk.post(f"{PODS}/p/binding", binding("p", "n"))
    refusal = desk.refused("POST", f"{PODS}/p/binding", binding("p", "m"))
    assert (refusal["code"], refusal["reason"]) == (409, "Conflict")
    why = 'pod p is already assigned to node "n"'
    assert refusal["message"] == f'Operation cannot be fulfilled on pods/binding "p": {why}'


def test_binding_a_terminating_pod_is_a_conflict() -> None:
    desk = Desk()
    held = pod("p")
    held["metadata"]["finalizers"] = ["a/b"]
    desk.post(PODS, held)
    desk.delete(f"{PODS}/p")
    refusal = desk.refused("POST", f"{PODS}/p/binding", binding("p", "n"))
    assert (refusal["code"], "pod p is being deleted, cannot be assigned to a host" in refusal["message"]) == (
        409,
        True,
    )


def test_invalid_bindings_are_rejected() -> None:
    desk = Desk()
    assert desk.refused("POST", f"{PODS}/p/binding", binding("p", "n"))["code"] == 404
    created = desk.post(PODS, pod("p"))
    wrong_kind = {"target": {"kind": "Minion", "name": "n"}}
    for wrong in (wrong_kind, {"target": {"kind": "Node"}}, {}):
        assert desk.refused("POST", f"{PODS}/p/binding", wrong)["code"] == 500
    assert desk.refused("POST", f"{PODS}/p/binding", binding("q", "n"))["code"] == 400
    other = {**binding("p", "n"), "metadata": {"name": "p", "uid": "other"}}
    assert desk.refused("POST", f"{PODS}/p/binding", other)["code"] == 409
    same = {**binding("p", "n"), "metadata": {"name": "p", "uid": created["metadata"]["uid"]}}
    desk.post(f"{PODS}/p/binding", same)


def test_binding_a_gated_pod_is_a_conflict() -> None:
    desk = Desk()
    desk.post(PODS, pod("p", schedulingGates=[{"name": "g"}]))
    assert desk.refused("POST", f"{PODS}/p/binding", binding("p", "n"))["code"] == 409


def test_a_bound_pod_gets_its_grace_period() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    desk.post(f"{PODS}/p/binding", binding("p", "n"))
    left = desk.delete(f"{PODS}/p")["metadata"]
    assert (left["deletionTimestamp"], left["deletionGracePeriodSeconds"]) == ("2023-11-14T22:13:50Z", 30)
    shorter = desk.delete(f"{PODS}/p?gracePeriodSeconds=5")["metadata"]
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == ("2023-11-14T22:13:25Z", 5)
    desk.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert desk.refused("GET", f"{PODS}/p")["code"] == 404


def test_an_unbound_or_finished_pod_is_removed_at_once() -> None:
    desk = Desk()
    for name in ("p", "q"):
        desk.post(PODS, pod(name))
    desk.post(f"{PODS}/q/binding", binding("q", "n"))
    desk.patch(f"{PODS}/q/status", {"status": {"phase": "Failed"}})
    for name in ("p", "q"):
        desk.delete(f"{PODS}/{name}")
    assert desk.get(PODS)["items"] == []


def test_an_eviction_counts_against_the_budget() -> None:
    desk = Desk()
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    desk.post(
        BUDGETS, {"metadata": {"name": "b"}, "spec": spec, "status": {"disruptionsAllowed": 1, "observedGeneration": 1}}
    )
    for name in ("p", "q"):
        desk.post(PODS, pod(name, labels={"app": "a"}))
        desk.post(f"{PODS}/{name}/binding", binding(name, "n"))
        desk.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    desk.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert desk.get(f"{PODS}/p")["metadata"]["deletionTimestamp"]
    status = desk.get(f"{BUDGETS}/b")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])
    refusal = desk.refused("POST", f"{PODS}/q/eviction", {"metadata": {"name": "q"}})
    assert (refusal["code"], refusal["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
    assert "deletionTimestamp" not in desk.get(f"{PODS}/q")["metadata"]


def test_a_refused_eviction_says_why() -> None:
    desk = Desk()
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}}
    desk.post(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    desk.post(PODS, pod("p", labels={"app": "a"}))
    desk.post(f"{PODS}/p/binding", binding("p", "n"))
    desk.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})

    def refusal(**status: int) -> Any:
        desk.patch(f"{BUDGETS}/b/status", {"status": status})
        details = desk.refused("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})["details"]
        return details["causes"][0]["message"], details.get("retryAfterSeconds")

    assert refusal() == ("The disruption budget b is still being processed by the server.", 10)
    needs = "The disruption budget b needs 2 healthy pods and has 1 currently"
    assert refusal(observedGeneration=1, desiredHealthy=2, currentHealthy=1) == (needs, None)
    assert refusal(currentHealthy=3) == ("The disruption budget b does not allow evicting pods currently", None)


def test_a_dry_run_of_a_binding_changes_nothing() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    desk.post(f"{PODS}/p/binding?dryRun=All", binding("p", "n"))
    assert "nodeName" not in desk.get(f"{PODS}/p")["spec"]
