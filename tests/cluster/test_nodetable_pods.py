from collections.abc import Callable

import numpy as np
import pytest

from shared.cluster.nodetable import NodeTable
from shared.errors import ClusterError
from shared.model.load import PodLoad, load_of
from shared.model.objects import LabelSelector
from shared.model.resources import NON_ZERO_CPU, NON_ZERO_MEMORY
from testing.builders import node, pod
from tests.cluster.dump import PORT, by_name, dump

SMALL = load_of(pod("p").label(app="web").request(cpu="500m").host_port(80).build())
LARGE = load_of(pod("q").request(cpu="2", memory="1Gi").request({"example.com/r": 1}).build())
CHEAP = {"cpu": 500, "pods": 1}
DEAR = {"cpu": 2000, "memory": 1 << 30, "example.com/r": 1, "pods": 1}


@pytest.fixture
def table() -> NodeTable:
    return two_nodes()


def two_nodes() -> NodeTable:
    table = NodeTable()
    for name in ("a", "b"):
        table.add_node(node(name).capacity(cpu="4", memory="8Gi").build())
    return table


def used(table: NodeTable) -> dict[str, dict[str, int]]:
    return {name: known["used"] for name, known in by_name(table).items()}


def test_a_pod_occupies_and_frees_resources(table: NodeTable) -> None:
    empty = by_name(table)
    table.add_pod("u", "a", SMALL)
    assert used(table) == {"a": CHEAP, "b": {}}
    known = by_name(table)["a"]
    assert known["non-zero"] == [500, NON_ZERO_MEMORY]
    assert (known["pods"], known["port"], known["uids"]) == (1, 1, ["u"])
    assert (table.node_of("u"), table.pod_count) == ("a", 1)
    table.remove_pod("u")
    assert by_name(table) == empty
    assert (table.node_of("u"), table.pod_count) == (None, 0)


def test_pods_add_up(table: NodeTable) -> None:
    table.add_pod("u", "a", SMALL)
    table.add_pod("v", "a", SMALL)
    table.add_pod("w", "a", LARGE)
    row = table.row_of("a")
    assert row is not None
    assert used(table)["a"] == {"cpu": 3000, "memory": 1 << 30, "example.com/r": 1, "pods": 3}
    assert table.loads_at(row) == [SMALL, SMALL, LARGE]
    table.remove_pod("u")
    assert used(table)["a"] == {"cpu": 2500, "memory": 1 << 30, "example.com/r": 1, "pods": 2}


def test_a_pod_without_requests_counts_with_defaults_for_scoring_only(table: NodeTable) -> None:
    table.add_pod("u", "a", load_of(pod("p").build()))
    assert used(table)["a"] == {"pods": 1}
    assert by_name(table)["a"]["non-zero"] == [NON_ZERO_CPU, NON_ZERO_MEMORY]


def test_the_same_pod_again_changes_nothing(table: NodeTable) -> None:
    table.add_pod("u", "a", SMALL)
    before, position = by_name(table), table.load_log.position
    table.add_pod("u", "a", SMALL)
    assert by_name(table) == before
    assert table.load_log.position == position


def test_a_pod_moves_to_the_node_it_is_added_to(table: NodeTable) -> None:
    table.add_pod("u", "a", SMALL)
    table.add_pod("u", "b", SMALL)
    assert used(table) == {"a": {}, "b": CHEAP}
    assert (table.node_of("u"), table.pod_count) == ("b", 1)


def test_a_pod_occupies_what_it_was_added_with_last(table: NodeTable) -> None:
    table.add_pod("u", "a", SMALL)
    position = table.load_log.position
    table.add_pod("u", "a", LARGE)
    assert used(table) == {"a": DEAR, "b": {}}
    rows = table.load_log.since(position)
    assert rows is not None
    assert rows.tolist() == [table.row_of("a")]


def placed(table: NodeTable) -> dict[str, tuple[int, PodLoad, str, float | None]]:
    pods = (pod for row in range(table.size) for pod in table.placed_at(row))
    return {uid: (pod.row, pod.kind.load, pod.key, pod.started) for uid, pod in pods}


ALIKE = [(f"u{number}", "ab"[number % 3 == 0], f"default/u{number}", float(number)) for number in range(9)]
"""New pods: three on b, the others on a."""
WEB = LabelSelector(match_labels={"app": "web"})
AFFINE = load_of(pod("r").label(app="db").request(cpu="1").require_no_pods("zone", WEB).build())


