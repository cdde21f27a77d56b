"""Judge: what the counts of the whole cluster mean for the nodes of a view."""

from collections.abc import Iterable

import numpy as np

from flotilla.plugin import ABSENT, Ints, Mask, NodeView, unresolvable, unschedulable
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import table_of
from shared.model.wellknown import HOSTNAME
from shared.plugins.interpodaffinity.counts import ShardCounts
from shared.plugins.interpodaffinity.rules import Aspect
from shared.plugins.interpodaffinity.summary import Summary, domains_of, keys_of

NOT_AFFINE = unresolvable("node(s) didn't match pod affinity rules")
NOT_ANTI = unschedulable("node(s) didn't match pod anti-affinity rules")
NOT_SYMMETRIC = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")


class Judge:
    """One class, judged by one merged summary."""

    def __init__(self, shard: ShardCounts, summary: Summary) -> None:
        self.shard = shard
        self.rules = shard.rules
        self.summary = summary
        rules = self.rules
        self.filters = bool(rules.affinity_keys or rules.anti_keys or summary.get("shunned"))
        """If not, no node is rejected, whatever the hypothetical pods."""
        self._node_position = -1
        self._by_number: dict[tuple[Aspect, str], Ints] = {}

    def reject(self, nodes: NodeView) -> None:
        if self.rules.affinity_keys:
            nodes.reject(~self._affine(nodes), NOT_AFFINE)
        for key in self.rules.anti_keys:
            nodes.reject(self._counts(nodes, "anti", key) > 0, NOT_ANTI)
        for key in self._keys(nodes, "symmetric"):
            nodes.reject(self._counts(nodes, "symmetric", key) > 0, NOT_SYMMETRIC)

    def scores(self, nodes: NodeView) -> Ints:
        scores = np.zeros(len(nodes), dtype=np.int64)
        if self.summary.get("scored"):
            for key in self._keys(nodes, "score"):
                scores += self._counts(nodes, "score", key)
        return scores

    def _affine(self, nodes: NodeView) -> Mask:
        """Every domain has a pod that matches; or none anywhere has, and the pod would be the first of its kind."""
        near: Mask = np.ones(len(nodes), dtype=np.bool_)
        labelled: Mask = np.ones(len(nodes), dtype=np.bool_)
        matches = np.full(len(nodes), self.summary.get("matches", 0), dtype=np.int64)
        for key in self.rules.affinity_keys:
            near &= self._counts(nodes, "affinity", key) > 0
            present = nodes.label(key).numbers != ABSENT
            labelled &= present
            if nodes.hypothetical_pods:
                matches += np.where(present, nodes.change_of(self.shard.column("affinity", key)), 0)
        return (near | (labelled & (matches == 0))) if self.rules.is_first_of_its_kind else near

    def _keys(self, nodes: NodeView, aspect: Aspect) -> Iterable[str]:
        """The topology keys by which something counts, in the cluster or with what is supposed."""
        keys = keys_of(self.summary, aspect)
        keys |= {key for of, key in self.shard.counted(table_of(nodes)) if of == aspect}
        for pod in nodes.hypothetical_pods:
            keys |= {key for of, key in self.rules.effect(pod) if of == aspect}
        return sorted(keys)

    def _counts(self, nodes: NodeView, aspect: Aspect, key: str) -> Ints:
        """The count of each node's domain; 0 for nodes without the label."""
        numbers, table = nodes.label(key).numbers, table_of(nodes)
        column = self.shard.column(aspect, key)
        if key != HOSTNAME:
            counts = self._by(table, aspect, key)[numbers]
            if not nodes.hypothetical_pods:
                return counts
            return counts + np.where(numbers != ABSENT, nodes.change_of(column), 0)
        own = np.where(numbers != ABSENT, nodes.of_pods(column), 0)
        if not table.shared_hostnames:
            return own
        shared = _lookup(table, key, dict.fromkeys(table.shared_hostnames, 1))[numbers] > 0
        return np.where(shared, self._by(table, aspect, key)[numbers] + nodes.change_of(column), own)

    def _by(self, table: NodeTable, aspect: Aspect, key: str) -> Ints:
        if self._node_position != table.node_log.position:
            self._node_position = table.node_log.position
            self._by_number.clear()
        found = self._by_number.get((aspect, key))
        if found is None:
            found = self._by_number[aspect, key] = _lookup(table, key, domains_of(self.summary, aspect, key))
        return found


def _lookup(table: NodeTable, key: str, domains: dict[str, int]) -> Ints:
    """The counts by the number that a table has for each value; the last entry is for nodes without the label."""
    values = table.label_values(key)
    by_number = np.zeros(len(values) + 1, dtype=np.int64)
    for value, count in domains.items():
        number = values.known(value)
        if number is not None:
            by_number[number] = count
    return by_number
