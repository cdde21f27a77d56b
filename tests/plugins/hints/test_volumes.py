"""What the volume plugins wait for."""

import pytest

from flotilla.events import Action, Resource
from flotilla.plugin import Plugin
from shared.config.args import VolumeBindingArgs
from shared.model.kinds import ObjectKind
from shared.model.objects import (
    AwsElasticBlockStore,
    AzureFile,
    ClusterObject,
    CsiSource,
    EphemeralSource,
    GcePersistentDisk,
    Volume,
)
from shared.plugins.volumes.limits import EBSLimits, NodeVolumeLimits
from shared.plugins.volumes.migration import Untranslatable
from shared.plugins.volumes.restrictions import VolumeRestrictions, VolumeZone
from shared.plugins.volumes.volumebinding import VolumeBinding
from testing.builders import PodBuilder, node, pod
from tests.plugins.hints.asking import helps, listens, obj

BINDING, ZONE = VolumeBinding(VolumeBindingArgs()), VolumeZone()
LIMITS, RESTRICTIONS, EBS = NodeVolumeLimits(), VolumeRestrictions(), EBSLimits()

NEW_CLAIM = (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
GONE = (Resource.ASSIGNED_POD, Action.DELETE)

P = pod("p")
NAMED = P.claim("data")
EPHEMERAL = P.volume(Volume(name="scratch", ephemeral=EphemeralSource()))
DRIVER = "csi.example.com"


def claim(name: str, namespace: str = "default") -> ClusterObject:
    return obj(ObjectKind.PERSISTENT_VOLUME_CLAIM, name, metadata={"namespace": namespace})


def gce(name: str, reads: bool = False) -> Volume:
    return Volume(name="v", gce_persistent_disk=GcePersistentDisk(pd_name=name, read_only=reads))


def ebs(name: str) -> Volume:
    return Volume(name="v", aws_elastic_block_store=AwsElasticBlockStore(volume_id=name))


# Claims


@pytest.mark.parametrize("plugin", [BINDING, ZONE, LIMITS, RESTRICTIONS, EBS], ids=lambda plugin: str(plugin.name))
def test_a_claim_helps_that_the_pod_names(plugin: Plugin) -> None:
    assert helps(plugin, NEW_CLAIM, NAMED, None, claim("data"))
    assert not helps(plugin, NEW_CLAIM, NAMED, None, claim("other"))
    assert not helps(plugin, NEW_CLAIM, NAMED, None, claim("data", "elsewhere"))
    assert not helps(plugin, NEW_CLAIM, P, None, claim("data"))


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [(BINDING, True), (LIMITS, True), (EBS, True), (ZONE, False), (RESTRICTIONS, False)],
)
def test_a_claim_that_is_made_for_the_pod_helps_some(plugin: Plugin, expected: bool) -> None:
    assert helps(plugin, NEW_CLAIM, EPHEMERAL, None, claim("p-scratch")) is expected


@pytest.mark.parametrize(
    ("plugin", "expected"), [(BINDING, True), (ZONE, True), (LIMITS, False), (RESTRICTIONS, False)]
)
def test_a_change_of_a_claim_is_for_those_that_read_more_of_it(plugin: Plugin, expected: bool) -> None:
    assert listens(plugin, Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE) is expected
    if expected:
        changed = (Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE)
        assert helps(plugin, changed, NAMED, claim("data"), claim("data"))


# Pods that are gone


