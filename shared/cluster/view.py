"""TableView: the rows of a NodeTable as plugins see them, and the pods that a view may assume on them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import Coded, Index, Ints, Mask, NodeColumn, NodeInfo, NodeView, PodColumn, TextColumn
from flotilla.results import Status
from shared.cluster.columns import Rows
from shared.cluster.load_kind import Amounts, LoadKind
from shared.cluster.nodetable import NodeTable
from shared.errors import InvariantBroken
from shared.model.load import PodLoad
from shared.model.objects import Node, Taint

CPU_AND_MEMORY = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Planned:
    """A hypothesis, by kinds of pods: earlier placements of a ladder.

    On the i-th node there are `count[i]` more pods of kind `kinds[which[i]]`.
    """

    count: Ints
    kinds: Sequence[LoadKind]
    which: NDArray[np.intp]

    def spread(self, per_kind: Ints, planned: bool | None = None) -> Ints:
        """Sum a quantity per kind (... x kinds) over each node's pods (... x nodes); removed pods count negatively.

        `planned`: only pods of the same class that earlier placements put there, or only the others; None for all.
        """
        if planned is False:
            return np.zeros((*per_kind.shape[:-1], len(self.count)), dtype=np.int64)
        spread: Ints = per_kind[..., self.which] * self.count
        return spread

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        """The pods of the i-th node, given those that are really there."""
        return there + [self.kinds[self.which[i]].load] * int(self.count[i])

    def take(self, at: Rows) -> "Planned":
        """The same for some nodes of the view."""
        return Planned(self.count[at], self.kinds, self.which[at])


@dataclass(frozen=True, slots=True)
class Changes:
    """A hypothesis, by changes: on the `at[j]`-th of `nodes` nodes there are `count[j]` more pods of kind
    `kinds[which[j]]`. A negative count removes pods.
    """

    nodes: int
    at: NDArray[np.intp]
    which: NDArray[np.intp]
    count: Ints
    kinds: Sequence[LoadKind]

    def spread(self, per_kind: Ints, planned: bool | None = None) -> Ints:
        spread = np.zeros((*per_kind.shape[:-1], self.nodes), dtype=np.int64)
        if planned is True or not self.at.size:
            return spread
        amounts = per_kind[..., self.which] * self.count
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
        renumbered = np.full(self.nodes, -1, dtype=np.intp)
        renumbered[at] = np.arange(len(at))
        kept = np.flatnonzero(renumbered[self.at] >= 0)
        return Changes(len(at), renumbered[self.at[kept]], self.which[kept], self.count[kept], self.kinds)


@dataclass(frozen=True, slots=True)
class Both:
    """Two hypotheses about the same nodes together."""

    one: "Hypothesis"
    other: "Hypothesis"

    @property
    def kinds(self) -> Sequence[LoadKind]:
        return [*self.one.kinds, *self.other.kinds]

    def spread(self, per_kind: Ints, planned: bool | None = None) -> Ints:
        first = len(self.one.kinds)
        return self.one.spread(per_kind[..., :first], planned) + self.other.spread(per_kind[..., first:], planned)

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        return self.other.loads(i, self.one.loads(i, there))

    def take(self, at: Rows) -> "Both":
        return Both(self.one.take(at), self.other.take(at))


Hypothesis = Planned | Changes | Both


def together(one: Hypothesis | None, other: Hypothesis | None) -> Hypothesis | None:
    return one if other is None else other if one is None else Both(one, other)


class Statuses:
    """Statuses by number, from 1 on, for one filter: answers are kept as numbers. 0 stands for a node that passed."""

    def __init__(self) -> None:
        self._numbers: dict[Status, int] = {}
        self._statuses: list[Status] = []

    def __len__(self) -> int:
        return len(self._statuses)

    def __getitem__(self, number: int) -> Status:
        return self._statuses[number - 1]

    def number(self, status: Status) -> int:
        number = self._numbers.get(status)
        if number is None:
            self._statuses.append(status)
            number = self._numbers[status] = len(self._statuses)
        return number


class TableView(NodeView):
    def __init__(self, table: NodeTable, rows: Rows | None = None, hypothesis: Hypothesis | None = None) -> None:
        """All rows in use when `rows` is None."""
        self.table = table
        self.hypothesis = hypothesis
        self._rows = rows
        self.index: Rows | slice = slice(0, table.size) if rows is None else rows
        self._verdicts: Ints | None = None
        self._statuses = Statuses()
        self._has_rejected = False

    def __len__(self) -> int:
        return self.table.size if self._rows is None else len(self._rows)

    @property
    def is_whole(self) -> bool:
        """Whether the view is of all rows in use."""
        return self._rows is None

    def take(self, at: Rows) -> "TableView":
        """The view of some of its nodes, by their index in it."""
        return TableView(self.table, self.rows[at], None if self.hypothesis is None else self.hypothesis.take(at))

    def record(self, verdicts: Ints, statuses: Statuses) -> None:
        """Write the rejections that follow into this array, which is zeroed."""
        self._verdicts, self._statuses, self._has_rejected = verdicts, statuses, False

    def reject(self, nodes: Mask | Index, status: Status) -> None:
        if self._verdicts is None:
            raise InvariantBroken("reject is only for filters, while they are asked")
        if not (nodes.any() if nodes.dtype == np.bool_ else nodes.size):
            return
        number = self._statuses.number(status)
        if self._has_rejected:
            there = self._verdicts[nodes]
            self._verdicts[nodes] = np.where(there == 0, number, there)
        else:
            self._verdicts[nodes] = number
            self._has_rejected = True

    @cached_property
    def rows(self) -> Rows:
        return np.arange(self.table.size, dtype=np.intp) if self._rows is None else self._rows

    # The node objects

    @cached_property
    def valid(self) -> Mask:
        return self.table.valid[self.index]

    @property
    def names(self) -> Sequence[str]:
        names = self.table.names
        return names if self._rows is None else [names[row] for row in self._rows.tolist()]

    def named(self, names: Iterable[str]) -> Mask:
        rows = [row for name in names if (row := self.table.row_of(name)) is not None]
        found: Mask = self.rows == rows[0] if len(rows) == 1 else np.isin(self.rows, rows)
        return found

    @cached_property
    def unschedulable(self) -> Mask:
        return self.table.unschedulable[self.index]

    @cached_property
    def taints(self) -> Coded[tuple[Taint, ...]]:
        sets = self.table.taint_sets
        return Coded(self.table.taint_set[self.index], sets.items, sets.known)

    def of_nodes(self, column: NodeColumn) -> Ints:
        return self.table.columns.of_nodes(column)[self.index]

    def texts(self, column: TextColumn) -> Coded[str]:
        numbers = self.table.columns.of_nodes(column)[self.index]
        values = self.table.known_texts(column)
        return Coded(numbers, values.items, values.known)

    def allocatable(self, *resources: str) -> Amounts:
        return self._of(resources, self.all_allocatable)

    def node(self, i: int) -> Node:
        return self.table.node_at(int(self.rows[i]))

    @cached_property
    def all_allocatable(self) -> Amounts:
        """Resources x nodes, by the table's numbers of resources."""
        return self.table.allocatable[:, self.index]

    # The pods on them

    def requested(self, *resources: str) -> Amounts:
        return self._of(resources, self.used)

    @cached_property
    def used(self) -> Amounts:
        """Resources x nodes: what the pods on each node request; its PODS row counts them."""
        used = self.table.used[:, self.index]
        if self.hypothesis is None:
            return used
        for kind in self.hypothesis.kinds:
            kind.number(self.table.resources.known)
        return used + self.hypothesis.spread(
            np.stack([kind.dense(len(used)) for kind in self.hypothesis.kinds], axis=1)
        )

    def non_zero_requested(self) -> Amounts:
        return self._non_zero

    @cached_property
    def _non_zero(self) -> Amounts:
        non_zero = self.table.non_zero[:, self.index]
        if self.hypothesis is None:
            return non_zero
        return non_zero + self.hypothesis.spread(np.stack([kind.non_zero for kind in self.hypothesis.kinds], axis=1))

    def of_pods(self, column: PodColumn) -> Ints:
        there = self.table.columns.of_pods(column)[self.index]
        return there if self.hypothesis is None else there + self.change_of(column)

    def pods(self, i: int) -> list[PodLoad]:
        loads = self.table.loads_at(int(self.rows[i]))
        return loads if self.hypothesis is None else self.hypothesis.loads(i, loads)

    def info(self, i: int) -> NodeInfo:
        names = self.table.resources.items
        return NodeInfo(
            node=self.node(i),
            pods=tuple(self.pods(i)),
            allocatable={name: int(self.all_allocatable[r, i]) for r, name in enumerate(names)},
            requested={name: int(self.used[r, i]) for r, name in enumerate(names)},
        )

    # What changes

    @property
    def nodes_version(self) -> int:
        return self.table.node_log.position

    @property
    def version(self) -> int:
        return self.table.load_log.position

    @property
    def hypothetical_pods(self) -> Sequence[PodLoad]:
        return [] if self.hypothesis is None else [kind.load for kind in self.hypothesis.kinds]

    def change_of(self, column: PodColumn, *, planned: bool | None = None) -> Ints:
        if self.hypothesis is None:
            return np.zeros(len(self), dtype=np.int64)
        amounts = np.array([column.amount(kind.load) for kind in self.hypothesis.kinds], dtype=np.int64)
        return self.hypothesis.spread(amounts, planned)

    def _of(self, resources: tuple[str, ...], amounts: Amounts) -> Amounts:
        """Those lines of the matrix; 0 for resources that no node has."""
        if resources == CPU_AND_MEMORY:
            return amounts[:2]
        numbers = [self.table.resources.known(name) for name in resources]
        if len(numbers) == 1 and numbers[0] is not None:
            return amounts[numbers[0] : numbers[0] + 1]
        nothing = np.zeros(len(self), dtype=np.int64)
        return np.stack([nothing if number is None else amounts[number] for number in numbers])


def view_of(nodes: NodeView) -> TableView:
    """For plugins that read the table's indexes of labels and terms, which are not part of the public interface."""
    if not isinstance(nodes, TableView):
        raise InvariantBroken("only a TableView has a table")
    return nodes
