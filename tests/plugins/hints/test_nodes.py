"""What plugins that look at nothing but nodes wait for."""

import pytest

from flotilla.events import Action, Resource
from shared.config.args import NodeAffinityArgs
from shared.errors import InvalidObject
from shared.model.objects import Container, NodeSelector, NodeSelectorTerm
from shared.model.objects import NodeAffinity as NodeAffinitySpec
from shared.model.pod import ContainerRestartRule
from shared.plugins.nodeaffinity import NodeAffinity
from shared.plugins.single_node import NodeDeclaredFeatures, NodeName, NodeUnschedulable, TaintToleration
from testing.builders import NodeBuilder, PodBuilder, expr, node, pod, term
from tests.plugins.hints.asking import helps, listens

NEW = (Resource.NODE, Action.ADD)
TAINTS = (Resource.NODE, Action.UPDATE_NODE_TAINT)
LABELS = (Resource.NODE, Action.UPDATE_NODE_LABEL)
FEATURES = (Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE)
TOLERATIONS = (Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)

P, N = pod("p"), node("n")
CORDONS = "node.kubernetes.io/unschedulable"

# Taints


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, N, True),
        (None, N.taint("k"), False),
        (None, N.taint("k", effect="PreferNoSchedule"), True),
        (N.taint("k"), N, True),
        (N.taint("k"), N.taint("k", effect="PreferNoSchedule"), True),
        (N.taint("k").taint("l"), N.taint("l"), False),
        (N.taint("k"), N.taint("l"), False),
        (N, N.taint("l", effect="PreferNoSchedule"), False),
        (N.taint("mine"), N, False),
        (N.taint("k"), N.taint("mine"), True),
    ],
)
def test_a_node_helps_when_its_taints_no_longer_repel_the_pod(
    before: NodeBuilder | None, now: NodeBuilder, expected: bool
) -> None:
    event = NEW if before is None else TAINTS
    assert helps(TaintToleration(), event, P.tolerate("mine"), before, now) is expected


def test_any_toleration_of_ones_own_helps() -> None:
    assert helps(TaintToleration(), TOLERATIONS, P.tolerate("x"), P, P.tolerate("x"))
    assert not helps(TaintToleration(), TOLERATIONS, P, pod("q"), pod("q").tolerate("x"))


# Cordons


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, N, True),
        (None, N.unschedulable(), False),
        (N.unschedulable(), N, True),
        (N.unschedulable(), N.unschedulable().taint("k"), False),
        (N, N.taint("k"), False),
    ],
)
def test_a_node_helps_when_it_is_open_now(before: NodeBuilder | None, now: NodeBuilder, expected: bool) -> None:
    assert helps(NodeUnschedulable(), NEW if before is None else TAINTS, P, before, now) is expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (P.tolerate(CORDONS), True),
        (P.tolerate(), True),
        (P.tolerate("other"), False),
        (P.tolerate(CORDONS, effect="NoExecute"), False),
        (pod("q").tolerate(CORDONS), False),
    ],
)
def test_of_tolerations_only_one_of_cordons_helps(now: PodBuilder, expected: bool) -> None:
    assert helps(NodeUnschedulable(), TOLERATIONS, P, pod(now.metadata.name), now) is expected


# Affinity


def profile_asking(*requirements: str) -> NodeAffinity:
    required = NodeSelector(node_selector_terms=[term(*(expr(key, "Exists") for key in requirements))])
    return NodeAffinity(NodeAffinityArgs(added_affinity=NodeAffinitySpec(required=required)))


PLAIN = NodeAffinity(NodeAffinityArgs())
SSD, EAST = N.label(disk="ssd"), N.label(zone="east")
WANTS_SSD = P.node_selector(disk="ssd")
WANTS_EAST = P.require_node(expr("zone", "In", "east"))


