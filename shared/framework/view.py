"""NodeView: the columns of some rows of a NodeTable, as a plugin's kernel sees them.

A view may be hypothetical: some pods are then taken to be on its nodes, or gone from there, and `used`, `non_zero` and
the load columns say so. That is how a worker looks several placements ahead, or tries who would have to make way,
without touching the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.columns import IntColumn, LoadColumn, NodeColumn
from shared.cluster.nodetable import Amounts, LoadKind, NodeTable
from shared.framework.nodeinfo import NodeInfo
from shared.model.load import PodLoad


class Hypothesis(Protocol):
    """Which pods, by their kinds, are taken to be on the nodes of a view, or gone from there."""

    @property
    def kinds(self) -> Sequence[LoadKind]: ...

    def spread(self, per_kind: NDArray[np.int64]) -> NDArray[np.int64]:
        """... x kinds -> ... x nodes: what the supposed pods of each node add up to, those gone counting against it."""
        ...

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        """The pods of the i-th node, if these are there."""
        ...

    def take(self, at: Rows) -> "Hypothesis":
        """The same for only some nodes of the view."""
        ...


@dataclass(frozen=True, slots=True)
class Own:
    """On the i-th node of a view there are taken to be `count[i]` more pods of kind `kinds[which[i]]`."""

    count: NDArray[np.int64]
    kinds: Sequence[LoadKind]
    which: NDArray[np.intp]

    def spread(self, per_kind: NDArray[np.int64]) -> NDArray[np.int64]:
        spread: NDArray[np.int64] = per_kind[..., self.which] * self.count
        return spread

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        return there + [self.kinds[self.which[i]].load] * int(self.count[i])

    def take(self, at: Rows) -> "Own":
        return Own(self.count[at], self.kinds, self.which[at])


@dataclass(frozen=True, slots=True)
class Changes:
    """The j-th change: on the `at[j]`-th of `nodes` nodes there are `count[j]` more pods of kind `kinds[which[j]]`.

    A negative count means that so many are gone.
    """

    nodes: int
    at: NDArray[np.intp]
    which: NDArray[np.intp]
    count: NDArray[np.int64]
    kinds: Sequence[LoadKind]

    def spread(self, per_kind: NDArray[np.int64]) -> NDArray[np.int64]:
        amounts = per_kind[..., self.which] * self.count
        if not self.at.size:
            return np.zeros((*per_kind.shape[:-1], self.nodes), dtype=np.int64)
        spread = np.zeros((*per_kind.shape[:-1], self.nodes), dtype=np.int64)
        # One line at a time: far faster than all of them at once.
        for line, into in zip(amounts.reshape(-1, len(self.at)), spread.reshape(-1, self.nodes), strict=True):
            np.add.at(into, self.at, line)
        return spread

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        loads = list(there)
        for j in np.flatnonzero(self.at == i).tolist():
            load, count = self.kinds[self.which[j]].load, int(self.count[j])
            if count > 0:
                loads += [load] * count
            for _ in range(-count):
                loads.remove(load)
        return loads

    def take(self, at: Rows) -> "Changes":
        place = np.full(self.nodes, -1, dtype=np.intp)
        place[at] = np.arange(len(at))
        kept = np.flatnonzero(place[self.at] >= 0)
        return Changes(len(at), place[self.at[kept]], self.which[kept], self.count[kept], self.kinds)


class NodeView:
    def __init__(self, table: NodeTable, rows: Rows | None = None, supposed: Hypothesis | None = None) -> None:
        """All rows in use when `rows` is None."""
        self.table = table
        self.supposed = supposed
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
        return NodeView(self.table, self.rows[at], None if self.supposed is None else self.supposed.take(at))

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
        if self.supposed is None:
            return used
        for kind in self.supposed.kinds:
            kind.number(self.table.resources.known)
        return used + self.supposed.spread(np.stack([kind.dense(len(used)) for kind in self.supposed.kinds], axis=1))

    @cached_property
    def non_zero(self) -> Amounts:
        """cpu and memory x nodes, with defaults for containers that request none."""
        non_zero = self.table.non_zero[:, self.index]
        if self.supposed is None:
            return non_zero
        return non_zero + self.supposed.spread(np.stack([kind.non_zero for kind in self.supposed.kinds], axis=1))

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
        return column if self.supposed is None else column + self.change_of(spec)

    def change_of(self, spec: LoadColumn) -> IntColumn:
        """By how much the supposed pods change a load column on each node."""
        if self.supposed is None:
            return np.zeros(len(self), dtype=np.int64)
        return self.supposed.spread(np.array([spec.amount(kind.load) for kind in self.supposed.kinds], dtype=np.int64))

    def info(self, i: int) -> NodeInfo:
        """The i-th node of the view, for plugins that look at one node at a time."""
        row = int(self.rows[i])
        loads = self.table.loads_at(row)
        if self.supposed is not None:
            loads = self.supposed.loads(i, loads)
        names = self.table.resources.items
        return NodeInfo(
            node=self.table.node_at(row),
            pods=tuple(loads),
            allocatable={name: int(self.allocatable[r, i]) for r, name in enumerate(names)},
            requested={name: int(self.used[r, i]) for r, name in enumerate(names)},
        )
