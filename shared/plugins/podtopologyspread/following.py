"""Soft constraints, followed from decision to decision: nodes in groups, and the raw scores of these."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flotilla.nodes import ABSENT, LabelValue
from shared.cluster.columns import Rows
from shared.cluster.nodetable import NodeTable
from shared.model.load import PodLoad
from shared.model.objects import Pod
from shared.model.wellknown import REGION, ZONE
from shared.plugins.grouping import IGNORED, Follower, Group, Grouped
from shared.plugins.podtopologyspread.constraints import Constraint, Rules
from shared.plugins.podtopologyspread.counts import UNLABELLED, ShardCounts, counted, weights

NO_HOST = -2
"""In place of a number of pods: the node has no hostname, so the constraint of hosts does not add to its score."""
COPIED = frozenset({ZONE, REGION})
"""Labels that a pod may get from its node: which pods a selector of these counts is not known before."""


def can_follow(rules: Rules) -> bool:
    """Whether raw scores depend on groups only. A group holds one number of pods: for one constraint on hostnames."""
    hosts = [each for each in rules.constraints if each.is_of_hosts]
    return len(hosts) <= 1 and not any(_selected(each) & COPIED for each in rules.constraints)


def _selected(constraint: Constraint) -> set[str]:
    selector = constraint.selector
    if selector is None:
        return set()
    return {*selector.match_labels, *(each.key for each in selector.match_expressions)}


def group_rows(shard: ShardCounts, namespace: str, rows: Rows) -> Grouped | None:
    """None if pods on some of these feasible nodes do not count."""
    table, has_keys = shard.table, shard.has_keys[rows]
    code = np.zeros(len(rows), dtype=np.int64)
    pods = np.zeros(len(rows), dtype=np.int64)
    columns = []
    for constraint, counts in zip(shard.rules.constraints, shard.constraints, strict=True):
        if constraint.is_of_hosts:
            column, named = counted(constraint, namespace), table.columns.of_nodes(LabelValue(constraint.key))[rows]
            here = 0 if column is None else table.columns.of_pods(column)[rows]
            pods = np.where(named == ABSENT, NO_HOST, here)
            continue
        if counts is None or bool((has_keys & ~counts.taking_part[rows]).any()):
            return None
        values = table.columns.of_nodes(LabelValue(constraint.key))[rows]
        columns.append((constraint.key, values))
        code = code * (len(table.label_values(constraint.key)) + 1) + (values + 1)
    pods = np.where(has_keys, pods, IGNORED)
    code = code * (int(pods.max(initial=0)) - NO_HOST + 1) + (pods - NO_HOST)
    _, first, index = np.unique(code, return_index=True, return_inverse=True)
    groups = [
        Group(tuple(_value(table, key, int(values[at])) for key, values in columns), int(pods[at]))
        for at in first.tolist()
    ]
    return Grouped(groups, index.reshape(-1))


def _value(table: NodeTable, key: str, number: int) -> str | None:
    return None if number == ABSENT else table.label_values(key).items[number]


class SpreadFollower(Follower):
    def __init__(self, pod: Pod, rules: Rules) -> None:
        self.labels = tuple(each.key for each in rules.constraints if not each.is_of_hosts)
        self._rules = rules
        self._namespace = pod.metadata.namespace
        labels = pod.metadata.labels
        self._own = [each.counts and each.matches(labels) for each in rules.constraints]

    def raw_scores(self, summary: Any, late: Any, groups: Sequence[Group]) -> list[int]:
        of_each = list(zip(self._rules.constraints, summary["soft"], weights(late), strict=True))
        return [self._raw(of_each, group) for group in groups]

    def _raw(self, of_each: Sequence[tuple[Constraint, Any, float]], group: Group) -> int:
        if group.pods == IGNORED:
            return IGNORED
        total, values = 0.0, iter(group.values)
        for constraint, part, weight in of_each:
            if constraint.is_of_hosts:
                total += 0.0 if group.pods == NO_HOST else group.pods * weight + (constraint.max_skew - 1)
                continue
            value = next(values)
            if value is not None:
                count = part["domains"].get(value, 0) if constraint.counts else 0
                total += count * weight + (constraint.max_skew - 1)
        whole = math.floor(total)
        return whole + (total - whole >= 0.5)

    def after(self, group: Group) -> Group:
        if group.pods < 0:
            return group
        more = sum(own for each, own in zip(self._rules.constraints, self._own, strict=True) if each.is_of_hosts)
        return Group(group.values, group.pods + more)

    def placed(self, summary: Any, group: Group) -> Any:
        if group.pods == IGNORED:
            return summary
        parts, values = [], iter(group.values)
        for constraint, part, own in zip(self._rules.constraints, summary["soft"], self._own, strict=True):
            if not constraint.is_of_hosts:
                value = next(values)
                domain = UNLABELLED if value is None else value
                if own and domain in part["domains"]:
                    domains = part["domains"]
                    part = {**part, "domains": {**domains, domain: domains[domain] + 1}}
            parts.append(part)
        return {**summary, "soft": parts}

    def counts(self, load: PodLoad) -> bool:
        return load.namespace == self._namespace and any(
            each.counts and each.matches(load.labels) for each in self._rules.constraints
        )
