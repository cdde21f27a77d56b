"""Columns created on demand: a label's values, a host port's users, an image's size, a selector's pods.

A cluster has far more labels and images than pods name. So a column is filled at its first use, kept current from then
on, and evicted if it is the least recently used of too many.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from shared.cluster.nodetable import LoadKind, NodeTable
    from shared.model.load import PodLoad
    from shared.model.objects import Node

IntColumn = NDArray[np.int64]

ABSENT = -1


class NodeColumn(ABC):
    """A column computed from the node object alone. Equal specs share one column, so a spec is hashable."""

    @abstractmethod
    def value(self, table: "NodeTable", node: "Node") -> int:
        """The row's value; ABSENT if the node has none."""


class LoadColumn(ABC):
    """A column that counts over the pods of a node. Equal specs share one column, so a spec is hashable."""

    @abstractmethod
    def fill(self, table: "NodeTable", column: IntColumn) -> None:
        """Count all pods; the column starts at zero."""

    @abstractmethod
    def amount(self, load: "PodLoad") -> int:
        """What one pod adds to its row."""


class Columns:
    """The columns of one table."""

    def __init__(self, table: "NodeTable", limit: int = 1024) -> None:
        self._table = table
        self._limit = limit
        self._by_node: OrderedDict[NodeColumn, IntColumn] = OrderedDict()
        self._by_load: OrderedDict[LoadColumn, IntColumn] = OrderedDict()
        self._generation = 0
        """Rises whenever a column of loads is created or evicted."""

    def __len__(self) -> int:
        return len(self._by_node) + len(self._by_load)

    def of_nodes(self, spec: NodeColumn) -> IntColumn:
        column = self._by_node.get(spec)
        if column is None:
            column = np.full(self._table.capacity, ABSENT, dtype=np.int64)
            for row, node in self._table.nodes():
                column[row] = spec.value(self._table, node)
            self._by_node[spec] = column
            if len(self._by_node) > self._limit:
                self._by_node.popitem(last=False)
        else:
            self._by_node.move_to_end(spec)
        return column

    def of_loads(self, spec: LoadColumn) -> IntColumn:
        column = self._by_load.get(spec)
        if column is None:
            column = np.zeros(self._table.capacity, dtype=np.int64)
            spec.fill(self._table, column)
            self._by_load[spec] = column
            self._generation += 1
            if len(self._by_load) > self._limit:
                self._by_load.popitem(last=False)
        else:
            self._by_load.move_to_end(spec)
        return column

    def drop_nodes(self) -> None:
        """Drop the columns of nodes: their values have a new meaning."""
        self._by_node.clear()

    def drop_all(self) -> None:
        self._by_node.clear()
        self._by_load.clear()
        self._generation += 1

    def node_changed(self, row: int, node: "Node | None") -> None:
        for spec, column in self._by_node.items():
            column[row] = ABSENT if node is None else spec.value(self._table, node)
        if node is None:
            for column in self._by_load.values():
                column[row] = 0

    def load_changed(self, row: int, kind: "LoadKind", sign: int) -> None:
        """A pod of this kind was added to a row, or removed. All pods of a kind concern the same columns."""
        generation, concerned = kind.columns
        if generation != self._generation:
            amounts = ((column, spec.amount(kind.load)) for spec, column in self._by_load.items())
            concerned = [(column, amount) for column, amount in amounts if amount]
            kind.columns = self._generation, concerned
        for column, amount in concerned:
            column[row] += sign * amount
