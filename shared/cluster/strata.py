"""Rows by the domains that they are in."""

from collections.abc import Sequence

import numpy as np

from shared.cluster.changes import Rows
from shared.cluster.columns import ABSENT
from shared.cluster.labels import LabelValue
from shared.cluster.nodetable import NodeTable

Domains = list[str | None]
"""A node's values of some labels, None where it has not got one."""


def split(table: NodeTable, keys: Sequence[str], rows: Rows) -> list[tuple[Domains, Rows]]:
    """The rows, by their values of these labels."""
    if not rows.size:
        return []
    columns = np.stack([table.columns.of_nodes(LabelValue(key))[rows] for key in keys])
    combinations, which = np.unique(columns, axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=combinations.shape[1]))
    members = np.split(rows[order], ends[:-1])
    return [
        ([_value(table, key, int(number)) for key, number in zip(keys, numbers, strict=True)], of_stratum)
        for numbers, of_stratum in zip(combinations.T, members, strict=True)
    ]


def domains_of(table: NodeTable, key: str, rows: Rows) -> Domains:
    """The value that each of these rows has of a label."""
    return [_value(table, key, number) for number in table.columns.of_nodes(LabelValue(key))[rows].tolist()]


def _value(table: NodeTable, key: str, number: int) -> str | None:
    return None if number == ABSENT else table.label_values(key).items[number]
