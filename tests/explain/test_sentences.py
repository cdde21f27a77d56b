"""What is said of a pod that waits, besides why no node takes it."""

from shared.messages.explaining import NOMINATED, NodeFindings, PodExplained, Remembered
from shared.messages.inspection import DescribedPod
from testing.builders import pod
from tools.explain.client import of_findings
from tools.explain.explanation import Explanation
from tools.explain.text import render

EVENTS = ("NodeUpdateNodeTaint", "NodeAdd", "AssignedPodDelete", "NodeUpdateNodeLabel", "NodeDelete")


def told(state: str, feasible: int = 0, *, journal: tuple[Remembered, ...] = (), **fields: object) -> Explanation:
    queued = DescribedPod("uid", "default", "web", "default-scheduler", state, 90.0, 90.0, 90.0, **fields)  # type: ignore[arg-type]
    findings = NodeFindings(nodes=3, feasible=feasible)
    return of_findings(pod("web").build(), queued, PodExplained(1, 1, 100.0, 0.0, journal=journal), findings, 100.0)


def test_events_are_listed_one_by_one_and_the_first_are_named_in_the_text() -> None:
    explanation = told("unschedulable", requeue_events=EVENTS, attempts=1)
    assert explanation.waiting is not None
    assert len(explanation.waiting.waits_for) == len(EVENTS)
    assert explanation.waiting.waits_for[:2] == ("a node is added", "a pod leaves")
    text = " ".join(render(explanation).split())
    assert "waits for: a node is added, a pod leaves, a node's taints change and 2 more events." in text


def test_an_active_pod_is_not_said_to_be_the_next_one() -> None:
    assert told("active", 2).sentence == "default/web fits 2 of 3 nodes; it is in the active queue"


def test_a_gated_pod_names_its_gate_as_the_list_of_pods_does() -> None:
    gated = told("gated", 2, gate="SchedulingGates", gate_reason="waiting for a")
    assert gated.sentence == (
        "default/web is held back by SchedulingGates: waiting for a; it would fit 2 of 3 nodes as soon as its "
        "scheduling gates are removed"
    )


def test_a_preemptor_names_the_budgets_that_did_not_allow_its_evictions() -> None:
    nominated = Remembered(NOMINATED, 95.0, 1, 7, 99, "n2", victims=("default/a", "default/b"))
    waits = told("unschedulable", journal=(nominated,), nominated="n2", violates=("default/web", "default/zk"))
    assert waits.sentence == (
        "default/web fits nowhere as it is, and waits until 2 pods of lower priority left node n2: default/a and "
        "default/b, in spite of PodDisruptionBudgets default/web and default/zk"
    )
