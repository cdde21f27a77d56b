from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.plugin import ABSENT, NodeColumn, PodColumn
from shared.cluster.columns import Columns, IntColumn
from shared.cluster.nodetable import NodeTable
from shared.errors import ClusterError
from shared.model.load import PodLoad, load_of
from shared.model.objects import Node
from testing.builders import node, pod
from tests.cluster.history import NAMES, STEPS, Step, apply


@dataclass(frozen=True)
class TaintCount(NodeColumn):
    """How many taints a node has, plus a constant that tells one column from another."""

    plus: int = 0

    def value(self, node: Node) -> int:
        return len(node.spec.taints) + self.plus


@dataclass(frozen=True)
class PodsOf(PodColumn):
    namespace: str

    def amount(self, pod: PodLoad) -> int:
        return int(pod.namespace == self.namespace)


class Counted(TaintCount):
    """Tells how often it was computed."""

    asked: ClassVar[list[str]] = []

    def value(self, node: Node) -> int:
        Counted.asked.append(node.name)
        return super().value(node)


@pytest.fixture
def table() -> NodeTable:
    table = NodeTable()
    table.add_node(node("a").taint("x").taint("y").build())
    table.add_node(node("b").build())
    return table


def at(column: IntColumn, table: NodeTable, name: str) -> int:
    row = table.row_of(name)
    assert row is not None
    return int(column[row])


def test_a_column_is_filled_when_first_read_and_kept_up(table: NodeTable) -> None:
    column = table.columns.of_nodes(TaintCount())
    assert (at(column, table, "a"), at(column, table, "b")) == (2, 0)
    table.upsert_node(node("b").taint("z").build())
    table.add_node(node("c").taint("z").build())
    column = table.columns.of_nodes(TaintCount())
    assert [at(column, table, name) for name in "abc"] == [2, 1, 1]


def test_equal_specs_share_one_column(table: NodeTable) -> None:
    Counted.asked.clear()
    first = table.columns.of_nodes(Counted())
    assert table.columns.of_nodes(Counted()) is first
    assert sorted(Counted.asked) == ["a", "b"]
    table.upsert_node(node("b").build())
    table.columns.of_nodes(Counted())
    assert sorted(Counted.asked) == ["a", "b", "b"]
    assert len(table.columns) == 1


def test_a_removed_node_is_absent(table: NodeTable) -> None:
    by_node, by_load = table.columns.of_nodes(TaintCount()), table.columns.of_pods(PodsOf("default"))
    table.add_pod("u", "a", load_of(pod("p").build()))
    row = table.row_of("a")
    assert row is not None
    assert (by_node[row], by_load[row]) == (2, 1)
    table.remove_node("a")
    assert table.columns.of_nodes(TaintCount())[row] == ABSENT
    assert table.columns.of_pods(PodsOf("default"))[row] == 0


def test_rows_without_a_node_are_absent(table: NodeTable) -> None:
    column = table.columns.of_nodes(TaintCount())
    assert len(column) == table.capacity
    assert set(column[2:].tolist()) == {ABSENT}


def test_the_least_recently_read_column_is_evicted(table: NodeTable) -> None:
    columns = Columns(table, limit=2)
    for plus in (1, 2):
        columns.of_nodes(Counted(plus))
    columns.of_nodes(Counted(1))
    columns.of_nodes(Counted(3))
    assert len(columns) == 2
    Counted.asked.clear()
    for plus in (1, 3):
        columns.of_nodes(Counted(plus))
    assert Counted.asked == []
    columns.of_nodes(Counted(2))
    assert sorted(Counted.asked) == ["a", "b"]
    for namespace in "uvwxyz":
        columns.of_pods(PodsOf(namespace))
        assert at(columns.of_pods(PodsOf(namespace)), table, "a") == 0
    assert len(columns) == 4


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=40))
def test_a_column_kept_up_equals_one_filled_now(history: list[tuple[Step, bool]]) -> None:
    table = NodeTable(capacity=2)
    specs, loads = [TaintCount(), TaintCount(5)], [PodsOf("default"), PodsOf("other")]
    for name in NAMES[:2]:
        table.add_node(node(name).build())
    for step, read in history:
        if read:
            for spec in specs:
                table.columns.of_nodes(spec)
            for load in loads:
                table.columns.of_pods(load)
        try:
            apply(table, step)
        except ClusterError:
            continue
    fresh = Columns(table)
    for spec in specs:
        assert table.columns.of_nodes(spec).tolist() == fresh.of_nodes(spec).tolist()
    for load in loads:
        assert table.columns.of_pods(load).tolist() == fresh.of_pods(load).tolist()
