"""What the witness holds against a binding: rooms, moves, host ports and affinity between pods."""

from collections.abc import Iterator
from random import Random

import pytest

from services.auditor.demand import Demand
from services.cli.faults.load import APART, NAMESPACE, PORTED, TIGHT, TOGETHER, Load, Object, pod
from services.cli.faults.witness import Witness
from services.simulator.cluster import Cluster
from services.simulator.resources import NAMESPACES, NODES, PODS
from services.simulator.subresources import bind

WIDE_A, WIDE_B, TIGHT_A = "wide-0000", "wide-0001", "tight-0018"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(history=100, most_events=100, clock=lambda: 1_700_000_000.0, random=Random(1))


@pytest.fixture
def witness(cluster: Cluster) -> Iterator[Witness]:
    cluster.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    for node in Load(100, 20, 1).make_nodes():
        cluster.create(NODES, "", node)
    yield Witness(cluster)


def place(cluster: Cluster, made: Object, node: str) -> None:
    made["spec"].pop("priorityClassName", None)
    name = cluster.create(PODS, NAMESPACE, made).name
    bind(cluster, NAMESPACE, name, {"target": {"name": node}})


def test_nothing_is_held_against_pods_that_fit(cluster: Cluster, witness: Witness) -> None:
    for i in range(4):
        place(cluster, pod("filler", i), TIGHT_A)
    place(cluster, pod(APART, 0), WIDE_A)
    place(cluster, pod(APART, 1), WIDE_B)
    assert (witness.bindings, witness.created) == (6, 6)
    assert witness.moved == witness.overfull == witness.misplaced == []


def test_a_node_that_holds_too_much_is_told(cluster: Cluster, witness: Witness) -> None:
    for i in range(5):
        place(cluster, pod("filler", i), TIGHT_A)
    (what,) = witness.overfull
    assert what.startswith("pod filler-00004 (")
    assert f"is bound to node {TIGHT_A}, which is over what it has: {{'cpu requested': 5000" in what


def test_who_is_gone_takes_no_room(cluster: Cluster, witness: Witness) -> None:
    for i in range(8):
        place(cluster, pod("filler", i), TIGHT_A)
        cluster.delete(PODS, cluster.find(PODS, NAMESPACE, f"filler-{i:05}"), 0)
    assert witness.overfull == []
    assert (witness.gone, len(witness.pods)) == (8, 0)


def test_a_pod_that_moves_is_told(cluster: Cluster, witness: Witness) -> None:
    place(cluster, pod("small", 0), WIDE_A)
    moved = cluster.find(PODS, NAMESPACE, "small-00000").decode()
    moved["spec"]["nodeName"] = WIDE_B
    cluster.store.put(PODS, moved)
    (what,) = witness.moved
    assert what.endswith(f"was on node {WIDE_A} and is now on {WIDE_B}")


@pytest.mark.parametrize(
    ("kind", "node", "complaint"),
    [
        (APART, WIDE_A, "and is to be apart from pod apart-00000"),
        (TOGETHER, WIDE_B, "and is to be in one zone with pod together-00000"),
        (PORTED, WIDE_A, "where a pod has its host port"),
    ],
)
def test_a_pod_where_another_keeps_it_out_is_told(
    kind: str, node: str, complaint: str, cluster: Cluster, witness: Witness
) -> None:
    place(cluster, pod(kind, 0), WIDE_A)
    place(cluster, pod(kind, 1), node)
    (what,) = witness.misplaced
    assert complaint in what


def test_a_node_that_does_not_exist_has_nothing(cluster: Cluster, witness: Witness) -> None:
    place(cluster, pod("small", 0), "nowhere")
    assert len(witness.overfull) == 1


def test_room_is_found_where_there_is_some(cluster: Cluster, witness: Witness) -> None:
    one = Demand({"cpu": 1000, "pods": 1})
    assert witness.has_room(one, TIGHT) == TIGHT_A
    for i in range(4):
        place(cluster, pod("filler", i), TIGHT_A)
    assert witness.has_room(one, TIGHT) == "tight-0019"
    for i in range(4, 8):
        place(cluster, pod("filler", i), "tight-0019")
    assert witness.has_room(one, TIGHT) is None
