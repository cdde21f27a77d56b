"""Hard constraints: a pod may go to a domain only if that then has at most `max_skew` more pods than the emptiest.

Hypothetical pods of a view count in the domains of their own node.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flotilla.plugin import Index, Ints, Mask, NodeView, unresolvable, unschedulable
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import pod_count
from shared.cluster.view import TableView
from shared.plugins.podtopologyspread.census import Census, Part, Tally, by_number
from shared.plugins.podtopologyspread.constraints import Constraint

MISMATCH = "node(s) didn't match pod topology spread constraints"
SKEWED = unschedulable(MISMATCH)
NO_LABEL = unresolvable(f"{MISMATCH} (missing required label)")
NO_DOMAIN = 1 << 31
"""In place of the lowest count, if there is no domain."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One constraint, in the light of the merged summary.

    `pods`: by the number of the domain, and 0 at the end, for nodes that have none. `low`: the two lowest counts.
    """

    constraint: Constraint
    own: int
    pods: Ints
    low: tuple[int, int]
    too_few: bool

    def fits(self, tally: Tally, nodes: NodeView, index: Index | slice, namespace: str) -> Mask:
        """Which nodes stay within the skew. `index`: the nodes' rows."""
        there: Ints = self.pods[tally.domain[index]]
        if len(tally.private):
            there = there + np.where(tally.is_private[index], tally.seen[index], 0)
        lowest: int | Ints = self.low[0]
        if nodes.hypothetical_pods:
            change = np.where(tally.taking_part[index], _change(self.constraint, nodes, namespace), 0)
            others = np.where(there == self.low[0], self.low[1], self.low[0])
            there = there + change
            lowest = np.where(change == 0, lowest, np.minimum(there, others))
        if self.too_few:
            lowest = 0
        return there + (self.own - self.constraint.max_skew) <= lowest


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


def reject(
    limits: list[Limit], census: Census, nodes: TableView, namespace: str, *, open_domains: bool = False
) -> None:
    """The first constraint that a node fails gives the reason.

    `open_domains`: reject only for what trackers do not look at: missing labels, hostnames, nodes that take no part.
    """
    for bound, tally in zip(limits, census.tallies, strict=True):
        if tally is None:
            continue
        nodes.reject(~tally.labelled[nodes.index], NO_LABEL)
        fits = bound.fits(tally, nodes, nodes.index, namespace)
        if open_domains and not bound.constraint.is_of_hosts:
            fits |= tally.taking_part[nodes.index]
        nodes.reject(~fits, SKEWED)


def _change(constraint: Constraint, nodes: NodeView, namespace: str) -> Ints:
    """By how much the hypothetical pods change the count of each node.

    Planned pods count as placed ones do. Pods that are tried out count whenever the selector matches, even if they are
    terminating or the selector is empty.
    """
    change = nodes.change_of(pod_count([namespace], constraint.selector, with_terminating=True), planned=False)
    if not constraint.counts:
        return change
    return change + nodes.change_of(pod_count([namespace], constraint.selector), planned=True)
