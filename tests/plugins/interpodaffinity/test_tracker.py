"""What the decisions of a round mean for pods that are still to be decided."""

from flotilla.plugin import Tracker
from flotilla.results import NodeDomains, Range
from shared.model.load import load_of
from shared.model.objects import Affinity, Pod, PodAffinity, PodAffinityTerm
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from shared.plugins.interpodaffinity.rules import AffinitySummary
from testing.builders import PodBuilder, pod, selector

HOSTNAME = "kubernetes.io/hostname"
WEB = selector(app="web")
A1, A2, B1 = (NodeDomains(name, {HOSTNAME: name, "zone": name[0]}) for name in ("a1", "a2", "b1"))
BARE = NodeDomains("bare", {})


def web() -> PodBuilder:
    return pod("web").label(app="web")


def tracker_of(arriving: PodBuilder, summary: AffinitySummary | None = None, scores: Range | None = None) -> Tracker:
    tracker = InterPodAffinity(None).tracker(arriving.build(), summary or {}, None, scores)
    assert tracker is not None
    return tracker


def decide(tracker: Tracker, decided: PodBuilder, place: NodeDomains) -> None:
    built: Pod = decided.build()
    tracker.placed("class", load_of(built), place)


def test_pods_of_one_class_that_exclude_each_other() -> None:
    arriving = web().require_no_pods(HOSTNAME, WEB)
    tracker = tracker_of(arriving)
    assert all(map(tracker.admits, (A1, A2, BARE)))
    decide(tracker, arriving, A1)
    assert not tracker.admits(A1)
    assert all(map(tracker.admits, (A2, BARE)))
    assert tracker.touched


def test_the_anti_affinity_of_another_class() -> None:
    tracker = tracker_of(web())
    decide(tracker, pod("loner").require_no_pods("zone", WEB), A1)
    assert [tracker.admits(place) for place in (A1, A2, B1)] == [False, False, True]
    assert tracker.touched


def test_it_is_told_by_the_labels_of_the_pods_namespace() -> None:
    term = PodAffinityTerm(topology_key="zone", label_selector=WEB, namespace_selector=selector(env="prod"))
    loner = pod("loner", "other").affinity(Affinity(pod_anti_affinity=PodAffinity(required=[term])))
    for labels, admitted in (({"env": "prod"}, False), ({"env": "dev"}, True)):
        tracker = tracker_of(web(), {"labels": labels})
        decide(tracker, loner, A1)
        assert tracker.admits(A1) is admitted


def test_decisions_that_have_nothing_to_do_with_the_class() -> None:
    tracker = tracker_of(web().require_no_pods("zone", WEB))
    decide(tracker, pod("other"), A1)
    decide(tracker, web(), BARE)
    assert tracker.admits(A1)
    assert not tracker.touched
    assert tracker.summary() == {}


class TestAffinity:
    def test_the_first_of_its_kind_binds_the_others(self) -> None:
        arriving = web().require_pods("zone", WEB)
        tracker = tracker_of(arriving)
        decide(tracker, arriving, A1)
        assert [tracker.admits(place) for place in (A1, A2, B1)] == [True, True, False]
        assert tracker.summary() == {
            "counts": {"affinity": {"zone": {"a": 1}}, "score": {"zone": {"a": 1}}},
            "matches": 1,
            "scored": True,
        }

    def test_every_one_of_its_domains_needs_a_match(self) -> None:
        arriving = web().require_pods("zone", WEB).require_pods("rack", WEB)
        tracker = tracker_of(arriving)
        decide(tracker, arriving, NodeDomains("n1", {"zone": "a", "rack": "r"}))
        assert tracker.admits(NodeDomains("n2", {"zone": "a", "rack": "r"}))
        assert not tracker.admits(NodeDomains("n3", {"zone": "a", "rack": "s"}))

    def test_where_something_matched_before_more_of_it_changes_nothing(self) -> None:
        before: AffinitySummary = {"counts": {"affinity": {"zone": {"a": 1}}}, "matches": 1}
        tracker = tracker_of(web().require_pods("zone", WEB), before)
        decide(tracker, web(), A2)
        assert tracker.admits(A1)
        assert not tracker.touched

    def test_a_domain_that_opens_is_told(self) -> None:
        tracker = tracker_of(pod("p").require_pods("zone", WEB))
        assert not tracker.touched
        decide(tracker, web(), A1)
        assert tracker.touched


class TestScores:
    def test_a_domain_becomes_worth_more(self) -> None:
        before: AffinitySummary = {"counts": {"score": {"zone": {"a": 5}}}, "scored": True}
        tracker = tracker_of(pod("p").prefer_pods(5, "zone", WEB), before, (0, 10))
        decide(tracker, web(), B1)
        assert [tracker.shift(place, 0) for place in (A1, B1)] == [0, 50]
        assert tracker.touched

    def test_what_the_ladder_has_counted_already_is_not_counted_again(self) -> None:
        arriving = web().prefer_no_pods(5, HOSTNAME, WEB)
        tracker = tracker_of(arriving, {"scored": True}, (-20, 0))
        decide(tracker, arriving, A1)
        assert tracker.shift(A1, 1) == 0
        assert tracker.shift(A1, 0) == -50

    def test_where_all_were_worth_the_same(self) -> None:
        arriving = web().prefer_no_pods(5, HOSTNAME, WEB)
        tracker = tracker_of(arriving, {}, (0, 0))
        decide(tracker, arriving, A1)
        assert [tracker.shift(place, own) for place, own in ((A1, 1), (A2, 0))] == [0, 100]

    def test_without_any_weight_all_nodes_scored_zero(self) -> None:
        tracker = tracker_of(pod("p").prefer_pods(5, "zone", WEB))
        decide(tracker, web(), B1)
        assert [tracker.shift(place, 0) for place in (B1, A1)] == [100, 0]
        assert not tracker.touched


def test_hostnames_that_several_nodes_have_are_told_in_the_summary() -> None:
    arriving = web().require_no_pods(HOSTNAME, WEB)
    tracker = tracker_of(arriving, {"hostnames": ["a1"]})
    decide(tracker, arriving, A1)
    decide(tracker, arriving, A2)
    assert tracker.summary() == {
        "counts": {"anti": {HOSTNAME: {"a1": 1}}, "symmetric": {HOSTNAME: {"a1": 1}}},
        "shunned": True,
        "hostnames": ["a1"],
    }
