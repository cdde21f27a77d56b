"""NodeView: the nodes that a filter or score is asked about, as NumPy columns; NodeInfo: one node as plain data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from flotilla.objects import Node, NodeSelectorRequirement, PodLoad, Taint
from flotilla.results import Status
from shared.model.selectors import requirement_matches

T = TypeVar("T")

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
Index = NDArray[np.intp]

ABSENT = -1


class NodeColumn(ABC):
    """A number computed from the node object. Equal specs share one column, so a spec is hashable."""

    @abstractmethod
    def value(self, node: Node) -> int:
        """The node's value; ABSENT if it has none."""


class TextColumn(ABC):
    """A string computed from the node object; hashable, like NodeColumn."""

    @abstractmethod
    def value(self, node: Node) -> str | None:
        """The node's value; None if it has none."""


@dataclass(frozen=True, slots=True)
class LabelValue(TextColumn):
    key: str

    def value(self, node: Node) -> str | None:
        return node.metadata.labels.get(self.key)


class PodColumn(ABC):
    """A sum over the pods of each node, kept up to date as pods come and go; hashable, like NodeColumn."""

    @abstractmethod
    def amount(self, pod: PodLoad) -> int:
        """What one pod adds to its node."""


@dataclass(frozen=True, slots=True)
class Coded(Generic[T]):
    """A column of values that many nodes share: `values[numbers[i]]` is the i-th node's; the number ABSENT means none.

    `number(value)` looks up a value's number, None if no node has it.
    """

    numbers: Ints
    values: Sequence[T]
    number: Callable[[T], int | None]

    def any_of(self, values: Iterable[T]) -> Mask:
        """Which nodes have one of these values."""
        known = [number for value in values if (number := self.number(value)) is not None]
        found: Mask = self.numbers == known[0] if len(known) == 1 else np.isin(self.numbers, known)
        return found


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Amounts are in scheduler units: cpu in thousandths, everything else in whole units; "pods" counts pods."""

    node: Node
    pods: tuple[PodLoad, ...]
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


class NodeView(ABC):
    """Columns of some nodes; every array has one entry a node, in the same order.

    A view may be hypothetical: pods may be assumed on its nodes, or removed from them. That is how preemption asks
    whether a pod would fit without its victims, how nominated pods reserve room, and how a worker looks several
    placements ahead. Everything that counts pods or amounts includes the hypothetical pods.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def reject(self, nodes: Mask | Index, status: Status) -> None:
        """Reject these nodes. The first status of a node stands. Only for filters, while they are asked."""

    # The node objects

    @property
    @abstractmethod
    def valid(self) -> Mask:
        """False for entries that belong to no node at present; answers about them are ignored."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]: ...

    @abstractmethod
    def named(self, names: Iterable[str]) -> Mask:
        """Which nodes have one of these names."""

    @property
    @abstractmethod
    def unschedulable(self) -> Mask: ...

    @property
    @abstractmethod
    def taints(self) -> Coded[tuple[Taint, ...]]:
        """The nodes' sets of taints, of which a cluster has few."""

    @abstractmethod
    def of_nodes(self, column: NodeColumn) -> Ints: ...

    @abstractmethod
    def texts(self, column: TextColumn) -> Coded[str]: ...

    def label(self, key: str) -> Coded[str]:
        return self.texts(LabelValue(key))

    @abstractmethod
    def allocatable(self, *resources: str) -> Ints:
        """Resources x nodes."""

    @abstractmethod
    def node(self, i: int) -> Node: ...

    # The pods on them

    @abstractmethod
    def requested(self, *resources: str) -> Ints:
        """Resources x nodes: what the pods request together; "pods" counts them."""

    @abstractmethod
    def non_zero_requested(self) -> Ints:
        """cpu and memory x nodes, with defaults for containers that request none."""

    @abstractmethod
    def of_pods(self, column: PodColumn) -> Ints: ...

    @abstractmethod
    def pods(self, i: int) -> list[PodLoad]: ...

    @abstractmethod
    def info(self, i: int) -> NodeInfo: ...

    # What changes

    @property
    @abstractmethod
    def nodes_version(self) -> int:
        """Rises with every change of a node object."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Rises with every change of a node object and of the pods on any node."""

    @property
    @abstractmethod
    def hypothetical_pods(self) -> Sequence[PodLoad]:
        """The kinds of pods that are assumed on some of the nodes, or removed; empty for the real state."""

    @abstractmethod
    def change_of(self, column: PodColumn, *, planned: bool | None = None) -> Ints:
        """By how much the hypothetical pods change a column.

        `planned`: only pods of the same class that earlier placements put there (True), or only all others (False).
        """


def match_requirement(nodes: NodeView, requirement: NodeSelectorRequirement) -> Mask:
    """Which nodes satisfy a requirement on a label: each value of the label is matched once."""
    column = nodes.label(requirement.key)
    present: Mask = column.numbers != ABSENT
    match requirement.operator:
        case "Exists":
            return present
        case "DoesNotExist":
            return ~present
        case "In" | "NotIn":
            found = column.any_of(requirement.values)
            return found if requirement.operator == "In" else ~found
    numbers, inverse = np.unique(column.numbers, return_inverse=True)
    matching = [n != ABSENT and requirement_matches(requirement, {requirement.key: column.values[n]}) for n in numbers]
    return np.array(matching, dtype=np.bool_)[inverse]
