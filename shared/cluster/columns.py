"""What a NodeTable keeps beside its matrices: logs of changed rows, numbers for values, and columns on demand.

A cluster has far more labels and images than pods name. So a column is filled at its first use, kept current from then
on, and evicted if it is the least recently used of too many.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import ABSENT, Ints, NodeColumn, PodColumn, TextColumn
from shared.cluster.load_kind import LoadKind
from shared.model.objects import Node

Rows = NDArray[np.intp]
NOTHING_SEEN = -1
"""The position of a reader of a ChangeLog that has read nothing yet."""


class ChangeLog:
    """Rows in the order of their changes. A reader remembers a position and asks what came after it.

    Bounded: for a reader more than `capacity` changes behind, everything may have changed.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._capacity = capacity
        self._base = 0
        self._rows: list[int] = []

    @property
    def position(self) -> int:
        return self._base + len(self._rows)

    def append(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) > 2 * self._capacity:
            del self._rows[: self._capacity]
            self._base += self._capacity

    def invalidate(self) -> None:
        """Invalidate every cache: the rows themselves have moved."""
        self._base += len(self._rows) + 1
        self._rows.clear()

    def reaches(self, position: int) -> bool:
        """Whether it is known what changed after `position`."""
        return position >= self._base

    def since(self, position: int) -> Rows | None:
        """The distinct rows changed after `position`, ascending; None if that is no longer known."""
        if not self.reaches(position):
            return None
        recent = self._rows[position - self._base :]
        if not recent:
            return _NO_ROWS
        if len(recent) == 1:
            return np.array(recent, dtype=np.intp)
        return np.array(sorted(set(recent)), dtype=np.intp)


_NO_ROWS: Rows = np.empty(0, dtype=np.intp)


T = TypeVar("T", bound=Hashable)


class Interner(Generic[T]):
    """Numbers distinct values 0, 1, 2 ... in the order they are first seen; forgets none."""

    def __init__(self) -> None:
        self._ids: dict[T, int] = {}
        self.items: list[T] = []

    def __len__(self) -> int:
        return len(self.items)

    def id(self, item: T) -> int:
        number = self._ids.get(item)
        if number is None:
            number = self._ids[item] = len(self.items)
            self.items.append(item)
        return number

    def known(self, item: T) -> int | None:
        return self._ids.get(item)


IntColumn = Ints


class ColumnSource(Protocol):
    """The table that the columns belong to."""

    @property
    def capacity(self) -> int: ...

    def nodes(self) -> Iterator[tuple[int, Node]]: ...

    def count_pods(self, spec: PodColumn, column: IntColumn) -> None:
        """Count all pods; the column starts at zero."""

    def texts(self, spec: TextColumn) -> "Interner[str]": ...


class Columns:
    """The columns of one table."""

    def __init__(self, table: ColumnSource, limit: int = 1024) -> None:
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
            self._table.count_pods(spec, column)
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

    def node_changed(self, row: int, node: Node | None) -> None:
        for spec, column in self._by_node.items():
            column[row] = ABSENT if node is None else self._value(spec, node)
        if node is None:
            for column in self._by_load.values():
                column[row] = 0

    def load_changed(self, row: int, kind: LoadKind, pods: int) -> None:
        """Count pods of this kind that were added to a row; negative if removed. They all concern the same columns."""
        generation, concerned = kind.columns
        if generation != self._generation:
            amounts = ((column, spec.amount(kind.load)) for spec, column in self._by_load.items())
            concerned = [(column, amount) for column, amount in amounts if amount]
            kind.columns = self._generation, concerned
        for column, amount in concerned:
            column[row] += pods * amount

    def _value(self, spec: NodeColumn | TextColumn, node: Node) -> int:
        if isinstance(spec, NodeColumn):
            return spec.value(node)
        text = spec.value(node)
        return ABSENT if text is None else self._table.texts(spec).id(text)
