"""Judge: what the counts of the whole cluster mean for the nodes of a view."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from shared.cluster.columns import ABSENT, IntColumn
from shared.cluster.labels import LabelValue
from shared.cluster.nodetable import NodeTable
from shared.framework.view import NodeView
from shared.model.wellknown import HOSTNAME
from shared.plugins.interpodaffinity.counts import ShardCounts
from shared.plugins.interpodaffinity.rules import Aspect
from shared.plugins.interpodaffinity.summary import Summary, domains_of, keys_of

FITS, NOT_AFFINE, NOT_ANTI, NOT_SYMMETRIC = range(4)

Mask = NDArray[np.bool_]


class Judge:
    """One class, judged by one merged summary."""

    def __init__(self, shard: ShardCounts, summary: Summary) -> None:
        self.shard = shard
        self.rules = shard.rules
        self.summary = summary
        rules = self.rules
        self.filters = bool(rules.affinity_keys or rules.anti_keys or summary.get("shunned"))
        """Otherwise no node is rejected, whatever else is supposed to be on it."""
        self._node_position = -1
        self._by_number: dict[tuple[Aspect, str], IntColumn] = {}

    def verdicts(self, view: NodeView) -> NDArray[np.int64]:
        verdicts = np.zeros(len(view), dtype=np.int64)
        if not self.filters:
            return verdicts
        for key in self._keys(view, "symmetric"):
            verdicts[self._counts(view, "symmetric", key) > 0] = NOT_SYMMETRIC
        for key in self.rules.anti_keys:
            verdicts[self._counts(view, "anti", key) > 0] = NOT_ANTI
        if self.rules.affinity_keys:
            verdicts[~self._affine(view)] = NOT_AFFINE
        return verdicts

    def scores(self, view: NodeView) -> NDArray[np.int64]:
        scores = np.zeros(len(view), dtype=np.int64)
        if self.summary.get("scored"):
            for key in self._keys(view, "score"):
                scores += self._counts(view, "score", key)
        return scores

    def _affine(self, view: NodeView) -> Mask:
        """Every domain has a pod that matches; or none anywhere has, and the pod would be the first of its kind."""
        near: Mask = np.ones(len(view), dtype=np.bool_)
        labelled: Mask = np.ones(len(view), dtype=np.bool_)
        matches = np.full(len(view), self.summary.get("matches", 0), dtype=np.int64)
        for key in self.rules.affinity_keys:
            near &= self._counts(view, "affinity", key) > 0
            present = view.of_nodes(LabelValue(key)) != ABSENT
            labelled &= present
            if view.supposed is not None:
                matches += np.where(present, view.change_of(self.shard.column("affinity", key)), 0)
        return (near | (labelled & (matches == 0))) if self.rules.is_first_of_its_kind else near

    def _keys(self, view: NodeView, aspect: Aspect) -> Iterable[str]:
        """The topology keys by which something counts, in the cluster or with what is supposed."""
        keys = keys_of(self.summary, aspect)
        keys |= {key for of, key in self.shard.counted(view.table) if of == aspect}
        if view.supposed is not None:
            effects = (self.rules.effect(kind.load) for kind in view.supposed.kinds)
            keys |= {key for effect in effects for of, key in effect if of == aspect}
        return sorted(keys)

    def _counts(self, view: NodeView, aspect: Aspect, key: str) -> IntColumn:
        """The count of each node's domain; nought where the node has no such label."""
        numbers = view.of_nodes(LabelValue(key))
        column = self.shard.column(aspect, key)
        if key != HOSTNAME:
            counts = self._by(view.table, aspect, key)[numbers]
            return counts if view.supposed is None else counts + np.where(numbers != ABSENT, view.change_of(column), 0)
        own = np.where(numbers != ABSENT, view.of_loads(column), 0)
        if not view.table.shared_hostnames:
            return own
        shared = _lookup(view.table, key, dict.fromkeys(view.table.shared_hostnames, 1))[numbers] > 0
        change = view.change_of(column)
        return np.where(shared, self._by(view.table, aspect, key)[numbers] + change, own)

    def _by(self, table: NodeTable, aspect: Aspect, key: str) -> IntColumn:
        if self._node_position != table.node_log.position:
            self._node_position = table.node_log.position
            self._by_number.clear()
        found = self._by_number.get((aspect, key))
        if found is None:
            found = self._by_number[aspect, key] = _lookup(table, key, domains_of(self.summary, aspect, key))
        return found


def _lookup(table: NodeTable, key: str, domains: dict[str, int]) -> IntColumn:
    """The counts by the number that a table has for each value; the last entry is for nodes without the label."""
    values = table.label_values(key)
    by_number = np.zeros(len(values) + 1, dtype=np.int64)
    for value, count in domains.items():
        number = values.known(value)
        if number is not None:
            by_number[number] = count
    return by_number
