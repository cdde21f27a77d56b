"""Topology domains: the nodes that share a value of a label, and how many pods are in each.

Domains go by the label's value, not by its number in a table, so that the counts of several shards add up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from shared.cluster.columns import ABSENT, IntColumn, LoadColumn
from shared.cluster.labelclasses import LabelClass
from shared.cluster.labels import LabelValue, Mask
from shared.cluster.nodetable import NodeTable
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector
from shared.model.selectors import label_selector_matches

DomainCounts = dict[str, int]
"""Pods by domain. A domain that is present and has none counts 0; one that is missing is not there at all."""


@dataclass(frozen=True, slots=True)
class PodCount(LoadColumn):
    """How many pods of some namespaces that a selector matches are on each node.

    Terminating pods count only on demand: spreading overlooks them, (anti-)affinity does not.
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
    """An empty selector matches every pod, None matches none."""
    return PodCount(frozenset(namespaces), selector, with_terminating)


def domain_counts(table: NodeTable, key: str, count: LoadColumn, among: Mask | None = None) -> DomainCounts:
    """The domains of a label key and the pods in them; `among` (one flag a row) limits the nodes that take part."""
    size = table.size
    domain_of = table.columns.of_nodes(LabelValue(key))[:size]
    part = domain_of != ABSENT if among is None else (domain_of != ABSENT) & among[:size]
    numbers = domain_of[part]
    nodes = np.bincount(numbers)
    # The weighted bincount adds up floats, which are exact for any number of pods that there can be.
    pods = np.bincount(numbers, weights=table.columns.of_loads(count)[:size][part]).astype(np.int64)
    present = np.flatnonzero(nodes)
    values = table.label_values(key).items
    return dict(zip(map(values.__getitem__, present.tolist()), pods[present].tolist(), strict=True))


def merge_counts(one: Mapping[str, int], other: Mapping[str, int]) -> DomainCounts:
    """The counts of two disjoint sets of nodes as those of one."""
    total = dict(one)
    for domain, pods in other.items():
        total[domain] = total.get(domain, 0) + pods
    return total
