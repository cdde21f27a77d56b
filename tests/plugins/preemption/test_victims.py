"""Who makes way on a node, by hand-made clusters."""

import pytest

from shared.plugins.preemption import NEVER, VICTIMS_STILL_GO
from testing.builders import PodBuilder, node, pod, selector
from tests.plugins.cluster import framework
from tests.plugins.preemption.support import Cluster, budget, shown
from tests.rounds.preempting_gangs import pod_group

NODES = [node("n1").capacity(cpu="4")]


def placed(name: str, cpu: str, priority: int = 0, on: str = "n1") -> PodBuilder:
    return pod(name).uid(name).request(cpu=cpu).priority(priority).on(on)


def wants(cpu: str, priority: int = 10) -> PodBuilder:
    return pod("new").uid("new").request(cpu=cpu).priority(priority)


def victims(*pods: PodBuilder, of: PodBuilder, budgets: tuple[tuple[str, int, dict[str, str]], ...] = ()) -> list[str]:
    cluster = Cluster(NODES, pods, [budget(*each) for each in budgets])
    return shown(cluster.preempt(of).candidates).get("n1", [])


def test_only_as_many_as_needed_go_and_the_least_important_first() -> None:
    pods = [placed("low", "1", 0), placed("high", "1", 5), placed("middle", "2", 3)]
    assert victims(*pods, of=wants("1")) == ["low"]
    assert victims(*pods, of=wants("2")) == ["middle"]
    assert victims(*pods, of=wants("3")) == ["middle", "low"]


def test_who_is_as_important_stays() -> None:
    assert victims(placed("equal", "3", 10), placed("lower", "1", 9), of=wants("1")) == ["lower"]
    assert victims(placed("equal", "3", 10), placed("lower", "1", 9), of=wants("2")) == []


def test_a_pod_is_as_important_as_its_group_whatever_it_says_itself() -> None:
    """Its group's priority also says who is more important, and which nominations count."""
    groups = [pod_group("low", 1, priority=1), pod_group("high", 1, priority=20)]
    pods = [placed("a", "2", 30).group("low"), placed("b", "1", 5), placed("c", "1", 0).group("high")]
    cluster = Cluster(NODES, pods, groups=groups)
    assert shown(cluster.preempt(wants("2")).candidates) == {"n1": ["a"]}
    found = cluster.preempt(wants("3"))
    assert shown(found.candidates) == {"n1": ["b", "a"]}
    assert [victim.priority for victim in found.victims] == [5, 1]
    assert shown(cluster.preempt(wants("4")).candidates) == {}
    kept = pod("kept").uid("kept").request(cpu="2").priority(0).group("high").nominated("n1")
    reserved = Cluster(NODES, [placed("a", "4"), kept], groups=groups)
    assert shown(reserved.preempt(wants("3")).candidates) == {}


def test_of_equal_priority_the_one_that_runs_longest_stays() -> None:
    old = placed("old", "2").started("2026-01-01T00:00:00Z")
    young = placed("young", "2").started("2026-01-02T00:00:00Z")
    not_yet = placed("not-yet", "2")
    assert victims(old, young, of=wants("2")) == ["young"]
    assert victims(not_yet, old, of=wants("2")) == ["not-yet"]


def test_one_that_is_to_be_protected_comes_back_before_more_important_ones() -> None:
    pods = [placed("guarded", "2", 0).label(app="web"), placed("other", "2", 5)]
    assert victims(*pods, of=wants("2")) == ["guarded"]
    assert victims(*pods, of=wants("2"), budgets=(("b", 0, {"app": "web"}),)) == ["other"]
    assert victims(*pods, of=wants("2"), budgets=(("b", 1, {"app": "web"}),)) == ["guarded"]
    assert victims(*pods, of=wants("3"), budgets=(("b", 0, {"app": "web"}),)) == ["other", "guarded!"]


def test_a_terminating_victim_is_a_victim() -> None:
    found = Cluster(NODES, [placed("going", "4").terminating()]).preempt(wants("1"))
    assert [(victim.key, victim.terminating) for victim in found.victims] == [("default/going", True)]


def test_room_that_is_kept_for_a_nominated_pod_is_not_to_be_had() -> None:
    kept = pod("kept").uid("kept").request(cpu="2").priority(10).nominated("n1")
    cluster = Cluster(NODES, [placed("a", "2", 1), placed("b", "2", 2), kept])
    assert shown(cluster.preempt(wants("2")).candidates) == {"n1": ["b", "a"]}
    assert shown(cluster.preempt(wants("3")).candidates) == {}
    assert shown(cluster.preempt(wants("3", priority=11)).candidates) == {"n1": ["b", "a"]}


def test_a_nominated_pod_does_not_stand_in_its_own_way() -> None:
    kept = pod("kept").uid("kept").request(cpu="4").priority(10).nominated("n1")
    cluster = Cluster(NODES, [placed("a", "4"), kept])
    assert shown(cluster.preempt(kept).candidates) == {"n1": ["a"]}


