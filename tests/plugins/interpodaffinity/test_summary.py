"""What a shard tells of its pods, and when it tells something new."""

import pytest

from flotilla.plugin import ClassState
from flotilla.results import Topology
from shared.cluster import pod_indexes as terms
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import TableView
from shared.model.base import ObjectMeta
from shared.model.load import load_of
from shared.model.objects import Affinity, PodAffinity, PodAffinityTerm
from shared.model.workloads import Namespace
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from shared.plugins.interpodaffinity.rules import AffinitySummary
from testing.builders import PodBuilder, class_state, node, pod, selector
from tests.plugins.cluster import rejected, table_of

HOSTNAME = "kubernetes.io/hostname"
WEB = selector(app="web")
PLUGIN = InterPodAffinity(None)


def table(*pods: PodBuilder) -> NodeTable:
    return table_of(*(node(name).label({HOSTNAME: name}, zone=name[0]) for name in ("a1", "a2", "b1")), pods=pods)


def web(name: str = "web") -> PodBuilder:
    return pod(name).label(app="web")


def state_of(arriving: PodBuilder, at: NodeTable) -> ClassState:
    return class_state(arriving.build(), at.objects)


def summary(arriving: PodBuilder, at: NodeTable) -> object:
    return PLUGIN.summarize(state_of(arriving, at), TableView(at))


def rename(at: NodeTable, name: str, **labels: str) -> None:
    at.objects.upsert(Namespace(metadata=ObjectMeta(name=name, labels=labels)))


def test_of_nothing_it_says_nothing() -> None:
    assert summary(web(), table(pod("other").on("a1"))) == {}
    assert summary(web(), table(pod("other").require_no_pods("zone", selector(app="db")).on("a1"))) == {}


def test_domains_that_count() -> None:
    at = table(web("1").on("a1"), web("2").on("a2"), web("3").on("b1"))
    assert summary(pod("p").require_pods("zone", WEB), at) == {"counts": {"affinity": {"zone": {"a": 2, "b": 1}}}}
    assert summary(pod("p").prefer_no_pods(5, "zone", WEB), at) == {
        "counts": {"score": {"zone": {"a": -10, "b": -5}}},
        "scored": True,
    }


def test_all_matches_are_told_if_the_pod_could_be_the_first_of_its_kind() -> None:
    at = table(web("1").on("a1"), web("2").on("a2"))
    assert summary(web().require_pods("zone", WEB), at) == {"counts": {"affinity": {"zone": {"a": 2}}}, "matches": 2}
    assert summary(web().require_pods(HOSTNAME, WEB), at) == {"matches": 2}


def test_hostnames_of_one_node_are_not_in_the_summary() -> None:
    at = table(web("1").require_no_pods(HOSTNAME, WEB).on("a1"))
    assert summary(web().require_no_pods(HOSTNAME, WEB), at) == {"shunned": True}
    at.set_shared_hostnames(["a1"])
    assert summary(web().require_no_pods(HOSTNAME, WEB), at) == {
        "counts": {"anti": {HOSTNAME: {"a1": 1}}, "symmetric": {HOSTNAME: {"a1": 1}}},
        "shunned": True,
        "hostnames": ["a1"],
    }


def test_it_is_worked_out_again_only_when_something_changed() -> None:
    at = table(web("1").on("a1"))
    state = state_of(pod("p").require_no_pods("zone", WEB), at)
    before = PLUGIN.summarize(state, TableView(at))
    assert PLUGIN.summarize(state, TableView(at)) is before
    at.remove_pod(web("1").build().uid)
    assert PLUGIN.summarize(state, TableView(at)) == {}


