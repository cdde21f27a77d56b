"""Preferences, and what required affinity of placed pods is worth."""

import numpy as np
import pytest

from shared.framework.evaluator import Explanation
from shared.plugins.interpodaffinity.plugin import ScaleRange
from testing.builders import PodBuilder, node, pod, selector
from tests.plugins.cluster import framework as profile_of
from tests.plugins.cluster import judge, table_of

HOSTNAME = "kubernetes.io/hostname"
WEB = selector(app="web")
NODES = tuple(node(name).label({HOSTNAME: name}, zone=name[0]) for name in ("a1", "a2", "b1", "c1"))


def web(name: str = "web") -> PodBuilder:
    return pod(name).label(app="web")


def judged(arriving: PodBuilder, *placed: PodBuilder, **args: object) -> Explanation:
    profile = profile_of("InterPodAffinity", args={"InterPodAffinity": args} if args else None)
    return judge(profile, arriving, table_of(*NODES, pods=placed))


def scores(arriving: PodBuilder, *placed: PodBuilder, **args: object) -> list[int]:
    """Of a1, a2, b1 and c1."""
    by_node = judged(arriving, *placed, **args).scores
    return [by_node[name]["InterPodAffinity"] for name in ("a1", "a2", "b1", "c1")]


def test_the_more_wished_for_pods_the_better() -> None:
    assert scores(pod("p").prefer_pods(1, "zone", WEB), web().on("a1"), web("2").on("a2"), web("3").on("b1")) == [
        100,
        100,
        50,
        0,
    ]


def test_negative_raw_scores() -> None:
    assert scores(pod("p").prefer_no_pods(3, HOSTNAME, WEB), web().on("a1"), web("2").on("a1"), web("3").on("b1")) == [
        0,
        100,
        50,
        100,
    ]


def test_wishes_of_placed_pods_count_as_well() -> None:
    assert scores(web(), pod("fan").prefer_pods(5, "zone", WEB).on("b1")) == [0, 0, 100, 0]
    assert scores(web(), pod("foe").prefer_no_pods(5, HOSTNAME, WEB).on("b1")) == [100, 100, 0, 100]


@pytest.mark.parametrize(("weight", "expected"), [(1, [0, 0, 9, 100]), (20, [0, 0, 100, 50])])
def test_what_required_affinity_of_placed_pods_is_worth(weight: int, expected: list[int]) -> None:
    needy = pod("needy").require_pods("zone", WEB).on("b1")
    fan = pod("fan").prefer_pods(10 if weight == 20 else 11, "zone", WEB).on("c1")
    assert scores(web(), needy, fan, hardPodAffinityWeight=weight) == expected


def test_with_a_weight_of_zero_required_affinity_is_worth_nothing() -> None:
    needy = pod("needy").require_pods("zone", WEB).on("b1")
    assert judged(web(), needy, hardPodAffinityWeight=0).skipped_scores == ["InterPodAffinity"]


class TestSkipped:
    def test_where_nothing_speaks_for_or_against_any_node(self) -> None:
        found = judged(pod("p").prefer_pods(1, "zone", selector(app="nobody")), web().on("a1"))
        assert found.skipped_scores == ["InterPodAffinity"]
        assert all("InterPodAffinity" not in by_plugin for by_plugin in found.scores.values())

    def test_not_where_weights_add_up_to_zero(self) -> None:
        undecided = pod("p").prefer_pods(7, "zone", WEB).prefer_no_pods(7, "zone", WEB)
        assert scores(undecided, web().on("a1")) == [0, 0, 0, 0]

    def test_where_wishes_of_placed_pods_are_to_be_ignored(self) -> None:
        fan = pod("fan").prefer_pods(5, "zone", WEB).on("b1")
        found = judged(web(), fan, ignorePreferredTermsOfExistingPods=True)
        assert found.skipped_scores == ["InterPodAffinity"]

    def test_not_if_the_pod_has_wishes_of_its_own(self) -> None:
        fan = pod("fan").prefer_pods(5, "zone", WEB).on("b1")
        arriving = web().prefer_pods(1, "zone", selector(app="nobody"))
        assert scores(arriving, fan, ignorePreferredTermsOfExistingPods=True) == [0, 0, 100, 0]


def test_normalised_as_floats_are() -> None:
    raw = np.array([-50, -21, 50], dtype=np.int64)
    assert ScaleRange()(raw, -50, 50).tolist() == [0, 28, 100]
    assert ScaleRange()(raw, 7, 7).tolist() == [0, 0, 0]
