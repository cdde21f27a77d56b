"""Plugins that look at one node at a time."""

from collections import Counter

import pytest

from flotilla.plugin import ClassState, NodeInfo
from flotilla.results import Status, unschedulable
from shared.cluster.nodetable import NodeTable
from shared.config.points import ExtensionPoint
from shared.framework.evaluator import ShardEvaluator
from shared.framework.pod_class import PodClass
from shared.framework.ranking import ScoreOutOfRange
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from testing.builders import NodeBuilder, node, pod
from tests.framework.evaluation import answers, climbed_by_placing, evaluate, feasible, ladder, summary_of
from tests.framework.plugins import AskedFilter, AskedScore, FewPods, LabelScore, NormalizedScore, Uncordoned, framework

FILTER, SCORE = ExtensionPoint.FILTER, ExtensionPoint.SCORE
LOAD = load_of(pod("p").build())


def table_of(*built: NodeBuilder) -> NodeTable:
    table = NodeTable(capacity=16)
    for each in built:
        table.add_node(each.build())
    return table


def with_plugins(
    table: NodeTable, filter_plugin: AskedFilter, score_plugin: AskedScore | LabelScore
) -> tuple[ShardEvaluator, PodClass]:
    # The one-by-one filter comes first in the profile; the columnar ones are to go before it all the same.
    made = framework(
        {FILTER: ["AskedFilter", "Uncordoned", "FewPods"], SCORE: [score_plugin.name]},
        filter_plugin,
        Uncordoned(),
        FewPods(),
        score_plugin,
    )
    evaluator = ShardEvaluator(table, made, Ties("name"))
    return evaluator, evaluator.prepare("class", pod("p").build())


def names(asked: list[tuple[str, int]]) -> list[str]:
    return sorted(name for name, _ in asked)


def test_only_nodes_that_every_columnar_filter_passed_are_asked_about() -> None:
    table = table_of(node("a"), node("b").unschedulable(), node("c"), node("d").label(reject="broken"))
    for i in range(FewPods.most):
        table.add_pod(f"u{i}", "c", LOAD)
    filters, scores = AskedFilter(), AskedScore()
    evaluator, pod_class = with_plugins(table, filters, scores)
    evaluate(evaluator, [pod_class])
    assert names(filters.asked) == ["a", "d"]
    assert names(scores.asked) == ["a"]
    assert feasible(evaluator, pod_class) == ["a"]


def test_a_node_is_asked_about_again_only_when_it_changed() -> None:
    table = table_of(node("a"), node("b"), node("c"))
    filters, scores = AskedFilter(), AskedScore()
    evaluator, pod_class = with_plugins(table, filters, scores)
    evaluate(evaluator, [pod_class])
    for asked in (filters.asked, scores.asked):
        assert names(asked) == ["a", "b", "c"]
        asked.clear()
    evaluate(evaluator, [pod_class])
    twin = evaluator.prepare("twin", pod("q").build())
    evaluate(evaluator, [twin, pod_class])
    assert filters.asked == scores.asked == []
    table.add_pod("u", "b", LOAD)
    evaluate(evaluator, [twin, pod_class])
    assert filters.asked == scores.asked == [("b", 1)]
    table.upsert_node(node("c").label(reject="broken").build())
    evaluate(evaluator, [pod_class])
    assert names(filters.asked) == ["b", "c"]
    assert names(scores.asked) == ["b"]
    assert feasible(evaluator, pod_class) == ["a", "b"]


def test_a_node_that_becomes_feasible_is_asked_about_then() -> None:
    table = table_of(node("a").label(score="90"), node("b"))
    for i in range(FewPods.most):
        table.add_pod(f"u{i}", "a", LOAD)
    filters, scores = AskedFilter(), AskedScore()
    evaluator, pod_class = with_plugins(table, filters, scores)
    evaluate(evaluator, [pod_class])
    assert names(filters.asked) == ["b"]
    table.remove_pod("u0")
    evaluate(evaluator, [pod_class])
    assert names(filters.asked) == names(scores.asked) == ["a", "b"]
    assert ladder(evaluator, pod_class, 1)[0][0] == "a"


def test_a_node_that_becomes_feasible_has_the_score_of_its_object() -> None:
    """A score that reads only the node object is still asked for when a pod's going made the node feasible."""
    table = table_of(node("a").label(score="90"), node("b"))
    for i in range(FewPods.most):
        table.add_pod(f"u{i}", "a", LOAD)
    evaluator, pod_class = with_plugins(table, AskedFilter(), LabelScore())
    evaluate(evaluator, [pod_class])
    table.remove_pod("u0")
    evaluate(evaluator, [pod_class])
    fresh, again = with_plugins(table, AskedFilter(), LabelScore())
    evaluate(fresh, [again])
    assert answers(evaluator, pod_class) == answers(fresh, again)
    assert ladder(evaluator, pod_class, 1)[0][0] == "a"


