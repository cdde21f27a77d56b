"""NodeView: the columns of some rows of a NodeTable, as a plugin's kernel sees them.

A view may be hypothetical: some pods of the class that is being evaluated are then taken to be on each node already,
and `used`, `non_zero` and the load columns count them. That is how a worker looks several placements ahead without
touching the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.columns import IntColumn, LoadColumn, NodeColumn
from shared.cluster.nodetable import Amounts, LoadKind, NodeTable
from shared.framework.nodeinfo import NodeInfo


@dataclass(frozen=True, slots=True)
class Own:
    """On the i-th node of a view there are taken to be `count[i]` more pods of kind `kinds[which[i]]`."""

    count: NDArray[np.int64]
    kinds: Sequence[LoadKind]
    which: NDArray[np.intp]

    def take(self, at: Rows) -> "Own":
        return Own(self.count[at], self.kinds, self.which[at])


class NodeView:
    def __init__(self, table: NodeTable, rows: Rows | None = None, own: Own | None = None) -> None:
        """All rows in use when `rows` is None."""
        self.table = table
        self.own = own
        self._rows = rows
        self.index: Rows | slice = slice(0, table.size) if rows is None else rows

    def __len__(self) -> int:
        return self.table.size if self._rows is None else len(self._rows)

    @property
    def is_whole(self) -> bool:
        """Whether the view is of all rows in use."""
        return self._rows is None

    def take(self, at: Rows) -> "NodeView":
        """The view of only some of its nodes, by their place in it."""
        return NodeView(self.table, self.rows[at], None if self.own is None else self.own.take(at))

    @cached_property
    def rows(self) -> Rows:
        return np.arange(self.table.size, dtype=np.intp) if self._rows is None else self._rows

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        return self.table.valid[self.index]

    @cached_property
    def allocatable(self) -> Amounts:
        """Resources x nodes."""
        return self.table.allocatable[:, self.index]

    @cached_property
    def has_basics(self) -> bool:
        """Whether every node has some cpu and some memory."""
        return bool(self.allocatable[:2].all())

    @cached_property
    def used(self) -> Amounts:
        """Resources x nodes: what the pods on each node request; its PODS row counts them."""
        used = self.table.used[:, self.index]
        if self.own is None:
            return used
        for kind in self.own.kinds:
            kind.number(self.table.resources.known)
        per_pod = np.stack([kind.dense(len(used)) for kind in self.own.kinds], axis=1)
        return used + per_pod[:, self.own.which] * self.own.count

    @cached_property
    def non_zero(self) -> Amounts:
        """cpu and memory x nodes, with defaults for containers that request none."""
        non_zero = self.table.non_zero[:, self.index]
        if self.own is None:
            return non_zero
        per_pod = np.stack([kind.non_zero for kind in self.own.kinds], axis=1)
        return non_zero + per_pod[:, self.own.which] * self.own.count

    @cached_property
    def unschedulable(self) -> NDArray[np.bool_]:
        return self.table.unschedulable[self.index]

    @cached_property
    def taint_set(self) -> NDArray[np.intp]:
        return self.table.taint_set[self.index]

    def of_nodes(self, spec: NodeColumn) -> IntColumn:
        return self.table.columns.of_nodes(spec)[self.index]

    def of_loads(self, spec: LoadColumn) -> IntColumn:
        column = self.table.columns.of_loads(spec)[self.index]
        if self.own is None:
            return column
        per_pod = np.array([spec.amount(kind.load) for kind in self.own.kinds], dtype=np.int64)
        return column + per_pod[self.own.which] * self.own.count

    def info(self, i: int) -> NodeInfo:
        """The i-th node of the view, for plugins that look at one node at a time."""
        row = int(self.rows[i])
        loads = self.table.loads_at(row)
        if self.own is not None:
            loads = loads + [self.own.kinds[self.own.which[i]].load] * int(self.own.count[i])
        names = self.table.resources.items
        return NodeInfo(
            node=self.table.node_at(row),
            pods=tuple(loads),
            allocatable={name: int(self.allocatable[r, i]) for r, name in enumerate(names)},
            requested={name: int(self.used[r, i]) for r, name in enumerate(names)},
        )
