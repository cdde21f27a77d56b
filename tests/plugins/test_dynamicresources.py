"""DynamicResources without devices: pods without claims pass, pods whose claims are missing do not."""

from flotilla.plugin import BindingState
from flotilla.results import SKIP, SUCCESS, PostFilterResult, error, unresolvable, unschedulable
from shared.cluster.objects import ClusterObjects
from shared.plugins.dynamicresources import DynamicResources
from testing.builders import class_state, node, pod
from tests.plugins.cluster import framework, judge, table_of

PLAIN = pod("plain").build()
CLAIMING = pod("claiming").resource_claim("gpu").build()
MISSING = unresolvable('could not find ResourceClaim "default/gpu"')


def test_a_pod_without_claims_may_go_anywhere_and_every_node_scores_nothing() -> None:
    explained = judge(framework("DynamicResources"), PLAIN, table_of(node("n1"), node("n2")))
    assert explained.rejected == {}
    assert explained.scores == {"n1": {"DynamicResources": 0}, "n2": {"DynamicResources": 0}}
    assert explained.skipped_scores == []


def test_pre_filter_skips_pods_without_claims_and_ends_the_attempt_of_others() -> None:
    plugin = DynamicResources()
    assert plugin.pre_filter(class_state(PLAIN)).status == SKIP
    assert plugin.pre_filter(class_state(CLAIMING)).status == MISSING


def test_claims_are_what_it_reads_of_a_pod() -> None:
    plugin = DynamicResources()
    assert plugin.signature(PLAIN) == plugin.signature(pod("other").request(cpu=1).build())
    assert plugin.signature(PLAIN) != plugin.signature(CLAIMING)


def test_a_pod_without_its_claim_is_gated() -> None:
    plugin, objects = DynamicResources(), ClusterObjects()
    assert plugin.pre_enqueue_among(PLAIN, objects) == SUCCESS
    assert plugin.pre_enqueue_among(CLAIMING, objects) == MISSING


def test_no_claim_can_be_given_back() -> None:
    for arriving in (PLAIN, CLAIMING):
        state, plugin = class_state(arriving), DynamicResources()
        plugin.pre_filter(state)
        assert plugin.post_filter(state, {}) == PostFilterResult(unschedulable("no new claims to deallocate"))


def test_post_filter_fails_if_an_earlier_pre_filter_ended_the_attempt() -> None:
    assert DynamicResources().post_filter(class_state(PLAIN), {}) == PostFilterResult(error("not found"))


def test_nothing_is_reserved_or_done_before_binding() -> None:
    plugin, state = DynamicResources(), BindingState(PLAIN)
    assert plugin.reserve(state, "n1") == SUCCESS
    assert plugin.pre_bind(state, "n1") == SKIP
    plugin.unreserve(state, "n1")
