from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.columns import Rows
from shared.cluster.load_kind import PODS
from shared.cluster.nodetable import NodeTable
from shared.framework.pod_class import Keys
from shared.framework.ranking import NameRanks, Salts, random_ties, salt
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from testing.builders import node, pod


def table_of(names: Iterable[str], pods: int = 0) -> NodeTable:
    table = NodeTable(capacity=2)
    for name in names:
        table.add_node(node(name).build())
        for i in range(pods):
            table.add_pod(f"{name}-{i}", name, load_of(pod("p").build()))
    return table


def draws(table: NodeTable, salted: np.uint64, bits: int = 40) -> dict[str, int]:
    return dict(zip(table.names, draw(table, salted, bits).tolist(), strict=True))


def draw(table: NodeTable, salts: Salts | np.uint64, bits: int = 40, rows: slice | Rows | None = None) -> Keys:
    index = slice(0, table.size) if rows is None else rows
    return random_ties(table.name_hash[index], table.used[PODS, index], salts, bits)


SALT = salt(Ties(seed=1), "class")


@settings(deadline=None, max_examples=50)
@given(st.permutations(["a", "b", "c", "d", "e"]), st.integers(0, 2**64 - 1))
def test_a_draw_is_the_same_wherever_a_node_lives(order: list[str], salt: np.uint64) -> None:
    alone = {name: draws(table_of([name]), salt)[name] for name in order}
    assert draws(table_of(order), salt) == alone


def test_a_view_of_some_rows_draws_alike() -> None:
    table = table_of("abcde")
    rows = np.array([4, 1], dtype=np.intp)
    some = draw(table, np.uint64(SALT), rows=rows)
    assert some.tolist() == [draws(table, SALT)["e"], draws(table, SALT)["b"]]


def test_several_classes_draw_at_once_what_each_draws_alone() -> None:
    table = table_of("abc")
    salts = [salt(Ties(), name) for name in "xyz"]
    together = draw(table, np.array(salts, dtype=np.uint64)[:, None])
    assert together.tolist() == [list(draws(table, salt).values()) for salt in salts]


def test_classes_seeds_and_pod_counts_draw_again() -> None:
    names = [f"n{i}" for i in range(50)]
    seen = [
        draws(table_of(names), SALT),
        draws(table_of(names, pods=1), SALT),
        draws(table_of(names, pods=2), SALT),
        draws(table_of(names), salt(Ties(seed=1), "other")),
        draws(table_of(names), salt(Ties(seed=2), "class")),
    ]
    numbers = [number for each in seen for number in each.values()]
    assert len(set(numbers)) == len(numbers)
    assert len({max(each, key=each.__getitem__) for each in seen}) > 1


def test_draws_fill_their_bits_evenly() -> None:
    names = [f"node-{i}" for i in range(4000)]
    for bits in (21, 52):
        numbers = np.array(list(draws(table_of(names), SALT, bits).values()))
        assert numbers.min() >= 0
        assert numbers.max() < 1 << bits
        in_eighths = np.bincount(numbers >> (bits - 3), minlength=8)
        assert (abs(in_eighths - 500) < 125).all()


def ranked(ranks: NameRanks, table: NodeTable) -> list[str]:
    """The names of the table's nodes, the largest rank first."""
    rows = np.array([row for row, _ in table.nodes()], dtype=np.intp)
    order = np.argsort(-ranks.of(rows))
    return [table.names[row] for row in rows[order].tolist()]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=25))
def test_ranks_order_by_name_however_nodes_come_and_go(changes: list[tuple[str, bool]]) -> None:
    table = NodeTable(capacity=2)
    ranks = NameRanks(table)
    for name, comes in changes:
        if comes:
            table.upsert_node(node(name).build())
        elif name in table:
            table.remove_node(name)
        assert ranked(ranks, table) == sorted(node.name for _, node in table.nodes())
