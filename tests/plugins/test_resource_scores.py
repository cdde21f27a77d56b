"""The scores of NodeResourcesFit (three strategies) and NodeResourcesBalancedAllocation."""

import pytest

from flotilla.results import SKIP, SUCCESS
from shared.cluster.view import TableView
from shared.config.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from shared.plugins.noderesources import NodeResourcesBalancedAllocation, NodeResourcesFit
from testing.builders import NodeBuilder, PodBuilder, class_state, node, pod
from tests.plugins.cluster import framework, judge, prepared, scores, table_of

GPU = "example.com/gpu"
CPU_AND_MEMORY = {"cpu": 1, "memory": 1}
RISING, FALLING = ((0, 0), (100, 10)), ((0, 10), (100, 0))


def specs(weights: dict[str, int]) -> tuple[ResourceSpec, ...]:
    return tuple(ResourceSpec(name, weight) for name, weight in weights.items())


def fit(strategy: str, weights: dict[str, int], shape: tuple[tuple[int, int], ...] = RISING) -> NodeResourcesFit:
    ratio = RequestedToCapacityRatioParam(tuple(UtilizationShapePoint(*point) for point in shape))
    return NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(strategy, specs(weights), ratio)))


def balanced(*resources: str) -> NodeResourcesBalancedAllocation:
    return NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(specs(dict.fromkeys(resources, 1))))


def asks(**amounts: str | int) -> PodBuilder:
    return pod("p").request(amounts)


def has(**amounts: str | int) -> NodeBuilder:
    return node("n").capacity(amounts)


def holds(**amounts: str | int) -> PodBuilder:
    return pod("there").request(amounts).on("n")


ROOMY = has(cpu="4", memory="1000Mi")


@pytest.mark.parametrize(
    ("weights", "arriving", "on", "there", "least", "most"),
    [
        # (75 + 50) / 2 free, (25 + 50) / 2 used
        (CPU_AND_MEMORY, asks(cpu="1", memory="500Mi"), ROOMY, [], 62, 37),
        (CPU_AND_MEMORY, asks(cpu="1", memory="250Mi"), ROOMY, [holds(cpu="1", memory="250Mi")], 50, 50),
        # Containers that ask for nothing count with 100m and 200Mi, those that are there as well.
        (CPU_AND_MEMORY, pod("p"), ROOMY, [], 88, 11),
        (CPU_AND_MEMORY, pod("p"), ROOMY, [pod("there").on("n")], 77, 22),
        (CPU_AND_MEMORY, asks(cpu=0, memory=0), ROOMY, [], 100, 0),
        (CPU_AND_MEMORY, pod("p").container("a").container("b"), ROOMY, [], 77, 22),
        # Overfull counts as full.
        (CPU_AND_MEMORY, asks(cpu="9", memory="250Mi"), ROOMY, [], 37, 62),
        (CPU_AND_MEMORY, asks(cpu="1"), ROOMY, [holds(cpu="9", memory="9Gi")], 0, 100),
        (CPU_AND_MEMORY, asks(cpu="4", memory="1000Mi"), ROOMY, [], 0, 100),
        # Weights.
        ({"cpu": 3, "memory": 1}, asks(cpu="1", memory="500Mi"), ROOMY, [], 68, 31),
        ({"cpu": 1, "memory": 100}, asks(cpu="1", memory="500Mi"), ROOMY, [], 50, 49),
        ({"cpu": 2}, asks(cpu="1", memory="500Mi"), ROOMY, [], 75, 25),
        # A resource that the node does not have does not count.
        (CPU_AND_MEMORY, asks(cpu="1", memory="1Gi"), has(cpu="4"), [], 75, 25),
        (CPU_AND_MEMORY, asks(cpu="1"), has(), [], 0, 0),
        (CPU_AND_MEMORY | {GPU: 1}, asks(cpu="1", memory="500Mi", **{GPU: 1}), ROOMY, [], 62, 37),
        # An extended resource counts only for pods that ask for it; ephemeral storage always does.
        (CPU_AND_MEMORY | {GPU: 5}, asks(cpu="1", memory="500Mi"), ROOMY.capacity({GPU: 4}), [], 62, 37),
        (
            CPU_AND_MEMORY | {GPU: 5},
            asks(cpu="1", memory="500Mi", **{GPU: 1}),
            ROOMY.capacity({GPU: 4}),
            [holds(cpu=0, memory=0, **{GPU: 2})],
            35,
            64,
        ),
        ({"ephemeral-storage": 1}, asks(cpu="1"), ROOMY.capacity(ephemeral_storage=10), [], 100, 0),
        (
            {"ephemeral-storage": 1},
            asks(**{"ephemeral-storage": 3}),
            ROOMY.capacity(ephemeral_storage=10),
            [holds(**{"ephemeral-storage": 4})],
            30,
            70,
        ),
    ],
)
def test_least_and_most_allocated(
    weights: dict[str, int], arriving: PodBuilder, on: NodeBuilder, there: list[PodBuilder], least: int, most: int
) -> None:
    table = table_of(on, pods=there)
    assert scores(fit("LeastAllocated", weights), arriving, table) == {"n": least}
    assert scores(fit("MostAllocated", weights), arriving, table) == {"n": most}


