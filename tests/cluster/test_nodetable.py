"""Nodes of a NodeTable; their pods are in test_nodetable_pods."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.plugin import ABSENT, LabelValue
from shared.cluster.load_kind import CPU, MEMORY, PODS
from shared.cluster.nodetable import NodeTable
from shared.errors import ClusterError, InvalidObject, InvariantBroken
from shared.model.load import load_of
from shared.model.objects import Node
from testing.builders import NodeBuilder, node, pod
from tests.cluster.dump import LABELS, PORT, by_name, dump, label_at
from tests.cluster.history import STEPS, Model, Step, apply

BIG = node("a").capacity(cpu="4", memory="8Gi").label(zone="east").taint("t").image("web:1", 5)


def row_of(table: NodeTable, name: str) -> int:
    row = table.row_of(name)
    assert row is not None
    return row


def changed(table: NodeTable, log: str, position: int) -> list[str] | None:
    rows = getattr(table, log).since(position)
    return None if rows is None else sorted(table.names[row] for row in rows)


def test_a_node_as_columns() -> None:
    table = NodeTable()
    table.add_node(BIG.unschedulable().build())
    row = row_of(table, "a")
    assert table.allocatable[[CPU, MEMORY, PODS], row].tolist() == [4000, 8 << 30, 110]
    assert table.valid[row]
    assert table.unschedulable[row]
    assert [taint.key for taint in table.taint_sets.items[table.taint_set[row]]] == ["t"]
    assert (table.node_count, table.pod_count, "a" in table, "b" in table) == (1, 0, True, False)
    assert table.node_at(row) == BIG.unschedulable().build()


def test_equal_taints_share_a_set() -> None:
    table = NodeTable()
    for name, keys in (("a", "xy"), ("b", "xy"), ("c", "x"), ("d", "")):
        built = node(name)
        for key in keys:
            built = built.taint(key)
        table.add_node(built.build())
    sets = [int(table.taint_set[row_of(table, name)]) for name in "abcd"]
    assert sets[0] == sets[1]
    assert len(set(sets)) == 3


def test_adding_a_node_twice_is_refused() -> None:
    table = NodeTable()
    table.add_node(BIG.build())
    before = dump(table)
    with pytest.raises(ClusterError, match=r"^Node a: metadata\.name: .*already known"):
        table.add_node(node("a").build())
    assert dump(table) == before


def test_a_changed_node_keeps_its_row_and_its_pods() -> None:
    table = NodeTable()
    table.upsert_node(BIG.build())
    table.add_pod("u", "a", load_of(pod("p").request(cpu="1").build()))
    row = table.row_of("a")
    table.upsert_node(node("a").capacity(cpu="2").label(disk="5").build())
    assert table.row_of("a") == row
    known = by_name(table)["a"]
    assert known["allocatable"] == {"cpu": 2000, "pods": 110}
    assert known["labels"] == {"zone": None, "disk": "5"}
    assert (known["taints"], known["unschedulable"]) == ((), False)
    assert known["used"] == {"cpu": 1000, "pods": 1}


def test_removing_a_node_forgets_its_pods() -> None:
    table = NodeTable()
    table.add_node(BIG.build())
    table.add_node(node("b").build())
    load = load_of(pod("p").request(cpu="1").build())
    table.add_pod("u1", "a", load)
    table.add_pod("u2", "a", load)
    table.add_pod("u3", "b", load)
    row = row_of(table, "a")
    assert sorted(table.remove_node("a")) == ["u1", "u2"]
    assert not table.valid[row]
    assert "a" not in table
    assert table.node_of("u1") is None
    assert table.node_of("u3") == "b"
    assert [uid for uid, _, _ in table.placed()] == ["u3"]
    assert not table.used[:, row].any()
    assert not table.allocatable[:, row].any()
    with pytest.raises(InvariantBroken):
        table.node_at(row)


def test_removing_an_unknown_node_is_refused() -> None:
    table = NodeTable()
    table.add_node(BIG.build())
    before = dump(table)
    with pytest.raises(ClusterError, match=r"^Node x: metadata\.name: no such node"):
        table.remove_node("x")
    assert dump(table) == before


def test_rows_of_removed_nodes_are_used_again_and_clean() -> None:
    table = NodeTable(capacity=2)
    table.add_node(BIG.build())
    table.add_node(node("b").build())
    table.columns.of_nodes(LabelValue("zone"))
    table.columns.of_pods(PORT)
    table.add_pod("u", "a", load_of(pod("p").host_port(80).request({"example.com/r": 1}).build()))
    row = table.row_of("a")
    table.remove_node("a")
    table.add_node(node("c").build())
    assert table.row_of("c") == row
    assert (table.size, table.capacity) == (2, 2)
    fresh = NodeTable()
    fresh.add_node(node("c").build())
    assert by_name(table)["c"] == by_name(fresh)["c"]


def test_growth_keeps_the_columns_and_invalidates_the_logs() -> None:
    table, roomy = NodeTable(capacity=2), NodeTable(capacity=64)
    positions = {}
    for i in range(9):
        for each in (table, roomy):
            each.add_node(BIG.label(disk=str(i % 3)).build() if i == 0 else node(f"n{i}").label(disk="5").build())
            each.add_pod(f"u{i}", "a", load_of(pod("p").request(cpu="1").host_port(80).build()))
            by_name(each)
        if i == 1:
            positions = {log: getattr(table, log).position for log in ("node_log", "load_log")}
    assert table.capacity >= 9
    assert by_name(table) == by_name(roomy)
    for log, position in positions.items():
        assert changed(table, log, position) is None
    for name in ("allocatable", "used", "non_zero", "valid", "unschedulable", "taint_set", "name_hash"):
        assert getattr(table, name).shape[-1] == table.capacity


def test_many_extended_resources_grow_the_matrix() -> None:
    table = NodeTable()
    table.add_node(BIG.build())
    table.add_pod("u", "a", load_of(pod("p").request(cpu="1").build()))
    many = {f"example.com/r{i}": i + 1 for i in range(20)}
    table.add_node(node("b").capacity(many).build())
    table.add_pod("v", "b", load_of(pod("p").request({"example.com/only-asked-for": 3}).build()))
    known = by_name(table)
    assert known["a"]["allocatable"] == {"cpu": 4000, "memory": 8 << 30, "pods": 110}
    assert known["a"]["used"] == {"cpu": 1000, "pods": 1}
    assert known["b"]["allocatable"] == {"pods": 110, **many}
    assert known["b"]["used"] == {"example.com/only-asked-for": 3, "pods": 1}
    assert len(table.allocatable) == len(table.used) >= len(table.resources)


@pytest.mark.parametrize(
    ("malformed", "field"),
    [
        (node("").build(), "metadata.name"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_a_malformed_node_leaves_the_table_as_it_was(malformed: Node, field: str, known: bool) -> None:
    table = NodeTable(capacity=1)
    table.add_node(BIG.build() if known else node("other").build())
    before = dump(table)
    with pytest.raises(InvalidObject) as caught:
        table.upsert_node(malformed)
    assert caught.value.field == field
    assert str(caught.value).startswith("Node ")
    assert dump(table) == before


@pytest.mark.parametrize("edit", [BIG.label(zone="west"), BIG.capacity(cpu="5"), BIG.taint("x"), BIG.unschedulable()])
def test_a_node_change_is_in_both_logs(edit: NodeBuilder) -> None:
    table = NodeTable()
    table.add_node(BIG.build())
    table.add_node(node("b").build())
    positions = table.node_log.position, table.load_log.position
    table.upsert_node(edit.build())
    assert changed(table, "node_log", positions[0]) == ["a"]
    assert changed(table, "load_log", positions[1]) == ["a"]
    positions = table.node_log.position, table.load_log.position
    table.remove_node("b")
    assert changed(table, "node_log", positions[0]) == ["b"]
    assert changed(table, "load_log", positions[1]) == ["b"]


def test_the_hash_of_a_name_is_the_same_in_every_table() -> None:
    one, other = NodeTable(), NodeTable()
    for name in "abc":
        one.add_node(node(name).build())
    for name in "cab":
        other.add_node(node(name).build())
    hashes = {name: int(one.name_hash[row_of(one, name)]) for name in "abc"}
    assert hashes == {name: int(other.name_hash[row_of(other, name)]) for name in "abc"}
    assert len(set(hashes.values())) == 3


@settings(deadline=None, max_examples=150)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_a_history_equals_its_outcome(steps: list[Step], columns_from_the_start: bool) -> None:
    """Only the outcome counts."""
    table, model = NodeTable(capacity=2), Model()
    for step in steps:
        if columns_from_the_start:
            by_name(table)
        before = dump(table)
        fault = model.apply(step)
        if fault is None:
            apply(table, step)
        else:
            with pytest.raises(fault):
                apply(table, step)
            assert dump(table) == before
    fresh = model.rebuilt()
    assert by_name(table) == by_name(fresh)
    assert set(by_name(table)) == set(model.nodes)
    assert {uid: (place, load) for uid, place, load in table.placed()} == model.pods
    assert len(table.label_classes) == len(fresh.label_classes)
    unused = ~table.valid
    for column in (table.allocatable, table.used, table.non_zero):
        assert not column[:, unused].any()
    for key in LABELS:
        column = table.columns.of_nodes(LabelValue(key))
        assert np.array_equal(column[unused], np.full(int(unused.sum()), ABSENT))
        for row, built in table.nodes():
            assert label_at(table, key, row) == built.metadata.labels.get(key)
    assert not table.columns.of_pods(PORT)[unused].any()
