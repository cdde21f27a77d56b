"""Rows by the domains that they are in."""

from collections.abc import Sequence

import numpy as np

from shared.cluster.changes import Rows
from shared.cluster.columns import ABSENT
from shared.cluster.labels import LabelValue
from shared.cluster.nodetable import NodeTable

MOST_KEPT = 64
"""Combinations of labels."""

Domains = list[str | None]
"""A node's values of some labels, None where it has not got one."""


class Strata:
    """The rows of a table by their values of some labels; a column as long as no node object changes."""

    def __init__(self, table: NodeTable, keys: Sequence[str]) -> None:
        columns = np.stack([table.columns.of_nodes(LabelValue(key))[: table.size] for key in keys])
        combinations, numbers = np.unique(columns, axis=1, return_inverse=True)
        self._number = numbers.ravel().astype(np.int32)
        self.domains = [
            [_value(table, key, int(number)) for key, number in zip(keys, combination, strict=True)]
            for combination in combinations.T
        ]

    def split(self, rows: Rows) -> list[tuple[Domains, Rows]]:
        """These rows by stratum."""
        numbers = self._number[rows]
        order = np.argsort(numbers, kind="stable")
        sizes = np.bincount(numbers, minlength=len(self.domains))
        members = np.split(rows[order], np.cumsum(sizes)[:-1])
        return [(self.domains[number], members[number]) for number in np.flatnonzero(sizes).tolist()]


class StrataOf:
    """Those of one table, by labels."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: dict[tuple[str, ...], tuple[int, Strata]] = {}

    def __getitem__(self, keys: tuple[str, ...]) -> Strata:
        position = self._table.node_log.position
        known = self._known.get(keys)
        if known is None or known[0] != position:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            known = self._known[keys] = position, Strata(self._table, keys)
        return known[1]


def domains_of(table: NodeTable, key: str, rows: Rows) -> Domains:
    """The value that each of these rows has of a label."""
    return [_value(table, key, number) for number in table.columns.of_nodes(LabelValue(key))[rows].tolist()]


def _value(table: NodeTable, key: str, number: int) -> str | None:
    return None if number == ABSENT else table.label_values(key).items[number]
