"""Soft constraints: nodes whose domains have many of the pods are scored high, and normalised so that few is better.

How much a constraint weighs depends on the number of domains that the feasible nodes are in, which comes in the late
summary.
"""

import math

import numpy as np

from flotilla.plugin import ABSENT, MAX_NODE_SCORE, Ints, Scores
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import TableView
from shared.plugins.podtopologyspread.census import Census, Part, by_number, counted
from shared.plugins.podtopologyspread.constraints import Constraint, Rules
from shared.plugins.podtopologyspread.late import Late

IGNORED = -1
"""The raw score of a node that lacks a label; it stays out of the range, and its score is 0."""


class FewestFirst:
    """The lower the raw score, the better; all alike if there is nothing to tell them apart by."""

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        alike = np.full(raw.shape, MAX_NODE_SCORE, dtype=np.int64)
        scaled = MAX_NODE_SCORE * (high + low - raw) // high if high > 0 else alike
        return np.where(raw == IGNORED, 0, scaled)


def weights(late: Late) -> list[float]:
    sizes = (late["nodes"] if domains is None else len(domains) for domains in late["domains"])
    return [math.log(size + 2) for size in sizes]


def pods_by_domain(constraint: Constraint, part: Part | None, table: NodeTable) -> Ints:
    """For what is not of hosts; these are counted node by node."""
    return np.zeros(1, dtype=np.int64) if part is None else by_number(part, constraint, table)


def scores(
    rules: Rules, pods: list[Ints], weighted: list[float], census: Census, nodes: TableView, namespace: str
) -> Scores:
    total = np.zeros(len(nodes), dtype=np.float64)
    for constraint, of_domain, weight, tally in zip(rules.constraints, pods, weighted, census.tallies, strict=True):
        column = counted(constraint, namespace)
        values = nodes.label(constraint.key).numbers
        if column is None:
            count = np.zeros(len(nodes), dtype=np.int64)
        elif tally is None:
            count = nodes.of_pods(column)
        else:
            count = of_domain[values]
            if nodes.hypothetical_pods:
                count = count + np.where(tally.taking_part[nodes.index], nodes.change_of(column), 0)
        total += np.where(values == ABSENT, 0.0, count * weight + (constraint.max_skew - 1))
    whole = np.floor(total)
    rounded = (whole + (total - whole >= 0.5)).astype(np.int64)
    return np.where(census.has_keys[nodes.index], rounded, IGNORED)