def test_looking_ahead_asks_about_nodes_with_more_pods_but_never_too_many() -> None:
    table = table_of(node("a"), node("b"))
    table.add_pod("u", "a", LOAD)
    filters, scores = AskedFilter(), AskedScore()
    evaluator, pod_class = with_plugins(table, filters, scores)
    evaluate(evaluator, [pod_class])
    placed = [name for name, _ in ladder(evaluator, pod_class, 9)]
    assert placed == ["b", "a", "b"]
    for asked in (filters.asked, scores.asked):
        assert ("b", 1) in asked
        assert max(pods for _, pods in asked) < FewPods.most


def test_a_ladder_is_what_placing_one_pod_after_another_gives() -> None:
    table = table_of(node("a").label(score="52"), node("b"), node("c").label(reject="x"), node("d").label(score="51"))
    table.add_pod("u", "b", LOAD)
    evaluator, pod_class = with_plugins(table, AskedFilter(), AskedScore())
    evaluate(evaluator, [pod_class])
    expected = ladder(evaluator, pod_class, 9)
    assert Counter(name for name, _ in expected) == {"a": 2, "b": 1, "d": 2}
    assert climbed_by_placing(evaluator, pod_class, 9, {}) == expected


def test_each_reason_is_counted() -> None:
    table = table_of(
        node("a").label(reject="hot"), node("b").label(reject="cold"), node("c").label(reject="hot"), node("d")
    )
    evaluator, pod_class = with_plugins(table, AskedFilter(), AskedScore())
    evaluate(evaluator, [pod_class])
    said = answers(evaluator, pod_class)
    hot, cold = (unschedulable(reason).by("AskedFilter") for reason in ("hot", "cold"))
    assert said["rejections"] == {hot: 2, cold: 1}
    assert said["explanation"].rejected == {"a": hot, "b": cold, "c": hot}
    assert said["explanation"].scores == {"d": {"AskedScore": 50}}


def test_the_first_filter_of_the_profile_gives_the_reason() -> None:
    table = table_of(node("a").label(reject="hot").unschedulable(), node("b").unschedulable())
    evaluator, pod_class = with_plugins(table, AskedFilter(), AskedScore())
    evaluate(evaluator, [pod_class])
    assert answers(evaluator, pod_class)["rejections"] == {
        unschedulable("hot").by("AskedFilter"): 1,
        unschedulable("cordoned").by("Uncordoned"): 1,
    }


def test_what_a_plugin_is_told_of_a_node() -> None:
    seen: list[NodeInfo] = []

    class Watching(AskedFilter):
        def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
            seen.append(node)
            return super().filter_node(state, node)

    table = table_of(node("a").capacity({"example.com/r": 2}, cpu="4", memory="1Gi"))
    load = load_of(pod("x").label(app="web").request({"example.com/r": 1}, cpu="1").build())
    table.add_pod("u", "a", load)
    evaluator, pod_class = with_plugins(table, Watching(), AskedScore())
    evaluate(evaluator, [pod_class])
    (info,) = seen
    assert info.node == table.node_at(0)
    assert info.pods == (load,)
    assert {name: info.allocatable[name] for name in ("cpu", "memory", "pods", "example.com/r")} == {
        "cpu": 4000,
        "memory": 1 << 30,
        "pods": 110,
        "example.com/r": 2,
    }
    assert {name: info.requested[name] for name in ("cpu", "memory", "pods", "example.com/r")} == {
        "cpu": 1000,
        "memory": 0,
        "pods": 1,
        "example.com/r": 1,
    }


@pytest.mark.parametrize("score", ["101", "-1"])
def test_a_score_out_of_range_is_the_plugins_fault(score: str) -> None:
    evaluator, pod_class = with_plugins(table_of(node("a").label(score=score)), AskedFilter(), AskedScore())
    with pytest.raises(ScoreOutOfRange, match=rf"'AskedScore'.* {score},"):
        evaluate(evaluator, [pod_class])


@pytest.mark.parametrize("score", ["100", "0"])
def test_the_ends_of_the_range_are_in_it(score: str) -> None:
    evaluator, pod_class = with_plugins(table_of(node("a").label(score=score)), AskedFilter(), AskedScore())
    evaluate(evaluator, [pod_class])
    assert evaluator.explain(pod_class).scores == {"a": {"AskedScore": int(score)}}


def test_with_a_normaliser_any_score_will_do() -> None:
    table = table_of(node("a").label(score="4000"), node("b").label(score="1000"), node("c").unschedulable())
    evaluator, pod_class = with_plugins(table, AskedFilter(), NormalizedScore())
    evaluate(evaluator, [pod_class])
    assert summary_of(evaluator, pod_class).ranges == {"AskedScore": (1000, 4000)}
    assert answers(evaluator, pod_class)["explanation"].scores == {"a": {"AskedScore": 100}, "b": {"AskedScore": 25}}
    table.upsert_node(node("c").label(score="8000").build())
    evaluate(evaluator, [pod_class])
    assert summary_of(evaluator, pod_class).ranges == {"AskedScore": (1000, 8000)}
    assert ladder(evaluator, pod_class, 1)[0][0] == "c"
