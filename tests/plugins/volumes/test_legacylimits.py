"""The limits of in-tree disks that v1.36 has no plugins for any more."""

import pytest

from flotilla.plugin import PluginError
from flotilla.results import unschedulable
from shared.model.objects import AwsElasticBlockStore, AzureDisk, Cinder, GcePersistentDisk, Volume
from shared.plugins.registry import in_tree
from shared.plugins.volumes.limits import AzureDiskLimits, CinderLimits, DiskLimits, EBSLimits, GCEPDLimits
from testing.builders import NodeBuilder, node, pod
from tests.plugins.volumes.storage import claim, cluster, csi_node, judged, storage_class, volume

FULL = unschedulable("node(s) exceed max volume count")
LEGACY = (EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits)


def disk(kind: type[DiskLimits], name: str) -> Volume:
    sources = {
        EBSLimits: {"aws_elastic_block_store": AwsElasticBlockStore(volume_id=name)},
        GCEPDLimits: {"gce_persistent_disk": GcePersistentDisk(pd_name=name)},
        AzureDiskLimits: {"azure_disk": AzureDisk(disk_name=name)},
        CinderLimits: {"cinder": Cinder(volume_id=name)},
    }
    return Volume(name=name, **sources[kind])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", LEGACY)
def test_they_are_known_by_name(kind: type[DiskLimits]) -> None:
    assert isinstance(in_tree()[kind.name](None), kind)


def fits(kind: type[DiskLimits], on: NodeBuilder, there: int, *objects: object) -> bool:
    """With this many disks on the node, one more."""
    has = pod("has").on("n")
    for i in range(there):
        has = has.volume(disk(kind, f"d{i}"))
    table = cluster(on, objects=objects, pods=[has])  # type: ignore[arg-type]
    found = judged(kind(), pod("wants").volume(disk(kind, "new")), table)
    assert found in ({}, {"n": FULL})
    return found == {}


@pytest.mark.parametrize(("kind", "limit"), [(EBSLimits, 39), (GCEPDLimits, 16), (AzureDiskLimits, 16)])
def test_limits_of_nodes_that_say_nothing(kind: type[DiskLimits], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits(kind, node("n"), limit - 1)
    assert not fits(kind, node("n"), limit)
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "3")
    assert fits(kind, node("n"), 2)
    assert not fits(kind, node("n"), 3)
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "none")
    assert fits(kind, node("n"), 3)


@pytest.mark.parametrize("kind", LEGACY)
def test_disks_of_every_kind_count_on_their_node(kind: type[DiskLimits], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "2")
    assert fits(kind, node("n"), 1)
    assert not fits(kind, node("n"), 2)


def test_what_a_node_says_itself_counts() -> None:
    says = node("n").capacity({"attachable-volumes-aws-ebs": 2})
    assert fits(EBSLimits, says, 1)
    assert not fits(EBSLimits, says, 2)


def test_some_kinds_of_machines_take_fewer() -> None:
    nitro = node("n").label({"node.kubernetes.io/instance-type": "m5.large"})
    assert fits(EBSLimits, nitro, 24)
    assert not fits(EBSLimits, nitro, 25)


def test_a_node_that_leaves_them_to_the_csi_driver_is_not_looked_at() -> None:
    assert fits(EBSLimits, node("n"), 39, csi_node("n", migrated="kubernetes.io/aws-ebs"))
    assert not fits(EBSLimits, node("n"), 39, csi_node("n", migrated="kubernetes.io/gce-pd"))


def test_claims_count_by_their_volumes_or_by_who_will_make_them() -> None:
    says = node("n").capacity({"attachable-volumes-aws-ebs": 2})
    objects = [
        claim("bound", volume="v"),
        volume("v", awsElasticBlockStore={"volumeID": "d0"}),
        claim("later", "gp2"),
        claim("gone", "gp2", volume="gone"),
        claim("other", "other"),
        storage_class("gp2", "kubernetes.io/aws-ebs"),
        storage_class("other", "other"),
    ]
    has = pod("has").on("n").volume(disk(EBSLimits, "d0")).volume(disk(EBSLimits, "d1"))
    table = cluster(says, objects=objects, pods=[has])
    found = {name: judged(EBSLimits(), pod("p").claim(name), table) for name in ("bound", "later", "gone", "other")}
    assert found == {"bound": {}, "later": {"n": FULL}, "gone": {"n": FULL}, "other": {}}


def test_a_missing_claim_fails_the_pod() -> None:
    with pytest.raises(PluginError, match="looking up PVC default/gone"):
        judged(EBSLimits(), pod("p").claim("gone"), cluster(node("n")))
