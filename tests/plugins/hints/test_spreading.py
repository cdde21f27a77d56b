"""What PodTopologySpread waits for."""

from collections.abc import Mapping

import pytest

from flotilla.events import Action, Resource
from shared.cluster.objects import ClusterObjects
from shared.config.args import PodTopologySpreadArgs
from shared.model.kinds import ObjectKind
from shared.model.objects import TopologySpreadConstraint
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import NodeBuilder, PodBuilder, node, pod, selector
from tests.plugins.hints.asking import helps, obj

GONE = (Resource.ASSIGNED_POD, Action.DELETE)
CAME = (Resource.ASSIGNED_POD, Action.ADD)
RELABELLED = (Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
OWN_LABELS = (Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
OWN_TOLERATIONS = (Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
NEW_NODE = (Resource.NODE, Action.ADD)
NODE_GONE = (Resource.NODE, Action.DELETE)
NODE_LABELS = (Resource.NODE, Action.UPDATE_NODE_LABEL)
TAINTS = (Resource.NODE, Action.UPDATE_NODE_TAINT)

PLUGIN = PodTopologySpread(PodTopologySpreadArgs())
P = pod("p").label(app="web")
SPREAD = P.spread_hard("zone", selector(app="web"))
ON_BOTH = SPREAD.spread_hard("host", selector(tier="1"))
WEB = pod("w").label(app="web").on("n")
DB = pod("w").label(app="db").on("n")


@pytest.mark.parametrize(
    ("waiting", "other", "expected"),
    [
        (SPREAD, WEB, True),
        (SPREAD, DB, False),
        (ON_BOTH, DB.label(tier="1"), True),
        (SPREAD, pod("w").label(app="web"), False),
        (SPREAD, pod("w").label(app="web").nominated("n"), True),
        (SPREAD, pod("w", "other").label(app="web").on("n"), False),
        (P.spread_soft("zone", selector(app="web")), WEB, False),
        (P.spread_hard("zone", None), WEB, False),
        (P.spread_hard("zone", selector()), DB, True),
        (P, WEB, False),
    ],
)
def test_a_pod_that_counts_helps_when_it_comes_or_goes(waiting: PodBuilder, other: PodBuilder, expected: bool) -> None:
    assert helps(PLUGIN, CAME, waiting, None, other) is expected
    assert helps(PLUGIN, GONE, waiting, other, None) is expected


@pytest.mark.parametrize(
    ("event", "before", "now", "expected"),
    [
        (RELABELLED, WEB, DB, True),
        (RELABELLED, DB, WEB, True),
        (RELABELLED, WEB, WEB.label(x="y"), False),
        (OWN_LABELS, SPREAD, SPREAD.label(app="x"), True),
        (OWN_LABELS, SPREAD, SPREAD.label(x="y"), False),
        (OWN_LABELS, pod("w").label(app="web"), pod("w"), False),
    ],
)
def test_other_labels_help_if_the_pod_counts_otherwise(
    event: tuple[Resource, Action], before: PodBuilder, now: PodBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, event, SPREAD, before, now) is expected


def test_label_keys_to_match_count_as_part_of_the_selector() -> None:
    constraint = TopologySpreadConstraint(
        max_skew=1,
        topology_key="zone",
        when_unsatisfiable="DoNotSchedule",
        label_selector=selector(app="web"),
        match_label_keys=["version"],
    )
    waiting = P.label(version="2").spread(constraint)
    assert helps(PLUGIN, CAME, waiting, None, WEB.label(version="2"))
    assert not helps(PLUGIN, CAME, waiting, None, WEB.label(version="1"))


@pytest.mark.parametrize(("policy", "expected"), [("Honor", True), ("Ignore", False)])
def test_a_toleration_of_ones_own_helps_if_taints_are_honoured(policy: str, expected: bool) -> None:
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", node_taints_policy=policy
    )
    waiting = P.spread(constraint)
    assert helps(PLUGIN, OWN_TOLERATIONS, waiting, waiting, waiting.tolerate("k")) is expected
    assert not helps(PLUGIN, OWN_TOLERATIONS, waiting, pod("q"), pod("q").tolerate("k"))


N = node("n")
EAST, WEST = N.label(zone="east"), N.label(zone="west")


@pytest.mark.parametrize(
    ("event", "waiting", "before", "now", "expected"),
    [
        (NEW_NODE, SPREAD, None, EAST, True),
        (NEW_NODE, SPREAD, None, N, False),
        (NEW_NODE, ON_BOTH, None, EAST, False),
        (NEW_NODE, ON_BOTH, None, EAST.label(host="h"), True),
        (NODE_GONE, SPREAD, EAST, None, True),
        (NODE_GONE, SPREAD, N, None, False),
        (NODE_LABELS, SPREAD, N, EAST, True),
        (NODE_LABELS, SPREAD, EAST, N, True),
        (NODE_LABELS, SPREAD, EAST, WEST, True),
        (NODE_LABELS, SPREAD, EAST, EAST.label(x="y"), False),
        (NODE_LABELS, ON_BOTH, EAST, WEST, False),
        (TAINTS, SPREAD, EAST, EAST.taint("k"), True),
        (TAINTS, SPREAD, EAST.unschedulable(), EAST, False),
        (TAINTS, SPREAD, N, N.taint("k"), False),
        # Without hard constraints every node is in all domains.
        (NEW_NODE, P, None, N, True),
        (NODE_GONE, P, N, None, True),
        (TAINTS, P, N, N.taint("k"), True),
        (NODE_LABELS, P, EAST, WEST, False),
    ],
)
def test_a_node_helps_by_its_domains_and_its_taints(
    event: tuple[Resource, Action],
    waiting: PodBuilder,
    before: NodeBuilder | None,
    now: NodeBuilder | None,
    expected: bool,
) -> None:
    assert helps(PLUGIN, event, waiting, before, now) is expected


def by_default() -> PodTopologySpread:
    given = TopologySpreadConstraint(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    return PodTopologySpread(PodTopologySpreadArgs(default_constraints=(given,), defaulting_type="List"))


def with_service(labels: Mapping[str, str]) -> ClusterObjects:
    objects = ClusterObjects()
    objects.upsert(obj(ObjectKind.SERVICE, "s", spec={"selector": dict(labels)}))
    return objects


def test_default_constraints_count_the_pods_of_the_same_service() -> None:
    served, unserved = with_service({"app": "web"}), with_service({"app": "db"})
    assert helps(by_default(), CAME, P, None, WEB, served)
    assert not helps(by_default(), CAME, P, None, DB, served)
    assert not helps(by_default(), CAME, P, None, WEB, unserved)
    assert not helps(by_default(), NEW_NODE, P, None, N, served)
    assert helps(by_default(), NEW_NODE, P, None, N, unserved)
    assert not helps(by_default(), CAME, P.spread_soft("zone", selector()), None, WEB, served)
