"""Strict mode against a plain loop: evaluate all, take the best, place."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cycle.core import Decided
from services.inprocess.pipeline import Pipeline
from shared.cluster.classify import Classifier
from shared.cluster.images import ImageSizes
from shared.cluster.load import load_of
from shared.cluster.nodetable import PODS, NodeTable
from shared.framework.evaluator import ShardEvaluator
from shared.framework.explanation import explain
from shared.framework.tiebreak import Ties, random_ties
from shared.model.objects import Node, Pod
from tests.builders import pod
from tests.rounds.support import BY_NAME, DEFAULT, small_node
from tests.rounds.world import Audited, World

TIES = st.one_of(st.just(BY_NAME), st.integers(0, 99).map(lambda seed: Ties(seed=seed)))
Placements = dict[str, str | None]


def reference(nodes: Sequence[Node], pods: Sequence[Pod], ties: Ties) -> Placements:
    """One evaluator, made anew for every pod, over one table; nothing is remembered, guessed or merged."""
    table, images, classifier = NodeTable(), ImageSizes(), Classifier(DEFAULT.name, DEFAULT.signature)
    for node in nodes:
        table.add_node(images.settle(node, None))
    placements: Placements = {}
    for each in pods:
        placements[each.uid] = where = best(table, each, classifier.classify(each).class_id, ties)
        if where is not None:
            table.add_pod(each.uid, where, load_of(each))
    return placements


def best(table: NodeTable, wanted: Pod, class_id: str, ties: Ties) -> str | None:
    evaluator = ShardEvaluator(table, DEFAULT, ties)
    pod_class = evaluator.prepare(class_id, wanted)
    if pod_class.pre.rejection is not None:
        return None
    own = evaluator.summarize(pod_class)
    evaluator.believe(pod_class, own)
    evaluator.refresh([pod_class])
    evaluator.rank([pod_class], [evaluator.summary(pod_class, own).ranges])
    totals = {name: sum(scores.values()) for name, scores in explain(evaluator, pod_class).scores.items()}
    if not totals:
        return None
    names = [name for name, total in totals.items() if total == max(totals.values())]
    if ties.mode == "name":
        return min(names)
    rows = np.array([table.row_of(name) for name in names], dtype=np.intp)
    salt = np.uint64(ties.salt(class_id))
    drawn = random_ties(table.name_hash[rows], table.used[PODS, rows], salt, evaluator.tie_bits)
    return names[int(drawn.argmax())]


def placements(run: Pipeline, pods: Sequence[Pod]) -> Placements:
    outcomes = [run.outcomes[each.uid] for each in pods]
    return {told.uid: told.node if isinstance(told, Decided) else None for told in outcomes}


def scheduled(nodes: Sequence[Node], pods: Sequence[Pod], ties: Ties, *, shards: int, round_size: int) -> Placements:
    run = Audited(shards=shards, round_size=round_size, ties=ties)
    run.add_nodes(nodes)
    run.submit(pods)
    run.settle()
    return placements(run, pods)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 50), TIES)
def test_strict_mode_is_the_plain_loop_for_every_number_of_shards(seed: int, nodes: int, pods: int, ties: Ties) -> None:
    world = World(seed)
    cluster, batch = world.nodes(nodes), world.pods(pods)
    expected = reference(cluster, batch, ties)
    for shards in (1, 2, 3, 7):
        assert scheduled(cluster, batch, ties, shards=shards, round_size=1) == expected, f"{shards} shards"


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 100), TIES, st.integers(1, 7), st.sampled_from([3, 256])
)
def test_larger_rounds_of_one_class_are_strict_mode(
    seed: int, nodes: int, pods: int, ties: Ties, shards: int, round_size: int
) -> None:
    """Without soft taints: those make all scores hang on which nodes are feasible, and that changes in a round."""
    world = World(seed, plain=True)
    cluster, batch = world.nodes(nodes), world.pods(pods, of_one_class=True)
    expected = reference(cluster, batch, ties)
    assert scheduled(cluster, batch, ties, shards=shards, round_size=round_size) == expected


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 100), st.integers(1, 7))
def test_larger_rounds_place_as_many_pods_of_one_class(seed: int, nodes: int, pods: int, shards: int) -> None:
    world = World(seed)
    cluster, batch = world.nodes(nodes), world.pods(pods, of_one_class=True)
    strict = scheduled(cluster, batch, BY_NAME, shards=shards, round_size=1)
    larger = scheduled(cluster, batch, BY_NAME, shards=shards, round_size=256)
    assert list(strict.values()).count(None) == list(larger.values()).count(None)


@pytest.mark.parametrize("round_size", [1, 2, 5, 256])
def test_no_pod_takes_the_place_of_one_with_higher_priority(round_size: int) -> None:
    """Room for six of ten: whatever the rounds, the six of highest priority get it."""
    run = Audited(shards=3, round_size=round_size)
    run.add_nodes(small_node(f"n{i}", cpu=2) for i in range(3))
    pods = [pod(f"p{i}").priority(10 - i).label(of=str(i)).request(cpu=1).build() for i in range(10)]
    run.submit(pods)
    run.settle()
    got = placements(run, pods)
    assert [each.name for each in pods if got[each.uid] is not None] == [f"p{i}" for i in range(6)]
