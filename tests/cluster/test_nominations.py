"""Nominations in a table whose nodes come and go."""

from hypothesis import given
from hypothesis import strategies as st

from shared.cluster import nominations
from shared.cluster.nodetable import NodeTable
from shared.cluster.nominations import NO_ROW
from shared.model.load import PodLoad, load_of
from shared.model.objects import ObjectKind, object_from
from testing.builders import node, pod

NODES, UIDS = st.sampled_from(["a", "b", "c"]), st.sampled_from([f"u{i}" for i in range(80)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("nominate"), UIDS, NODES, st.integers(0, 3)),
        st.tuples(st.just("end"), UIDS, st.none(), st.none()),
        st.tuples(st.sampled_from(["add", "remove"]), st.none(), NODES, st.none()),
    ),
    max_size=120,
)


def load(priority: int) -> PodLoad:
    return load_of(pod("p").priority(priority).build())


@given(STEPS)
def test_entries_follow_pods_and_nodes(steps: list[tuple[str, str | None, str | None, int | None]]) -> None:
    table, expected = NodeTable(capacity=4), dict[str, str]()
    for what, uid, on, priority in steps:
        version, before = table.nominations.version, table.nominations.rows.tolist()
        match what, uid, on, priority:
            case "nominate", str(), str(), int():
                table.nominate(uid, on, load(priority))
                expected[uid] = on
            case "end", str(), _, _:
                table.denominate(uid)
                expected.pop(uid, None)
            case "add", _, str(), _ if on not in table:
                table.add_node(node(on).build())
            case "remove", _, str(), _ if on in table:
                table.remove_node(on)
        table.validate()
        assert table.nominations.rows.tolist() == before or table.nominations.version > version
    assert {uid: table.nominations.node_of(uid) for uid in expected} == expected
    rows = sorted(NO_ROW if (row := table.row_of(on)) is None else row for on in expected.values())
    assert sorted(table.nominations.rows.tolist()) == rows


def test_kinds_without_nominations_are_forgotten() -> None:
    table = NodeTable()
    table.add_node(node("a").build())
    for i in range(3 * nominations.FEWEST_KINDS):
        table.nominate(f"u{i % 2}", "a", load(i))
    assert len(table.nominations.kinds) <= nominations.FEWEST_KINDS + 4
    table.validate()


def test_a_nomination_counts_with_the_priority_of_its_group_from_when_it_is_known() -> None:
    table = NodeTable()
    table.add_node(node("a").build())
    for name, group in (("p", "g"), ("q", "h"), ("r", "")):
        made = pod(name).priority(3)
        table.nominate(name, "a", load_of((made.group(group) if group else made).build()))
    assert table.nominations.priorities.tolist() == [3, 3, 3]
    for priority in (9, 5):
        spec = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"priority": priority}}
        before = table.nominations.version
        table.upsert_object(object_from(ObjectKind.POD_GROUP, spec))
        assert sorted(table.nominations.priorities.tolist()) == [3, 3, priority]
        assert table.nominations.version > before
        table.validate()
    table.remove_object(ObjectKind.POD_GROUP, "default/g")
    assert table.nominations.priorities.tolist() == [3, 3, 3]
