"""NodeVolumeLimits: how many volumes of a driver a node can attach."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla.plugin import PluginError
from flotilla.results import Status, unresolvable, unschedulable
from shared.cluster.view import Changes, TableView
from shared.config.feature_gates import FeatureGates
from shared.model.load import load_of
from shared.model.objects import (
    AwsElasticBlockStore,
    AzureDisk,
    Cinder,
    ClusterObject,
    EphemeralSource,
    GcePersistentDisk,
    PortworxVolume,
    Volume,
    VsphereVolume,
)
from shared.plugins.volumes.limits import NodeVolumeLimits
from testing.builders import PodBuilder, node, pod
from tests.plugins.volumes.storage import (
    attachment,
    claim,
    cluster,
    csi,
    csi_driver,
    csi_node,
    is_skipped,
    judged,
    state_of,
    storage_class,
    volume,
)

FULL = unschedulable("node(s) exceed max volume count")
DRIVER, EBS = "csi.example.com", "ebs.csi.aws.com"


def bound(*names: str) -> list[ClusterObject]:
    """Claims of these names, each with a volume of its own."""
    return [obj for name in names for obj in (claim(name, volume=f"v-{name}"), volume(f"v-{name}", csi=csi(name)))]


def limited(count: int) -> ClusterObject:
    return csi_node("n", {DRIVER: count})


def has(*claims: str) -> PodBuilder:
    built = pod("has").on("n")
    for name in claims:
        built = built.claim(name)
    return built


@pytest.mark.parametrize(
    ("limit", "there", "wanted", "full"),
    [
        (2, "a", "b", False),
        (1, "a", "b", True),
        (0, "", "a", True),
        (2, "a", "b c", True),
        # A volume that is there already does not count again, even where there are too many.
        (1, "a", "a", False),
        (0, "a", "a", False),
        (2, "a b", "a c", True),
    ],
)
def test_volumes_are_counted(limit: int, there: str, wanted: str, full: bool) -> None:
    table = cluster(
        node("n"), node("free"), objects=[limited(limit), *bound("a", "b", "c")], pods=[has(*there.split())]
    )
    arriving = pod("wants")
    for name in wanted.split():
        arriving = arriving.claim(name)
    assert judged(NodeVolumeLimits(), arriving, table) == ({"n": FULL} if full else {})


def test_two_claims_of_one_volume_are_one() -> None:
    objects = [limited(1), claim("a", volume="v"), claim("b", volume="v"), volume("v", csi=csi("h"))]
    table = cluster(node("n"), objects=objects, pods=[has("a")])
    assert judged(NodeVolumeLimits(), pod("wants").claim("b"), table) == {}


def test_each_driver_has_its_own_limit() -> None:
    objects = [csi_node("n", {DRIVER: 1, "other": 5}), *bound("a"), claim("b", volume="w")]
    objects.append(volume("w", csi=csi("x", "other")))
    table = cluster(node("n"), objects=objects, pods=[has("a")])
    assert judged(NodeVolumeLimits(), pod("wants").claim("b"), table) == {}


def test_claims_without_a_volume_count_for_the_driver_that_will_make_it() -> None:
    later = [storage_class(), claim("a"), claim("b"), claim("classless", of_class=None)]
    table = cluster(node("n"), objects=[limited(1), *later], pods=[has("a")])
    assert judged(NodeVolumeLimits(), pod("wants").claim("b"), table) == {"n": FULL}
    assert judged(NodeVolumeLimits(), pod("wants").claim("a"), table) == {}
    assert judged(NodeVolumeLimits(), pod("wants").claim("classless"), table) == {}


@pytest.mark.parametrize(("attached", "full"), [("a", False), ("b", True), ("gone", False)])
def test_attachments_count_unless_a_pod_has_the_volume(attached: str, full: bool) -> None:
    objects = [limited(2), *bound("a", "b", "c"), attachment("n", f"v-{attached}")]
    table = cluster(node("n"), objects=objects, pods=[has("a")])
    assert judged(NodeVolumeLimits(), pod("wants").claim("c"), table) == ({"n": FULL} if full else {})


def test_in_tree_volumes_count_for_the_driver_that_has_taken_them_over() -> None:
    disk = Volume(name="d", aws_elastic_block_store=AwsElasticBlockStore(volume_id="aws://z/vol-1"))
    same = volume("v", csi=csi("vol-1", EBS))
    in_tree = volume("w", awsElasticBlockStore={"volumeID": "vol-2"})
    objects = [csi_node("n", {EBS: 1}), claim("same", volume="v"), same, claim("other", volume="w"), in_tree]
    table = cluster(node("n"), objects=objects, pods=[pod("has").volume(disk).on("n")])
    assert judged(NodeVolumeLimits(), pod("wants").claim("same"), table) == {}
    assert judged(NodeVolumeLimits(), pod("wants").claim("other"), table) == {"n": FULL}
    gce = Volume(name="d", gce_persistent_disk=GcePersistentDisk(pd_name="d"))
    assert judged(NodeVolumeLimits(), pod("wants").volume(gce), table) == {}
    vsphere = Volume(name="d", vsphere_volume=VsphereVolume(volume_path="p"))
    assert judged(NodeVolumeLimits(), pod("wants").volume(vsphere), table) == {}


@pytest.mark.parametrize(
    ("driver", "one", "other"),
    [
        ("pd.csi.storage.gke.io", *(Volume(gce_persistent_disk=GcePersistentDisk(pd_name=name)) for name in "ab")),
        ("disk.csi.azure.com", *(Volume(azure_disk=AzureDisk(disk_name=name, disk_uri=name)) for name in "ab")),
        ("cinder.csi.openstack.org", *(Volume(cinder=Cinder(volume_id=name)) for name in "ab")),
        ("pxd.portworx.com", *(Volume(portworx_volume=PortworxVolume(volume_id=name)) for name in "ab")),
    ],
)
def test_in_tree_volumes_of_pods_on_the_node_count(driver: str, one: Volume, other: Volume) -> None:
    table = cluster(node("n"), objects=[csi_node("n", {driver: 1})], pods=[pod("has").volume(one).on("n")])
    assert judged(NodeVolumeLimits(), pod("wants").volume(one), table) == {}
    assert judged(NodeVolumeLimits(), pod("wants").volume(other), table) == {"n": FULL}


def test_a_disk_without_a_proper_name_fails_the_pod() -> None:
    bad = Volume(name="d", aws_elastic_block_store=AwsElasticBlockStore(volume_id="aws://z/what"))
    with pytest.raises(PluginError, match="Invalid format for AWS volume"):
        judged(NodeVolumeLimits(), pod("wants").volume(bad), cluster(node("n"), objects=[limited(1)]))


def test_a_missing_claim_closes_every_node() -> None:
    table = cluster(node("n"), node("m"))
    expected = unresolvable('looking up PVC default/gone: persistentvolumeclaim "gone" not found')
    assert judged(NodeVolumeLimits(), pod("wants").claim("gone"), table) == {"n": expected, "m": expected}


def test_the_claim_of_an_ephemeral_volume_must_be_the_pods() -> None:
    ephemeral = pod("p").uid("u").volume(Volume(name="v", ephemeral=EphemeralSource()))
    mine = cluster(node("n"), objects=[limited(0), storage_class(), claim("p-v", owner="u")])
    assert judged(NodeVolumeLimits(), ephemeral, mine) == {"n": FULL}
    with pytest.raises(PluginError, match="pod is not owner"):
        judged(NodeVolumeLimits(), ephemeral, cluster(node("n"), objects=[limited(0), claim("p-v", owner="x")]))


def test_pods_without_volumes_that_count_are_skipped() -> None:
    plugin, table = NodeVolumeLimits(), cluster(node("n"))
    for arriving in (pod("p"), pod("p").volume(Volume(name="token"))):
        state = state_of(plugin, arriving, table)
        assert not isinstance(state, Status)
        assert is_skipped(plugin, state)
        assert not plugin.reads_objects(state)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=3, unique=True), max_size=5),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True),
    st.integers(0, 5),
    st.lists(st.sampled_from("abcdef"), max_size=2, unique=True),
    st.lists(st.sampled_from([-1, 1]), max_size=4),
)
def test_counting_by_hand_comes_to_the_same(
    there: list[list[str]], wanted: list[str], limit: int, attached: list[str], changes: list[int]
) -> None:
    """`changes`: the first of the pods there are taken to be there once more, or to be gone."""
    table = cluster(
        node("n"),
        objects=[limited(limit), *bound(*"abcdef"), *(attachment("n", f"v-{name}") for name in attached)],
        pods=[has(*names).uid(f"u{i}") for i, names in enumerate(there)],
    )
    arriving = pod("wants")
    for name in wanted:
        arriving = arriving.claim(name)
    changes = changes[: len(there)]
    nodes, kinds = np.zeros(len(changes), dtype=np.intp), [table.kind(load_of(has(*names).build())) for names in there]
    hypothesis = Changes(1, nodes, np.arange(len(changes)), np.array(changes, dtype=np.int64), kinds)
    loads = Counter(range(len(there)))
    for i, change in enumerate(changes):
        loads[i] += change
    on_node = {name for i, names in enumerate(there) if loads[i] > 0 for name in names}
    if not there:
        hypothesis = None  # type: ignore[assignment]
    full = bool(set(wanted) - on_node) and len(on_node | set(attached)) + len(set(wanted) - on_node) > limit
    assert judged(NodeVolumeLimits(), arriving, table, hypothesis=hypothesis) == ({"n": FULL} if full else {})


def test_limits_and_attachments_are_read_again_when_they_change() -> None:
    plugin, arriving = NodeVolumeLimits(), pod("wants").claim("b")
    table = cluster(node("n"), node("m"), objects=[limited(2), *bound("a", "b", "c")], pods=[has("a")])
    assert judged(plugin, arriving, table) == {}
    table.objects.upsert(attachment("n", "v-c"))
    assert judged(plugin, arriving, table) == {"n": FULL}
    table.objects.upsert(limited(3))
    assert judged(plugin, arriving, table) == {}
    table.objects.upsert(csi_node("m", {DRIVER: 0}))
    assert judged(plugin, arriving, table) == {"m": FULL}
    table.remove_node("m")
    table.add_node(node("o").build())
    assert judged(plugin, arriving, table) == {}
    assert TableView(table).valid.all()


REQUIRING = NodeVolumeLimits(FeatureGates.parse("VolumeLimitScaling=true"))
MISSING = unschedulable(f"{DRIVER} CSI driver is not installed on the node")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([csi_driver(needed=True), csi_node("n", {EBS: 5})], MISSING),
        ([csi_driver(needed=True)], MISSING),
        ([csi_driver(needed=True), csi_node("n", {DRIVER: 5})], None),
        ([csi_driver(needed=True), csi_node("n", {DRIVER: 0})], FULL),
        ([csi_driver(needed=False)], None),
        ([], None),
    ],
)
def test_a_pod_waits_for_a_driver_that_asks_for_it(objects: list[ClusterObject], expected: Status | None) -> None:
    """With VolumeLimitScaling, on a node whose CSINode does not list the driver, or that has no CSINode."""
    table = cluster(node("n"), objects=[*bound("a"), *objects])
    arriving = pod("p").claim("a")
    assert judged(REQUIRING, arriving, table) == ({} if expected is None else {"n": expected})
    if expected is MISSING:
        assert judged(NodeVolumeLimits(), arriving, table) == {}


def test_the_first_missing_driver_by_name_is_the_reason() -> None:
    names = ("b.example.com", "a.example.com")
    volumes = [volume(f"v-{i}", csi=csi("h", name)) for i, name in enumerate(names)]
    claims = [claim(f"c-{i}", volume=f"v-{i}") for i in range(2)]
    table = cluster(node("n"), objects=[*(csi_driver(name, needed=True) for name in names), *volumes, *claims])
    expected = unschedulable("a.example.com CSI driver is not installed on the node")
    assert judged(REQUIRING, pod("p").claim("c-0").claim("c-1"), table) == {"n": expected}


def test_an_in_tree_volume_needs_its_driver_only_where_a_csinode_is() -> None:
    disk = volume("v", awsElasticBlockStore={"volumeID": "vol-1"})
    objects = [csi_driver(EBS, needed=True), claim("a", volume="v"), disk, csi_node("with", {DRIVER: 5})]
    table = cluster(node("with"), node("without"), objects=objects)
    expected = unschedulable(f"{EBS} CSI driver is not installed on the node")
    assert judged(REQUIRING, pod("p").claim("a"), table) == {"with": expected}


def test_a_claim_without_volume_needs_the_driver_of_its_class() -> None:
    table = cluster(node("n"), objects=[csi_driver(needed=True), claim("a"), storage_class(), csi_node("n")])
    assert judged(REQUIRING, pod("p").claim("a"), table) == {"n": MISSING}
    table.objects.upsert(csi_node("n", {DRIVER: 5}))
    assert judged(REQUIRING, pod("p").claim("a"), table) == {}
