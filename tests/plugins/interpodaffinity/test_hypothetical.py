"""Pods that are taken to be on the very node, or gone from there."""

from shared.model.objects import Pod
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from testing.builders import PodBuilder, node, pod, selector
from tests.plugins.interpodaffinity.scalar import NOT_AFFINE, NOT_ANTI, NOT_SYMMETRIC, Cluster
from tests.plugins.interpodaffinity.shards import Shards

HOSTNAME = "kubernetes.io/hostname"
WEB = selector(app="web")
PLUGIN = InterPodAffinity(None)
A1, A2, B1 = range(3)


def shards(**placed: Pod) -> Shards:
    nodes = tuple(node(name).label({HOSTNAME: name}, zone=name[0]).build() for name in ("a1", "a2", "b1"))
    pods = tuple((placed[n.name],) if n.name in placed else () for n in nodes)
    return Shards(Cluster(nodes, pods, {}), 2)


def web(name: str = "web") -> PodBuilder:
    return pod(name).label(app="web")


def test_a_pod_that_is_gone_from_the_node_is_gone_from_its_domain() -> None:
    there, arriving = web("there").build(), pod("p").require_no_pods("zone", WEB).build()
    found = shards(a1=there)
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1) == NOT_ANTI
    assert found.reason(PLUGIN, arriving, A1, [(there, -1)]) is None


def test_others_in_the_domain_still_count() -> None:
    there, also, arriving = web("1").build(), web("2").build(), pod("p").require_no_pods("zone", WEB).build()
    found = shards(a1=there, a2=also)
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1, [(there, -1)]) == NOT_ANTI


def test_a_loner_that_is_gone_shuns_no_pod() -> None:
    loner, arriving = pod("loner").require_no_pods(HOSTNAME, WEB).build(), web().build()
    found = shards(a1=loner)
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1) == NOT_SYMMETRIC
    assert found.reason(PLUGIN, arriving, A1, [(loner, -1)]) is None


def test_with_its_only_match_gone_a_pod_is_the_first_of_its_kind() -> None:
    there, arriving = web("there").build(), web().require_pods("zone", WEB).require_pods(HOSTNAME, WEB).build()
    found = shards(a1=there)
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1) is None
    assert found.reason(PLUGIN, arriving, A1, [(there, -1)]) is None
    assert found.reason(PLUGIN, arriving, A2) == NOT_AFFINE


def test_with_another_match_elsewhere_it_is_not() -> None:
    there, arriving = web("1").build(), web().require_pods(HOSTNAME, WEB).build()
    found = shards(a1=there, b1=web("2").build())
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1, [(there, -1)]) == NOT_AFFINE


def test_a_pod_that_is_assumed_there_may_be_the_match_that_is_missing() -> None:
    arriving = pod("p").require_pods("zone", WEB).build()
    found = shards()
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1) == NOT_AFFINE
    assert found.reason(PLUGIN, arriving, A1, [(web().build(), 1)]) is None


def test_the_next_of_a_class_that_excludes_its_own_kind() -> None:
    arriving = web().require_no_pods(HOSTNAME, WEB).build()
    found = shards()
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1, [(arriving, 1)]) == NOT_ANTI
    assert found.reason(PLUGIN, arriving, A1, [(arriving, 0)]) is None


def test_a_pod_that_no_rule_speaks_of_is_not_asked_about() -> None:
    """Nor is it by kube-scheduler: a nominated loner keeps no pod out for as long as there is no loner in place."""
    loner, arriving = pod("loner").require_no_pods("zone", WEB).build(), web().build()
    found = shards()
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1, [(loner, 1)]) is None
    found = shards(b1=loner)
    found.use_merged(PLUGIN, arriving)
    assert found.reason(PLUGIN, arriving, A1, [(loner, 1)]) == NOT_SYMMETRIC
