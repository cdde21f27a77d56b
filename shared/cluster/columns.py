"""Columns created on demand: a label's values, a host port's users, an image's size, a selector's pods.

A cluster has far more labels and images than pods name. So a column is filled at its first use, kept current from then
on, and evicted if it is the least recently used of too many.
"""

from abc import abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from flotilla.nodes import ABSENT, Ints, NodeColumn, PodColumn, TextColumn

if TYPE_CHECKING:
    from shared.cluster.nodetable import LoadKind, NodeTable
    from shared.model.objects import Node

IntColumn = Ints


class IndexedColumn(PodColumn):
    """A pod column that is counted first from the table's indexes, not pod by pod."""

    @abstractmethod
    def fill(self, table: "NodeTable", column: IntColumn) -> None:
        """Count all pods; the column starts at zero."""


class Columns:
    """The columns of one table."""

    def __init__(self, table: "NodeTable", limit: int = 1024) -> None:
        self._table = table
        self._limit = limit
        self._by_node: OrderedDict[NodeColumn | TextColumn, IntColumn] = OrderedDict()
        self._by_load: OrderedDict[PodColumn, IntColumn] = OrderedDict()
        self._generation = 0
        """Rises whenever a column of pods is added or dropped."""

    def __len__(self) -> int:
        return len(self._by_node) + len(self._by_load)

    def of_nodes(self, spec: NodeColumn | TextColumn) -> IntColumn:
        column = self._by_node.get(spec)
        if column is None:
            column = np.full(self._table.capacity, ABSENT, dtype=np.int64)
            for row, node in self._table.nodes():
                column[row] = self._value(spec, node)
            self._by_node[spec] = column
            if len(self._by_node) > self._limit:
                self._by_node.popitem(last=False)
        else:
            self._by_node.move_to_end(spec)
        return column

    def of_pods(self, spec: PodColumn) -> IntColumn:
        column = self._by_load.get(spec)
        if column is None:
            column = np.zeros(self._table.capacity, dtype=np.int64)
            if isinstance(spec, IndexedColumn):
                spec.fill(self._table, column)
            else:
                self._table.add_up(spec.amount, column)
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
            column[row] = ABSENT if node is None else self._value(spec, node)
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

    def _value(self, spec: NodeColumn | TextColumn, node: "Node") -> int:
        if isinstance(spec, NodeColumn):
            return spec.value(node)
        text = spec.value(node)
        return ABSENT if text is None else self._table.texts(spec).id(text)