@pytest.mark.parametrize(
    ("shape", "weights", "arriving", "score"),
    [
        (RISING, {"cpu": 1}, asks(cpu="1"), 25),
        (FALLING, {"cpu": 1}, asks(cpu="1"), 75),
        (FALLING, {"cpu": 1}, asks(cpu="4"), 0),
        (RISING, {"cpu": 1}, asks(cpu="9"), 100),
        (FALLING, {"cpu": 1}, asks(cpu="9"), 0),
        # Flat before the first point and after the last.
        (((20, 3), (30, 5)), {"cpu": 1}, asks(cpu="100m"), 30),
        (((20, 3), (30, 5)), {"cpu": 1}, asks(cpu="1"), 40),
        (((20, 3), (30, 5)), {"cpu": 1}, asks(cpu="3"), 50),
        # A slope truncates towards zero, up and down: 10/3 at 25 of 24..27 is 3, and so is its fall.
        (((24, 0), (27, 1)), {"cpu": 1}, asks(cpu="1"), 3),
        (((24, 1), (27, 0)), {"cpu": 1}, asks(cpu="1"), 7),
        (((0, 0), (50, 10), (100, 0)), {"cpu": 1}, asks(cpu="3"), 50),
        # The mean is rounded half up: (25 + 50) / 2.
        (RISING, CPU_AND_MEMORY, asks(cpu="1", memory="500Mi"), 38),
        (RISING, {"cpu": 3, "memory": 1}, asks(cpu="1", memory="500Mi"), 31),
        # What scores zero does not count for the mean.
        (FALLING, CPU_AND_MEMORY, asks(cpu="1", memory="1000Mi"), 75),
        (FALLING, CPU_AND_MEMORY, asks(cpu="4", memory="1000Mi"), 0),
        (((0, 0),), CPU_AND_MEMORY, asks(cpu="1"), 0),
        (((50, 7),), CPU_AND_MEMORY, asks(cpu="1"), 70),
        (RISING, CPU_AND_MEMORY | {GPU: 9}, asks(cpu="1", memory="500Mi"), 38),
        (RISING, CPU_AND_MEMORY | {GPU: 9}, asks(cpu="1", memory="500Mi", **{GPU: 1}), 38),
    ],
)
def test_requested_to_capacity_ratio(
    shape: tuple[tuple[int, int], ...], weights: dict[str, int], arriving: PodBuilder, score: int
) -> None:
    plugin = fit("RequestedToCapacityRatio", weights, shape)
    assert scores(plugin, arriving, table_of(ROOMY)) == {"n": score}


