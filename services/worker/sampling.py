"""percentageOfNodesToScore, where a profile sets it: look at a limited number of feasible nodes, other ones each round.

A shard takes its share of the number that kube-scheduler would look for in the whole cluster.
"""

import math

import numpy as np

from flotilla.plugin import Mask
from shared.framework.evaluator import ShardEvaluator

FEWEST_NODES = 100


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough in a cluster of this size."""
    return nodes if nodes < FEWEST_NODES else max(FEWEST_NODES, nodes * percentage // 100)


def sample(evaluator: ShardEvaluator, feasible: Mask, share: float, round_: int) -> Mask | None:
    """The nodes to consider, None for all. `share` is this shard's part of the cluster."""
    percentage = evaluator.framework.percentage_of_nodes_to_score
    if not percentage or percentage >= 100:
        return None
    wanted = math.ceil(nodes_to_find(round(evaluator.table.node_count / share), percentage) * share)
    rows = np.flatnonzero(feasible)
    if len(rows) <= wanted:
        return None
    start = round_ * wanted % len(rows)
    among = np.zeros_like(feasible)
    among[np.roll(rows, -start)[:wanted]] = True
    return among