@pytest.mark.parametrize(
    ("wanting", "before", "now", "expected"),
    [
        (WANTS_SSD, None, SSD, True),
        (WANTS_SSD, None, N, False),
        (WANTS_SSD, N, SSD, True),
        (WANTS_SSD, SSD, SSD.label(x="y"), False),
        (WANTS_SSD, SSD, N, False),
        (WANTS_EAST, N, EAST, True),
        (WANTS_EAST, EAST, EAST.label(x="y"), False),
        (WANTS_EAST.node_selector(disk="ssd"), SSD, EAST, False),
        (WANTS_EAST.node_selector(disk="ssd"), SSD, EAST.label(disk="ssd"), True),
        (P.require_node(term(name="n")), None, N, True),
        (P.require_node(term(name="m")), None, N, False),
        (P.require_node(term()), None, N, False),
        (P, None, N, True),
        (P, N, SSD, False),
    ],
)
def test_a_node_helps_when_it_has_come_to_match(
    wanting: PodBuilder, before: NodeBuilder | None, now: NodeBuilder, expected: bool
) -> None:
    assert helps(PLAIN, NEW if before is None else LABELS, wanting, before, now) is expected


def test_what_the_profile_asks_for_must_be_there_now_and_need_not_be_new() -> None:
    asking = profile_asking("rack")
    assert not helps(asking, LABELS, WANTS_SSD, N, SSD)
    assert helps(asking, LABELS, WANTS_SSD, N, SSD.label(rack="r"))
    assert helps(asking, LABELS, WANTS_SSD, N.label(rack="r"), SSD.label(rack="r"))
    assert not helps(asking, LABELS, P, N, N.label(rack="r"))


def test_a_term_that_cannot_be_read_fails_where_no_other_matches() -> None:
    wanting = P.require_node(expr("cores", "Gt", "few")).require_node(expr("zone", "In", "east"))
    with pytest.raises(InvalidObject, match=r"nodeSelectorTerms\[0\]: matchExpressions\[0\]"):
        helps(PLAIN, NEW, wanting, None, N)
    with pytest.raises(InvalidObject):
        helps(PLAIN, LABELS, wanting, N, EAST)
    assert helps(PLAIN, NEW, wanting, None, EAST)
    assert not helps(PLAIN, NEW, wanting.node_selector(disk="ssd"), None, N)


def test_a_field_of_several_values_cannot_be_read_either() -> None:
    several = NodeSelectorTerm(match_fields=[expr("metadata.name", "In", "n", "m")])
    with pytest.raises(InvalidObject, match=r'values: Invalid value: \["n","m"\]'):
        helps(PLAIN, NEW, P.require_node(several), None, N)


# Names and features


def test_any_new_node_may_be_the_one_that_is_named() -> None:
    assert helps(NodeName(), NEW, P, None, N)
    assert not listens(NodeName(), Resource.NODE, Action.UPDATE_NODE_LABEL)


def declaring(*features: str) -> NodeBuilder:
    return N._status(declared_features=list(features))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, N, True),
        (N, declaring("a"), True),
        (declaring("a"), N, True),
        (declaring("a", "b"), declaring("b", "a"), True),
        (declaring("a"), declaring("a").label(x="y"), False),
    ],
)
def test_a_node_helps_when_it_declares_other_features(
    before: NodeBuilder | None, now: NodeBuilder, expected: bool
) -> None:
    assert helps(NodeDeclaredFeatures(), NEW if before is None else FEATURES, P, before, now) is expected


@pytest.mark.parametrize(
    "action", [Action.UPDATE, Action.UPDATE_POD_LABEL, Action.UPDATE_POD_SCALE_DOWN, Action.UPDATE_POD_TOLERATION]
)
def test_a_pod_that_needs_other_features_now_is_tried_again(action: Action) -> None:
    restarting = P._spec(
        containers=[Container(restart_policy_rules=[ContainerRestartRule(action="RestartAllContainers")])]
    )
    event = (Resource.UNSCHEDULABLE_POD, action)
    assert helps(NodeDeclaredFeatures(), event, P, restarting, P)
    assert helps(NodeDeclaredFeatures(), event, restarting, P, restarting)
    assert not helps(NodeDeclaredFeatures(), event, P, P, P.label(x="y"))
    assert not helps(NodeDeclaredFeatures(), event, pod("q"), restarting, P)
