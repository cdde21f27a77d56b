"""Whole plugins over columns against the same decisions taken slowly, one node at a time."""

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla.plugin import ClassState, FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin, SummaryPlugin
from flotilla.results import Code, Status
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Planned, Statuses, TableView
from shared.config.args import (
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from shared.framework.answers import filtered, scored
from shared.model.load import load_of
from shared.model.objects import NodeAffinity as NodeAffinitySpec
from shared.model.objects import NodeSelector, Pod, PreferredSchedulingTerm
from shared.plugins.imagelocality import ImageLocality
from shared.plugins.nodeaffinity import NodeAffinity
from shared.plugins.noderesources import NodeResourcesBalancedAllocation, NodeResourcesFit
from shared.plugins.single_node import NodeName, NodePorts, NodeUnschedulable, TaintToleration
from testing.builders import class_state
from tests.plugins import scalar
from tests.plugins.cluster import rejected
from tests.plugins.scalar import Host
from tests.plugins.strategies import ARRIVING, GPU, HUGE_PAGES, TERMS, clusters

RANDOM = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FitStatus = Callable[[Pod, Host], Status | None]
Score = Callable[[Pod, Host], int]

RESOURCES = st.just(["cpu", "memory"]) | st.lists(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", GPU, HUGE_PAGES, "example.com/nowhere"]),
    min_size=1,
    max_size=4,
    unique=True,
)
SHAPES = st.dictionaries(st.integers(0, 100), st.integers(0, 10), min_size=1, max_size=4).map(
    lambda points: RequestedToCapacityRatioParam(
        tuple(UtilizationShapePoint(utilization, points[utilization]) for utilization in sorted(points))
    )
)
STRATEGIES = st.builds(
    lambda kind, resources, weights, shape: ScoringStrategy(
        kind, tuple(ResourceSpec(name, weight) for name, weight in zip(resources, weights, strict=False)), shape
    ),
    st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
    RESOURCES,
    st.lists(st.integers(1, 100), min_size=4, max_size=4),
    SHAPES,
)
FIT_ARGS = st.builds(
    NodeResourcesFitArgs, st.sampled_from([(), (GPU,)]), st.sampled_from([(), ("other.io",)]), STRATEGIES
)
BALANCED_ARGS = RESOURCES.map(
    lambda names: NodeResourcesBalancedAllocationArgs(tuple(ResourceSpec(name, 1) for name in names))
)
ADDED = st.none() | st.builds(
    lambda required, preferred: NodeAffinitySpec(
        required=None if required is None else NodeSelector(node_selector_terms=required),
        preferred=[PreferredSchedulingTerm(weight=3, preference=wish) for wish in preferred],
    ),
    st.none() | st.lists(TERMS, max_size=2),
    st.lists(TERMS, max_size=2),
)


def build(hosts: Sequence[Host], gone: frozenset[int] = frozenset()) -> tuple[NodeTable, list[Host]]:
    """The table of these nodes without those at `gone`, and what is left; a removed node's row may be used again."""
    table = NodeTable(capacity=2)
    for i, host in enumerate(hosts):
        table.add_node(host.node)
        for there in host.pods:
            table.add_pod(there.uid, host.node.name, load_of(there))
        if i in gone and i:
            table.remove_node(host.node.name)
    return table, [host for i, host in enumerate(hosts) if i not in gone or not i]


def at(table: NodeTable, hosts: Sequence[Host]) -> list[int]:
    rows = [table.row_of(host.node.name) for host in hosts]
    return [row for row in rows if row is not None]


def prepare(plugin: object, pod: Pod, table: NodeTable) -> ClassState | None:
    """None when PreFilter or PreScore has decided already."""
    state = class_state(pod)
    if isinstance(plugin, PreFilterPlugin) and isinstance(plugin, FilterPlugin):
        status = plugin.pre_filter(state).status
        if status.rejected:
            return None
    if isinstance(plugin, PreScorePlugin) and not plugin.pre_score(state).ok:
        return state if isinstance(plugin, FilterPlugin) else None
    if isinstance(plugin, SummaryPlugin):
        state.summaries[plugin.name] = plugin.summarize(state, TableView(table))
    return state


def check_filter(plugin: FilterPlugin, hosts: Sequence[Host], arriving: Sequence[Pod], slow: FitStatus) -> None:
    table, left = build(hosts, frozenset({1}))
    states: list[ClassState] = []
    for pod in arriving:
        state = prepare(plugin, pod, table)
        if state is None:
            assert all(slow(pod, host) is not None for host in left)
        else:
            states.append(state)
    if not states:
        return
    rows = at(table, left)
    for index in (rows, rows[::-2]):
        view = TableView(table, np.array(index, dtype=np.intp))
        numbers = Statuses()
        many = filtered(plugin, numbers, states, None, view)
        which = np.arange(len(index)) % len(states)
        pairs = filtered(plugin, numbers, states, which, view)
        for i, state in enumerate(states):
            (one,) = filtered(plugin, numbers, [state], None, view)
            (whole,) = filtered(plugin, numbers, [state], None, TableView(table))
            assert many[i].tolist() == one.tolist() == whole[index].tolist()
            assert pairs[which == i].tolist() == one[which == i].tolist()
    for state in states:
        fast = rejected(plugin, state, TableView(table))
        assert [fast[row] for row in rows] == [slow(state.pod, host) for host in left]


def check_score(plugin: ScorePlugin, hosts: Sequence[Host], arriving: Sequence[Pod], slow: Score) -> None:
    table, left = build(hosts, frozenset({1}))
    states = [state for pod in arriving if (state := prepare(plugin, pod, table)) is not None]
    if not states:
        return
    rows = at(table, left)
    for index in (rows, rows[::-2]):
        view = TableView(table, np.array(index, dtype=np.intp))
        many = scored(plugin, states, None, view)
        which = np.arange(len(index)) % len(states)
        pairs = scored(plugin, states, which, view)
        for i, state in enumerate(states):
            one = plugin.score(state, view)
            assert many[i].tolist() == one.tolist() == plugin.score(state, TableView(table))[index].tolist()
            assert pairs[which == i].tolist() == one[which == i].tolist()
    for state in states:
        assert plugin.score(state, TableView(table))[rows].tolist() == [slow(state.pod, host) for host in left]


@RANDOM
@given(clusters(), ARRIVING)
def test_node_name_cordons_taints_and_ports(hosts: list[Host], arriving: tuple[Pod, ...]) -> None:
    check_filter(NodeName(), hosts, arriving, scalar.name_status)
    check_filter(NodeUnschedulable(), hosts, arriving, scalar.unschedulable_status)
    check_filter(TaintToleration(), hosts, arriving, scalar.taint_status)
    check_score(TaintToleration(), hosts, arriving, scalar.taint_score)
    check_filter(NodePorts(), hosts, arriving, scalar.ports_status)


@RANDOM
@given(clusters(), ARRIVING, ADDED)
def test_node_affinity(hosts: list[Host], arriving: tuple[Pod, ...], added: NodeAffinitySpec | None) -> None:
    plugin = NodeAffinity(NodeAffinityArgs(added))
    check_filter(plugin, hosts, arriving, lambda pod, host: scalar.affinity_status(pod, host, added))
    parsable = [pod for pod in arriving if plugin.pre_score(class_state(pod)).code is not Code.ERROR]
    check_score(plugin, hosts, parsable, lambda pod, host: scalar.affinity_score(pod, host, added))


@RANDOM
@given(clusters(), ARRIVING, FIT_ARGS)
def test_resources_fit(hosts: list[Host], arriving: tuple[Pod, ...], args: NodeResourcesFitArgs) -> None:
    plugin = NodeResourcesFit(args)
    check_filter(plugin, hosts, arriving, lambda pod, host: scalar.fit_status(pod, host, args))
    check_score(plugin, hosts, arriving, lambda pod, host: scalar.fit_score(pod, host, args))


@RANDOM
@given(clusters(), ARRIVING, BALANCED_ARGS)
def test_balanced_allocation(
    hosts: list[Host], arriving: tuple[Pod, ...], args: NodeResourcesBalancedAllocationArgs
) -> None:
    names = [resource.name for resource in args.resources]
    plugin = NodeResourcesBalancedAllocation(args)
    check_score(plugin, hosts, arriving, lambda pod, host: scalar.balanced_score(pod, host, names))


@RANDOM
@given(clusters(), ARRIVING)
def test_image_locality(hosts: list[Host], arriving: tuple[Pod, ...]) -> None:
    left = build(hosts, frozenset({1}))[1]
    check_score(ImageLocality(), hosts, arriving, lambda pod, host: scalar.image_score(pod, host, left))


@RANDOM
@given(
    clusters(),
    ARRIVING,
    FIT_ARGS,
    BALANCED_ARGS,
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=5, max_size=5),
)
def test_hypothetical_pods_count_as_placed_ones(
    hosts: list[Host],
    arriving: tuple[Pod, ...],
    fit_args: NodeResourcesFitArgs,
    balanced_args: NodeResourcesBalancedAllocationArgs,
    more: list[tuple[int, int]],
) -> None:
    """`more`: how many pods, and of which of the arriving ones, are taken to be on each node."""
    table, _ = build(hosts)
    real, _ = build(hosts)
    more = [(count, which % len(arriving)) for count, which in more[: len(hosts)]]
    for i, (count, which) in enumerate(more):
        for j in range(count):
            real.add_pod(f"more-{i}-{j}", hosts[i].node.name, load_of(arriving[which]))
    own = Planned(
        np.array([count for count, _ in more], dtype=np.int64),
        [table.kind(load_of(pod)) for pod in arriving],
        np.array([which for _, which in more], dtype=np.intp),
    )
    rows = np.array(at(table, hosts), dtype=np.intp)
    real_rows = np.array(at(real, hosts), dtype=np.intp)
    for hypothetical, placed in (
        (TableView(table, rows, own), TableView(real, real_rows)),
        (TableView(table, rows, own).take(np.arange(len(rows))[::2]), TableView(real, real_rows[::2])),
    ):
        assert_same_view(hypothetical, placed)
        fit, balanced = NodeResourcesFit(fit_args), NodeResourcesBalancedAllocation(balanced_args)
        for pod in arriving:
            for plugin in (NodePorts(), fit, balanced):
                state, real_state = class_state(pod), class_state(pod)
                for each in (state, real_state):
                    if isinstance(plugin, NodePorts | NodeResourcesFit):
                        plugin.pre_filter(each)
                if isinstance(plugin, FilterPlugin):
                    assert rejected(plugin, state, hypothetical) == rejected(plugin, real_state, placed)
                if isinstance(plugin, ScorePlugin):
                    assert plugin.score(state, hypothetical).tolist() == plugin.score(real_state, placed).tolist()


def assert_same_view(hypothetical: TableView, placed: TableView) -> None:
    assert hypothetical.non_zero_requested().tolist() == placed.non_zero_requested().tolist()
    for number, name in enumerate(hypothetical.table.resources.items):
        other = placed.table.resources.known(name)
        used = placed.used[other].tolist() if other is not None else [0] * len(placed)
        assert hypothetical.used[number].tolist() == used
    for i in range(len(hypothetical)):
        assert sorted(map(repr, hypothetical.info(i).pods)) == sorted(map(repr, placed.info(i).pods))
