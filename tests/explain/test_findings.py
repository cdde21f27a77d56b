"""What workers find for an explanation: the same however nodes are divided, and nothing that changes a decision."""

import random

import msgspec
import pytest
from msgspec.structs import replace

from services.cycle import events as cycle
from shared.messages.evaluation import Ties
from shared.messages.explaining import Blocked, ExplainPod, NodeEdit, NodeFindings, PodExplained, Supposed
from shared.model.objects import (
    LabelSelector,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    encode_msgpack,
)
from shared.model.wellknown import HOSTNAME, ZONE
from testing.builders import PodBuilder, node, pod, selector
from testing.inprocess.pipeline import Pipeline
from tests.explain.support import explained


def a_cluster(shards: int, seed: int = 7) -> Pipeline:
    """Thirty nodes in three zones: some tainted, some cordoned, some full."""
    rng = random.Random(seed)
    pipeline = Pipeline(shards=shards, ties=Ties(mode="name"))
    for i in range(30):
        made = node(f"node-{i:02}").capacity(cpu=rng.choice([2, 4, 8]), memory="16Gi")
        made = made.label({HOSTNAME: f"node-{i:02}", ZONE: f"zone-{i % 3}"}, disk=rng.choice(["ssd", "hdd"]))
        if i % 7 == 0:
            made = made.taint("gpu", "true")
        if i % 11 == 5:
            made = made.unschedulable()
        pipeline.add_nodes([made.build()])
        load = pod(f"load-{i}").request(cpu=rng.choice(["500m", "1500m"])).label(app="load").on(f"node-{i:02}")
        pipeline.add_pods([load.build()])
    pipeline.settle()
    return pipeline


def asked(pipeline: Pipeline, given: PodBuilder | Pod, **fields: object) -> PodExplained:
    made = given.build() if isinstance(given, PodBuilder) else given
    return pipeline.explain_pod(ExplainPod(body=encode_msgpack(made), **fields))  # type: ignore[arg-type]


def found(pipeline: Pipeline, given: PodBuilder, **fields: object) -> NodeFindings:
    answer = asked(pipeline, given, **fields)
    assert not answer.problem
    assert answer.findings is not None
    return answer.findings


PODS = [
    pod("a").request(cpu=1, memory="1Gi").label(app="load"),
    pod("a").request(cpu=7).node_selector(disk="ssd"),
    pod("a").request(cpu=1).node_selector({ZONE: "zone-1"}, disk="nvme").tolerate("gpu"),
    pod("a").request(cpu=1).label(app="load").spread_hard(ZONE, selector(app="load")),
    pod("a").label(app="load").require_no_pods(HOSTNAME, selector(app="load")),
    pod("a").label(app="x").require_pods(ZONE, selector(app="none")),
    pod("a").host_port(80).request(cpu=100, memory="1Ti"),
]


@pytest.mark.parametrize("given", PODS)
def test_the_findings_do_not_depend_on_how_nodes_are_divided(given: PodBuilder) -> None:
    one, *others = (found(a_cluster(shards), given) for shards in (1, 2, 7))
    assert one.nodes == 30 == one.feasible + sum(each.nodes for each in one.rejected)
    assert sum(each.nodes for each in one.blocked) == 30 - one.feasible
    for other in others:
        assert without_examples(other) == without_examples(one)


def without_examples(findings: NodeFindings) -> object:
    """Which nodes and pods are named may differ, and how statuses of as many nodes are ordered."""
    plain = msgspec.to_builtins(findings)
    for part in ("rejected", "blocked", "causes", "models"):
        for each in plain.get(part, ()):
            for field in ("examples", "pods", "node"):
                each.pop(field, None)
        plain[part] = sorted(plain.get(part, ()), key=repr)
    return plain


def test_the_best_node_is_the_one_that_is_chosen_and_its_scores_add_up() -> None:
    pipeline = a_cluster(2)
    given = pod("a").request(cpu=1, memory="1Gi")
    findings = found(pipeline, given)
    pipeline.submit([given.build()])
    pipeline.settle()
    decided = pipeline.outcomes["default/a"]
    assert isinstance(decided, cycle.Decided)
    assert decided.node == findings.best[0].node
    for scored in findings.best:
        assert scored.total == sum(each.weighted for each in scored.plugins.values())
    assert [each.total for each in findings.best] == sorted((each.total for each in findings.best), reverse=True)


def test_nodes_are_grouped_by_everything_that_keeps_the_pod_off() -> None:
    pipeline = Pipeline(shards=2)
    pipeline.add_nodes([
        node("small").capacity(cpu=1).build(),
        node("tainted").capacity(cpu=4).taint("gpu", "true").build(),
        node("both").capacity(cpu=1).taint("gpu", "true").build(),
    ])  # fmt: skip
    pipeline.settle()
    findings = found(pipeline, pod("a").request(cpu=2), nodes=("both", "gone"))
    assert set(findings.blocked) == {
        Blocked(("NodeResourcesFit",), 1, ("small",)),
        Blocked(("TaintToleration",), 1, ("tainted",)),
        Blocked(("TaintToleration", "NodeResourcesFit"), 1, ("both",)),
    }
    assert [each.free for each in findings.shortages] == [{"cpu": 1000}]
    (verdict,) = findings.verdicts
    assert [status.plugin for status in verdict.statuses] == ["TaintToleration", "NodeResourcesFit"]


