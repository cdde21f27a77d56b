"""Default constraints: whom they apply to, and by which selector."""

from collections.abc import Iterable

import pytest

from shared.cluster.objects import ClusterObjects
from shared.cluster.view import TableView
from shared.config.args import PodTopologySpreadArgs
from shared.model.kinds import ObjectKind
from shared.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    Pod,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    TopologySpreadConstraint,
)
from shared.model.workloads import LabelSelectorSpec, MapSelectorSpec
from shared.plugins.podtopologyspread.constraints import default_selector
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import PodBuilder, class_state, node, pod, selector
from tests.plugins.podtopologyspread import reference
from tests.plugins.podtopologyspread.reference import HOSTNAME, Host
from tests.plugins.podtopologyspread.worlds import Cluster

ZONE = "topology.kubernetes.io/zone"
WEB = pod("web").label(app="web", tier="1")
SYSTEM = PodTopologySpread(PodTopologySpreadArgs())


def service(name: str, namespace: str = "default", **labels: str) -> Service:
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=MapSelectorSpec(selector=labels))


def replication_controller(**labels: str) -> ReplicationController:
    meta = ObjectMeta(name="owner", namespace="default")
    return ReplicationController(metadata=meta, spec=MapSelectorSpec(selector=labels))


def replica_set(labels: LabelSelector | None) -> ReplicaSet:
    meta = ObjectMeta(name="owner", namespace="default")
    return ReplicaSet(metadata=meta, spec=LabelSelectorSpec(selector=labels))


def stateful_set(labels: LabelSelector | None) -> StatefulSet:
    meta = ObjectMeta(name="owner", namespace="default")
    return StatefulSet(metadata=meta, spec=LabelSelectorSpec(selector=labels))


def objects(*there: Service | ReplicationController | ReplicaSet | StatefulSet) -> ClusterObjects:
    found = ClusterObjects()
    for each in there:
        found.upsert(each)
    return found


IN_B = LabelSelectorRequirement(key="env", operator="In", values=["b"])
BY_SET = WEB.owner("ReplicaSet", "owner")

Owner = Service | ReplicationController | ReplicaSet | StatefulSet