@pytest.mark.parametrize(
    ("waiting", "gone", "expected"),
    [
        (NAMED, pod("q").claim("data").on("n"), True),
        (NAMED, pod("q").claim("data"), True),
        (NAMED, pod("q").claim("other").on("n"), False),
        (NAMED, pod("q", "elsewhere").claim("data").on("n"), False),
        (EPHEMERAL, EPHEMERAL.on("n"), False),
        (P.volume(gce("d")), pod("q").volume(gce("d")).on("n"), True),
        (P.volume(gce("d", True)), pod("q").volume(gce("d", True)).on("n"), False),
        (P.volume(ebs("d")), pod("q").volume(ebs("d")), True),
        (P.volume(ebs("d")), pod("q").volume(gce("d")), False),
        (P, pod("q").volume(ebs("d")).on("n"), False),
    ],
)
def test_what_a_pod_gives_back_helps_who_wants_just_that(waiting: PodBuilder, gone: PodBuilder, expected: bool) -> None:
    assert helps(RESTRICTIONS, GONE, waiting, gone, None) is expected


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (pod("q").claim("any").on("n"), True),
        (pod("q").claim("any").nominated("n"), True),
        (pod("q").claim("any"), False),
        (pod("q").volume(Volume(name="v", ephemeral=EphemeralSource())).on("n"), True),
        (pod("q").volume(ebs("d")).on("n"), True),
        (pod("q").volume(Volume(name="token")).on("n"), False),
        (pod("q").on("n"), False),
    ],
)
def test_below_a_limit_there_is_room_when_a_pod_with_volumes_is_gone(gone: PodBuilder, expected: bool) -> None:
    assert helps(LIMITS, GONE, P, gone, None) is expected
    assert helps(EBS, GONE, P, gone, None) is expected


# Limits


def attachment(attacher: str) -> ClusterObject:
    return obj(ObjectKind.VOLUME_ATTACHMENT, "a", spec={"attacher": attacher, "nodeName": "n", "source": {}})


DETACHED = (Resource.VOLUME_ATTACHMENT, Action.DELETE)
BAD = "aws://bad/u/v"


@pytest.mark.parametrize(
    ("waiting", "attacher", "expected"),
    [
        (NAMED, DRIVER, True),
        (EPHEMERAL, DRIVER, False),
        (P, DRIVER, False),
        (P.volume(ebs("vol-1")), "ebs.csi.aws.com", True),
        (P.volume(ebs("vol-1")), "disk.csi.azure.com", False),
        (P.volume(Volume(name="v", azure_file=AzureFile(share_name="s"))), "file.csi.azure.com", True),
        (NAMED.volume(ebs(BAD)), DRIVER, True),
    ],
)
def test_a_volume_that_is_detached_helps_who_has_one_like_it(
    waiting: PodBuilder, attacher: str, expected: bool
) -> None:
    assert helps(LIMITS, DETACHED, waiting, attachment(attacher), None) is expected


def test_a_volume_that_no_driver_can_have_fails() -> None:
    with pytest.raises(Untranslatable):
        helps(LIMITS, DETACHED, P.volume(ebs(BAD)), attachment(DRIVER), None)


def csi_node(migrated: str = "", **limits: int | None) -> ClusterObject:
    drivers = [
        {"name": name, "nodeID": "n"} | ({} if count is None else {"allocatable": {"count": count}})
        for name, count in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return obj(ObjectKind.CSI_NODE, "n", metadata={"annotations": annotations}, spec={"drivers": drivers})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (csi_node(a=1), csi_node(a=2), True),
        (csi_node(a=2), csi_node(a=1), False),
        (csi_node(), csi_node(a=1), True),
        (csi_node(), csi_node(a=None), False),
        (csi_node(a=None), csi_node(a=1), True),
        (csi_node(a=1), csi_node(a=None), False),
        (csi_node(a=2, b=1), csi_node(a=1, b=2), True),
    ],
)
def test_a_higher_limit_of_any_driver_helps(before: ClusterObject, now: ClusterObject, expected: bool) -> None:
    assert helps(LIMITS, (Resource.CSI_NODE, Action.UPDATE), P, before, now) is expected


def test_limits_come_to_be_known_with_a_node_of_drivers() -> None:
    assert helps(LIMITS, (Resource.CSI_NODE, Action.ADD), P, None, csi_node())
    assert not listens(LIMITS, Resource.NODE, Action.ADD)


# Binding


def test_a_node_whose_kubelet_leaves_other_volumes_to_drivers_helps() -> None:
    changed = (Resource.CSI_NODE, Action.UPDATE)
    assert helps(BINDING, changed, P, csi_node(), csi_node("kubernetes.io/aws-ebs"))
    assert not helps(BINDING, changed, P, csi_node(a=1), csi_node(a=5))
    assert helps(BINDING, (Resource.CSI_NODE, Action.ADD), P, None, csi_node())


def storage_class(mode: str | None = None, *zones: str) -> ClusterObject:
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]} for zone in zones]
    return obj(ObjectKind.STORAGE_CLASS, "s", provisioner=DRIVER, volumeBindingMode=mode, allowedTopologies=topologies)


