"""Hard constraints: a pod may go to a domain only if that then has at most `max_skew` more pods than the emptiest.

Pods that a view supposes on a node, or gone from there, count for that node's own domains.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import pod_count
from shared.framework.plugin import Verdicts
from shared.framework.view import Hypothesis, NodeView, Own
from shared.framework.whatif import Both
from shared.plugins.podtopologyspread.census import Census, Part, Tally, by_number
from shared.plugins.podtopologyspread.constraints import Constraint

FITS, SKEWED, NO_LABEL = range(3)
NO_DOMAIN = 1 << 31
"""Stands for the lowest count where there is no domain."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limit:
    """One constraint, in the light of the merged summary.

    `pods`: by the number of the domain, and nought at the end, for nodes that have none. `low`: the two lowest counts.
    """

    constraint: Constraint
    own: int
    pods: Counts
    low: tuple[int, int]
    too_few: bool

    def verdicts(self, tally: Tally, view: NodeView, namespace: str) -> NDArray[np.bool_]:
        """Which nodes are let through."""
        there = self._there(tally, view)
        lowest: int | Counts = self.low[0]
        if view.supposed is not None:
            more = _supposed(self.constraint, view.supposed, len(view), namespace)
            change = np.where(tally.taking_part[view.index], more, 0)
            others = np.where(there == self.low[0], self.low[1], self.low[0])
            there = there + change
            lowest = np.where(change == 0, lowest, np.minimum(there, others))
        if self.too_few:
            lowest = 0
        return there + (self.own - self.constraint.max_skew) <= lowest

    def _there(self, tally: Tally, view: NodeView) -> Counts:
        """The pods in each node's domain."""
        there: Counts = self.pods[tally.domain[view.index]]
        if len(tally.private):
            there = there + np.where(tally.is_private[view.index], tally.seen[view.index], 0)
        return there


def limit(constraint: Constraint, part: Part, labels: Mapping[str, str], table: NodeTable) -> Limit:
    """For a pod with these labels."""
    low = (*sorted([*part["domains"].values(), *part["low"]])[:2], NO_DOMAIN, NO_DOMAIN)
    return Limit(
        constraint,
        int(constraint.matches(labels)),
        by_number(part, constraint, table),
        low[:2],
        len(part["domains"]) + part["private"] < constraint.min_domains,
    )


def verdicts(limits: list[Limit], census: Census, view: NodeView, namespace: str) -> Verdicts:
    """The first constraint that a node fails decides why."""
    found = np.full(len(view), FITS, dtype=np.int64)
    for bound, tally in _pairs(limits, census):
        fails = np.where(bound.verdicts(tally, view, namespace), FITS, SKEWED)
        fails[~tally.labelled[view.index]] = NO_LABEL
        found = np.where(found == FITS, fails, found)
    return found


def verdicts_openly(limits: list[Limit], census: Census, view: NodeView, namespace: str) -> Verdicts:
    """Only what trackers do not look at: labels that are missing, hostnames, and nodes that take no part."""
    found = np.full(len(view), FITS, dtype=np.int64)
    for bound, tally in _pairs(limits, census):
        let_through = bound.verdicts(tally, view, namespace)
        if not bound.constraint.is_of_hosts:
            let_through |= tally.taking_part[view.index]
        found[~let_through] = SKEWED
        found[~tally.labelled[view.index]] = NO_LABEL
    return found


def _pairs(limits: list[Limit], census: Census) -> Iterator[tuple[Limit, Tally]]:
    return ((bound, tally) for bound, tally in zip(limits, census.tallies, strict=True) if tally is not None)


def _supposed(constraint: Constraint, supposed: Hypothesis, nodes: int, namespace: str) -> Counts:
    """By how much the supposed pods change the count of each of so many nodes.

    Those that a ladder has put there count as pods do. Those added or removed to see what would be then count whenever
    the selector matches, be they terminating or the selector empty.
    """
    if isinstance(supposed, Both):
        one = _supposed(constraint, supposed.one, nodes, namespace)
        return one + _supposed(constraint, supposed.other, nodes, namespace)
    column = pod_count([namespace], constraint.selector, with_terminating=True)
    if isinstance(supposed, Own):
        if not constraint.counts:
            return np.zeros(nodes, dtype=np.int64)
        column = pod_count([namespace], constraint.selector)
    return supposed.spread(np.array([column.amount(kind.load) for kind in supposed.kinds], dtype=np.int64))
