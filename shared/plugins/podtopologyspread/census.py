"""Census: how the pods that constraints count are spread over the domains of one table, kept up to date.

A hostname that only one node of the cluster has is *private*: its count is on the node itself, and of all private
domains together only their number and the two lowest counts are told to other shards.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import ABSENT, ClassState, LabelValue, Mask
from shared.cluster.changes import Rows
from shared.cluster.columns import IntColumn
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import PodCount, merge_counts, pod_count
from shared.cluster.view import TableView
from shared.plugins.nodeaffinity import selected
from shared.plugins.podtopologyspread.constraints import Constraint, Rules
from shared.plugins.tainttoleration import repelled

NO_LABEL = ""
"""The domain of nodes that lack a label, where they take part all the same."""

Part = dict[str, Any]
"""What other shards are told of one constraint's tally; see `Tally.part`."""


def counted(constraint: Constraint, namespace: str) -> PodCount | None:
    """The column of the pods that a constraint counts, if it counts any."""
    return pod_count([namespace], constraint.selector) if constraint.counts else None


@dataclass(slots=True)
class Tally:
    """One constraint over one table; arrays have one entry a row, but `totals` one a value of the label.

    `labelled`: the nodes that have the label. `taking_part`: those whose pods count; `every`: that is all that have all
    labels. `domain`: the number of the node's value, ABSENT where it has none or the domain is private. `names`: the
    values, with their numbers, of the domains that are there. `seen`: the pods on each node; `private_by_count`: how
    many private domains have so many pods.
    """

    column: PodCount | None
    labelled: Mask
    taking_part: Mask
    every: bool
    domain: IntColumn
    is_private: Mask
    private: Rows
    names: list[tuple[int, str]]
    totals: NDArray[np.int64]
    seen: IntColumn
    private_by_count: Counter[int]

    def recount(self, table: NodeTable) -> None:
        self.seen = _column(table, self.column)
        part = self.taking_part & (self.domain != ABSENT)
        numbers, pods = self.domain[part], self.seen[part]
        self.totals = np.bincount(numbers, weights=pods, minlength=len(self.totals)).astype(np.int64)
        self.private_by_count = Counter(self.seen[self.private].tolist())

    def catch_up(self, table: NodeTable, rows: Rows) -> bool:
        """Takes in what changed on these rows. Tells whether anything did."""
        if self.column is None:
            return False
        now = table.columns.of_pods(self.column)[rows]
        moved = np.flatnonzero(now != self.seen[rows])
        if not moved.size:
            return False
        rows, now = rows[moved], now[moved]
        part = self.taking_part[rows] & (self.domain[rows] != ABSENT)
        np.add.at(self.totals, self.domain[rows[part]], now[part] - self.seen[rows[part]])
        alone = self.is_private[rows]
        self.private_by_count.subtract(self.seen[rows[alone]].tolist())
        self.private_by_count.update(now[alone].tolist())
        self.seen[rows] = now
        return True

    def part(self) -> Part:
        """The pods by domain; of the private ones, how many there are and the two lowest counts.

        `every`: every node that has the labels takes part.
        """
        totals = self.totals.tolist()
        return {
            "domains": {name: totals[number] for number, name in self.names},
            "private": len(self.private),
            "low": self._low(),
            "every": self.every,
        }

    def _low(self) -> list[int]:
        """The two lowest counts of private domains, which may be equal."""
        low: list[int] = []
        for count in sorted(count for count, domains in self.private_by_count.items() if domains):
            low += [count] * min(self.private_by_count[count], 2)
            if len(low) >= 2:
                break
        return low[:2]


