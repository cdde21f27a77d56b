"""Domain counts against counting pod by pod, and their merge over shards."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.cluster.nodetable import NodeTable, shard_of
from shared.cluster.topology import PodCount, merge_counts, pod_count
from shared.model.load import load_of
from shared.model.objects import LabelSelectorRequirement, Pod
from testing.builders import PodBuilder, node, pod, selector
from tests.cluster.dump import domain_counts

WEB = selector(app="web")


def table_of(*nodes: tuple[str, str | None]) -> NodeTable:
    """Nodes by name and zone."""
    table = NodeTable(capacity=2)
    for name, zone in nodes:
        table.add_node((node(name).label(zone=zone) if zone is not None else node(name)).build())
    return table


def place(table: NodeTable, on: str, *pods: PodBuilder) -> None:
    for builder in pods:
        built: Pod = builder.build()
        table.add_pod(built.uid, on, load_of(built))


def per_node(table: NodeTable, count: PodCount) -> dict[str, int]:
    column = table.columns.of_pods(count)
    return {name: int(column[row]) for name in table.names if (row := table.row_of(name)) is not None}


def test_only_matching_pods_of_the_namespaces_count() -> None:
    table = table_of(("n1", "a"), ("n2", "b"))
    place(table, "n1", pod("1").label(app="web"), pod("2").label(app="web", tier="x"), pod("3").label(app="db"))
    place(table, "n1", pod("4", "shop").label(app="web"), pod("5").label(app="web").terminating())
    place(table, "n2", pod("6"))
    assert per_node(table, pod_count(["default"], WEB)) == {"n1": 2, "n2": 0}
    assert per_node(table, pod_count(["default"], WEB, with_terminating=True)) == {"n1": 3, "n2": 0}
    assert per_node(table, pod_count(["default", "shop"], WEB)) == {"n1": 3, "n2": 0}
    assert per_node(table, pod_count(["default"], selector())) == {"n1": 3, "n2": 1}
    assert per_node(table, pod_count(["default"], None)) == {"n1": 0, "n2": 0}
    assert per_node(table, pod_count([], selector())) == {"n1": 0, "n2": 0}


def test_expressions_count_too() -> None:
    table = table_of(("n1", "a"))
    place(table, "n1", pod("1").label(app="web"), pod("2").label(app="db"), pod("3"))
    not_web = selector({}, LabelSelectorRequirement(key="app", operator="NotIn", values=["web"]))
    assert per_node(table, pod_count(["default"], not_web)) == {"n1": 2}


def test_equal_counts_share_one_column() -> None:
    table = table_of(("n1", "a"))
    one = pod_count(["x", "y"], selector({"a": "1", "b": "2"}))
    same = pod_count(["y", "x"], selector({"b": "2", "a": "1"}))
    assert one == same
    assert hash(one) == hash(same)
    assert table.columns.of_pods(one) is table.columns.of_pods(same)
    different = [
        pod_count(["x"], one.selector),
        pod_count(["x", "y"], selector({"a": "1"})),
        pod_count(["x", "y"], None),
        pod_count(["x", "y"], selector()),
        pod_count(["x", "y"], one.selector, with_terminating=True),
    ]
    assert len({one, *different}) == 1 + len(different)


def test_a_column_follows_pods_and_nodes() -> None:
    table = table_of(("n1", "a"), ("n2", "a"))
    count = pod_count(["default"], WEB)
    assert domain_counts(table, "zone", count) == {"a": 0}
    place(table, "n1", pod("1").label(app="web"), pod("2").label(app="web"))
    assert domain_counts(table, "zone", count) == {"a": 2}
    place(table, "n2", pod("2").label(app="web"))  # bound elsewhere than was assumed
    assert per_node(table, count) == {"n1": 1, "n2": 1}
    place(table, "n1", pod("1").label(app="web").terminating())
    assert domain_counts(table, "zone", count) == {"a": 1}
    table.upsert_node(node("n2").label(zone="b").build())
    assert domain_counts(table, "zone", count) == {"a": 0, "b": 1}
    table.remove_node("n2")
    assert domain_counts(table, "zone", count) == {"a": 0}
    table.remove_pod("default/1")
    table.remove_node("n1")
    assert domain_counts(table, "zone", count) == {}


def test_a_table_that_grows_keeps_its_counts() -> None:
    table = table_of(("n1", "a"), ("n2", "b"))
    count = pod_count(["default"], WEB)
    place(table, "n1", pod("1").label(app="web"))
    assert domain_counts(table, "zone", count) == {"a": 1, "b": 0}
    for i in range(3, 9):
        table.add_node(node(f"n{i}").label(zone="c").build())
    assert domain_counts(table, "zone", count) == {"a": 1, "b": 0, "c": 0}


def test_nodes_without_the_label_are_in_no_domain() -> None:
    table = table_of(("n1", "a"), ("n2", None), ("n3", ""))
    for name in ("n1", "n2", "n3"):
        place(table, name, pod(f"on-{name}").label(app="web"))
    assert domain_counts(table, "zone", pod_count(["default"], WEB)) == {"a": 1, "": 1}
    assert domain_counts(table, "rack", pod_count(["default"], WEB)) == {}


def test_merging_adds_up_and_changes_neither_part() -> None:
    one, other = {"a": 1, "b": 0}, {"b": 2, "c": 0}
    assert merge_counts(one, other) == merge_counts(other, one) == {"a": 1, "b": 2, "c": 0}
    assert (one, other) == ({"a": 1, "b": 0}, {"b": 2, "c": 0})
    assert merge_counts({}, one) == one


ZONES = st.sampled_from([None, "a", "b", "c"])
PODS = st.tuples(st.integers(0, 7), st.sampled_from(["default", "shop"]), st.sampled_from(["web", "db"]), st.booleans())


@given(
    zones=st.lists(ZONES, min_size=1, max_size=8),
    pods=st.lists(PODS, max_size=20),
    gone=st.sets(st.integers(0, 19)),
    early=st.booleans(),
)
def test_counts_equal_counting_one_by_one_in_any_number_of_shards(
    zones: list[str | None], pods: list[tuple[int, str, str, bool]], gone: set[int], early: bool
) -> None:
    """`early`: the columns are filled before the pods come, and so have to follow them."""
    count = pod_count(["default"], WEB)
    expected: Counter[str] = Counter({zone: 0 for zone in zones if zone is not None})
    for i, (at, namespace, app, terminating) in enumerate(pods):
        zone = zones[at % len(zones)]
        if zone is not None and (namespace, app, terminating) == ("default", "web", False) and i not in gone:
            expected[zone] += 1
    for shards in (1, 2, 3):
        tables = [NodeTable(capacity=2) for _ in range(shards)]
        for i, zone in enumerate(zones):
            tables[shard_of(f"n{i}", shards)].add_node(table_of((f"n{i}", zone)).node_at(0))
        if early:
            for table in tables:
                domain_counts(table, "zone", count)
        for i, (at, namespace, app, terminating) in enumerate(pods):
            name = f"n{at % len(zones)}"
            builder = pod(f"p{i}", namespace).label(app=app)
            table = tables[shard_of(name, shards)]
            place(table, name, builder.terminating() if terminating else builder)
            if i in gone:
                table.remove_pod(f"{namespace}/p{i}")
        merged: dict[str, int] = {}
        for table in tables:
            merged = merge_counts(merged, domain_counts(table, "zone", count))
        assert merged == dict(expected)
