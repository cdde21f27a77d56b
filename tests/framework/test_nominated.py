"""Room that is kept for nominated pods."""

import numpy as np

from flotilla.plugin import Plugin, PreFilterPlugin
from services.worker.nominated_pods import own_node
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Planned, TableView
from shared.config.args import InterPodAffinityArgs
from shared.config.points import ExtensionPoint
from shared.framework.evaluator import ShardEvaluator
from shared.framework.judge import Judge
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from testing.builders import PodBuilder, node, pod, selector
from tests.framework.evaluation import evaluate, feasible, ladders
from tests.framework.plugins import FewPods, framework


def table_of(*names: str) -> NodeTable:
    table = NodeTable(capacity=4)
    for name in names:
        table.add_node(node(name).label({"kubernetes.io/hostname": name}).build())
    return table


def judging(table: NodeTable, new: PodBuilder | Pod, *plugins: Plugin) -> tuple[Judge, PodClass]:
    plugins = plugins or (FewPods(),)
    names = [plugin.name for plugin in plugins]
    pre_filters = [plugin.name for plugin in plugins if isinstance(plugin, PreFilterPlugin)]
    points = {ExtensionPoint.FILTER: names, ExtensionPoint.PRE_FILTER: pre_filters}
    evaluator = ShardEvaluator(table, framework(points, *plugins), Ties("name"))
    pod_class = evaluator.prepare("class", new if isinstance(new, Pod) else new.build())
    evaluator.refresh_by(pod_class, {})
    return evaluator.judge, pod_class


def nominate(table: NodeTable, name: str, on: str, priority: int = 5) -> Pod:
    made = pod(name).uid(name).priority(priority).nominated(on).build()
    table.nominate(name, on, load_of(made), made.key)
    return made


def refused(table: NodeTable, new: PodBuilder | Pod, rows: list[int] | None = None) -> list[str]:
    """The nodes that are taken out of those where the pod fits as things are; FewPods lets two pods onto a node."""
    room, pod_class = judging(table, new)
    which = None if rows is None else np.array(rows, dtype=np.intp)
    before = np.ones(table.size if which is None else len(which), dtype=np.bool_)
    after = before.copy()
    room.reserve(pod_class, which, after)
    return [table.names[i if which is None else int(which[i])] for i in np.flatnonzero(before & ~after).tolist()]


def test_room_is_kept_for_pods_that_are_as_important() -> None:
    table = table_of("a", "b", "c")
    table.add_pod("there", "a", load_of(pod("there").build()))
    nominate(table, "kept", "a", priority=5)
    for priority, nodes in ((4, ["a"]), (5, ["a"]), (6, [])):
        assert refused(table, pod("new").priority(priority)) == nodes
    assert refused(table, pod("new"), rows=[2, 0]) == ["a"]
    assert refused(table, pod("new"), rows=[2, 1]) == []


def test_only_where_it_does_not_fit_beside_them() -> None:
    table = table_of("a", "b")
    nominate(table, "one", "a")
    assert refused(table, pod("new")) == []
    nominate(table, "two", "a")
    assert refused(table, pod("new")) == ["a"]
    table.denominate("two")
    assert refused(table, pod("new")) == []


def test_a_pod_s_own_nomination_keeps_no_room_from_it() -> None:
    table = table_of("a")
    table.add_pod("there", "a", load_of(pod("there").build()))
    kept = nominate(table, "kept", "a")
    assert refused(table, kept) == []
    assert refused(table, pod("another").priority(5).nominated("a")) == ["a"]


def test_the_status_is_that_of_the_time_when_it_did_not_fit() -> None:
    table = table_of("a", "b")
    web = load_of(pod("web").label(app="web").build())
    table.add_pod("web", "b", web)
    table.nominate("kept", "a", web, "default/kept")
    near = pod("near").require_pods("kubernetes.io/hostname", selector(app="web"))
    room, pod_class = judging(table, near, InterPodAffinity(InterPodAffinityArgs()))
    judged = room.judge(pod_class, np.array([0, 1], dtype=np.intp), None)
    assert judged.fits.tolist() == [False, True]  # the nominated pod is not there yet, so it is not near it
    assert all(rows.tolist() != [1] for rows, _ in room.statuses(pod_class, judged))  # with it there, it would fit
    far = pod("far").require_no_pods("kubernetes.io/hostname", selector(app="web"))
    room, pod_class = judging(table, far, InterPodAffinity(InterPodAffinityArgs()))
    judged = room.judge(pod_class, np.array([0], dtype=np.intp))
    [(rows, status)] = room.statuses(pod_class, judged)
    assert rows.tolist() == [0]
    assert status.reasons == ("node(s) didn't match pod anti-affinity rules",)


def test_more_pods_of_the_class_do_not_take_it_either() -> None:
    table = table_of("a", "b")
    nominate(table, "kept", "a")
    room, pod_class = judging(table, pod("new"))
    rows = np.array([0, 0, 1, 1], dtype=np.intp)
    own = np.array([0, 1, 0, 1], dtype=np.int64)
    which = np.zeros(4, dtype=np.intp)
    view = TableView(table, rows, Planned(own, [pod_class.kind], which))
    assert room.feasible_pairs([pod_class], which, view, ()).tolist() == [True, False, True, True]


def test_its_own_node_is_taken_at_once_if_it_is_feasible() -> None:
    table = table_of("a", "b")
    feasible = np.array([True, True])
    _, nominated = judging(table, pod("p").nominated("b"))
    mask = own_node(table, nominated, feasible)
    assert mask is not None
    assert mask.tolist() == [False, True]
    assert own_node(table, nominated, np.array([True, False])) is None
    _, elsewhere = judging(table, pod("p").nominated("not-here"))
    assert own_node(table, elsewhere, feasible) is None
    _, plain = judging(table, pod("p"))
    assert own_node(table, plain, feasible) is None


def test_a_node_that_comes_later_has_its_nominations() -> None:
    table = table_of("a")
    nominate(table, "kept", "b")
    table.add_pod("there", "a", load_of(pod("there").build()))
    assert refused(table, pod("new")) == []
    table.add_node(node("b").build())
    table.add_pod("beside", "b", load_of(pod("beside").build()))
    assert refused(table, pod("new")) == ["b"]


def test_feasibility_and_what_is_said_of_it_agree_with_the_room_that_is_kept() -> None:
    table = table_of("a", "b")
    table.add_pod("there", "a", load_of(pod("there").build()))
    evaluator = ShardEvaluator(table, framework({ExtensionPoint.FILTER: ["FewPods"]}, FewPods()), Ties("name"))
    pod_class = evaluator.prepare("class", pod("new").build())

    def told() -> tuple[list[str], list[tuple[str, int]], list[str]]:
        evaluate(evaluator, [pod_class])
        ladder = [name for name, _ in ladders(evaluator, [pod_class], [4], [None])[0]]
        refused = [(each.status.message, each.nodes) for each in evaluator.rejections(pod_class)]
        return feasible(evaluator, pod_class), refused, sorted(ladder)

    assert told() == (["a", "b"], [], ["a", "b", "b"])
    nominate(table, "kept", "a")
    assert told() == (["b"], [("too many pods", 1)], ["b", "b"])
    nominate(table, "kept", "b")
    assert told() == (["a", "b"], [], ["a", "b"])
    table.denominate("kept")
    assert told() == (["a", "b"], [], ["a", "b", "b"])
