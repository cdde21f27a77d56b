"""In-tree volumes as their CSI drivers know them."""

import pytest

from shared.model.objects import NodeSelector, PersistentVolume
from shared.model.wellknown import BETA_REGION, REGION
from shared.plugins.volumes.migration import (
    BY_PLUGIN,
    GCE_PD,
    Untranslatable,
    handle_of_volume,
    migrated_affinity,
    migration_of_volume,
)
from tests.plugins.volumes.storage import BETA_ZONE, ZONE, volume

GCE_ZONE = "topology.gke.io/zone"


def in_tree(**fields: object) -> PersistentVolume:
    made = volume("v", **fields)  # type: ignore[arg-type]
    assert isinstance(made, PersistentVolume)
    return made


@pytest.mark.parametrize(
    ("fields", "handle"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}, "vol-1"),
        ({"gcePersistentDisk": {"pdName": "d"}}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        ({"gcePersistentDisk": {"pdName": "d"}, "labels": {ZONE: "r-x-a"}}, "projects/UNSPECIFIED/zones/r-x-a/disks/d"),
        (
            {"gcePersistentDisk": {"pdName": "d"}, "labels": {BETA_ZONE: "r-x-a__r-x-b"}},
            "projects/UNSPECIFIED/regions/r-x/disks/d",
        ),
        ({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/d"}}, "/subscriptions/d"),
        ({"cinder": {"volumeID": "c"}}, "c"),
        ({"portworxVolume": {"volumeID": "p"}}, "p"),
    ],
)
def test_handles(fields: dict[str, object], handle: str) -> None:
    assert handle_of_volume(in_tree(**fields)) == handle


@pytest.mark.parametrize(
    "fields",
    [
        {"awsElasticBlockStore": {"volumeID": "aws://zone/disk-1"}},
        {"gcePersistentDisk": {"pdName": "d"}, "labels": {ZONE: "a__b"}},
        {"gcePersistentDisk": {"pdName": "d"}, "labels": {ZONE: "r-x-a__r-y-a"}},
    ],
)
def test_what_no_driver_could_make_anything_of(fields: dict[str, object]) -> None:
    with pytest.raises(Untranslatable):
        handle_of_volume(in_tree(**fields))


def as_lists(selector: NodeSelector | None) -> list[dict[str, list[str]]] | None:
    if selector is None:
        return None
    return [{each.key: each.values for each in term.match_expressions} for term in selector.node_selector_terms]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"nodes": {ZONE: ["a"]}}, [{GCE_ZONE: ["a"]}]),
        ({"nodes": {BETA_ZONE: ["a"], BETA_REGION: ["r"]}}, [{GCE_ZONE: ["a"], REGION: ["r"]}]),
        # Its affinity stands above its labels, which are there for volumes of older clusters.
        ({"nodes": {ZONE: ["a"]}, "labels": {ZONE: "b"}}, [{GCE_ZONE: ["a"]}]),
        ({"labels": {ZONE: "x-y-b__x-y-a"}}, [{GCE_ZONE: ["x-y-a", "x-y-b"]}]),
        ({"nodes": {"disk": ["ssd"]}, "labels": {ZONE: "a"}}, [{"disk": ["ssd"], GCE_ZONE: ["a"]}]),
        ({"labels": {ZONE: ""}}, None),
    ],
)
def test_which_nodes_reach_it(fields: dict[str, object], expected: list[dict[str, list[str]]] | None) -> None:
    made = in_tree(gcePersistentDisk={"pdName": "d"}, **fields)
    migration = migration_of_volume(made)
    assert migration is BY_PLUGIN[GCE_PD]
    assert as_lists(migrated_affinity(made, migration)) == expected
