"""VolumeZone: zones of bound volumes, and claims for which there can be none."""

import pytest

from flotilla.results import Status, unresolvable
from shared.cluster.view import TableView
from shared.model.objects import ClusterObject
from shared.plugins.volumes.restrictions import VolumeZone
from testing.builders import class_state, node, pod
from tests.plugins.cluster import rejected
from tests.plugins.volumes.storage import BETA_ZONE, REGION, ZONE, claim, cluster, judged, storage_class, volume

OUTSIDE = unresolvable("node(s) had no available volume zone")
NODES = (
    node("a").label({ZONE: "a", REGION: "r"}),
    node("b").label({ZONE: "b", REGION: "r"}),
    node("beta").label({BETA_ZONE: "a"}),
    node("plain"),
)


@pytest.mark.parametrize(
    ("labels", "outside"),
    [
        ({}, ""),
        ({ZONE: "a"}, "b beta"),
        ({ZONE: "a__b"}, "beta"),
        ({ZONE: "a__ b "}, "beta"),
        # A label that names an empty zone says nothing.
        ({ZONE: "a__"}, ""),
        ({ZONE: ""}, ""),
        # The beta label is also met by its successor, not the other way round.
        ({BETA_ZONE: "a"}, "b"),
        ({ZONE: "a", REGION: "other"}, "a b beta"),
        ({"unrelated": "x"}, ""),
    ],
)
def test_nodes_outside_of_the_zones_of_a_volume_are_rejected(labels: dict[str, str], outside: str) -> None:
    table = cluster(*NODES, objects=[claim(volume="v"), volume("v", labels=labels)])
    assert judged(VolumeZone(), pod("p").claim("data"), table) == dict.fromkeys(outside.split(), OUTSIDE)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim(volume="v")], 'persistentvolume "v" not found'),
        ([claim(of_class=None)], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim()], 'storageclass.storage.k8s.io "delayed" not found'),
        ([claim(), storage_class(mode=None)], 'VolumeBindingMode not set for StorageClass "delayed"'),
        ([claim(), storage_class(mode="Immediate")], "PersistentVolume had no name"),
    ],
)
def test_a_claim_that_has_no_volume_and_will_get_none(objects: list[ClusterObject], expected: str) -> None:
    found = judged(VolumeZone(), pod("p").claim("data"), cluster(*NODES, objects=objects))
    assert found == unresolvable(expected)


def test_claims_that_are_bound_later_and_pods_without_claims_are_skipped() -> None:
    table = cluster(*NODES, objects=[claim(), storage_class()])
    assert judged(VolumeZone(), pod("p").claim("data"), table) == {}
    assert judged(VolumeZone(), pod("p"), table) == {}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([claim(volume="v"), volume("v", labels={ZONE: "a"})], OUTSIDE),
        ([], unresolvable('persistentvolumeclaim "data" not found')),
    ],
)
def test_without_its_pre_filter_it_finds_out_by_itself(objects: list[ClusterObject], expected: Status) -> None:
    table = cluster(NODES[1], objects=objects)
    state = class_state(pod("p").claim("data").build(), table.objects)
    assert rejected(VolumeZone(), state, TableView(table)) == [expected]