def test_a_class_helps_that_is_new_or_makes_volumes_elsewhere() -> None:
    changed = (Resource.STORAGE_CLASS, Action.UPDATE)
    assert helps(BINDING, (Resource.STORAGE_CLASS, Action.ADD), P, None, storage_class())
    assert helps(BINDING, changed, P, storage_class(None, "a"), storage_class(None, "a", "b"))
    assert helps(BINDING, changed, P, storage_class(None, "a"), storage_class())
    assert not helps(BINDING, changed, P, storage_class(None, "a"), storage_class("Immediate", "a"))


def capacity(room: str | None = None, most: str | None = None) -> ClusterObject:
    return obj(ObjectKind.CSI_STORAGE_CAPACITY, "c", storageClassName="s", capacity=room, maximumVolumeSize=most)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, capacity(), True),
        (capacity("1Gi"), capacity("2Gi"), True),
        (capacity("2Gi"), capacity("1Gi"), False),
        (capacity("1Gi"), capacity("1Gi"), False),
        (capacity(), capacity("0"), True),
        (capacity("1Gi"), capacity(), False),
        (capacity("1Gi", "1Gi"), capacity("9Gi", "1Gi"), False),
        (capacity("9Gi", "1Gi"), capacity("9Gi"), True),
        (capacity("1500m"), capacity("1800m"), False),
    ],
)
def test_room_for_larger_volumes_helps(before: ClusterObject | None, now: ClusterObject, expected: bool) -> None:
    event = (Resource.CSI_STORAGE_CAPACITY, Action.ADD if before is None else Action.UPDATE)
    assert helps(BINDING, event, P, before, now) is expected


def driver(tells: bool | None) -> ClusterObject:
    return obj(ObjectKind.CSI_DRIVER, DRIVER, spec={"storageCapacity": tells})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(True, False, True), (True, None, True), (False, True, False), (None, False, False), (True, True, False)],
)
def test_a_driver_that_no_longer_tells_capacities_helps_its_volumes_without_a_claim(
    before: bool | None, now: bool | None, expected: bool
) -> None:
    changed = (Resource.CSI_DRIVER, Action.UPDATE)
    inline = P.volume(Volume(name="v", csi=CsiSource(driver=DRIVER)))
    other = P.volume(Volume(name="v", csi=CsiSource(driver="other")))
    assert helps(BINDING, changed, inline, driver(before), driver(now)) is expected
    assert not helps(BINDING, changed, other.claim("data"), driver(before), driver(now))


# Zones


def volume(**labels: str) -> ClusterObject:
    keys = {name: f"topology.kubernetes.io/{name}" for name in ("zone", "region")}
    named = {keys.get(name, name): value for name, value in labels.items()}
    return obj(ObjectKind.PERSISTENT_VOLUME, "v", metadata={"labels": named})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, volume(), True),
        (volume(zone="a"), volume(zone="b"), True),
        (volume(zone="a"), volume(), True),
        (volume(), volume(region="r"), True),
        (volume(zone="a__b"), volume(zone="b__ a"), False),
        (volume(zone="a"), volume(zone="a", x="y"), False),
        (volume(), volume(zone="a____b"), False),
        (volume(zone="a____b"), volume(zone="a__b"), True),
    ],
)
def test_a_volume_in_other_zones_helps(before: ClusterObject | None, now: ClusterObject, expected: bool) -> None:
    event = (Resource.PERSISTENT_VOLUME, Action.ADD if before is None else Action.UPDATE)
    assert helps(ZONE, event, P, before, now) is expected


def test_zones_do_not_matter_yet_with_a_class_that_binds_late() -> None:
    new = (Resource.STORAGE_CLASS, Action.ADD)
    assert helps(ZONE, new, P, None, storage_class("WaitForFirstConsumer"))
    assert not helps(ZONE, new, P, None, storage_class("Immediate"))
    assert not helps(ZONE, new, P, None, storage_class())


@pytest.mark.parametrize("plugin", [BINDING, ZONE, RESTRICTIONS, EBS])
def test_any_new_node_helps(plugin: Plugin) -> None:
    assert helps(plugin, (Resource.NODE, Action.ADD), P, None, node("n"))