def test_a_port_that_two_pods_have_is_free_once_one_of_them_is_gone() -> None:
    stays, goes = placed("stays", "1", 20).host_port(80), placed("goes", "1", 0).host_port(80)
    assert victims(stays, goes, of=wants("1").host_port(80)) == ["goes"]
    assert victims(stays, of=wants("1").host_port(80)) == []
    everywhere = placed("everywhere", "1", 20).host_port(80, ip="0.0.0.0")
    here = placed("here", "1", 0).host_port(80, ip="10.0.0.1")
    assert victims(everywhere, here, of=wants("1").host_port(80)) == []


NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def test_the_message_says_why_it_does_not_help() -> None:
    nodes = [
        node("big").capacity(cpu="4").label(disk="ssd"),
        node("empty").capacity(cpu="4").label(disk="ssd"),
        node("other").capacity(cpu="4").label(disk="hdd"),
    ]
    pods = [
        placed("a", "4", 20, "empty"),
        placed("b", "3", 20, "big"),
        placed("c", "1", 0, "big"),
        placed("d", "4", 0, "other"),
    ]
    found = Cluster(nodes, pods).preempt(wants("2").node_selector(disk="ssd"))
    assert found.message == (
        f"preemption: 0/3 nodes are available: 1 Insufficient cpu, 1 {NO_VICTIMS}, 1 {NOT_HELPFUL}."
    )
    assert not found.candidates and not found.best and not found.victims
    assert found.nominated == ""
    assert not found.failed


@pytest.mark.parametrize("shards", [1, 3])
def test_nodes_of_all_shards_are_counted_together(shards: int) -> None:
    cluster = Cluster([node(f"n{i}").capacity(cpu="1") for i in range(5)], shards=shards)
    found = cluster.preempt(wants("2"))
    assert found.message == f"preemption: 0/5 nodes are available: 5 {NOT_HELPFUL}."
    found = Cluster(
        [node(f"n{i}").capacity(cpu="1") for i in range(5)],
        [placed(f"p{i}", "1", 10, f"n{i}") for i in range(5)],
        shards=shards,
    ).preempt(wants("1"))
    assert found.message == f"preemption: 0/5 nodes are available: 5 {NO_VICTIMS}."


def test_a_pod_that_never_preempts() -> None:
    found = Cluster(NODES, [placed("a", "4")]).preempt(wants("1").never_preempting())
    assert found.message == f"preemption: {NEVER}"
    assert found.nominated is None


def test_while_its_victims_still_go_a_pod_preempts_no_other_pod() -> None:
    nodes = [*NODES, node("n2").capacity(cpu="4")]
    going = placed("going", "4").terminating().condition("DisruptionTarget", "True", "PreemptionByScheduler")
    others = placed("others", "4", 0, "n2")
    cluster = Cluster(nodes, [going, others], shards=2)
    found = cluster.preempt(wants("1").nominated("n1"))
    assert found.message == f"preemption: {VICTIMS_STILL_GO}"
    assert found.nominated is None
    assert shown(cluster.preempt(wants("1").nominated("n2")).candidates) == {"n1": ["going"], "n2": ["others"]}
    assert cluster.preempt(wants("1").nominated("gone")).candidates


@pytest.mark.parametrize(
    ("why", "cpu"), [("evicted by another scheduler", "1"), ("its node can never take it, so it looks elsewhere", "8")]
)
def test_a_pod_may_preempt_though_a_pod_terminates_on_its_node(why: str, cpu: str) -> None:
    nodes = [*NODES, node("n2").capacity(cpu="8")]
    going = placed("going", "4").terminating()
    if cpu == "8":
        going = going.condition("DisruptionTarget", "True", "PreemptionByScheduler")
    found = Cluster(nodes, [going, placed("others", "8", 0, "n2")]).preempt(wants(cpu).nominated("n1"))
    assert shown(found.candidates).get("n2") == ["others"]


def test_a_pod_that_fits_after_all_is_to_be_decided_again() -> None:
    found = Cluster(NODES, [placed("a", "1")]).preempt(wants("1"))
    assert found.again


def test_prefilter_that_ended_the_attempt_before_leaves_no_candidates() -> None:
    profile = framework("NodeAffinity", "DynamicResources", "DefaultPreemption")
    pods = [placed("a", "4")]
    found = Cluster(NODES, pods, profile=profile).preempt(wants("1").resource_claim("gpu"))
    assert found.message == (f"no new claims to deallocate, preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}.")


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_who_goes_may_open_a_domain(shards: int) -> None:
    profile = framework("NodeResourcesFit", "PodTopologySpread", "InterPodAffinity", "DefaultPreemption")
    zones = {"n1": "east", "n2": "west", "n3": "north"}
    nodes = [
        node(name).capacity(cpu="4").label({"zone": zone, "kubernetes.io/hostname": name})
        for name, zone in zones.items()
    ]
    web = selector(app="web")
    pods = [
        placed("w1", "1", 0, "n1").label(app="web"),
        placed("w2", "1", 0, "n1").label(app="web"),
        placed("hates", "1", 0, "n2").require_no_pods("zone", web),
        placed("full", "4", 20, "n3"),
    ]
    cluster = Cluster(nodes, pods, shards=shards, profile=profile)
    found = cluster.preempt(wants("1").label(app="web").spread_hard("zone", web))
    assert shown(found.candidates) == {"n1": ["w1", "w2"], "n2": ["hates"]}
    assert found.nominated == "n2"
