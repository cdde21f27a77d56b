"""Topology domains: nodes with the same value of a label, and the number of pods in each.

Domains are named by the label's value, not by its number in a table, so that the counts of several shards can be added.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from flotilla.nodes import ABSENT, LabelValue
from shared.cluster.columns import IntColumn, Rows
from shared.cluster.nodetable import IndexedColumn, NodeTable
from shared.cluster.pod_indexes import LabelClass
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector
from shared.model.selectors import label_selector_matches


@dataclass(frozen=True, slots=True)
class PodCount(IndexedColumn):
    """How many pods of some namespaces that a selector matches are on each node.

    Terminating pods count only on demand: spreading ignores them, (anti-)affinity does not.
    """

    namespaces: frozenset[str]
    selector: LabelSelector | None = field(compare=False)
    with_terminating: bool = False
    _selector_key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_selector_key", msgspec.msgpack.encode(self.selector, order="deterministic"))

    def fill(self, table: NodeTable, column: IntColumn) -> None:
        counts = table.label_classes.counts(
            lambda pods: self._looks_at(pods) and label_selector_matches(self.selector, pods.label_map())
        )
        column[list(counts.keys())] = list(counts.values())

    def amount(self, load: PodLoad) -> int:
        return int(self._looks_at(load) and label_selector_matches(self.selector, load.labels))

    def _looks_at(self, pods: LabelClass | PodLoad) -> bool:
        return pods.namespace in self.namespaces and (self.with_terminating or not pods.terminating)


def pod_count(namespaces: Iterable[str], selector: LabelSelector | None, *, with_terminating: bool = False) -> PodCount:
    """An empty selector matches every pod, None none."""
    return PodCount(frozenset(namespaces), selector, with_terminating)


def merge_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The sum of the counts of two disjoint sets of nodes."""
    total = dict(one)
    for domain, pods in other.items():
        total[domain] = total.get(domain, 0) + pods
    return total


Domains = list[str | None]
"""A node's values of some labels, None for a missing one."""


class Strata:
    """The rows of a table, grouped by their values of some labels; valid until a node object changes."""

    def __init__(self, table: NodeTable, keys: Sequence[str]) -> None:
        columns = np.stack([table.columns.of_nodes(LabelValue(key))[: table.size] for key in keys])
        combinations, numbers = np.unique(columns, axis=1, return_inverse=True)
        self._number = numbers.ravel().astype(np.int32)
        self.domains = [
            [_value(table, key, int(number)) for key, number in zip(keys, combination, strict=True)]
            for combination in combinations.T
        ]

    def split(self, rows: Rows) -> list[tuple[Domains, Rows]]:
        """These rows by group."""
        numbers = self._number[rows]
        order = np.argsort(numbers, kind="stable")
        sizes = np.bincount(numbers, minlength=len(self.domains))
        members = np.split(rows[order], np.cumsum(sizes)[:-1])
        return [(self.domains[number], members[number]) for number in np.flatnonzero(sizes).tolist()]


def domains_of(table: NodeTable, key: str, rows: Rows) -> Domains:
    """The value of a label on each of these rows."""
    return [_value(table, key, number) for number in table.columns.of_nodes(LabelValue(key))[rows].tolist()]


def _value(table: NodeTable, key: str, number: int) -> str | None:
    return None if number == ABSENT else table.label_values(key).items[number]