class Census:
    def __init__(self, table: NodeTable, state: ClassState, rules: Rules, *, of_hosts: bool) -> None:
        """`of_hosts`: count by hostname, too; there is no tally of a constraint that is not counted."""
        self.table = table
        self._of_hosts = of_hosts
        self._state = state
        self.rules = rules
        self._node_seen = self._seen = -1
        self._parts: list[Part | None] = []
        self.tallies: list[Tally | None] = []
        self.has_keys: Mask = np.zeros(0, dtype=np.bool_)

    def refresh(self) -> None:
        """Brings it up to the table's present state."""
        table = self.table
        if self._node_seen != table.node_log.position:
            self._begin()
            self._node_seen, self._seen = table.node_log.position, table.load_log.position
        elif self._seen != table.load_log.position:
            rows = table.load_log.since(self._seen)
            for i, tally in enumerate(self.tallies):
                if tally is None:
                    continue
                if rows is None:
                    tally.recount(table)
                elif not tally.catch_up(table, rows):
                    continue
                self._parts[i] = tally.part()
            self._seen = table.load_log.position

    def parts(self) -> list[Part | None]:
        """One for each constraint."""
        self.refresh()
        return list(self._parts)

    def _begin(self) -> None:
        table, constraints = self.table, self.rules.constraints
        size = table.size
        values = [table.columns.of_nodes(LabelValue(c.key))[:size] for c in constraints]
        self.has_keys = table.valid[:size].copy()
        if self.rules.every_key:
            for of_key in values:
                self.has_keys &= of_key != ABSENT
        view = TableView(table)
        affine = selected(self._state.pod, view) if any(c.honors_affinity for c in constraints) else None
        tolerated = ~repelled(self._state, view) if any(c.honors_taints for c in constraints) else None
        self.tallies = []
        for constraint, of_key in zip(constraints, values, strict=True):
            taking_part = self.has_keys.copy()
            if affine is not None and constraint.honors_affinity:
                taking_part &= affine
            if tolerated is not None and constraint.honors_taints:
                taking_part &= tolerated
            counts = self._of_hosts or not constraint.is_of_hosts
            self.tallies.append(self._tally(constraint, of_key, taking_part) if counts else None)
        self._parts = [None if tally is None else tally.part() for tally in self.tallies]

    def _tally(self, constraint: Constraint, values: IntColumn, taking_part: Mask) -> Tally:
        table, known = self.table, self.table.label_values(constraint.key)
        labelled = values != ABSENT
        domain, is_private = values.copy(), np.zeros(len(values), dtype=np.bool_)
        if constraint.is_of_hosts:
            shared = [n for value in table.shared_hostnames if (n := known.known(value)) is not None]
            alone = ~np.isin(values, shared) if shared else np.ones(len(values), dtype=np.bool_)
            is_private = alone & taking_part & labelled
            domain[alone] = ABSENT
        if not self.rules.every_key and (taking_part & ~labelled).any():
            domain[~labelled] = known.id(NO_LABEL)
        numbers = np.unique(domain[taking_part & (domain != ABSENT)])
        tally = Tally(
            column=counted(constraint, self._state.pod.namespace),
            labelled=labelled,
            taking_part=taking_part,
            every=bool((taking_part == self.has_keys).all()),
            domain=domain,
            is_private=is_private,
            private=np.flatnonzero(is_private),
            names=[(number, known.items[number]) for number in numbers.tolist()],
            totals=np.zeros(len(known), dtype=np.int64),
            seen=np.zeros(0, dtype=np.int64),
            private_by_count=Counter(),
        )
        tally.recount(table)
        return tally


def merge_parts(one: Part | None, other: Part | None) -> Part | None:
    if one is None or other is None:
        return None
    return {
        "domains": merge_counts(one["domains"], other["domains"]),
        "private": one["private"] + other["private"],
        "low": sorted(one["low"] + other["low"])[:2],
        "every": one["every"] and other["every"],
    }


def by_number(part: Part, constraint: Constraint, table: NodeTable) -> NDArray[np.int64]:
    """The pods by the number that a table has for the domain, and 0 at the end, for nodes in none."""
    values = table.label_values(constraint.key)
    pods = np.zeros(len(values) + 1, dtype=np.int64)
    for name, count in part["domains"].items():
        number = values.known(name)
        if number is not None:
            pods[number] = count
    return pods


def _column(table: NodeTable, column: PodCount | None) -> IntColumn:
    """A copy of it, for the rows in use."""
    if column is None:
        return np.zeros(table.size, dtype=np.int64)
    return table.columns.of_pods(column)[: table.size].copy()