def test_all_nodes_that_reject_a_pod_are_named_if_asked_for() -> None:
    given = pod("a").request(cpu=7).node_selector(disk="ssd")
    few, all_ = (found(a_cluster(7), given, everywhere=each) for each in (False, True))
    assert few == replace(all_, rejected=tuple(replace(each, names=()) for each in all_.rejected))
    for each in all_.rejected:
        assert len(set(each.names)) == each.nodes
        assert set(each.examples) <= set(each.names)


def test_suppositions_are_gone_with_the_answer() -> None:
    pipeline = Pipeline(shards=2)
    pipeline.add_nodes([node("a").capacity(cpu=4).label({HOSTNAME: "a"}).unschedulable().build()])
    pipeline.add_pods([pod("there").request(cpu=3).on("a").build()])
    pipeline.settle()
    given = pod("p").request(cpu=2)
    assert found(pipeline, given).feasible == 0
    copied = Supposed((NodeEdit("a", copy=True, schedulable=True),))
    assert found(pipeline, given, supposed=copied).feasible == 1
    freed = Supposed((NodeEdit("a", schedulable=True),), gone=("default/there",))
    assert found(pipeline, given, supposed=freed, brief=True).feasible == 1
    again = found(pipeline, given)
    assert (again.nodes, again.feasible) == (1, 0)
    for core in pipeline.workers.values():
        core.validate()
    assert sum(core.table.pod_count for core in pipeline.workers.values()) == 1


def test_explaining_between_decisions_changes_none() -> None:
    def nodes_of(explains: bool) -> dict[str, object]:
        pipeline = a_cluster(2)
        for i in range(20):
            if explains:
                found(pipeline, PODS[i % len(PODS)])
            pipeline.submit([pod(f"p-{i}").label(app="load").request(cpu="700m").build()])
            pipeline.settle()
        return {uid: getattr(outcome, "node", None) for uid, outcome in pipeline.outcomes.items()}

    assert nodes_of(explains=True) == nodes_of(explains=False)


def test_what_cannot_be_supposed_is_said_and_leaves_nothing() -> None:
    pipeline = a_cluster(2)
    wrong = Supposed((NodeEdit("node-00", copy=True, amounts={"cpu": 1 << 62}), NodeEdit("nobody")), gone=("nobody",))
    explained = asked(pipeline, pod("a"), supposed=wrong)
    assert explained.findings is not None
    assert explained.findings.failure is not None or explained.findings.nodes == 31
    assert found(pipeline, pod("a")).nodes == 30
    for core in pipeline.workers.values():
        core.validate()


def test_what_cannot_be_answered_is_refused_with_a_reason() -> None:
    pipeline = a_cluster(1)
    assert "cannot be read" in pipeline.explain_pod(ExplainPod(body=b"\xc1")).problem
    assert asked(pipeline, pod("a").scheduler("other")).findings is None
    assert asked(pipeline, pod("a"), nodes=tuple(map(str, range(9)))).problem.startswith("at most 8 nodes")
    too_much = Supposed(gone=tuple(map(str, range(65))))
    assert "at most 64 changed nodes, and removed or added pods" in asked(pipeline, pod("a"), supposed=too_much).problem


@pytest.mark.asyncio
async def test_a_node_that_does_not_exist_is_said_to_be_none() -> None:
    pipeline = a_cluster(2)
    real, none = (await explained(pipeline, pod("a").request(cpu=100), ("node-03", "nope"))).asked_nodes
    assert (real.node, real.exists) == ("node-03", True)
    assert (none.node, none.text, none.exists) == ("nope", "there is no node of this name", False)
    elsewhere = await explained(pipeline, pod("a").claim("missing"), ("node-03", "nope"))
    assert elsewhere.feasible == 0
    assert [each.exists for each in elsewhere.asked_nodes] == [True, True]
    assert all(each.text.startswith("nodes were not judged") for each in elsewhere.asked_nodes)


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize(("allowed", "violates"), [(0, ["default/web"]), (1, ["default/web"]), (2, [])])
@pytest.mark.asyncio
async def test_budgets_that_do_not_allow_what_would_be_evicted_are_named(
    shards: int, allowed: int, violates: list[str]
) -> None:
    """The pod that stays takes nothing from the budget."""
    pipeline = Pipeline(shards=shards)
    pipeline.add_nodes([node("n").capacity(cpu=4).build()])
    pipeline.add_pods([pod(f"web-{i}").label(app="web").request(cpu=1).on("n").build() for i in range(3)])
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "web"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )
    pipeline.add_objects([budget])
    pipeline.settle()
    high = pod("high").request(cpu=3).priority(10)
    (candidate,) = found(pipeline, high).candidates
    assert (len(candidate.victims), list(candidate.violates)) == (2, violates)
    explanation = await explained(pipeline, high)
    despite = ", in spite of PodDisruptionBudget default/web" if violates else ""
    names = " and ".join(victim.key for victim in candidate.victims)
    assert explanation.preemption == f"it can preempt: 2 pods of lower priority left node n ({names}){despite}"
    (helps,) = [each for each in explanation.help if each.kind == "preempt"]
    assert (helps.change["victims"], helps.change["violates"]) == (names.split(" and "), violates)
