"""NodeName and NodeUnschedulable."""

import pytest

from flotilla.results import unresolvable
from shared.plugins.single_node import NodeName, NodeUnschedulable
from testing.builders import PodBuilder, node, pod
from tests.plugins.cluster import framework, judge, statuses, table_of

CORDONED = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("wanted", "rejected"),
    [(pod("p"), []), (pod("p").on("n2"), ["n1", "n3"]), (pod("p").on("gone"), ["n1", "n2", "n3"])],
)
def test_a_named_node_is_the_only_one(wanted: PodBuilder, rejected: list[str]) -> None:
    table = table_of(node("n1"), node("n2"), node("n3"))
    reason = unresolvable("node(s) didn't match the requested node name")
    assert statuses(NodeName(), wanted, table) == dict.fromkeys(rejected, reason)


def test_a_removed_node_is_no_longer_meant() -> None:
    table = table_of(node("n1"), node("n2"))
    table.remove_node("n2")
    assert list(statuses(NodeName(), pod("p").on("n2"), table)) == ["n1"]


@pytest.mark.parametrize(
    ("arriving", "fits"),
    [
        (pod("p"), False),
        (pod("p").tolerate(), True),
        (pod("p").tolerate(CORDONED), True),
        (pod("p").tolerate(CORDONED, "", "NoSchedule"), True),
        (pod("p").tolerate(CORDONED, effect="NoExecute"), False),
        (pod("p").tolerate(CORDONED, effect="PreferNoSchedule"), False),
        (pod("p").tolerate(CORDONED, "x"), False),
        (pod("p").tolerate("other"), False),
    ],
)
def test_cordoned_nodes_take_only_pods_that_tolerate_it(arriving: PodBuilder, fits: bool) -> None:
    table = table_of(node("open"), node("cordoned").unschedulable())
    expected = {} if fits else {"cordoned": unresolvable("node(s) were unschedulable")}
    assert statuses(NodeUnschedulable(), arriving, table) == expected


def test_the_first_filter_of_the_profile_gives_the_reason() -> None:
    table = table_of(node("n1").unschedulable(), node("n2"), node("n3").unschedulable())
    explained = judge(framework("NodeUnschedulable", "NodeName"), pod("p").on("n3"), table)
    assert {name: status.plugin for name, status in explained.rejected.items()} == {
        "n1": "NodeUnschedulable",
        "n2": "NodeName",
        "n3": "NodeUnschedulable",
    }
