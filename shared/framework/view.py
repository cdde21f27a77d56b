"""NodeView: the columns of some rows of a NodeTable, as a plugin's kernel sees them.

A view may be hypothetical: `own` pods of the class that is being evaluated are then taken to be on each node already,
and `used` and `non_zero` count them. That is how a worker looks several placements ahead without touching the table.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.columns import IntColumn, LoadColumn, NodeColumn
from shared.cluster.nodetable import Amounts, LoadKind, NodeTable
from shared.framework.nodeinfo import NodeInfo


class NodeView:
    def __init__(
        self,
        table: NodeTable,
        rows: Rows | None = None,
        *,
        own: NDArray[np.int64] | None = None,
        own_kind: LoadKind | None = None,
    ) -> None:
        """All rows in use when `rows` is None; `own` and `own_kind` make the view hypothetical."""
        self.table = table
        self.own = own
        self._own_kind = own_kind
        self._index: Rows | slice = slice(0, table.size) if rows is None else rows
        self._rows = rows

    def __len__(self) -> int:
        return self.table.size if self._rows is None else len(self._rows)

    @cached_property
    def rows(self) -> Rows:
        return np.arange(self.table.size, dtype=np.intp) if self._rows is None else self._rows

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        return self.table.valid[self._index]

    @cached_property
    def allocatable(self) -> Amounts:
        """Resources x nodes."""
        return self.table.allocatable[:, self._index]

    @cached_property
    def used(self) -> Amounts:
        """Resources x nodes: what the pods on each node request; its PODS row counts them."""
        used = self.table.used[:, self._index]
        if self.own is None or self._own_kind is None:
            return used
        used = used.copy()
        used[self._own_kind.resources] += self._own_kind.amounts[:, None] * self.own
        return used

    @cached_property
    def non_zero(self) -> Amounts:
        """cpu and memory x nodes, with defaults for containers that request none."""
        non_zero = self.table.non_zero[:, self._index]
        if self.own is None or self._own_kind is None:
            return non_zero
        return non_zero + self._own_kind.non_zero[:, None] * self.own

    @cached_property
    def unschedulable(self) -> NDArray[np.bool_]:
        return self.table.unschedulable[self._index]

    @cached_property
    def taint_set(self) -> NDArray[np.intp]:
        return self.table.taint_set[self._index]

    def of_nodes(self, spec: NodeColumn) -> IntColumn:
        return self.table.columns.of_nodes(spec)[self._index]

    def of_loads(self, spec: LoadColumn) -> IntColumn:
        column = self.table.columns.of_loads(spec)[self._index]
        if self.own is None or self._own_kind is None:
            return column
        return column + spec.amount(self._own_kind.load) * self.own

    def info(self, i: int) -> NodeInfo:
        """The i-th node of the view, for plugins that look at one node at a time."""
        row = int(self.rows[i])
        loads = self.table.loads_at(row)
        if self.own is not None and self._own_kind is not None:
            loads = loads + [self._own_kind.load] * int(self.own[i])
        names = self.table.resources.items
        return NodeInfo(
            node=self.table.node_at(row),
            pods=tuple(loads),
            allocatable={name: int(self.allocatable[r, i]) for r, name in enumerate(names)},
            requested={name: int(self.used[r, i]) for r, name in enumerate(names)},
        )