@pytest.mark.parametrize(
    ("resources", "arriving", "on", "there", "score"),
    [
        # The pod leaves the balance alone.
        (("cpu", "memory"), asks(cpu="1", memory="250Mi"), ROOMY, [], 75),
        # It spoils it: shares 0.5 and 0 deviate by 0.25.
        (("cpu", "memory"), asks(cpu="2"), ROOMY, [], 62),
        (("cpu", "memory"), asks(cpu="4"), ROOMY, [], 50),
        # It mends it.
        (("cpu", "memory"), asks(memory="500Mi"), ROOMY, [holds(cpu="2")], 87),
        (("cpu", "memory"), asks(memory="1000Mi"), ROOMY, [holds(cpu="4")], 100),
        # Overfull counts as full.
        (("cpu", "memory"), asks(memory="1000Mi"), ROOMY, [holds(cpu="9")], 100),
        (("cpu", "memory"), asks(cpu="9"), ROOMY, [holds(cpu="9", memory="9Gi")], 75),
        # Containers that ask for nothing count with nothing.
        (("cpu", "memory"), asks(cpu="2"), ROOMY, [pod("there").on("n")], 62),
        # With fewer than two resources nothing is out of balance.
        (("cpu", "memory"), asks(cpu="2", memory="1Gi"), has(cpu="4"), [], 75),
        (("cpu",), asks(cpu="4"), ROOMY, [], 75),
        (("cpu", "memory"), asks(cpu="2"), has(), [], 75),
        # Three resources: shares 0.5, 0, 0 deviate by 0.2357.
        (("cpu", "memory", GPU), asks(cpu="2", **{GPU: 0}), ROOMY.capacity({GPU: 4}), [], 62),
        (("cpu", "memory", GPU), asks(cpu="2", **{GPU: 2}), ROOMY.capacity({GPU: 4}), [], 63),
        (("cpu", "memory", "ephemeral-storage"), asks(cpu="2"), ROOMY.capacity(ephemeral_storage=9), [], 63),
        (
            ("cpu", "memory", GPU),
            asks(cpu="2", memory="500Mi"),
            ROOMY.capacity({GPU: 4}),
            [holds(**{GPU: 4})],
            75,
        ),
        (
            ("cpu", "memory", GPU),
            asks(cpu="2", memory="500Mi", **{GPU: 1}),
            ROOMY.capacity({GPU: 4}),
            [holds(**{GPU: 1})],
            81,
        ),
        # A missing third one leaves two.
        (("cpu", "memory", GPU), asks(cpu="2", **{GPU: 2}), ROOMY, [], 62),
    ],
)
def test_balanced_allocation(
    resources: tuple[str, ...], arriving: PodBuilder, on: NodeBuilder, there: list[PodBuilder], score: int
) -> None:
    assert scores(balanced(*resources), arriving, table_of(on, pods=there)) == {"n": score}


@pytest.mark.parametrize(
    ("resources", "arriving", "skipped"),
    [
        (("cpu", "memory"), pod("p"), True),
        (("cpu", "memory"), asks(cpu=0, memory=0), True),
        (("cpu", "memory"), asks(**{GPU: 1}), True),
        (("cpu", "memory"), asks(cpu="1m"), False),
        (("cpu", "memory", GPU), asks(**{GPU: 1}), False),
        (("cpu", "memory"), pod("p").init_container(cpu="1"), False),
        (("cpu", "memory"), pod("p").overhead(memory="1"), False),
    ],
)
def test_best_effort_pods_are_not_balanced(resources: tuple[str, ...], arriving: PodBuilder, skipped: bool) -> None:
    assert balanced(*resources).pre_score(class_state(arriving.build())) == (SKIP if skipped else SUCCESS)


def test_the_fit_score_is_never_skipped() -> None:
    assert fit("LeastAllocated", CPU_AND_MEMORY).pre_score(class_state(pod("p").build())) == SUCCESS


def test_scores_follow_the_pods() -> None:
    table = table_of(ROOMY)
    plugin = fit("LeastAllocated", {"cpu": 1})
    state = prepared(plugin, asks(cpu="1"), table)
    assert plugin.score(state, TableView(table)).tolist() == [75]
    table.add_pod("u", "n", table.kind(table_of(ROOMY, pods=[holds(cpu="2")]).loads_at(0)[0]))
    assert plugin.score(state, TableView(table)).tolist() == [25]
    table.remove_pod("u")
    assert plugin.score(state, TableView(table)).tolist() == [75]


def test_within_a_profile() -> None:
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 1}],
        "requestedToCapacityRatio": {
            "shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}],
        },
    }
    profile = framework(
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        args={"NodeResourcesFit": {"scoringStrategy": strategy}},
    )
    explained = judge(profile, asks(cpu="1", memory="500Mi"), table_of(ROOMY))
    assert explained.scores == {"n": {"NodeResourcesFit": 75, "NodeResourcesBalancedAllocation": 68}}
    explained = judge(profile, pod("p"), table_of(ROOMY))
    assert explained.skipped_scores == ["NodeResourcesBalancedAllocation"]


def test_pods_is_no_resource_that_scores() -> None:
    """kube-scheduler keeps the number of pods apart, and finds no capacity for a resource of that name."""
    table = table_of(ROOMY.capacity(pods=4), pods=[holds(cpu="1")])
    assert scores(fit("LeastAllocated", {"cpu": 1, "pods": 1}), asks(cpu="1"), table) == {"n": 50}
    assert scores(balanced("cpu", "memory", "pods"), asks(cpu="2"), table) == {"n": 62}


def test_best_effort_without_pre_score() -> None:
    """With PreScore switched off, kube-scheduler's Score gives best-effort pods zero."""
    assert balanced("cpu", "memory").score(class_state(pod("p").build()), TableView(table_of(ROOMY))).tolist() == [0]
