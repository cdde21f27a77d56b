"""percentageOfNodesToScore: how many feasible nodes are considered, which, and that decisions keep to them."""

import numpy as np
import pytest
from msgspec.structs import replace

from services.cycle.events import Decided
from services.worker.sampling import nodes_to_find, sample_nodes
from shared.cluster.nodetable import NodeTable
from shared.config.reading import load_config
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.pod_class import PodClass
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.plugins.registry import in_tree
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline


def framework(percentage: int | None) -> Framework:
    profile = replace(load_config(None).profiles[0], percentage_of_nodes_to_score=percentage)
    return Framework(profile, in_tree())


def evaluated(nodes: int, percentage: int | None, *, full: int = 0) -> tuple[ShardEvaluator, PodClass]:
    table = NodeTable()
    for i in range(nodes):
        table.add_node(node(f"n{i}").capacity(cpu="4", memory="8Gi", pods=0 if i < full else 110).build())
    evaluator = ShardEvaluator(table, framework(percentage), Ties())
    pod_class = evaluator.prepare("x", pod("p").request(cpu="1").build())
    evaluator.evaluate([Question(pod_class)])
    return evaluator, pod_class


@pytest.mark.parametrize(
    ("nodes", "percentage", "wanted"), [(99, 10, 99), (100, 10, 100), (1000, 5, 100), (1000, 50, 500), (5000, 10, 500)]
)
def test_how_many_nodes_are_enough(nodes: int, percentage: int, wanted: int) -> None:
    assert nodes_to_find(nodes, percentage) == wanted


@pytest.mark.parametrize("percentage", [None, 0, 100])
def test_all_nodes_are_considered_by_default_and_at_100_percent(percentage: int | None) -> None:
    evaluator, pod_class = evaluated(300, percentage)
    assert sample_nodes(evaluator, evaluator.feasible_rows(pod_class), 1.0, 1) is None


def test_only_the_wanted_number_of_feasible_nodes_is_considered_and_other_ones_each_round() -> None:
    evaluator, pod_class = evaluated(400, 30, full=100)
    seen: set[int] = set()
    for round_ in range(3):
        among = sample_nodes(evaluator, evaluator.feasible_rows(pod_class), 1.0, round_)
        assert among is not None
        assert np.count_nonzero(among) == 120
        assert not np.any(among & ~evaluator.feasible_rows(pod_class))
        seen |= set(np.flatnonzero(among).tolist())
    assert seen == set(range(100, 400))


def test_the_same_round_considers_the_same_nodes() -> None:
    evaluator, pod_class = evaluated(400, 30)
    first, again = (sample_nodes(evaluator, evaluator.feasible_rows(pod_class), 1.0, 7) for _ in range(2))
    assert first is not None
    assert again is not None
    assert np.array_equal(first, again)


def test_a_shard_takes_its_share() -> None:
    evaluator, pod_class = evaluated(200, 50)
    among = sample_nodes(
        evaluator, evaluator.feasible_rows(pod_class), 0.25, 0
    )  # a quarter of 800 nodes, of which 400 are wanted
    assert among is not None
    assert np.count_nonzero(among) == 100


def test_fewer_feasible_nodes_than_wanted_are_all_considered() -> None:
    evaluator, pod_class = evaluated(400, 30, full=300)
    assert sample_nodes(evaluator, evaluator.feasible_rows(pod_class), 1.0, 1) is None


@pytest.mark.parametrize("shards", [1, 3])
def test_pods_are_placed_all_the_same(shards: int) -> None:
    pipeline = Pipeline({"default-scheduler": framework(20)}, shards=shards, round_size=16)
    pipeline.add_nodes(node(f"n{i}").capacity(cpu="2", memory="8Gi").build() for i in range(300))
    pods = [pod(f"p{i}").request(cpu="1").build() for i in range(400)]
    pipeline.submit(pods)
    pipeline.settle()
    outcomes = [pipeline.outcomes[p.uid] for p in pods]
    nodes = [outcome.node for outcome in outcomes if isinstance(outcome, Decided)]
    assert len(nodes) == 400
    assert max(nodes.count(name) for name in set(nodes)) <= 2
