"""ShardCounts: how the pods that constraints count are spread over the domains of one table, kept up to date.

A hostname that only one node of the cluster has is *private*: its count is on the node itself, and of all private
domains together only their number and the two lowest counts go to other shards.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from flotilla.plugin import ABSENT, ClassState, Ints, LabelValue, Mask
from shared.cluster.columns import IntColumn, Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import PodCount, merge_counts, pod_count
from shared.cluster.view import TableView
from shared.plugins.nodeaffinity import selected
from shared.plugins.podtopologyspread.constraints import Constraint, Rules
from shared.plugins.single_node import repelled

UNLABELLED = ""
"""The domain of nodes without the label, where they take part all the same."""

Part = dict[str, Any]
"""What other shards get of one constraint's counts; see `ConstraintCounts.part`."""

Late = dict[str, Any]
"""The late summary, see `late_summary`."""


def counted(constraint: Constraint, namespace: str) -> PodCount | None:
    """The column of the pods that a constraint counts, if it counts any."""
    return pod_count([namespace], constraint.selector) if constraint.counts else None


@dataclass(slots=True)
class ConstraintCounts:
    """One constraint over one table; arrays have one entry a row, but `totals` one a value of the label.

    `labelled`: the nodes that have the label. `taking_part`: those whose pods count; `every`: that is all that have all
    labels. `domain`: the number of the node's value, ABSENT where it has none or the domain is private. `names`: the
    values, with their numbers, of the domains that are there. `pods`: the counted pods of each node;
    `private_by_count`: the number of private domains by count.
    """

    column: PodCount | None
    labelled: Mask
    taking_part: Mask
    every: bool
    domain: IntColumn
    is_private: Mask
    private: Rows
    names: list[tuple[int, str]]
    totals: Ints
    pods: IntColumn
    private_by_count: Counter[int]

    def recount(self, table: NodeTable) -> None:
        if self.column is None:
            self.pods = np.zeros(table.size, dtype=np.int64)
        else:
            self.pods = table.columns.of_pods(self.column)[: table.size].copy()
        part = self.taking_part & (self.domain != ABSENT)
        numbers, pods = self.domain[part], self.pods[part]
        self.totals = np.bincount(numbers, weights=pods, minlength=len(self.totals)).astype(np.int64)
        self.private_by_count = Counter(self.pods[self.private].tolist())

    def catch_up(self, table: NodeTable, rows: Rows) -> bool:
        """Apply the changes of these rows. Returns whether there were any."""
        if self.column is None:
            return False
        now = table.columns.of_pods(self.column)[rows]
        moved = np.flatnonzero(now != self.pods[rows])
        if not moved.size:
            return False
        rows, now = rows[moved], now[moved]
        part = self.taking_part[rows] & (self.domain[rows] != ABSENT)
        np.add.at(self.totals, self.domain[rows[part]], now[part] - self.pods[rows[part]])
        alone = self.is_private[rows]
        self.private_by_count.subtract(self.pods[rows[alone]].tolist())
        self.private_by_count.update(now[alone].tolist())
        self.pods[rows] = now
        return True

    def part(self) -> Part:
        """The pods by domain; of the private ones, how many there are and the two lowest counts, which may be equal.

        `every`: every node that has the labels takes part.
        """
        totals = self.totals.tolist()
        low: list[int] = []
        for count in sorted(count for count, domains in self.private_by_count.items() if domains):
            low += [count] * min(self.private_by_count[count], 2)
            if len(low) >= 2:
                break
        return {
            "domains": {name: totals[number] for number, name in self.names},
            "private": len(self.private),
            "low": low[:2],
            "every": self.every,
        }