@pytest.mark.parametrize("load", [SMALL, LARGE, AFFINE])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_pods_added_together_count_as_those_added_one_by_one(table: NodeTable, load: PodLoad, count: int) -> None:
    other = two_nodes()
    port = table.columns.of_pods(PORT)
    for each in (table, other):
        each.add_pod("before", "a", SMALL)
    generations, position = table.generation.copy(), table.load_log.position
    table.add_pods(table.kind(load), ALIKE[:count])
    for uid, name, key, started in ALIKE[:count]:
        other.add_pod(uid, name, load, key, started)
    assert by_name(table) == by_name(other)
    assert placed(table) == placed(other)
    assert list(table.terms) == list(other.terms)
    assert table.columns.of_pods(PORT) is port  # it was kept current
    changed = {table.row_of(name) for _, name, _, _ in ALIKE[:count]}
    assert set(np.flatnonzero(table.generation != generations).tolist()) == changed
    logged = table.load_log.since(position)
    assert logged is not None
    assert set(logged.tolist()) == changed
    table.validate()
    for uid, *_ in ALIKE[:count]:
        table.remove_pod(uid)
        other.remove_pod(uid)
    assert by_name(table) == by_name(other)
    table.validate()


def test_of_pods_added_together_some_may_move_or_be_named_twice(table: NodeTable) -> None:
    kind = table.kind(SMALL)
    table.add_pod("u1", "b", LARGE)
    table.add_pods(kind, [*ALIKE, ("u2", "b", "default/u2", None)])
    assert {uid: table.node_of(uid) for uid, *_ in ALIKE} == {uid: name for uid, name, *_ in ALIKE} | {"u2": "b"}
    assert used(table) == {"a": {"cpu": 2500, "pods": 5}, "b": {"cpu": 2000, "pods": 4}}
    table.validate()


def test_pods_of_an_unknown_node_are_refused_together(table: NodeTable) -> None:
    before = dump(table)
    with pytest.raises(ClusterError, match=r"Pod u9: spec.nodeName: no node 'c' is known"):
        table.add_pods(table.kind(SMALL), [*ALIKE, ("u9", "c", "default/u9", None)])
    assert dump(table) == before


def test_a_load_may_come_in_its_shared_form(table: NodeTable) -> None:
    kind = table.kind(LARGE)
    table.add_pod("u", "a", kind)
    table.add_pod("v", "b", LARGE)
    table.add_pod("v", "b", kind)
    assert used(table) == {"a": DEAR, "b": DEAR}
    assert [load for _, _, load in table.placed()] == [LARGE, LARGE]


def test_a_shared_form_that_went_unused_still_counts(table: NodeTable) -> None:
    kept = table.kind(LARGE)
    for i in range(3000):
        table.kind(load_of(pod("p").request(cpu=f"{i}m").build()))
    table.add_pod("u", "a", LARGE)
    table.add_pod("u", "a", kept)
    table.add_pod("v", "a", LARGE)
    assert used(table)["a"] == {name: 2 * amount for name, amount in DEAR.items()}
    for uid in "uv":
        table.remove_pod(uid)
    assert used(table)["a"] == {}


def test_a_rows_generation_changes_with_the_row_and_with_nothing_else(table: NodeTable) -> None:
    a, b = table.row_of("a"), table.row_of("b")
    assert a is not None
    assert b is not None
    before = table.generation.copy()
    table.add_pod("u", "a", load_of(pod("p").build()))
    placed = table.generation.copy()
    assert placed[a] > before[a]
    assert placed[b] == before[b]
    table.remove_pod("u")
    assert table.generation[a] > placed[a]
    table.upsert_node(node("b").capacity(cpu=7).build())
    assert table.generation[b] > placed[b]


def test_a_pod_changes_the_load_log_only(table: NodeTable) -> None:
    changes: list[Callable[[], None]] = [
        lambda: table.add_pod("u", "a", SMALL),
        lambda: table.remove_pod("u"),
    ]
    for change in changes:
        node_position, load_position = table.node_log.position, table.load_log.position
        change()
        rows = table.load_log.since(load_position)
        assert rows is not None
        assert rows.tolist() == [table.row_of("a")]
        assert table.node_log.position == node_position


@pytest.mark.parametrize(
    ("step", "fault", "message"),
    [
        (lambda t: t.add_pod("new", "x", SMALL), ClusterError, r"^Pod new: spec\.nodeName: no node 'x' is known$"),
        (lambda t: t.add_pod("bound", "x", LARGE), ClusterError, r"^Pod bound: spec\.nodeName: no node 'x' is known$"),
        (lambda t: t.remove_pod("new"), ClusterError, r"^Pod new: metadata\.uid: no pod of this uid"),
    ],
)
def test_an_invalid_change_is_refused_and_changes_nothing(
    table: NodeTable, step: Callable[[NodeTable], None], fault: type[ClusterError], message: str
) -> None:
    table.add_pod("bound", "a", SMALL)
    before = dump(table)
    with pytest.raises(fault, match=message):
        step(table)
    assert dump(table) == before
