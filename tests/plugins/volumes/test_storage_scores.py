"""StorageCapacityScoring: nodes are scored by how much of their storage a pod's claims would use."""

import pytest

from flotilla.results import SKIP, SUCCESS, Status
from shared.cluster.view import TableView
from shared.config.args import VolumeBindingArgs
from shared.config.feature_gates import FeatureGates
from shared.framework.loading import load_frameworks
from shared.model.objects import ClusterObject, PersistentVolumeClaim
from shared.plugins.volumes.volumebinding import VolumeBinding
from testing.builders import node, pod
from tests.plugins.cluster import judge
from tests.plugins.volumes.storage import (
    HOSTNAME,
    capacity,
    claim,
    cluster,
    csi_driver,
    scoring,
    state_of,
    storage_class,
    volume,
)

A, B = node("a").label({HOSTNAME: "a"}), node("b").label({HOSTNAME: "b"})
MORE_LEFT, FULLER = ((0, 10), (100, 0)), ((0, 0), (100, 10))


def on(name: str, room: str, **more: str) -> ClusterObject:
    return capacity(f"of-{name}", room, {HOSTNAME: name}, **more)


def scored(*objects: ClusterObject, shape: tuple[tuple[int, int], ...] = FULLER) -> list[int]:
    """Of nodes a and b, for a pod with all these claims."""
    plugin, arriving = scoring(*shape), pod("p")
    for each in objects:
        if isinstance(each, PersistentVolumeClaim):
            arriving = arriving.claim(each.metadata.name)
    table = cluster(A, B, objects=[storage_class(), csi_driver(), *objects])
    state = state_of(plugin, arriving, table)
    assert not isinstance(state, Status), state
    assert plugin.pre_score(state) == SUCCESS
    scores: list[int] = plugin.score(state, TableView(table)).tolist()
    return scores


def test_volumes_to_be_provisioned_score_by_the_capacity_of_the_node() -> None:
    objects = (claim(size="10Gi"), on("a", "20Gi"), on("b", "100Gi"))
    assert scored(*objects) == [50, 10]
    assert scored(*objects, shape=MORE_LEFT) == [50, 90]


def test_claims_of_a_class_add_up_but_its_capacity_counts_once() -> None:
    assert scored(claim("c0", size="50Gi"), claim("c1", size="50Gi"), on("a", "100Gi"), on("b", "200Gi")) == [100, 50]


def test_claims_that_together_exceed_the_capacity_count_as_full() -> None:
    assert scored(claim("c0", size="80Gi"), claim("c1", size="80Gi"), on("a", "100Gi"), on("b", "400Gi")) == [100, 40]


def test_the_capacity_counts_not_the_limit_of_a_volume() -> None:
    assert scored(claim(size="10Gi"), on("a", "40Gi", maximumVolumeSize="10Gi"), on("b", "20Gi")) == [25, 50]


def test_of_several_capacities_the_first_by_name_that_suffices_counts() -> None:
    of_a = [capacity(f"a{i}", room, {HOSTNAME: "a"}) for i, room in enumerate(("5Gi", "100Gi", "10Gi"))]
    assert scored(claim(size="10Gi"), *of_a, on("b", "20Gi")) == [10, 50]


def test_volumes_that_are_there_score_by_their_size() -> None:
    """And where some are there, what is to be provisioned does not count."""
    objects = (
        claim("c0", size="10Gi"),
        claim("c1", size="30Gi"),
        volume("v", size="20Gi", nodes={HOSTNAME: ["a"]}),
        on("a", "60Gi"),
        on("b", "80Gi"),
    )
    assert scored(*objects) == [50, 50]


def test_a_node_scores_the_mean_of_the_classes_rounded() -> None:
    other = capacity("other", "100Gi", {HOSTNAME: "a"}, storageClassName="other")
    everywhere = capacity("else", "3Gi", {HOSTNAME: "b"}, storageClassName="other")
    objects = (claim("c0", size="1Gi"), claim("c1", "other", "1Gi"), storage_class("other"), other, everywhere)
    assert scored(*objects, on("a", "50Gi"), on("b", "3Gi")) == [2, 33]


@pytest.mark.parametrize(("publishes", "size"), [(False, "10Gi"), (True, None)])
def test_a_claim_without_published_capacity_or_without_size_does_not_count(publishes: bool, size: str | None) -> None:
    objects = (claim(size=size), csi_driver(capacity=publishes), on("a", "20Gi"), on("b", "20Gi"))
    assert scored(*objects, shape=MORE_LEFT) == [0, 0]


def test_without_the_gate_or_without_claims_nothing_is_scored() -> None:
    table = cluster(A, B, objects=[storage_class(), csi_driver(), claim(), on("a", "20Gi"), on("b", "20Gi")])
    without_gate = VolumeBinding(VolumeBindingArgs())
    for plugin, arriving in ((without_gate, pod("p").claim("data")), (scoring(*FULLER), pod("p"))):
        state = state_of(plugin, arriving, table)
        assert not isinstance(state, Status)
        assert plugin.pre_score(state) == SKIP


def test_the_default_shape_prefers_the_node_with_more_storage_left() -> None:
    profile = load_frameworks(None, FeatureGates.parse("StorageCapacityScoring=true"))["default-scheduler"]
    objects = [storage_class(), csi_driver(), claim(size="10Gi"), on("a", "20Gi"), on("b", "100Gi")]
    explained = judge(profile, pod("p").claim("data"), cluster(A, B, objects=objects))
    assert {name: scores["VolumeBinding"] for name, scores in explained.scores.items()} == {"a": 50, "b": 90}
