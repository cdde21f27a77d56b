from collections import Counter

import pytest

from shared.cluster.nodetable import shard_of
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from testing.builders import PodBuilder, expr, pod

SHARDS = [4, 0, 6, 6]
BASE = pod("p").label(app="web").container("c", image="web:1").request(cpu="1", memory="1Gi").host_port(80)


CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
PROFILE = load_frameworks(None)["default-scheduler"]


def class_of(built: PodBuilder, profile: Framework = PROFILE) -> str:
    return profile.class_of_template(built.build())


@pytest.mark.parametrize(
    "same",
    [
        BASE,
        pod("other").label(app="web").container("c", image="web:1").request(cpu="1", memory="1Gi").host_port(80),
        BASE.uid("another-uid"),
        BASE.created("2024-01-01T00:00:00Z"),
        pod("p").label(app="web").container("c", image="web:1").request(memory="1024Mi", cpu="1000m").host_port(80),
    ],
    ids=["equal", "name", "uid", "age", "wording"],
)
def test_pods_that_no_plugin_tells_apart_share_a_class(same: PodBuilder) -> None:
    assert class_of(same) == class_of(BASE)


@pytest.mark.parametrize(
    "different",
    [
        BASE.request(cpu="2"),
        BASE.request({"example.com/gpu": 1}),
        BASE.overhead(cpu="1"),
        BASE.host_port(81),
        BASE.host_port(80, ip="10.0.0.1"),
        BASE.tolerate("gpu"),
        BASE.node_selector(disk="ssd"),
        BASE.require_node(expr("zone", "In", "east")),
        BASE.prefer_node(5, expr("zone", "In", "east")),
        BASE.on("n1"),
        BASE.owner("ReplicaSet", "web"),
        BASE.container("d", image="web:2"),
        BASE.init_container(cpu="8", memory="1Gi"),
    ],
)
def test_pods_that_a_plugin_tells_apart_do_not(different: PodBuilder) -> None:
    assert class_of(different) != class_of(BASE)


def test_ids_are_the_same_in_every_process() -> None:
    variants = [BASE, BASE.request(cpu="2"), BASE.node_selector(b="2", a="1"), BASE.tolerate("x")]
    another = load_frameworks(None)["default-scheduler"]
    assert [class_of(v) for v in variants] == [class_of(v, another) for v in reversed(variants)][::-1]
    assert class_of(BASE.node_selector(a="1", b="2")) == class_of(BASE.node_selector(b="2", a="1"))


def test_profiles_do_not_share_classes() -> None:
    profiles = [{"schedulerName": "one"}, {"schedulerName": "other"}]
    one, other = load_frameworks({**CONFIG, "profiles": profiles}).values()
    assert one.template_signature(BASE.build()) == other.template_signature(BASE.build())
    assert class_of(BASE, one) != class_of(BASE, other)


@pytest.mark.parametrize("name", ["node-{}", "ip-10-0-{}.eu.internal", "{}"])
def test_shards_are_even_and_the_same_in_every_process(name: str) -> None:
    names = [name.format(i) for i in range(7000)]
    sizes = Counter(shard_of(each, 7) for each in names)
    assert set(sizes) == set(range(7))
    assert max(sizes.values()) < 1.2 * min(sizes.values())
    assert {shard_of(each, 1) for each in names} == {0}


def test_a_node_stays_in_its_shard_across_releases() -> None:
    assert [shard_of(name, 7) for name in ("a", "b", "node-1", "node-2")] == SHARDS
