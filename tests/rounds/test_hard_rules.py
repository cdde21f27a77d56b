"""No round, however large, and no number of shards, lets two pods land that exclude each other.

Every decision is checked, in the order of decisions, against rules written down plainly; and every pod that was told
that no node fits is checked to have been told the truth.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cycle.events import Decided, Unschedulable
from shared.framework.loading import load_frameworks
from shared.model.objects import Node, ObjectKind, Pod, TopologySpreadConstraint, object_from
from testing.builders import PodBuilder, node, pod, selector
from testing.inprocess.pipeline import Pipeline
from tests.rounds.hardrules import admits

FRAMEWORKS = load_frameworks(None)
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("a", "b", "c")

Rule = Callable[[PodBuilder], PodBuilder]


def _spread(key: str, app: str, skew: int, least: int | None) -> Rule:
    constraint = TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable="DoNotSchedule",
        label_selector=selector(app=app),
        min_domains=least,
    )
    return lambda builder: builder.spread(constraint)


def _apart(key: str, app: str) -> Rule:
    return lambda builder: builder.require_no_pods(key, selector(app=app))


def _near(key: str, app: str) -> Rule:
    return lambda builder: builder.require_pods(key, selector(app=app))


def _with_claim(name: str) -> Rule:
    """Of a volume that one pod at a time may use."""
    return lambda builder: builder.claim(name)


CLAIMS = ("one", "two")
OBJECTS = [
    object_from(kind, obj)
    for name in CLAIMS
    for kind, obj in (
        (
            ObjectKind.PERSISTENT_VOLUME,
            {
                "metadata": {"name": f"pv-{name}"},
                "spec": {
                    "accessModes": ["ReadWriteOncePod"],
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"namespace": "default", "name": name, "uid": name},
                },
            },
        ),
        (
            ObjectKind.PERSISTENT_VOLUME_CLAIM,
            {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": f"pv-{name}"},
                "status": {"phase": "Bound"},
            },
        ),
    )
]


KEYS, SELECTED = st.sampled_from([ZONE, HOST]), st.sampled_from(APPS)
RULES = st.one_of(
    st.builds(_spread, KEYS, SELECTED, st.integers(1, 2), st.sampled_from([None, None, 2, 4])),
    st.builds(_apart, KEYS, SELECTED),
    st.builds(_near, KEYS, SELECTED),
    st.builds(_with_claim, st.sampled_from(CLAIMS)),
)
KINDS = st.lists(st.tuples(SELECTED, st.lists(RULES, max_size=2), st.sampled_from([0, 0, 10])), min_size=1, max_size=4)


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    nodes: list[Node] = []
    for i in range(draw(st.integers(1, 9))):
        builder = node(f"n{i}").capacity(cpu=draw(st.sampled_from(["2", "8"])), memory="8Gi", pods="20")
        zone = draw(st.sampled_from(["x", "y", "z", None]))
        host = draw(st.sampled_from([f"n{i}", f"n{i}", f"n{i}", "twin", None]))
        builder = builder if zone is None else builder.label({ZONE: zone})
        nodes.append((builder if host is None else builder.label({HOST: host})).build())
    return nodes


def _pods(kinds: Sequence[tuple[str, list[Rule], int]], order: Sequence[int]) -> list[Pod]:
    pods: list[Pod] = []
    for i, kind in enumerate(order):
        app, rules, priority = kinds[kind % len(kinds)]
        builder = pod(f"p{i}").label(app=app).priority(priority).never_preempting().request(cpu="1")
        for rule in rules:
            builder = rule(builder)
        pods.append(builder.build())
    return pods


def check(nodes: Sequence[Node], pods: Sequence[Pod], shards: int, round_size: int, there: Sequence[Pod] = ()) -> None:
    pipeline = Pipeline(FRAMEWORKS, shards=shards, round_size=round_size)
    pipeline.add_objects(OBJECTS)
    pipeline.add_nodes(nodes)
    pipeline.add_pods(there)
    pipeline.settle()
    pipeline.submit(pods)
    pipeline.settle()
    by_name, by_uid = {each.name: each for each in nodes}, {each.uid: each for each in pods}
    placed = [(each, by_name[each.spec.node_name]) for each in there]
    assert pipeline.outcomes.keys() == by_uid.keys()
    for uid, outcome in pipeline.outcomes.items():
        each = by_uid[uid]
        match outcome:
            case Decided(node=name):
                assert admits(each, by_name[name], nodes, placed), f"{each.name} on {name}"
                placed.append((each, by_name[name]))
            case Unschedulable():
                full = [n for n in nodes if sum(at is n for _, at in placed) >= int(n.status.allocatable["cpu"].value)]
                left = [n.name for n in nodes if n not in full and admits(each, n, nodes, placed)]
                assert not left, f"{each.name} was told that no node fits, and {left} do: {outcome.unfit.message}"
            case _:
                pytest.fail(f"{each.name}: {outcome}")


@settings(max_examples=150, deadline=None)
@given(
    clusters(),
    KINDS,
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.sampled_from([1, 2, 3, 7]),
    st.sampled_from([1, 2, 5, 24, 256]),
)
def test_hard_rules_hold_and_verdicts_are_true(
    nodes: list[Node], kinds: list[tuple[str, list[Rule], int]], order: list[int], shards: int, round_size: int
) -> None:
    check(nodes, _pods(kinds, order), shards, round_size)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("round_size", [2, 16, 256])
def test_two_workloads_that_exclude_each_other_never_share_a_zone(shards: int, round_size: int) -> None:
    nodes = [
        node(f"n{i}").label({ZONE: f"z{i % 3}", HOST: f"n{i}"}).capacity(cpu="64", memory="64Gi", pods="100").build()
        for i in range(9)
    ]
    kinds = [("a", [_apart(ZONE, "b")], 0), ("b", [], 0), ("c", [_near(ZONE, "a")], 0)]
    check(nodes, _pods(kinds, [i % 3 for i in range(60)]), shards, round_size)
