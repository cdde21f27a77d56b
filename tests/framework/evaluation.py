"""One way to ask an evaluator for everything that it has to say."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flotilla.plugin import Mask
from flotilla.results import Range
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Summary

Ladder = list[tuple[str, int]]


def evaluate(evaluator: ShardEvaluator, classes: Sequence[PodClass]) -> None:
    """As a lone worker would, that merges nothing."""
    evaluator.evaluate([Question(pod_class) for pod_class in classes])


def summary_of(evaluator: ShardEvaluator, pod_class: PodClass, among: Mask | None = None) -> Summary:
    """The shard's own."""
    (evaluated,) = evaluator.evaluate([Question(pod_class, among=lambda _: among)])
    if among is not None:
        evaluate(evaluator, [pod_class])
    return evaluated.summary


def answers(evaluator: ShardEvaluator, pod_class: PodClass) -> dict[str, Any]:
    """What an evaluated class comes to, by node name."""
    table = evaluator.table
    every_other = np.arange(table.size) % 2 == 0
    return {
        "feasible": feasible(evaluator, pod_class),
        "summary": summary_of(evaluator, pod_class),
        "summary of some": summary_of(evaluator, pod_class, every_other),
        "keys": keys(evaluator, pod_class),
        "ladders": [ladder(evaluator, pod_class, wanted) for wanted in (1, 2, 9)],
        "ladders among some": [ladder(evaluator, pod_class, wanted, every_other) for wanted in (1, 3)],
        "rejections": {rejection.status: rejection.nodes for rejection in evaluator.rejections(pod_class)},
        "explanation": evaluator.explain(pod_class),
    }


def feasible(evaluator: ShardEvaluator, pod_class: PodClass) -> list[str]:
    rows = np.flatnonzero(evaluator.feasible_rows(pod_class)).tolist()
    return sorted(evaluator.table.names[row] for row in rows)


def keys(evaluator: ShardEvaluator, pod_class: PodClass) -> dict[str, int]:
    """The present key of every node that has one."""
    found: dict[str, int] = {}
    for row in range(evaluator.table.size):
        alone = np.arange(evaluator.table.size) == row
        found.update(ladder(evaluator, pod_class, 1, alone))
    return found


def ladder(evaluator: ShardEvaluator, pod_class: PodClass, wanted: int, among: Mask | None = None) -> Ladder:
    return ladders(evaluator, [pod_class], [wanted], [among])[0]


def ladders(
    evaluator: ShardEvaluator, classes: Sequence[PodClass], wanted: Sequence[int], among: Sequence[Mask | None]
) -> list[Ladder]:
    names = evaluator.table.names
    return [
        [(names[row], key) for row, key in zip(rows.tolist(), keys.tolist(), strict=True)]
        for rows, keys, *_ in evaluator.ladders.climb(classes, wanted, among)
    ]


def climbed_by_placing(evaluator: ShardEvaluator, pod_class: PodClass, wanted: int, ranges: dict[str, Range]) -> Ladder:
    """The ladder, found by placing one pod after another, until that moves the ranges that were guessed."""
    table: NodeTable = evaluator.table
    placements: Ladder = []
    while len(placements) < wanted:
        if summary_of(evaluator, pod_class).ranges != ranges:
            break
        best = ladder(evaluator, pod_class, 1)
        if not best:
            break
        placements += best
        table.add_pod(f"climbing-{len(placements)}", best[0][0], pod_class.kind)
    for i in range(len(placements)):
        table.remove_pod(f"climbing-{i + 1}")
    return placements