CASES: dict[str, tuple[PodBuilder, list[Owner], LabelSelector | None]] = {
    "nobody's": (WEB, [], None),
    "a service's": (WEB, [service("s", app="web")], selector(app="web")),
    "of several services": (WEB, [service("s", app="web"), service("t", tier="1")], selector(app="web", tier="1")),
    "not of others' services": (WEB, [service("s", app="db"), service("t", "other", app="web")], None),
    "of a service that selects nothing": (WEB, [service("s")], None),
    "a replica set's": (BY_SET, [replica_set(selector(app="web"))], selector(app="web")),
    "of a replica set and a service": (
        BY_SET,
        [replica_set(selector(None, IN_B, app="web")), service("s", tier="1")],
        selector({"app": "web", "tier": "1"}, IN_B),
    ),
    "what conflicts is kept": (
        BY_SET,
        [replica_set(selector(app="db")), service("s", app="web")],
        selector({"app": "web"}, LabelSelectorRequirement(key="app", operator="In", values=["db"])),
    ),
    "of a replica set without a selector": (BY_SET, [replica_set(None)], None),
    "of a replica set that is gone": (BY_SET, [], None),
    "a stateful set's": (
        WEB.owner("StatefulSet", "owner"),
        [stateful_set(selector(app="web")), replica_set(selector(app="no"))],
        selector(app="web"),
    ),
    "a replication controller's": (
        WEB.owner("ReplicationController", "owner", api_version="v1"),
        [replication_controller(app="other"), service("s", app="web")],
        selector(app="other"),
    ),
    "of a controller of another API": (
        WEB.owner("ReplicaSet", "owner", api_version="example.com/v1"),
        [replica_set(selector(app="web"))],
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_belongs_with_a_pod(case: str) -> None:
    built, there, expected = CASES[case]
    found = default_selector(built.build(), objects(*there))
    assert found == expected


def hosts(*there: tuple[str, str | None, int], terminating: int = 0) -> list[Host]:
    """(name, zone, web pods) of each node."""
    found = []
    for name, zone, pods in there:
        built = node(name).label({HOSTNAME: name})
        built = built if zone is None else built.label({ZONE: zone})
        gone = [pod(f"{name}-gone-{i}").label(app="web").terminating().build() for i in range(terminating)]
        found.append(Host(built.build(), [pod(f"{name}-{i}").label(app="web").build() for i in range(pods)] + gone))
    return found


def scores(plugin: PodTopologySpread, found: list[Host], pending: Pod, among: Iterable[str] = ()) -> dict[str, int]:
    cluster = Cluster(plugin, found, pending, 2, objects(replica_set(selector(app="web"))))
    assert not cluster.filters
    assert cluster.scores
    cluster.summarize()
    names = list(among) or [host.node.name for host in found]
    cluster.summarize_feasible(names)
    return cluster.normalized(names)


def built_in() -> list[TopologySpreadConstraint]:
    soft = WEB.spread_soft(HOSTNAME, selector(app="web"), 3).spread_soft(ZONE, selector(app="web"), 5)
    return list(soft.build().spec.topology_spread_constraints)


def test_pods_of_a_replica_set_are_spread_over_nodes_and_zones() -> None:
    found = hosts(("a0", "a", 2), ("a1", "a", 0), ("b0", "b", 1), ("b1", "b", 0), ("x", None, 1), terminating=1)
    expected = reference.scores(BY_SET.build(), built_in(), found, found, every_key=False)
    assert scores(SYSTEM, found, BY_SET.build()) == expected
    assert expected["b1"] > expected["a1"] > expected["a0"]


def test_the_missing_zone_counts_as_one_more_domain() -> None:
    found = hosts(("a0", "a", 9), ("b0", "b", 1), ("b1", "b", 0))
    more = [*found, *hosts(("x", None, 0))]
    names = ["a0", "b0", "b1", "x"]
    assert scores(SYSTEM, more, BY_SET.build(), names) == reference.scores(
        BY_SET.build(), built_in(), more, more, every_key=False
    )


def test_a_listed_default_leaves_out_nodes_without_the_label() -> None:
    listed = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway")
    plugin = PodTopologySpread(PodTopologySpreadArgs(default_constraints=(listed,), defaulting_type="List"))
    found = hosts(("a0", "a", 2), ("b0", "b", 0), ("x", None, 0))
    assert scores(plugin, found, BY_SET.build()) == {"a0": 0, "b0": 100, "x": 0}


def test_a_listed_hard_default_rejects() -> None:
    listed = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")
    plugin = PodTopologySpread(PodTopologySpreadArgs(default_constraints=(listed,), defaulting_type="List"))
    there = objects(replica_set(selector(app="web")))
    cluster = Cluster(plugin, hosts(("a0", "a", 1), ("b0", "b", 0), ("x", None, 0)), BY_SET.build(), 3, there)
    assert cluster.filters
    assert not cluster.scores
    summary = cluster.summarize()
    assert cluster.verdicts() == {"a0": reference.SKEWED, "b0": reference.FITS, "x": reference.NO_LABEL}
    assert plugin.tracker(BY_SET.build(), summary, None, None) is not None


def is_spread(plugin: PodTopologySpread, built: PodBuilder, there: ClusterObjects) -> bool:
    state = class_state(built.build(), there)
    return not plugin.pre_score(state).skipped


def test_whom_defaults_apply_to() -> None:
    there = objects(replica_set(selector(app="web")))
    assert is_spread(SYSTEM, BY_SET, there)
    assert not is_spread(SYSTEM, WEB, there)
    assert not is_spread(SYSTEM, BY_SET.spread_hard(ZONE, selector(app="web")), there)
    nothing = PodTopologySpread(PodTopologySpreadArgs(defaulting_type="List"))
    assert not is_spread(nothing, BY_SET, there)


def test_which_objects_are_looked_at() -> None:
    assert set(SYSTEM.reads_objects(class_state(BY_SET.build()))) == {ObjectKind.SERVICE, ObjectKind.REPLICA_SET}
    assert set(SYSTEM.reads_objects(class_state(WEB.build()))) == {ObjectKind.SERVICE}
    assert not SYSTEM.reads_objects(class_state(BY_SET.spread_soft(ZONE, selector(app="web")).build()))
    nothing = PodTopologySpread(PodTopologySpreadArgs(defaulting_type="List"))
    assert not nothing.reads_objects(class_state(BY_SET.build()))
    assert nothing.signature(BY_SET.build()) != nothing.signature(BY_SET.label(app="other").build())


def test_what_a_round_follows() -> None:
    there = objects(replica_set(selector(app="web")))
    for built, keys, strata in (
        (BY_SET, (ZONE,), (ZONE,)),
        (WEB.spread_hard(HOSTNAME, selector(app="web")), (HOSTNAME,), ()),
        (WEB.spread_hard("rack", selector(app="web")).spread_soft(ZONE, None), ("rack", ZONE), ("rack", ZONE)),
    ):
        cluster = Cluster(SYSTEM, hosts(("a0", "a", 1), ("b0", "b", 0)), built.build(), 1, there)
        cluster.summarize()
        [shard] = cluster.shards
        topology = SYSTEM.topology(shard.state, TableView(shard.table))
        assert topology is not None
        assert (topology.keys, topology.strata) == (keys, strata)
    cluster = Cluster(SYSTEM, hosts(("a0", "a", 1)), WEB.build(), 1, there)
    assert cluster.summarize() is None
    assert SYSTEM.topology(cluster.shards[0].state, TableView(cluster.shards[0].table)) is None