@pytest.mark.parametrize("remembered", [2, terms.MAX_CHANGES])
def test_terms_of_placed_pods_that_come_and_go(remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "MAX_CHANGES", remembered)
    at = table()
    state = state_of(web(), at)
    assert PLUGIN.summarize(state, TableView(at)) == {}
    loner = pod("loner").require_no_pods("zone", WEB).on("a1").build()
    at.add_pod(loner.uid, "a1", load_of(loner))
    assert PLUGIN.summarize(state, TableView(at)) == {"counts": {"symmetric": {"zone": {"a": 1}}}, "shunned": True}
    at.remove_pod(loner.uid)
    for i in range(4):
        fan = pod(f"fan-{i}").prefer_pods(1 + i, HOSTNAME, WEB).build()
        at.add_pod(fan.uid, "b1", load_of(fan))
    assert PLUGIN.summarize(state, TableView(at)) == {"scored": True}
    for i in range(4):
        at.remove_pod(pod(f"fan-{i}").build().uid)
    assert PLUGIN.summarize(state, TableView(at)) == {}
    state.summaries[PLUGIN.name] = {}
    assert rejected(PLUGIN, state, TableView(at)) == [None, None, None]


def test_namespaces_are_told_with_it_and_followed() -> None:
    at = table(pod("there", "team").label(app="web").on("b1"))
    term = PodAffinityTerm(topology_key="zone", label_selector=WEB, namespace_selector=selector(env="prod"))
    state = state_of(pod("p").affinity(Affinity(pod_anti_affinity=PodAffinity(required=[term]))), at)
    state.summaries[PLUGIN.name] = PLUGIN.summarize(state, TableView(at))
    assert state.summaries[PLUGIN.name] == {"namespaces": [[]]}
    assert rejected(PLUGIN, state, TableView(at)) == [None, None, None]
    rename(at, "default", env="dev")
    rename(at, "team", env="prod")
    state.summaries[PLUGIN.name] = PLUGIN.summarize(state, TableView(at))
    assert state.summaries[PLUGIN.name] == {
        "counts": {"anti": {"zone": {"b": 1}}},
        "namespaces": [["team"]],
        "labels": {"env": "dev"},
    }
    assert [each is not None for each in rejected(PLUGIN, state, TableView(at))] == [False, False, True]


def test_what_adds_up_to_zero_over_shards_is_left_out() -> None:
    for_it: AffinitySummary = {"counts": {"score": {"zone": {"a": 5, "b": 1}}}, "scored": True}
    against_it: AffinitySummary = {"counts": {"score": {"zone": {"a": -5}}}, "scored": True}
    assert PLUGIN.merge(for_it, against_it) == {"counts": {"score": {"zone": {"b": 1}}}, "scored": True}
    assert PLUGIN.merge(against_it, PLUGIN.merge(against_it, {"counts": {"score": {"zone": {"a": 10}}}})) == {
        "scored": True
    }


def test_shards_that_know_of_a_change_and_such_that_do_not_yet() -> None:
    old: AffinitySummary = {"labels": {"env": "dev"}, "namespaces": [["x"]]}
    new: AffinitySummary = {"labels": {"env": "prod"}, "namespaces": [["y"]]}
    assert PLUGIN.merge(old, new) == PLUGIN.merge(new, old) == new | {"namespaces": [["x", "y"]]}


def test_only_terms_of_its_own_make_a_pod_depend_on_decisions_about_others() -> None:
    at = table(web("1").require_no_pods("zone", WEB).on("a1"))
    assert PLUGIN.topology(state_of(web(), at), TableView(at)) is None
    with_terms = web().require_no_pods(HOSTNAME, WEB)
    assert PLUGIN.topology(state_of(with_terms, at), TableView(at)) == Topology((HOSTNAME,), ())
    assert PLUGIN.topology(state_of(with_terms.prefer_pods(1, "zone", WEB), at), TableView(at)) == Topology(
        (HOSTNAME, "zone"), ("zone",)
    )


def test_what_tells_pods_apart() -> None:
    one = PLUGIN.signature(web().build())
    assert one == PLUGIN.signature(web("another").build())
    for other in (pod("p"), pod("p", "prod").label(app="web"), web().prefer_pods(1, "zone", WEB)):
        assert PLUGIN.signature(other.build()) != one
    assert PLUGIN.signature(web().prefer_pods(1, "zone", WEB).build()) != PLUGIN.signature(
        web().prefer_pods(2, "zone", WEB).build()
    )
