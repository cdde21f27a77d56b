"""Strict mode against a plain loop: evaluate all, take the best, place."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.cycle.events import Decided
from shared.cluster.images import ImageSizes
from shared.cluster.load_kind import PODS
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.ranking import random_ties
from shared.framework.ranking import salt as tie_salt
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from shared.model.objects import Node, Pod
from testing.builders import expr, node, pod
from testing.inprocess.batches import class_of
from testing.inprocess.pipeline import Pipeline
from tests.rounds.support import BY_NAME, DEFAULT, small_node
from tests.rounds.world import Audited, World

TIES = st.one_of(st.just(BY_NAME), st.integers(0, 99).map(lambda seed: Ties(seed=seed)))
Placements = dict[str, str | None]


def reference(nodes: Sequence[Node], pods: Sequence[Pod], ties: Ties) -> Placements:
    """One new evaluator for every pod, over one table; nothing is remembered, guessed or merged."""
    table, images = NodeTable(), ImageSizes()
    for each_node in nodes:
        table.add_node(images.settle(each_node, None))
    placements: Placements = {}
    for each in pods:
        placements[each.uid] = where = best(table, each, class_of(DEFAULT, each), ties)
        if where is not None:
            table.add_pod(each.uid, where, load_of(each))
    return placements


def best(table: NodeTable, wanted: Pod, class_id: str, ties: Ties) -> str | None:
    evaluator = ShardEvaluator(table, DEFAULT, ties)
    pod_class = evaluator.prepare(class_id, wanted)
    if pod_class.pre.rejection is not None:
        return None
    evaluator.evaluate([Question(pod_class)])
    totals = {name: sum(scores.values()) for name, scores in evaluator.explain(pod_class).scores.items()}
    if not totals:
        return None
    names = [name for name, total in totals.items() if total == max(totals.values())]
    if ties.mode == "name":
        return min(names)
    rows = np.array([table.row_of(name) for name in names], dtype=np.intp)
    salt = tie_salt(ties, class_id)
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


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 50), TIES)
def test_strict_mode_is_the_plain_loop_for_every_number_of_shards(seed: int, nodes: int, pods: int, ties: Ties) -> None:
    world = World(seed)
    cluster, batch = world.nodes(nodes), world.pods(pods)
    expected = reference(cluster, batch, ties)
    for shards in (1, 2, 3, 7):
        assert scheduled(cluster, batch, ties, shards=shards, round_size=1) == expected, f"{shards} shards"


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 100), TIES, st.integers(1, 7), st.sampled_from([3, 256])
)
def test_larger_rounds_of_one_class_are_strict_mode(
    seed: int, nodes: int, pods: int, ties: Ties, shards: int, round_size: int
) -> None:
    """With likings and soft taints, too, whose scores hang on which nodes are feasible: that changes in a round."""
    world = World(seed)
    cluster, batch = world.nodes(nodes), world.pods(pods, of_one_class=True)
    expected = reference(cluster, batch, ties)
    assert scheduled(cluster, batch, ties, shards=shards, round_size=round_size) == expected


LIKINGS = st.tuples(st.sampled_from([0, 50, 100]), st.sampled_from([0, 30]))
SHAPES = st.tuples(st.integers(1, 4), st.sampled_from("abc"), st.integers(0, 2), st.sampled_from([4, 8, 32]))
Shape = tuple[int, str, int, int]


def crowd(shapes: Sequence[Shape], pods: int, likings: tuple[int, int]) -> tuple[list[Node], list[Pod]]:
    """Small nodes (cpus, group, soft taints, memory), and equal pods that like the groups a and b so much."""
    nodes: list[Node] = []
    for i, (cpu, group, taints, memory) in enumerate(shapes):
        made = node(f"n{i}").capacity(cpu=cpu, memory=f"{memory}Gi").label(g=group)
        for taint in range(taints):
            made = made.taint(f"soft-{taint}", effect="PreferNoSchedule")
        nodes.append(made.build())
    kind = pod("kind").request(cpu=1, memory="1Gi")
    for group, weight in zip("ab", likings, strict=True):
        if weight:
            kind = kind.prefer_node(weight, expr("g", "In", group))
    return nodes, [
        replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=f"p{i}")).build() for i in range(pods)
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(SHAPES, min_size=1, max_size=8), st.integers(2, 16), LIKINGS, st.sampled_from([1, 2, 3, 7]))
@example(
    [(4, "b", 0, 32), (2, "a", 0, 32), (1, "b", 0, 32), (16, "c", 0, 32), (1, "b", 0, 32), (1, "c", 0, 32)],
    14,
    (100, 30),
    2,
)
@example([(1, "a", 0, 32), (2, "b", 0, 32), (4, "c", 0, 32)], 7, (100, 30), 1)
# All nodes of a shard are liked best. Once they are full, the scores of the others' nodes are normalised again.
@example([(2, "c", 1, 32), (1, "b", 2, 8), (1, "a", 0, 8)], 3, (100, 30), 2)
@example([(1, "c", 1, 8), (2, "b", 2, 4), (1, "a", 2, 32)], 3, (100, 30), 7)
@example([(1, "c", 1, 8), (1, "a", 2, 32), (3, "c", 2, 32), (3, "b", 2, 4)], 2, (100, 30), 7)
def test_larger_rounds_of_one_class_are_strict_mode_where_ranges_move(
    shapes: list[Shape], pods: int, likings: tuple[int, int], shards: int
) -> None:
    """1. The best liked nodes fill up. 2. From then on likings are scaled to the next best."""
    nodes, batch = crowd(shapes, pods, likings)
    expected = reference(nodes, batch, BY_NAME)
    assert scheduled(nodes, batch, BY_NAME, shards=shards, round_size=1) == expected
    assert scheduled(nodes, batch, BY_NAME, shards=shards, round_size=256) == expected


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 100), st.integers(1, 7))
def test_larger_rounds_place_as_many_pods_of_one_class(seed: int, nodes: int, pods: int, shards: int) -> None:
    world = World(seed)
    cluster, batch = world.nodes(nodes), world.pods(pods, of_one_class=True)
    strict = scheduled(cluster, batch, BY_NAME, shards=shards, round_size=1)
    larger = scheduled(cluster, batch, BY_NAME, shards=shards, round_size=256)
    assert list(strict.values()).count(None) == list(larger.values()).count(None)


@pytest.mark.parametrize("round_size", [1, 2, 5, 256])
def test_no_pod_takes_the_node_of_one_with_higher_priority(round_size: int) -> None:
    """Room for six of ten: the six of highest priority get it with any round size."""
    run = Audited(shards=3, round_size=round_size)
    run.add_nodes(small_node(f"n{i}", cpu=2) for i in range(3))
    pods = [pod(f"p{i}").priority(10 - i).label(of=str(i)).request(cpu=1).build() for i in range(10)]
    run.submit(pods)
    run.settle()
    got = placements(run, pods)
    assert [each.name for each in pods if got[each.uid] is not None] == [f"p{i}" for i in range(6)]
