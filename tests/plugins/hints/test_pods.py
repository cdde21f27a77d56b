"""What plugins wait for that look at other pods: NodePorts, InterPodAffinity; and the gates."""

import pytest

from flotilla.events import Action, Resource
from shared.model.objects import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from shared.plugins.preemption import DefaultPreemption
from shared.plugins.queueandbind import SchedulingGates
from shared.plugins.single_node import NodePorts
from testing.builders import NodeBuilder, PodBuilder, node, pod, selector
from tests.plugins.hints.asking import helps

GONE = (Resource.ASSIGNED_POD, Action.DELETE)
CAME = (Resource.ASSIGNED_POD, Action.ADD)
RELABELLED = (Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
OWN_LABELS = (Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
NEW_NODE = (Resource.NODE, Action.ADD)
NODE_LABELS = (Resource.NODE, Action.UPDATE_NODE_LABEL)

P, N = pod("p"), node("n")

# Ports

WANTS = P.host_port(80)


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (pod("q").host_port(80).on("n"), True),
        (pod("q").host_port(80).nominated("n"), True),
        (pod("q").host_port(80), False),
        (pod("q").host_port(81).on("n"), False),
        (pod("q").host_port(80, "UDP").on("n"), False),
        (pod("q").host_port(80, ip="10.0.0.1").on("n"), True),
        (pod("q").on("n"), False),
        (pod("q", "other").host_port(80).on("n"), True),
    ],
)
def test_a_port_that_is_free_again_helps(gone: PodBuilder, expected: bool) -> None:
    assert helps(NodePorts(), GONE, WANTS, gone, None) is expected


def test_ports_on_different_definite_addresses_do_not_matter() -> None:
    assert not helps(
        NodePorts(), GONE, P.host_port(80, ip="10.0.0.2"), pod("q").host_port(80, ip="10.0.0.1").on("n"), None
    )


def test_any_new_node_has_free_ports() -> None:
    assert helps(NodePorts(), NEW_NODE, WANTS, None, N)


# Affinity to pods

PLUGIN = InterPodAffinity(None)
NEAR_WEB = P.require_pods("zone", selector(app="web"))
FAR_FROM_WEB = P.require_no_pods("zone", selector(app="web"))
WEB = pod("w").label(app="web").on("n")
DB = pod("w").label(app="db").on("n")


@pytest.mark.parametrize(
    ("waiting", "came", "expected"),
    [
        (NEAR_WEB, WEB, True),
        (NEAR_WEB, DB, False),
        (NEAR_WEB, pod("w", "other").label(app="web").on("n"), False),
        (NEAR_WEB, pod("w").label(app="web").nominated("n"), True),
        (NEAR_WEB, pod("w").label(app="web"), False),
        # A single pod has to be all that is wanted.
        (NEAR_WEB.require_pods("host", selector(tier="1")), WEB, False),
        (NEAR_WEB.require_pods("host", selector(tier="1")), WEB.label(tier="1"), True),
        (FAR_FROM_WEB, WEB, False),
        (P.prefer_pods(5, "zone", selector(app="web")), WEB, False),
        (P.require_pods("zone", None), WEB, False),
        (P.require_pods("zone", selector()), DB, True),
        (P.require_pods("zone", selector(app="web"), "other"), WEB, False),
        (P.require_pods("zone", selector(app="web"), "other", "default"), WEB, True),
    ],
)
def test_a_pod_that_this_one_wants_near_helps_when_it_comes(
    waiting: PodBuilder, came: PodBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, CAME, waiting, None, came) is expected


