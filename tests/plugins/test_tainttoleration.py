import pytest

from flotilla.events import Resource
from flotilla.results import unresolvable
from shared.cluster.view import TableView
from shared.config.feature_gates import FeatureGates
from shared.model.objects import Pod, Toleration
from shared.plugins.single_node import TaintToleration
from testing.builders import NodeBuilder, PodBuilder, node, pod
from tests.plugins.cluster import framework, judge, prepared, rejected, scores, statuses, table_of

UNTOLERATED = unresolvable("node(s) had untolerated taint(s)")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
@pytest.mark.parametrize(
    ("arriving", "fits"),
    [
        (pod("p"), False),
        (pod("p").tolerate(), True),
        (pod("p").tolerate("dedicated"), True),
        (pod("p").tolerate("dedicated", "db"), True),
        (pod("p").tolerate("dedicated", "web"), False),
        (pod("p").tolerate("dedicated", ""), False),
        (pod("p").tolerate("other", "db"), False),
        (pod("p").tolerate("dedicated", "db", "PreferNoSchedule"), False),
        (pod("p").tolerate("dedicated", "web").tolerate("dedicated", "db"), True),
    ],
)
def test_hard_taints_need_a_toleration(effect: str, arriving: PodBuilder, fits: bool) -> None:
    table = table_of(node("plain"), node("tainted").taint("dedicated", "db", effect))
    assert statuses(TaintToleration(), arriving, table) == ({} if fits else {"tainted": UNTOLERATED})


def test_every_hard_taint_needs_one() -> None:
    table = table_of(node("n").taint("a").taint("b", effect="NoExecute"))
    assert statuses(TaintToleration(), pod("p").tolerate("a"), table) == {"n": UNTOLERATED}
    assert statuses(TaintToleration(), pod("p").tolerate("a").tolerate("b"), table) == {}
    assert statuses(TaintToleration(), pod("p").tolerate("a").tolerate("b", effect="NoSchedule"), table) != {}


def test_soft_taints_reject_no_node() -> None:
    assert statuses(TaintToleration(), pod("p"), table_of(node("n").taint("a", effect="PreferNoSchedule"))) == {}


@pytest.mark.parametrize(
    ("arriving", "raw"),
    [
        (pod("p"), {"none": 0, "hard": 0, "one": 1, "two": 2}),
        (pod("p").tolerate("a"), {"none": 0, "hard": 0, "one": 0, "two": 1}),
        (pod("p").tolerate("a", effect="PreferNoSchedule"), {"none": 0, "hard": 0, "one": 0, "two": 1}),
        (pod("p").tolerate("a", effect="NoSchedule"), {"none": 0, "hard": 0, "one": 1, "two": 2}),
        (pod("p").tolerate("b", "x"), {"none": 0, "hard": 0, "one": 1, "two": 1}),
        (pod("p").tolerate("b", "y"), {"none": 0, "hard": 0, "one": 1, "two": 2}),
        (pod("p").tolerate(), {"none": 0, "hard": 0, "one": 0, "two": 0}),
    ],
)
def test_untolerated_soft_taints_are_counted(arriving: PodBuilder, raw: dict[str, int]) -> None:
    table = table_of(
        node("none"),
        node("hard").taint("a"),
        node("one").taint("a", effect="PreferNoSchedule"),
        node("two").taint("a", effect="PreferNoSchedule").taint("b", "x", "PreferNoSchedule"),
    )
    assert scores(TaintToleration(), arriving, table) == raw


def soft(name: str, taints: int) -> NodeBuilder:
    built = node(name)
    for i in range(taints):
        built = built.taint(f"t{i}", effect="PreferNoSchedule")
    return built


@pytest.mark.parametrize(
    ("taints", "normalised"),
    [
        ((0, 0), (100, 100)),
        ((0, 1), (100, 0)),
        ((1, 1), (0, 0)),
        ((0, 1, 3), (100, 67, 0)),
        ((1, 2, 3), (67, 34, 0)),
    ],
)
def test_the_most_disliked_node_scores_zero(taints: tuple[int, ...], normalised: tuple[int, ...]) -> None:
    table = table_of(*(soft(f"n{i}", count) for i, count in enumerate(taints)))
    explained = judge(framework("TaintToleration"), pod("p"), table)
    assert [explained.scores[f"n{i}"]["TaintToleration"] for i in range(len(taints))] == list(normalised)


def test_only_feasible_nodes_count_for_the_highest() -> None:
    worst = node("worst").taint("x", effect="PreferNoSchedule").taint("y", effect="PreferNoSchedule").taint("z")
    table = table_of(soft("clean", 0), soft("one", 1), worst)
    explained = judge(framework("TaintToleration"), pod("p"), table)
    assert explained.scores == {"clean": {"TaintToleration": 100}, "one": {"TaintToleration": 0}}
    assert explained.rejected == {"worst": UNTOLERATED.by("TaintToleration")}


def test_sets_of_taints_that_appear_later_are_judged_too() -> None:
    table = table_of(node("n1").taint("a"))
    plugin = TaintToleration()
    state = prepared(plugin, pod("p").tolerate("a"), table)
    assert rejected(plugin, state, TableView(table)) == [None]
    table.add_node(node("n2").taint("b").build())
    table.upsert_node(node("n1").taint("a").taint("b", effect="PreferNoSchedule").build())
    assert rejected(plugin, state, TableView(table)) == [None, UNTOLERATED]
    assert plugin.score(state, TableView(table)).tolist() == [1, 0]


def above(bound: str) -> Pod:
    """Tolerates taints with a greater number."""
    return pod("p").toleration(Toleration(key="sla", operator="Gt", value=bound)).build()


def test_tolerations_compare_numbers_with_their_gate_only() -> None:
    plugin = TaintToleration(FeatureGates.parse("TaintTolerationComparisonOperators=true"))
    table = table_of(
        node("low").taint("sla", "900"), node("high").taint("sla", "990"), node("none").taint("sla", "gold")
    )
    rejects = {"low": UNTOLERATED, "none": UNTOLERATED}
    assert statuses(plugin, above("950"), table) == rejects
    assert statuses(TaintToleration(), above("950"), table) == rejects | {"high": UNTOLERATED}
    (hint,) = (each.hint for each in plugin.events() if each.resource is Resource.NODE)
    assert hint is not None
    admitted = [hint(above("950"), None, each, table.objects) for _, each in table.nodes()]
    assert admitted == [False, True, False]


def test_soft_taints_are_compared_as_well() -> None:
    plugin = TaintToleration(FeatureGates.parse("TaintTolerationComparisonOperators=true"))
    table = table_of(*(node(value).taint("sla", value, "PreferNoSchedule") for value in ("900", "990")))
    assert scores(plugin, above("950"), table) == {"900": 1, "990": 0}
