"""Required affinity and anti-affinity, of the pod and of those that are there."""

import pytest

from flotilla.results import Code, Status
from shared.model.base import ObjectMeta
from shared.model.objects import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from shared.model.workloads import Namespace
from testing.builders import NodeBuilder, PodBuilder, node, pod, selector
from tests.plugins.cluster import framework as profile_of
from tests.plugins.cluster import judge, table_of

HOSTNAME = "kubernetes.io/hostname"
AFFINITY = Status(Code.UNRESOLVABLE, ("node(s) didn't match pod affinity rules",), "InterPodAffinity")
ANTI = Status(Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",), "InterPodAffinity")
SYMMETRIC = Status(
    Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",), "InterPodAffinity"
)

WEB = selector(app="web")
NODES = (
    node("a1").label({HOSTNAME: "a1"}, zone="a"),
    node("a2").label({HOSTNAME: "a2"}, zone="a"),
    node("b1").label({HOSTNAME: "b1"}, zone="b"),
    node("bare"),
)


def web(name: str = "web", namespace: str = "default") -> PodBuilder:
    return pod(name, namespace).label(app="web")


def rejected(
    arriving: PodBuilder, *placed: PodBuilder, nodes: tuple[NodeBuilder, ...] = NODES, **namespaces: dict[str, str]
) -> dict[str, Status]:
    table = table_of(*nodes, pods=placed)
    for name, labels in namespaces.items():
        table.objects.upsert(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    return judge(profile_of("InterPodAffinity"), arriving, table).rejected


def selecting(namespaces: LabelSelector | None, *names: str, key: str = "zone") -> PodAffinity:
    """Web pods of other namespaces."""
    term = PodAffinityTerm(topology_key=key, label_selector=WEB, namespaces=list(names), namespace_selector=namespaces)
    return PodAffinity(required=[term])


def test_affinity_needs_a_matching_pod_in_the_domain() -> None:
    near_web = pod("p").require_pods("zone", WEB)
    assert rejected(near_web, web().on("a1")) == {"b1": AFFINITY, "bare": AFFINITY}
    assert rejected(near_web) == dict.fromkeys(["a1", "a2", "b1", "bare"], AFFINITY)


def test_anti_affinity_keeps_out_of_the_domain_but_not_of_nodes_without_the_label() -> None:
    assert rejected(pod("p").require_no_pods("zone", WEB), web().on("a1")) == {"a1": ANTI, "a2": ANTI}
    assert rejected(pod("p").require_no_pods(HOSTNAME, WEB), web().on("a1")) == {"a1": ANTI}
    assert rejected(pod("p").require_no_pods("zone", WEB), web().on("bare")) == {}


def test_the_anti_affinity_of_placed_pods_binds_those_that_come() -> None:
    loner = pod("loner").require_no_pods("zone", WEB).on("a1")
    assert rejected(web(), loner) == {"a1": SYMMETRIC, "a2": SYMMETRIC}
    assert rejected(pod("other"), loner) == {}


def test_terminating_pods_count() -> None:
    assert rejected(pod("p").require_no_pods("zone", WEB), web().on("b1").terminating()) == {"b1": ANTI}


def test_the_first_reason_in_order_counts() -> None:
    arriving = web().require_pods("zone", selector(app="db")).require_no_pods("zone", WEB)
    placed = web("there").require_no_pods("zone", WEB).on("a1"), pod("db").label(app="db").on("a2")
    assert rejected(arriving, *placed) == {"a1": ANTI, "a2": ANTI, "b1": AFFINITY, "bare": AFFINITY}


def test_a_pod_counts_for_affinity_only_if_it_matches_all_terms() -> None:
    arriving = pod("p").require_pods("zone", WEB).require_pods(HOSTNAME, selector(tier="front"))
    assert rejected(arriving, web().on("a1"), pod("front").label(tier="front").on("a1")).keys() == {
        "a1",
        "a2",
        "b1",
        "bare",
    }
    assert rejected(arriving, web().label(tier="front").on("a1")).keys() == {"a2", "b1", "bare"}


class TestFirstOfItsKind:
    def test_goes_anywhere_with_the_labels_while_nothing_matches(self) -> None:
        first = web().require_pods("zone", WEB)
        assert rejected(first) == {"bare": AFFINITY}
        assert rejected(first, pod("other").on("a1")) == {"bare": AFFINITY}

    def test_is_none_once_something_matches(self) -> None:
        assert rejected(web().require_pods("zone", WEB), web("there").on("b1")).keys() == {"a1", "a2", "bare"}

    def test_matches_on_nodes_without_the_labels_do_not_count(self) -> None:
        assert rejected(web().require_pods("zone", WEB), web("there").on("bare")) == {"bare": AFFINITY}

    def test_has_to_match_all_its_terms(self) -> None:
        arriving = web().require_pods("zone", WEB).require_pods("zone", selector(app="db"))
        assert rejected(arriving).keys() == {"a1", "a2", "b1", "bare"}

    def test_needs_all_the_labels(self) -> None:
        rack = node("rack").label({HOSTNAME: "rack"}, zone="a", rack="r")
        arriving = web().require_pods("zone", WEB).require_pods("rack", WEB)
        assert rejected(arriving, nodes=(*NODES, rack)).keys() == {"a1", "a2", "b1", "bare"}


class TestNamespaces:
    def test_a_term_that_names_none_means_its_own(self) -> None:
        assert rejected(pod("p").require_no_pods("zone", WEB), web(namespace="prod").on("a1")) == {}
        assert rejected(web(namespace="prod"), pod("loner").require_no_pods("zone", WEB).on("a1")) == {}

    def test_those_that_are_named(self) -> None:
        assert rejected(pod("p").require_no_pods("zone", WEB, "prod"), web(namespace="prod").on("a1")).keys() == {
            "a1",
            "a2",
        }
        assert rejected(pod("p").require_no_pods("zone", WEB, "prod"), web().on("a1")) == {}

    def test_those_that_are_selected_by_the_pod(self) -> None:
        arriving = pod("p").affinity(Affinity(pod_anti_affinity=selecting(selector(env="prod"))))
        there = web(namespace="team").on("b1")
        assert rejected(arriving, there, team={"env": "prod"}) == {"b1": ANTI}
        assert rejected(arriving, there, team={"env": "dev"}) == {}
        assert rejected(arriving, there) == {}

    def test_those_that_are_named_beside_a_selector(self) -> None:
        arriving = pod("p").affinity(Affinity(pod_anti_affinity=selecting(selector(env="prod"), "default")))
        assert rejected(arriving, web().on("b1")) == {"b1": ANTI}

    @pytest.mark.parametrize("labels", [{"env": "prod"}, {"env": "dev"}, {}])
    def test_those_that_are_selected_by_placed_pods(self, labels: dict[str, str]) -> None:
        loner = pod("loner").affinity(Affinity(pod_anti_affinity=selecting(selector(env="prod")))).on("b1")
        expected = {"b1": SYMMETRIC} if labels.get("env") == "prod" else {}
        assert rejected(web(namespace="team"), loner, team=labels) == expected

    def test_a_selector_of_everything_means_namespaces_that_are_not_known_too(self) -> None:
        everywhere = pod("p").affinity(Affinity(pod_anti_affinity=selecting(LabelSelector())))
        assert rejected(everywhere, web(namespace="new").on("b1")) == {"b1": ANTI}
        assert rejected(web(namespace="new"), everywhere.on("b1")) == {"b1": SYMMETRIC}


def test_hostnames_that_several_nodes_have() -> None:
    table = table_of(*(node(name).label({HOSTNAME: "twin"}) for name in ("n1", "n2")), pods=[web().on("n1")])
    table.set_shared_hostnames(["twin"])
    found = judge(profile_of("InterPodAffinity"), pod("p").require_no_pods(HOSTNAME, WEB), table).rejected
    assert found == {"n1": ANTI, "n2": ANTI}
