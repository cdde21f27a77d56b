import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.plugin import LabelValue, match_requirement
from shared.cluster.nodetable import NodeTable
from shared.cluster.pod_indexes import LabelClass, LabelClasses
from shared.cluster.view import TableView
from shared.model.load import PodLoad, load_of
from shared.model.objects import NodeOperator, NodeSelectorRequirement
from shared.model.selectors import requirement_matches
from testing.builders import expr, node, pod

COMPARING: list[NodeOperator] = ["In", "NotIn", "Gt"]
OPERATORS: list[NodeOperator] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
NUMBERS = ["5", "-3", "+7", "007", "12", "9223372036854775807", "9223372036854775808", "1.5"]
VALUES = st.sampled_from(["", "a", "b", *NUMBERS])


@st.composite
def requirements(draw: st.DrawFn) -> NodeSelectorRequirement:
    operator = draw(st.sampled_from(OPERATORS))
    least, most = {"In": (1, 4), "NotIn": (1, 4), "Gt": (1, 1), "Lt": (1, 1)}.get(operator, (0, 0))
    return expr(
        draw(st.sampled_from(["size", "other"])), operator, *draw(st.lists(VALUES, min_size=least, max_size=most))
    )


@settings(deadline=None, max_examples=300)
@given(st.lists(st.none() | VALUES, max_size=12), st.lists(requirements(), min_size=1, max_size=5))
def test_requirements_over_columns_agree_with_the_reference(
    labels: list[str | None], wanted: list[NodeSelectorRequirement]
) -> None:
    table = NodeTable(capacity=4)
    for i, value in enumerate(labels):
        built = node(f"n{i}")
        table.add_node((built if value is None else built.label(size=value)).build())
    for requirement in wanted:
        mask = match_requirement(TableView(table), requirement)
        for row, built_node in table.nodes():
            assert bool(mask[row]) == requirement_matches(requirement, built_node.metadata.labels)


def test_values_that_no_node_has_any_more_do_no_harm() -> None:
    table = NodeTable()
    table.add_node(node("a").label(size="12").build())
    table.columns.of_nodes(LabelValue("size"))
    table.upsert_node(node("a").label(size="x").build())
    table.add_node(node("b").label(size="13").build())
    matched = {op: match_requirement(TableView(table), expr("size", op, "12")).tolist() for op in COMPARING}
    assert matched["In"] == [False, False]
    assert matched["Gt"] == [False, True]
    assert matched["NotIn"] == [True, True]


def test_a_part_of_a_column_can_be_matched() -> None:
    table = NodeTable()
    for i in range(4):
        table.add_node(node(f"n{i}").label(size=str(i)).build())
    part = TableView(table, np.array([3, 1]))
    assert match_requirement(part, expr("size", "Gt", "1")).tolist() == [True, False]
    assert match_requirement(part, expr("size", "In", "1", "2")).tolist() == [False, True]
    assert match_requirement(part.take(np.zeros(0, dtype=np.intp)), expr("size", "Gt", "1")).tolist() == []


def everything(_: LabelClass) -> bool:
    return True


def test_pods_that_a_selector_cannot_distinguish_share_a_class() -> None:
    classes = LabelClasses()
    base = pod("p").label(app="web", tier="front")
    one = classes.class_of(load_of(base.request(cpu="1").build()))
    assert one == classes.class_of(load_of(pod("q").label(tier="front").label(app="web").host_port(80).build()))
    for different in (base.namespace("x"), base.label(app="db"), base.terminating(), pod("p").label(app="web")):
        assert classes.class_of(load_of(different.build())) != one
    assert one.label_map() == {"app": "web", "tier": "front"}


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=60),
    st.sets(st.integers(0, 4)),
)
def test_counts_follow_added_and_removed_pods(changes: list[tuple[int, int, bool]], asked: set[int]) -> None:
    classes = LabelClasses()
    known = [classes.class_of(PodLoad(namespace="n", labels={"app": str(i)})) for i in range(5)]
    present: dict[tuple[int, int], int] = {}
    for number, row, comes in changes:
        if comes:
            classes.add(known[number], row)
            present[number, row] = present.get((number, row), 0) + 1
        elif present.get((number, row)):
            classes.remove(known[number], row)
            present[number, row] -= 1
    expected: dict[int, int] = {}
    for (number, row), count in present.items():
        if count and number in asked:
            expected[row] = expected.get(row, 0) + count
    wanted = {known[number] for number in asked}
    assert classes.counts(lambda label_class: label_class in wanted) == expected
    assert len(classes) == len({number for (number, _), count in present.items() if count})
    assert sum(classes.counts(everything).values()) == sum(present.values())


def test_a_predicate_is_evaluated_once_per_class() -> None:
    table = NodeTable()
    table.add_node(node("a").build())
    for i in range(20):
        table.add_pod(f"u{i}", "a", load_of(pod("p").label(app=str(i % 2)).build()))
    asked: list[LabelClass] = []

    def is_first(label_class: LabelClass) -> bool:
        asked.append(label_class)
        return label_class.label_map() == {"app": "0"}

    assert table.label_classes.counts(is_first) == {table.row_of("a"): 10}
    assert len(asked) == 2
