"""percentageOfNodesToScore: which feasible nodes a shard looks at."""

import math

import numpy as np

from flotilla.plugin import Mask
from shared.framework.evaluator import ShardEvaluator

FEWEST_NODES = 100
"""Feasible nodes that percentageOfNodesToScore leaves in any case."""


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough in a cluster of this size."""
    return nodes if nodes < FEWEST_NODES else max(FEWEST_NODES, nodes * percentage // 100)


def sample_nodes(evaluator: ShardEvaluator, feasible: Mask, share: float, round_: int) -> Mask | None:
    """Applies percentageOfNodesToScore: the nodes to consider, other ones each round; None for all.

    A shard considers its share of the nodes that kube-scheduler would look for in the whole cluster. `share`: this
    table's part of the cluster.
    """
    percentage = evaluator.framework.percentage_of_nodes_to_score
    if not percentage or percentage >= 100:
        return None
    wanted = math.ceil(nodes_to_find(round(evaluator.table.node_count / share), percentage) * share)
    rows = np.flatnonzero(feasible)
    if len(rows) <= wanted:
        return None
    among = np.zeros_like(feasible)
    rows = evaluator.table.in_turn(rows)
    among[np.roll(rows, -(round_ * wanted % len(rows)))[:wanted]] = True
    return among
