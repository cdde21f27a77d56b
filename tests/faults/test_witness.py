"""Violations that the witness reports: capacity, moves, host ports, affinity between pods, gangs and volumes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from shared.model.storage import BOUND_BY_CONTROLLER
from testing.auditor.usage import Demand
from testing.inprocess.workloads import Object
from testing.simulator.cluster import SimulatedCluster
from testing.simulator.resources import NAMESPACES, NODES, PODS
from testing.simulator.subresources import bind
from tools.faults.environment import reconcile_claims
from tools.faults.witness import CLAIMS, VOLUMES, Witness
from tools.faults.workload import (
    APART,
    CLAIMING,
    GANG,
    NAMESPACE,
    PORTED,
    STUCK,
    TIGHT,
    TOGETHER,
    FaultWorkload,
    claim_of,
    pod,
    storage,
)

WIDE_A, WIDE_B, TIGHT_A = "wide-0000", "wide-0001", "tight-0018"


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(history=100, max_events=100, clock=lambda: 1_700_000_000.0, random=Random(1))


@pytest.fixture
def witness(cluster: SimulatedCluster) -> Iterator[Witness]:
    cluster.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    for node in FaultWorkload(100, 20, 1).make_nodes():
        cluster.create(NODES, "", node)
    yield Witness(cluster)


def place(cluster: SimulatedCluster, made: Object, node: str) -> None:
    made["spec"].pop("priorityClassName", None)
    name = cluster.create(PODS, NAMESPACE, made).name
    bind(cluster, NAMESPACE, name, {"target": {"name": node}})


def test_correct_bindings_are_no_violations(cluster: SimulatedCluster, witness: Witness) -> None:
    for i in range(4):
        place(cluster, pod("filler", i), TIGHT_A)
    place(cluster, pod(APART, 0), WIDE_A)
    place(cluster, pod(APART, 1), WIDE_B)
    assert (witness.bindings, witness.created) == (6, 6)
    assert witness.moved == witness.overfull == witness.misplaced == []


def test_an_overcommitted_node_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    for i in range(5):
        place(cluster, pod("filler", i), TIGHT_A)
    (what,) = witness.overfull
    assert what.startswith("pod filler-00004 (")
    assert f"is bound to node {TIGHT_A}, which exceeds its capacity: {{'cpu requested': 5000" in what


def test_a_deleted_pod_frees_its_resources(cluster: SimulatedCluster, witness: Witness) -> None:
    for i in range(8):
        place(cluster, pod("filler", i), TIGHT_A)
        cluster.delete(PODS, cluster.find(PODS, NAMESPACE, f"filler-{i:05}"), 0)
    assert witness.overfull == []
    assert (witness.gone, len(witness.pods)) == (8, 0)


def test_a_pod_that_moves_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    place(cluster, pod("small", 0), WIDE_A)
    moved = cluster.find(PODS, NAMESPACE, "small-00000").decode()
    moved["spec"]["nodeName"] = WIDE_B
    cluster.store.put(PODS, moved)
    (what,) = witness.moved
    assert what.endswith(f"was on node {WIDE_A} and is now on {WIDE_B}")


@pytest.mark.parametrize(
    ("kind", "node", "complaint"),
    [
        (APART, WIDE_A, "but must not share it with pod apart-00000"),
        (TOGETHER, WIDE_B, "but must be in the zone of pod together-00000"),
        (PORTED, WIDE_A, "where its host port is in use"),
    ],
)
def test_a_binding_against_another_pod_is_reported(
    kind: str, node: str, complaint: str, cluster: SimulatedCluster, witness: Witness
) -> None:
    place(cluster, pod(kind, 0), WIDE_A)
    place(cluster, pod(kind, 1), node)
    (what,) = witness.misplaced
    assert complaint in what


def test_a_binding_to_a_missing_node_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    place(cluster, pod("small", 0), "nowhere")
    assert len(witness.overfull) == 1


def test_has_room_finds_a_node_with_capacity(cluster: SimulatedCluster, witness: Witness) -> None:
    one = Demand(Counter({"cpu": 1000, "pods": 1}))
    assert witness.has_room(one, TIGHT) == TIGHT_A
    for i in range(4):
        place(cluster, pod("filler", i), TIGHT_A)
    assert witness.has_room(one, TIGHT) == "tight-0019"
    for i in range(4, 8):
        place(cluster, pod("filler", i), "tight-0019")
    assert witness.has_room(one, TIGHT) is None


# Gangs and volumes


def store(cluster: SimulatedCluster, made: Iterable[tuple[str, Object]]) -> None:
    for path, each in made:
        resource = {"persistentvolumes": VOLUMES, "persistentvolumeclaims": CLAIMS}.get(path.rpartition("/")[2])
        if resource is not None:
            cluster.create(resource, NAMESPACE if resource is CLAIMS else "", each)


def reserve(cluster: SimulatedCluster, volume: str, claim: str) -> None:
    found = cluster.find(VOLUMES, "", volume).decode()
    found["spec"]["claimRef"] = {"name": claim, "namespace": NAMESPACE}
    found["metadata"].setdefault("annotations", {})[BOUND_BY_CONTROLLER] = "yes"
    cluster.store.put(VOLUMES, found)


def test_a_partially_bound_gang_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    place(cluster, pod(GANG, 0), WIDE_A)
    place(cluster, pod(GANG, 1), WIDE_A)
    assert witness.partial_gangs() == ["gang-0: 2 of 3 bound"]
    place(cluster, pod(GANG, 2), WIDE_B)
    assert witness.partial_gangs() == witness.torn == []


def test_a_bound_member_of_a_stuck_gang_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    place(cluster, pod(STUCK, 0), WIDE_A)
    (what,) = witness.torn
    assert what.endswith("but its gang has a member that fits nowhere")


def test_a_claim_is_bound_to_its_reserved_volume(cluster: SimulatedCluster, witness: Witness) -> None:
    store(cluster, storage(2))
    reserve(cluster, "volume-00000", claim_of(0))
    reconcile_claims(cluster)
    assert witness.volumes.bound == {claim_of(0): "volume-00000"}
    place(cluster, pod(CLAIMING, 0), WIDE_A)
    assert (witness.misplaced, witness.volumes.broken) == ([], [])
    reserve(cluster, "volume-00003", claim_of(0))
    reconcile_claims(cluster)
    assert "claimRef" not in cluster.find(VOLUMES, "", "volume-00003").decode()["spec"]
    assert witness.volumes.bound == {claim_of(0): "volume-00000"}


def test_a_pod_in_another_zone_than_its_volume_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    store(cluster, storage(2))
    place(cluster, pod(CLAIMING, 1), WIDE_A)
    reserve(cluster, "volume-00001", claim_of(0))
    reconcile_claims(cluster)
    place(cluster, pod(CLAIMING, 0), WIDE_A)
    without, elsewhere = witness.misplaced
    assert without.endswith("but its claim claim-00001 has no volume yet")
    assert elsewhere.endswith("but its volume volume-00001 is in zone b, not a")


def test_a_volume_bound_to_two_claims_is_reported(cluster: SimulatedCluster, witness: Witness) -> None:
    store(cluster, storage(2))
    reserve(cluster, "volume-00000", claim_of(0))
    reconcile_claims(cluster)
    reserve(cluster, "volume-00000", claim_of(1))
    claim = cluster.find(CLAIMS, NAMESPACE, claim_of(1)).decode()
    claim["spec"]["volumeName"] = "volume-00000"
    cluster.store.put(CLAIMS, claim)
    moved = cluster.find(CLAIMS, NAMESPACE, claim_of(0)).decode()
    moved["spec"]["volumeName"] = "volume-00002"
    cluster.store.put(CLAIMS, moved)
    assert witness.volumes.broken == [
        "volume volume-00000 was reserved for claim claim-00000 and now for claim-00001",
        "volume volume-00000 is bound to claim claim-00000 and to claim-00001",
        "claim claim-00000 had volume volume-00000 and now has volume-00002",
    ]