class ShardCounts:
    """`of_hosts`: count by hostname, too; otherwise such a constraint has no counts.

    `has_keys`: the nodes that have the labels of all constraints.
    """

    def __init__(self, table: NodeTable, state: ClassState, rules: Rules, *, of_hosts: bool) -> None:
        self.table = table
        self.rules = rules
        self.constraints: list[ConstraintCounts | None] = []
        self.parts: list[Part | None] = []
        self.has_keys: Mask = np.zeros(0, dtype=np.bool_)
        self._of_hosts = of_hosts
        self._state = state
        self._node_position = self._load_position = -1

    def refresh(self) -> None:
        """Bring the counts up to the table's present state."""
        table = self.table
        if self._node_position != table.node_log.position:
            self._begin()
        elif self._load_position != table.load_log.position:
            rows = table.load_log.since(self._load_position)
            for i, counts in enumerate(self.constraints):
                if counts is None:
                    continue
                if rows is None:
                    counts.recount(table)
                elif not counts.catch_up(table, rows):
                    continue
                self.parts[i] = counts.part()
        self._node_position, self._load_position = table.node_log.position, table.load_log.position

    def _begin(self) -> None:
        table, constraints = self.table, self.rules.constraints
        values = [table.columns.of_nodes(LabelValue(c.key))[: table.size] for c in constraints]
        self.has_keys = table.valid[: table.size].copy()
        if self.rules.every_key:
            for of_key in values:
                self.has_keys &= of_key != ABSENT
        view = TableView(table)
        affine = selected(self._state.pod, view) if any(c.honors_affinity for c in constraints) else None
        tolerated = (
            ~repelled(self._state, view, compares=self.rules.compares)
            if any(c.honors_taints for c in constraints)
            else None
        )
        self.constraints = []
        for constraint, of_key in zip(constraints, values, strict=True):
            taking_part = self.has_keys.copy()
            if affine is not None and constraint.honors_affinity:
                taking_part &= affine
            if tolerated is not None and constraint.honors_taints:
                taking_part &= tolerated
            counts = self._of_hosts or not constraint.is_of_hosts
            self.constraints.append(self._count(constraint, of_key, taking_part) if counts else None)
        self.parts = [None if counts is None else counts.part() for counts in self.constraints]

    def _count(self, constraint: Constraint, values: IntColumn, taking_part: Mask) -> ConstraintCounts:
        table, known = self.table, self.table.label_values(constraint.key)
        labelled = values != ABSENT
        domain, is_private = values.copy(), np.zeros(len(values), dtype=np.bool_)
        if constraint.is_of_hosts:
            shared = [n for value in table.shared_hostnames if (n := known.known(value)) is not None]
            alone = ~np.isin(values, shared) if shared else np.ones(len(values), dtype=np.bool_)
            is_private = alone & taking_part & labelled
            domain[alone] = ABSENT
        if not self.rules.every_key and (taking_part & ~labelled).any():
            domain[~labelled] = known.id(UNLABELLED)
        numbers = np.unique(domain[taking_part & (domain != ABSENT)])
        counts = ConstraintCounts(
            column=counted(constraint, self._state.pod.namespace),
            labelled=labelled,
            taking_part=taking_part,
            every=bool((taking_part == self.has_keys).all()),
            domain=domain,
            is_private=is_private,
            private=np.flatnonzero(is_private),
            names=[(number, known.items[number]) for number in numbers.tolist()],
            totals=np.zeros(len(known), dtype=np.int64),
            pods=np.zeros(0, dtype=np.int64),
            private_by_count=Counter(),
        )
        counts.recount(table)
        return counts


def merge_parts(one: Part | None, other: Part | None) -> Part | None:
    if one is None or other is None:
        return None
    return {
        "domains": merge_counts(one["domains"], other["domains"]),
        "private": one["private"] + other["private"],
        "low": sorted(one["low"] + other["low"])[:2],
        "every": one["every"] and other["every"],
    }


def by_number(part: Part, constraint: Constraint, table: NodeTable) -> Ints:
    """The pods by the number that a table has for the domain, and 0 at the end, for nodes in none."""
    values = table.label_values(constraint.key)
    pods = np.zeros(len(values) + 1, dtype=np.int64)
    for name, count in part["domains"].items():
        number = values.known(name)
        if number is not None:
            pods[number] = count
    return pods


# The late summary: what is known once it is known which nodes are feasible


def late_summary(hard: ShardCounts | None, soft: ShardCounts | None, feasible: Mask) -> Late:
    """This shard's part.

    `nodes`: the feasible nodes that have the labels of all soft constraints, where one of these is of hosts. `domains`:
    those that they are in, for each soft constraint; None for one of hosts. `reliable`: for each hard constraint,
    whether all feasible nodes take part in it.
    """
    late: Late = {"nodes": 0, "domains": [], "reliable": []}
    if soft is not None:
        chosen = np.flatnonzero(feasible & soft.has_keys)
        for constraint in soft.rules.constraints:
            if constraint.is_of_hosts:
                late["nodes"] = len(chosen)
                late["domains"].append(None)
                continue
            numbers = np.unique(soft.table.columns.of_nodes(LabelValue(constraint.key))[chosen]).tolist()
            names = soft.table.label_values(constraint.key).items
            late["domains"].append(sorted({UNLABELLED if n == ABSENT else names[n] for n in numbers}))
    if hard is not None:
        labelled = feasible & hard.has_keys
        late["reliable"] = [
            counts is None or not bool((labelled & ~counts.taking_part).any()) for counts in hard.constraints
        ]
    return late


def merge_late(one: Late, other: Late) -> Late:
    return {
        "nodes": one["nodes"] + other["nodes"],
        "domains": [
            None if a is None or b is None else sorted({*a, *b})
            for a, b in zip(one["domains"], other["domains"], strict=True)
        ],
        "reliable": [a and b for a, b in zip(one["reliable"], other["reliable"], strict=True)],
    }


def weights(late: Late) -> list[float]:
    """The weight of each soft constraint: by the number of domains that the feasible nodes are in."""
    sizes = (late["nodes"] if domains is None else len(domains) for domains in late["domains"])
    return [math.log(size + 2) for size in sizes]
