"""What filters would say if other pods were there, or some were gone."""

from typing import NamedTuple

import numpy as np

from flotilla.plugin import ClassState, FilterPlugin, NodeView, Plugin, PreFilterPlugin
from flotilla.results import PreFilterResult, Status, unschedulable
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Both, Changes, Hypothesis, Planned
from shared.config.points import ExtensionPoint
from shared.framework.evaluator import ShardEvaluator
from shared.framework.judge import Judge
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from testing.builders import NodeBuilder, node, pod
from tests.framework.plugins import AskedFilter, FewPods, Uncordoned, framework

LOAD = load_of(pod("p").build())


class World(NamedTuple):
    table: NodeTable
    judge: Judge
    pod_class: PodClass

    def judged(self, rows: list[int], hypothesis: Hypothesis | None) -> list[str]:
        """Of each row: the plugin that rejects it and why, or nothing."""
        judged = self.judge.judge(self.pod_class, np.array(rows, dtype=np.intp), hypothesis)
        said = [""] * len(rows)
        for at, status in self.judge.statuses(self.pod_class, judged):
            for place in at.tolist():
                said[place] = f"{status.plugin}: {status.message}"
        assert [not each for each in said] == judged.fits.tolist()
        return said

    def changes(self, *counts: int) -> Changes:
        """This many more pods on the i-th row."""
        kinds = [self.table.kind(LOAD)]
        at = np.flatnonzero(counts)
        count = np.array(counts, dtype=np.int64)[at]
        return Changes(len(counts), at, np.zeros(len(at), dtype=np.intp), count, kinds)


FULL = "FewPods: too many pods"


def world(*nodes: NodeBuilder, pods: tuple[str, ...] = (), plugins: tuple[Plugin, ...] = ()) -> World:
    table = NodeTable(capacity=4)
    for each in nodes:
        table.add_node(each.build())
    for i, on in enumerate(pods):
        table.add_pod(f"u{i}", on, LOAD)
    made = plugins or (Uncordoned(), FewPods())
    points = {ExtensionPoint.FILTER: [p.name for p in made if isinstance(p, FilterPlugin)]}
    points[ExtensionPoint.PRE_FILTER] = [p.name for p in made if isinstance(p, PreFilterPlugin)]
    evaluator = ShardEvaluator(table, framework(points, *made), Ties("name"))
    pod_class = evaluator.prepare("class", pod("p").build())
    evaluator.refresh_by(pod_class, {})
    return World(table, evaluator.judge, pod_class)


def test_pods_that_come_and_go_count() -> None:
    judged = world(node("a"), node("b"), pods=("a", "b", "b")).judged
    there = world(node("a"), node("b"), pods=("a", "b", "b"))
    assert judged([0, 1], None) == ["", FULL]
    assert there.judged([0, 1], there.changes(1, -1)) == [FULL, ""]
    assert there.judged([0, 1], there.changes(0, 0)) == ["", FULL]


def test_a_row_may_come_several_times_and_in_any_order() -> None:
    there = world(node("a"), node("b"), pods=("b",))
    assert there.judged([1, 0, 1, 1], there.changes(1, 1, 0, -1)) == [FULL, "", "", ""]


def test_the_first_filter_of_the_profile_says_why() -> None:
    there = world(node("a").unschedulable(), node("b").unschedulable(), node("c"), pods=("a", "a", "c", "c"))
    assert there.judged([0, 1, 2], there.changes(-2, 5, -1)) == ["Uncordoned: cordoned", "Uncordoned: cordoned", ""]


def test_a_plugin_that_looks_at_single_nodes_sees_the_supposed_pods() -> None:
    asked = AskedFilter()
    there = world(node("a"), node("b"), node("c"), pods=("a", "b", "b"), plugins=(Uncordoned(), FewPods(), asked))
    asked.asked.clear()
    assert there.judged([0, 1, 2], there.changes(0, -1, 2)) == ["", "", FULL]
    assert asked.asked == [("a", 1), ("b", 1)]


def test_what_is_known_of_rows_as_they_are_is_not_asked_again() -> None:
    asked = AskedFilter()
    there = world(node("a"), node("b").label(reject="broken"), plugins=(asked,))
    asked.asked.clear()
    assert there.judged([0, 1], None) == ["", "AskedFilter: broken"]
    assert asked.asked == []


def test_two_hypotheses_at_once() -> None:
    there = world(node("a"), node("b"), pods=("a", "b", "b"))
    kinds = [there.table.kind(load_of(pod("q").request(cpu="1").build()))]
    own = Planned(np.array([1, 2], dtype=np.int64), kinds, np.zeros(2, dtype=np.intp))
    both = Both(own, there.changes(0, -2))
    assert there.judged([0, 1], both) == [FULL, FULL]
    assert there.judged([1], both.take(np.array([1], dtype=np.intp))) == [FULL]
    assert there.judged([0, 1], Both(there.changes(-1, -2), own)) == ["", FULL]
    assert len(both.loads(0, [LOAD])) == 2


class RejectedForNow(PreFilterPlugin):
    name = "RejectedForNow"

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult(unschedulable("not now"))


class Skipped(FilterPlugin, PreFilterPlugin):
    name = "Skipped"

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult(Status(code=unschedulable().code.SKIP))

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        raise AssertionError("is skipped")


def test_a_class_that_prefilter_rejected_for_now_is_judged_by_what_was_not_skipped() -> None:
    there = world(node("a"), node("b"), pods=("b", "b"), plugins=(RejectedForNow(), Skipped(), Uncordoned(), FewPods()))
    assert there.pod_class.pre.rejection is not None
    assert there.judged([0, 1], None) == ["", FULL]
    assert there.judged([0, 1], there.changes(0, -1)) == ["", ""]
