"""A cluster as the tables of several shards, and one plugin asked in all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from flotilla.plugin import ClassState
from flotilla.results import NodeDomains
from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import Changes, Hypothesis, TableView
from shared.model.base import ObjectMeta
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.model.workloads import Namespace
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from testing.builders import class_state
from tests.plugins.cluster import rejected
from tests.plugins.interpodaffinity.scalar import Cluster
from tests.plugins.interpodaffinity.strategies import HOSTNAME

Hypothetical = Sequence[tuple[Pod, int]]
"""Pods that are assumed on a node (a number of them) or, with a negative number, removed from it."""


class Shards:
    def __init__(self, cluster: Cluster, count: int) -> None:
        hostnames = Counter(value for node in cluster.nodes if (value := node.metadata.labels.get(HOSTNAME)))
        self.cluster = cluster
        self.tables = [NodeTable(capacity=4, objects=_objects(cluster.namespaces)) for _ in range(count)]
        for i, node in enumerate(cluster.nodes):
            self.table(i).add_node(node)
            for pod in cluster.pods[i]:
                self.table(i).add_pod(pod.uid, node.name, load_of(pod))
        for table in self.tables:
            table.set_shared_hostnames(value for value, nodes in hostnames.items() if nodes > 1)
        self._states: dict[str, list[ClassState]] = {}

    def table(self, at: int) -> NodeTable:
        return self.tables[at % len(self.tables)]

    def place(self, pod: Pod, at: int, uid: str) -> None:
        self.table(at).add_pod(uid, self.cluster.nodes[at].name, load_of(pod))

    def remove(self, pod: Pod, at: int) -> None:
        self.table(at).remove_pod(pod.uid)

    def states(self, pod: Pod) -> list[ClassState]:
        """One a shard, kept for as long as these shards are."""
        found = self._states.get(pod.uid)
        if found is None:
            found = self._states[pod.uid] = [class_state(pod, table.objects) for table in self.tables]
        return found

    def summary(self, plugin: InterPodAffinity, pod: Pod) -> Any:
        parts = [
            plugin.summarize(state, TableView(table))
            for state, table in zip(self.states(pod), self.tables, strict=True)
        ]
        return reduce(plugin.merge, parts)

    def use_merged(self, plugin: InterPodAffinity, pod: Pod) -> Any:
        summary = self.summary(plugin, pod)
        for state in self.states(pod):
            if state.summaries.get(plugin.name) != summary:
                state.summaries = {plugin.name: summary}
        return summary

    def reasons(self, plugin: InterPodAffinity, pod: Pod) -> list[str | None]:
        """Of every node, by the last merged summary."""
        return [self.reason(plugin, pod, at) for at in range(len(self.cluster.nodes))]

    def reason(self, plugin: InterPodAffinity, pod: Pod, at: int, changes: Hypothetical | None = None) -> str | None:
        state, view = self._view(pod, at, changes)
        (status,) = rejected(plugin, state, view)
        return None if status is None else status.message

    def score(self, plugin: InterPodAffinity, pod: Pod, at: int, changes: Hypothetical | None = None) -> int:
        state, view = self._view(pod, at, changes)
        return int(plugin.score(state, view)[0])

    def where(self, at: int) -> NodeDomains:
        node = self.cluster.nodes[at]
        return NodeDomains(
            node.name, {k: v for k, v in node.metadata.labels.items() if k in ("zone", "rack", HOSTNAME)}
        )

    def _view(self, pod: Pod, at: int, changes: Hypothetical | None) -> tuple[ClassState, TableView]:
        table = self.table(at)
        row = table.row_of(self.cluster.nodes[at].name)
        assert row is not None
        hypothetical = None if changes is None else _hypothesis(table, changes)
        return self.states(pod)[at % len(self.tables)], TableView(table, np.array([row], dtype=np.intp), hypothetical)


def _objects(namespaces: Mapping[str, Mapping[str, str]]) -> ClusterObjects:
    objects = ClusterObjects()
    for name, labels in namespaces.items():
        objects.upsert(Namespace(metadata=ObjectMeta(name=name, labels=dict(labels))))
    return objects


def _hypothesis(table: NodeTable, hypothetical: Hypothetical) -> Hypothesis:
    kinds = [table.kind(load_of(pod)) for pod, _ in hypothetical]
    return Changes(
        nodes=1,
        at=np.zeros(len(kinds), dtype=np.intp),
        which=np.arange(len(kinds), dtype=np.intp),
        count=np.array([count for _, count in hypothetical], dtype=np.int64),
        kinds=kinds,
    )
