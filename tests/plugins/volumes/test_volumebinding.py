"""VolumeBinding: claims that a pod cannot run with, volumes out of reach, and what is decided along with a node."""

import numpy as np
import pytest

from flotilla.plugin import PluginError
from flotilla.results import SKIP, Status, error, unresolvable
from shared.cluster.view import TableView
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.model.objects import ClusterObject, EphemeralSource, ObjectKind, Volume
from shared.plugins.volumes.volumebinding import VolumeBinding
from testing.builders import PodBuilder, node, pod
from tests.plugins.cluster import framework
from tests.plugins.volumes.storage import (
    BETA_ZONE,
    HOSTNAME,
    ZONE,
    capacity,
    claim,
    cluster,
    csi_driver,
    csi_node,
    is_skipped,
    judged,
    state_of,
    storage_class,
    volume,
)

PLUGIN = VolumeBinding(VolumeBindingArgs())
A, B = node("a").label({HOSTNAME: "a", ZONE: "za"}), node("b").label({HOSTNAME: "b", ZONE: "zb"})
OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
NOTHING = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def ephemeral(uid: str = "u") -> PodBuilder:
    return pod("p").uid(uid).volume(Volume(name="v", ephemeral=EphemeralSource()))


@pytest.mark.parametrize(
    ("arriving", "objects", "expected"),
    [
        (pod("p").claim("data"), [], unresolvable('persistentvolumeclaim "data" not found')),
        (
            ephemeral(),
            [],
            unresolvable('waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"'),
        ),
        (
            ephemeral(),
            [claim("p-v", owner="other")],
            unresolvable("PVC default/p-v was not created for pod default/p (pod is not owner)"),
        ),
        (
            pod("p").claim("data"),
            [claim(volume="v", phase="Lost")],
            unresolvable('persistentvolumeclaim "data" bound to non-existent persistentvolume "v"'),
        ),
        (
            pod("p").claim("data"),
            [claim(deleted=True)],
            unresolvable('persistentvolumeclaim "data" is being deleted'),
        ),
        (
            pod("p").claim("data"),
            [claim(), storage_class(mode=None)],
            error('VolumeBindingMode not set for StorageClass "delayed"'),
        ),
    ],
)
def test_claims_that_a_pod_cannot_run_with(
    arriving: PodBuilder, objects: list[ClusterObject], expected: Status
) -> None:
    assert judged(PLUGIN, arriving, cluster(A, objects=objects)) == expected


@pytest.mark.parametrize(
    "objects",
    [
        [claim()],
        [claim(of_class=None)],
        [claim(), storage_class(mode="Immediate")],
        # A volume that a claim names itself is bound at once, or not at all.
        [claim(volume="v", bound=False), storage_class(), volume("v")],
    ],
)
def test_a_claim_that_is_not_bound_later_must_be_bound_already(objects: list[ClusterObject]) -> None:
    expected = unresolvable("pod has unbound immediate PersistentVolumeClaims")
    assert judged(PLUGIN, pod("p").claim("data"), cluster(A, objects=objects)) == expected


def test_pods_without_claims_are_skipped() -> None:
    state = state_of(PLUGIN, pod("p").volume(Volume(name="token")), cluster(A))
    assert not isinstance(state, Status)
    assert is_skipped(PLUGIN, state)
    assert PLUGIN.reads_objects(state) == ()
    assert not PLUGIN.decides(state)
    assert PLUGIN.pre_score(state) == SKIP


def test_a_bound_volume_keeps_the_pod_to_the_nodes_that_reach_it() -> None:
    objects = [claim(volume="v"), volume("v", nodes={ZONE: ["za"]}, kept_for="data")]
    table = cluster(A, B, objects=objects)
    assert judged(PLUGIN, pod("p").claim("data"), table) == {"b": unresolvable(OUT_OF_REACH)}
    state = state_of(PLUGIN, pod("p").claim("data"), table)
    assert not isinstance(state, Status)
    assert not PLUGIN.decides(state)


def test_a_bound_volume_that_is_gone_closes_every_node_not_closed_before() -> None:
    objects = [claim(volume="v"), volume("v", nodes={ZONE: ["za"]}), claim("lost", volume="gone")]
    table = cluster(A, B, objects=objects)
    found = judged(PLUGIN, pod("p").claim("data").claim("lost"), table)
    assert found == {"a": unresolvable(NO_VOLUME), "b": unresolvable(OUT_OF_REACH)}


def test_several_reasons_come_in_their_order() -> None:
    objects = [claim(volume="v"), volume("v", nodes={ZONE: ["za"]}), claim("more", "static")]
    table = cluster(B, objects=[*objects, storage_class("static", "kubernetes.io/no-provisioner")])
    found = judged(PLUGIN, pod("p").claim("data").claim("more"), table)
    assert found == {"b": unresolvable(OUT_OF_REACH, NOTHING)}


def test_room_is_needed_only_where_the_driver_tells_of_it() -> None:
    objects = [claim(), storage_class(), capacity("small", "5Gi", {ZONE: "za"}), capacity("room", "10Gi", {ZONE: "zb"})]
    table = cluster(A, B, objects=objects)
    assert judged(PLUGIN, pod("p").claim("data"), table) == {}
    table.objects.upsert(csi_driver())
    assert judged(PLUGIN, pod("p").claim("data"), table) == {"a": unresolvable(NO_SPACE)}
    table.objects.upsert(claim(size=None))
    assert judged(PLUGIN, pod("p").claim("data"), table) == {}