@pytest.mark.parametrize(
    ("waiting", "gone", "expected"),
    [
        (FAR_FROM_WEB, WEB, True),
        (FAR_FROM_WEB, DB, False),
        (FAR_FROM_WEB.require_no_pods("host", selector(tier="1")), WEB, False),
        (NEAR_WEB, WEB, False),
        (P.label(app="web"), DB.require_no_pods("zone", selector(app="web")), True),
        (P.label(app="x"), DB.require_no_pods("zone", selector(app="web")), False),
        (pod("p", "other").label(app="web"), DB.require_no_pods("zone", selector(app="web")), False),
        (P.label(app="web"), DB.require_pods("zone", selector(app="web")), False),
        (FAR_FROM_WEB, pod("w").label(app="web"), False),
    ],
)
def test_a_pod_that_kept_this_one_off_helps_when_it_is_gone(
    waiting: PodBuilder, gone: PodBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, GONE, waiting, gone, None) is expected


@pytest.mark.parametrize(
    ("waiting", "before", "now", "expected"),
    [
        (NEAR_WEB, DB, WEB, True),
        (NEAR_WEB, WEB, WEB.label(x="y"), False),
        (NEAR_WEB, WEB, DB, False),
        (FAR_FROM_WEB, WEB, DB, True),
        (FAR_FROM_WEB, DB, WEB, False),
        # What terms of the other pod's mean is not looked at again.
        (P.label(app="x"), WEB.require_no_pods("z", selector(app="x")), DB, False),
    ],
)
def test_other_labels_of_a_pod_help_if_they_change_what_it_is_to_this_one(
    waiting: PodBuilder, before: PodBuilder, now: PodBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, RELABELLED, waiting, before, now) is expected


def test_other_labels_of_ones_own_always_help() -> None:
    assert helps(PLUGIN, OWN_LABELS, P, P, P.label(app="x"))
    assert not helps(PLUGIN, OWN_LABELS, NEAR_WEB, pod("w"), pod("w").label(app="web"))


@pytest.mark.parametrize(
    ("namespaces", "expected"),
    [
        (LabelSelector(), True),
        (selector(team="a"), False),
        (LabelSelector(match_expressions=[]), True),
    ],
)
def test_a_selector_of_namespaces_means_all_of_them_or_none(namespaces: LabelSelector, expected: bool) -> None:
    term = PodAffinityTerm(topology_key="zone", label_selector=selector(app="web"), namespace_selector=namespaces)
    waiting = P.affinity(Affinity(pod_affinity=PodAffinity(required=[term])))
    assert helps(PLUGIN, CAME, waiting, None, WEB) is expected
    assert helps(PLUGIN, CAME, waiting, None, pod("w", "other").label(app="web").on("n")) is expected


EAST, WEST = N.label(zone="east"), N.label(zone="west")


@pytest.mark.parametrize(
    ("waiting", "before", "now", "expected"),
    [
        (NEAR_WEB, None, EAST, True),
        (NEAR_WEB, None, N, False),
        (FAR_FROM_WEB, None, N, True),
        (P, None, EAST, False),
        (NEAR_WEB, N, EAST, True),
        (NEAR_WEB, WEST, EAST, True),
        (NEAR_WEB, EAST, N, False),
        (NEAR_WEB, EAST, EAST.label(x="y"), False),
        (FAR_FROM_WEB, EAST, N, True),
        (FAR_FROM_WEB, EAST, WEST, True),
        (FAR_FROM_WEB, N, EAST, False),
        (P.prefer_no_pods(5, "zone", selector(app="web")), EAST, N, False),
    ],
)
def test_a_node_helps_that_comes_to_a_domain_or_leaves_one(
    waiting: PodBuilder, before: NodeBuilder | None, now: NodeBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, NEW_NODE if before is None else NODE_LABELS, waiting, before, now) is expected


# Gates


def test_a_gated_pod_waits_for_its_own_gates_alone() -> None:
    event = (Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    assert helps(SchedulingGates(), event, P, P.gate("g"), P)
    assert not helps(SchedulingGates(), event, P.gate("g"), pod("q").gate("g"), pod("q"))


def test_preemption_leaves_it_to_others_when_there_is_room() -> None:
    assert not helps(DefaultPreemption(), GONE, P, WEB, None)
