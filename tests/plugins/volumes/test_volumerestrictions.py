"""VolumeRestrictions: disks that two pods cannot have on a node, and claims that are for one pod only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.plugin import Tracker
from flotilla.results import NodeDomains, Status, Topology, unresolvable, unschedulable
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Changes, Planned, TableView
from shared.model.load import load_of
from shared.model.objects import AwsElasticBlockStore, GcePersistentDisk, Iscsi, Pod, Rbd, Volume
from shared.plugins.volumes.restrictions import VolumeRestrictions
from testing.builders import PodBuilder, node, pod
from tests.plugins.volumes.storage import claim, cluster, is_skipped, judged, state_of

DISK = unschedulable("node(s) had no available disk")
IN_USE = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
ALONE = claim("alone", modes=["ReadWriteOncePod"])
SHARED = claim("shared")


def gce(name: str = "d", *, reads: bool = False) -> Volume:
    return Volume(name="v", gce_persistent_disk=GcePersistentDisk(pd_name=name, read_only=reads))


def ebs(name: str = "d", *, reads: bool = False) -> Volume:
    return Volume(name="v", aws_elastic_block_store=AwsElasticBlockStore(volume_id=name, read_only=reads))


def iscsi(name: str = "d", lun: int = 0, *, reads: bool = False) -> Volume:
    return Volume(name="v", iscsi=Iscsi(iqn=name, lun=lun, read_only=reads))


def rbd(*monitors: str, image: str = "i", pool: str = "rbd", reads: bool = False) -> Volume:
    return Volume(name="v", rbd=Rbd(monitors=list(monitors), image=image, pool=pool, read_only=reads))


@pytest.mark.parametrize(
    ("there", "wanted", "clash"),
    [
        (gce(), gce(), True),
        (gce(), gce("other"), False),
        (gce(), gce(reads=True), True),
        (gce(reads=True), gce(reads=True), False),
        # An EBS volume is never shared.
        (ebs(reads=True), ebs(reads=True), True),
        (ebs(), ebs("other"), False),
        (ebs(), gce(), False),
        (iscsi(), iscsi(), True),
        (iscsi(lun=1), iscsi(lun=2), True),
        (iscsi(), iscsi("other"), False),
        (iscsi(reads=True), iscsi(reads=True), False),
        # One monitor in common is enough.
        (rbd("m", "n"), rbd("n", "o"), True),
        (rbd("m"), rbd("n"), False),
        (rbd("m"), rbd("m", image="other"), False),
        (rbd("m"), rbd("m", pool="other"), False),
        (rbd("m", reads=True), rbd("m", reads=True), False),
        (rbd("m", reads=True), rbd("m"), True),
    ],
)
def test_disks_on_a_node(there: Volume, wanted: Volume, clash: bool) -> None:
    table = cluster(node("n"), node("empty"), pods=[pod("has").volume(there).on("n")])
    assert judged(VolumeRestrictions(), pod("wants").volume(wanted), table) == ({"n": DISK} if clash else {})


def test_a_claim_for_one_pod_only_that_is_in_use_closes_every_node() -> None:
    user = pod("has").claim("alone").on("n")
    table, other = cluster(node("m"), objects=[ALONE]), cluster(node("n"), objects=[ALONE], pods=[user])
    assert judged(VolumeRestrictions(), pod("wants").claim("alone"), table) == {}
    assert judged(VolumeRestrictions(), pod("wants").claim("alone"), table, other) == {"m": IN_USE}
    other.remove_pod("default/has")
    assert judged(VolumeRestrictions(), pod("wants").claim("alone"), table, other) == {}


def test_a_claim_of_that_name_in_another_namespace_is_another_claim() -> None:
    table = cluster(node("n"), objects=[ALONE], pods=[pod("has", "elsewhere").claim("alone").on("n")])
    assert judged(VolumeRestrictions(), pod("wants").claim("alone"), table) == {}


def test_a_missing_claim_ends_it() -> None:
    found = judged(VolumeRestrictions(), pod("wants").claim("gone"), cluster(node("n")))
    assert found == unresolvable('persistentvolumeclaim "gone" not found')


def test_pods_for_which_there_is_nothing_to_find_out_cost_nothing() -> None:
    table, plugin = cluster(node("n"), objects=[SHARED]), VolumeRestrictions()
    for wanting in (pod("p"), pod("p").volume(Volume(name="token")), pod("p").claim("shared")):
        state = state_of(plugin, wanting, table)
        assert not isinstance(state, Status)
        assert is_skipped(plugin, state)
        assert state.summaries[plugin.name] == {}
        assert plugin.topology(state, TableView(table)) is None
        assert plugin.tracker(wanting.build(), {}, None, None) is None
    assert plugin.signature(pod("p").volume(Volume(name="token")).build()) is None


# Hypothetical pods


def one_more(table: NodeTable, of: PodBuilder, count: int = 1) -> Planned:
    return Planned(np.array([count]), [table.kind(load_of(of.build()))], np.array([0], dtype=np.intp))


def changed(table: NodeTable, of: PodBuilder, count: int) -> Changes:
    at = np.array([0], dtype=np.intp)
    return Changes(1, at, at, np.array([count]), [table.kind(load_of(of.build()))])


def test_a_ladder_puts_no_second_pod_of_the_class_anywhere() -> None:
    table, wanting = cluster(node("n"), objects=[ALONE]), pod("wants").claim("alone")
    assert judged(VolumeRestrictions(), wanting, table, hypothesis=one_more(table, wanting, 0)) == {}
    assert judged(VolumeRestrictions(), wanting, table, hypothesis=one_more(table, wanting)) == {"n": IN_USE}


def test_evicting_the_user_of_a_claim_opens_the_node() -> None:
    user, wanting = pod("has").claim("alone").on("n"), pod("wants").claim("alone")
    table = cluster(node("n"), objects=[ALONE], pods=[user])
    assert judged(VolumeRestrictions(), wanting, table, hypothesis=changed(table, user, -1)) == {}


def test_a_nominated_user_of_a_claim_that_no_pod_uses_is_not_in_the_way() -> None:
    """kube-scheduler skips the plugin for the arriving pod, unless that has a disk to be looked after."""
    table, wanting = cluster(node("n"), objects=[ALONE]), pod("wants").claim("alone")
    assert judged(VolumeRestrictions(), wanting, table, hypothesis=changed(table, wanting, 1)) == {}
    with_disk = wanting.volume(gce())
    assert judged(VolumeRestrictions(), with_disk, table, hypothesis=changed(table, wanting, 1)) == {"n": IN_USE}


def test_disks_of_hypothetical_pods_count() -> None:
    table, wanting = cluster(node("n")), pod("wants").volume(gce())
    assert judged(VolumeRestrictions(), wanting, table, hypothesis=one_more(table, wanting)) == {"n": DISK}


# Rounds


def test_claims_for_one_pod_only_are_followed_through_a_round() -> None:
    table = cluster(node("n"), objects=[ALONE])
    state = state_of(VolumeRestrictions(), pod("wants").claim("alone"), table)
    assert not isinstance(state, Status)
    assert VolumeRestrictions().topology(state, TableView(table)) == Topology()


PODS: list[PodBuilder] = [
    pod("a").claim("alone"),
    pod("b").claim("alone").claim("shared"),
    pod("c").claim("shared"),
    pod("d", "elsewhere").claim("alone"),
    pod("e"),
    pod("f").claim("alone2"),
    pod("g").claim("alone").claim("alone2"),
]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(PODS) - 1), st.integers(0, 2)), max_size=5), st.data())
def test_a_tracker_says_what_the_filter_would(decisions: list[tuple[int, int]], data: st.DataObject) -> None:
    """Three shards of one node each; before and after each decision, for every class."""
    objects = [ALONE, SHARED, claim("alone2", modes=["ReadWriteOncePod"])]
    tables = [cluster(node(f"n{i}"), objects=objects) for i in range(3)]
    plugin = VolumeRestrictions()
    local = [built for built in PODS if built.metadata.namespace == "default"]
    trackers: list[tuple[Pod, Tracker | None]] = []
    for built in local:
        state = state_of(plugin, built, *tables)
        assert not isinstance(state, Status)
        wanting = built.build()
        trackers.append((wanting, plugin.tracker(wanting, state.summaries[plugin.name], None, None)))
    for number, (which, at) in enumerate(decisions):
        load = load_of(PODS[which].build())
        tables[at].add_pod(f"decided-{number}", f"n{at}", load)
        for wanting, tracker in trackers:
            state = state_of(plugin, wanting, *tables)
            assert not isinstance(state, Status)
            for i, table in enumerate(tables):
                rest = [other for other in tables if other is not table]
                fits = judged(plugin, wanting, table, *rest) == {}
                if tracker is None:
                    assert fits
                    continue
                if i == 0:
                    tracker.placed(f"class-{which}", load, NodeDomains(f"n{at}", {}))
                assert tracker.admits(NodeDomains(f"n{i}", {})) == fits
                assert tracker.touched == (not fits)
                assert tracker.summary() == state.summaries[plugin.name]