def decided(table_objects: list[ClusterObject], *claims: str, row: int = 0) -> VolumeDecision:
    table = cluster(A, B, objects=[storage_class(), *table_objects])
    arriving = pod("p")
    for name in claims:
        arriving = arriving.claim(name)
    state = state_of(PLUGIN, arriving, table)
    assert not isinstance(state, Status), state
    assert PLUGIN.decides(state)
    return PLUGIN.volumes_for(state, TableView(table, np.array([row])))


def test_the_smallest_volume_that_is_large_enough_is_bound() -> None:
    volumes = [volume("large", size="20Gi"), volume("fits", size="10Gi"), volume("small", size="5Gi")]
    assert decided([claim(), *volumes], "data") == VolumeDecision([("default/data", "fits")])


def test_small_claims_choose_first_and_what_finds_nothing_is_made() -> None:
    volumes = [volume("v10", size="10Gi"), volume("v20", size="20Gi")]
    claims = [claim("big", size="15Gi"), claim("small", size="5Gi"), claim("huge", size="1Ti")]
    expected = VolumeDecision([("default/small", "v10"), ("default/big", "v20")], ["default/huge"])
    assert decided([*claims, *volumes], "huge", "big", "small") == expected


def test_a_volume_that_is_kept_for_the_claim_comes_before_a_smaller_one() -> None:
    volumes = [volume("kept", size="90Gi", kept_for="data", uid=""), volume("small")]
    assert decided([claim(), *volumes], "data") == VolumeDecision([("default/data", "kept")])


def test_where_the_volume_that_is_kept_is_out_of_reach_one_is_made() -> None:
    volumes = [volume("kept", kept_for="data", uid="", nodes={HOSTNAME: ["a"]}), volume("free")]
    assert decided([claim(), *volumes], "data", row=1) == VolumeDecision(provisions=["default/data"])


def test_a_node_that_was_selected_before_is_kept_to() -> None:
    table = cluster(A, B, objects=[claim(selected="b"), storage_class()])
    assert judged(PLUGIN, pod("p").claim("data"), table) == {"a": unresolvable(NOTHING)}
    assert decided([claim(selected="b")], "data", row=1) == VolumeDecision(provisions=["default/data"])


# In-tree volumes

EBS = {"awsElasticBlockStore": {"volumeID": "aws://za/vol-1"}}
MIGRATED = "kubernetes.io/aws-ebs,kubernetes.io/cinder"
DRIVERS_ZONE = "topology.ebs.csi.aws.com/zone"


@pytest.mark.parametrize("where", [{"nodes": {ZONE: ["za"]}}, {"labels": {ZONE: "za"}}, {"labels": {BETA_ZONE: "za"}}])
def test_a_migrated_volume_is_found_by_the_labels_of_its_driver(where: dict[str, dict[str, str]]) -> None:
    migrated = node("m").label({ZONE: "zb", DRIVERS_ZONE: "za"})
    other = node("n").label({ZONE: "za", DRIVERS_ZONE: "zb"})
    objects = [claim(volume="v"), volume("v", kept_for="data", **where, **EBS)]  # type: ignore[arg-type]
    table = cluster(migrated, other, objects=[*objects, csi_node("m", migrated=MIGRATED), csi_node("n")])
    arriving = pod("p").claim("data")
    assert judged(PLUGIN, arriving, table) == {}
    table.objects.upsert(csi_node("n", migrated=MIGRATED))
    assert judged(PLUGIN, arriving, table) == {"n": unresolvable(OUT_OF_REACH)}
    state = state_of(PLUGIN, arriving, table)
    assert not isinstance(state, Status)
    assert ObjectKind.CSI_NODE in PLUGIN.reads_objects(state)


def test_a_migrated_volume_without_a_proper_name_fails_the_pod() -> None:
    bad = volume("v", awsElasticBlockStore={"volumeID": "aws://za/what"})
    table = cluster(A, objects=[claim(volume="v"), bad, csi_node("a", migrated=MIGRATED)])
    with pytest.raises(PluginError, match="Invalid format for AWS volume"):
        judged(PLUGIN, pod("p").claim("data"), table)


# The framework


def test_binding_reads_no_more_of_a_pod_than_its_names() -> None:
    profile = framework("VolumeBinding")
    assert [plugin.name for plugin in profile.pre_bind] == ["VolumeBinding"]
    assert not profile.binding_reads_pod
    assert [plugin.name for plugin in profile.volumes] == ["VolumeBinding"]


def test_what_is_read_depends_on_what_the_pod_has() -> None:
    kinds = {ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.PERSISTENT_VOLUME, ObjectKind.STORAGE_CLASS}
    for objects, more in (
        ([claim(volume="v"), volume("v")], set()),
        ([claim(), storage_class()], {ObjectKind.CSI_DRIVER}),
        (
            [claim(), storage_class(), csi_driver()],
            {ObjectKind.CSI_DRIVER, ObjectKind.CSI_STORAGE_CAPACITY},
        ),
    ):
        state = state_of(PLUGIN, pod("p").claim("data"), cluster(A, objects=objects))
        assert not isinstance(state, Status)
        assert set(PLUGIN.reads_objects(state)) == kinds | more


def test_a_pod_that_names_a_claim_twice_gets_two_volumes_that_are_kept_for_it() -> None:
    kept = [volume("v0", kept_for="data"), volume("v1", kept_for="data"), volume("v2")]
    both = VolumeDecision(bindings=[("default/data", "v0"), ("default/data", "v1")])
    assert decided([claim(), *kept], "data", "data") == both
