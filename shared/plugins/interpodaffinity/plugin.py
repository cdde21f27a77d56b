"""InterPodAffinity keeps pods near to pods that they have affinity to, and apart from pods with anti-affinity.

A pod without terms of its own is judged by those of others, which only the merged summary contains; so it is not
skipped in PreFilter, but its nodes then cost next to nothing.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import ABSENT, Ints, LabelValue, Mask, NodeView
from flotilla.objects import ClusterObjects, Node, ObjectKind, Pod, PodLoad
from flotilla.plugin import (
    ClassState,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    Scores,
    StateKey,
    SummaryPlugin,
    Tracker,
)
from flotilla.results import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    PreFilterResult,
    Range,
    Status,
    Topology,
    unresolvable,
    unschedulable,
)
from shared.cluster.columns import IntColumn
from shared.cluster.nodetable import IndexedColumn, NodeTable
from shared.cluster.pod_indexes import LabelClass, encode_terms
from shared.cluster.view import view_of
from shared.config.args import InterPodAffinityArgs
from shared.model.objects import PodAffinityTerm
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import HOSTNAME
from shared.plugins.base import InTreePlugin, is_placed
from shared.plugins.interpodaffinity.rules import (
    AffinitySummary,
    Aspect,
    Count,
    Domains,
    Matcher,
    Rules,
    domains_of,
    merged,
    own_terms,
    selecting_terms,
    uses_preferences,
)
from shared.plugins.interpodaffinity.tracker import AffinityTracker

NOT_AFFINE = unresolvable("node(s) didn't match pod affinity rules")
NOT_ANTI = unschedulable("node(s) didn't match pod anti-affinity rules")
NOT_SYMMETRIC = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")


# Counts in one shard


@dataclass(frozen=True, slots=True)
class PodsThatCount(IndexedColumn):
    """What the pods of each node add to a count."""

    identity: bytes
    count: Count
    rules: Rules = field(compare=False)

    def fill(self, table: NodeTable, column: IntColumn) -> None:
        for matches, amount in self.rules.own.get(self.count, ()):
            rows_of = table.label_classes.counts(partial(_class_matches, matches))
            _add_rows(column, rows_of, amount)
        for term, rows in table.terms.about(self.rules.namespace):
            amount = self.rules.of_term(term).get(self.count, 0)
            if amount:
                _add_rows(column, dict(rows), amount)

    def amount(self, pod: PodLoad) -> int:
        return self.rules.effect(pod).get(self.count, 0)


def _class_matches(matches: Matcher, pods: LabelClass) -> bool:
    return matches(pods.namespace, pods.label_map())


def _add_rows(column: IntColumn, rows: dict[int, int], amount: int) -> None:
    column[list(rows)] += amount * np.array(list(rows.values()), dtype=np.int64)


class ShardCounts:
    """The counts of one class in one shard's table; cached until the table changes."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._columns: dict[Count, PodsThatCount] = {}
        self._generation = -1
        self._carried: Counter[Count] = Counter()
        self._counted: list[Count] = []

    def column(self, aspect: Aspect, key: str) -> PodsThatCount:
        found = self._columns.get((aspect, key))
        if found is None:
            found = self._columns[aspect, key] = PodsThatCount(self.rules.identity, (aspect, key), self.rules)
        return found

    def counted(self, table: NodeTable) -> list[Count]:
        """All that any of the table's pods may count for, by the pod's own terms or by theirs; in order."""
        terms = table.terms
        if self._generation != terms.generation:
            before = set(self._carried)
            changes = terms.since(self._generation)
            if changes is None:
                self._carried.clear()
                changes = [(term, True) for term, _ in terms.about(self.rules.namespace)]
            for term, appeared in changes:
                for count in self.rules.of_term(term):
                    self._carried[count] += 1 if appeared else -1
                    if not self._carried[count]:
                        del self._carried[count]
            if self._generation < 0 or before != self._carried.keys():
                self._counted = sorted({*self.rules.own, *self._carried})
            self._generation = terms.generation
        return self._counted

    def summarize(self, table: NodeTable, summary: AffinitySummary) -> AffinitySummary:
        """Add what this shard's pods count for."""
        for aspect, key in self.counted(table):
            if aspect == "contributions":
                continue
            numbers = table.columns.of_nodes(LabelValue(key))[: table.size]
            labelled = numbers != ABSENT
            amounts = table.columns.of_pods(self.column(aspect, key))[: table.size]
            if not amounts[labelled].any():
                if aspect == "score":  # weights may add up to 0
                    weights = table.columns.of_pods(self.column("contributions", key))[: table.size]
                    if weights[labelled].any():
                        summary["scored"] = True
                continue
            if aspect == "affinity" and self.rules.may_be_first:
                summary["matches"] = summary.get("matches", 0) + int(amounts[labelled].sum())
            elif aspect == "symmetric":
                summary["shunned"] = True
            elif aspect == "score":
                summary["scored"] = True
            domains = _public_domains(table, key, numbers, amounts)
            if domains:
                summary.setdefault("counts", {}).setdefault(aspect, {})[key] = domains
        return summary


def _public_domains(table: NodeTable, key: str, numbers: IntColumn, amounts: IntColumn) -> Domains:
    """The sums by domain, without the hostnames that only one node has."""
    if key == HOSTNAME and not table.shared_hostnames:
        return {}
    values = table.label_values(key).items
    counting = np.flatnonzero(amounts)
    counting = counting[numbers[counting] != ABSENT]
    # The weighted bincount adds up floats, which are exact for any number of pods that there can be.
    sums = np.bincount(numbers[counting], weights=amounts[counting]).astype(np.int64)
    domains = {values[number]: int(sums[number]) for number in np.flatnonzero(sums).tolist()}
    if key == HOSTNAME:
        return {value: count for value, count in domains.items() if value in table.shared_hostnames}
    return domains


# What the counts of the whole cluster mean for nodes


class Judge:
    """Judges nodes for one class by one merged summary."""

    def __init__(self, shard: ShardCounts, summary: AffinitySummary) -> None:
        self.shard = shard
        self.rules = shard.rules
        self.summary = summary
        self.filters = bool(self.rules.affinity_keys or self.rules.anti_keys or summary.get("shunned"))
        """If not, no node is rejected, with any hypothetical pods."""
        self._node_position = -1
        self._by_number: dict[Count, Ints] = {}

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
        return (near | (labelled & (matches == 0))) if self.rules.may_be_first else near

    def _keys(self, nodes: NodeView, aspect: Aspect) -> Iterable[str]:
        """The topology keys by which something counts, in the cluster or with the hypothetical pods."""
        keys = set(self.summary.get("counts", {}).get(aspect, ()))
        keys |= {key for of, key in self.shard.counted(view_of(nodes).table) if of == aspect}
        for pod in nodes.hypothetical_pods:
            keys |= {key for of, key in self.rules.effect(pod) if of == aspect}
        return sorted(keys)

    def _counts(self, nodes: NodeView, aspect: Aspect, key: str) -> Ints:
        """The count of each node's domain; 0 for nodes without the label."""
        numbers, table = nodes.label(key).numbers, view_of(nodes).table
        column = self.shard.column(aspect, key)
        if key != HOSTNAME:
            counts = self._by_domain(table, aspect, key)[numbers]
            if not nodes.hypothetical_pods:
                return counts
            return counts + np.where(numbers != ABSENT, nodes.change_of(column), 0)
        own = np.where(numbers != ABSENT, nodes.of_pods(column), 0)
        if not table.shared_hostnames:
            return own
        shared = _by_number(table, key, dict.fromkeys(table.shared_hostnames, 1))[numbers] > 0
        return np.where(shared, self._by_domain(table, aspect, key)[numbers] + nodes.change_of(column), own)

    def _by_domain(self, table: NodeTable, aspect: Aspect, key: str) -> Ints:
        if self._node_position != table.node_log.position:
            self._node_position = table.node_log.position
            self._by_number.clear()
        found = self._by_number.get((aspect, key))
        if found is None:
            found = self._by_number[aspect, key] = _by_number(table, key, domains_of(self.summary, aspect, key))
        return found


def _by_number(table: NodeTable, key: str, domains: Domains) -> Ints:
    """The counts by the number that a table has for each value; the last entry is for nodes without the label."""
    values = table.label_values(key)
    by_number = np.zeros(len(values) + 1, dtype=np.int64)
    for value, count in domains.items():
        number = values.known(value)
        if number is not None:
            by_number[number] = count
    return by_number


# Queueing hints. Namespace selectors are not resolved: matched against no labels, they apply to all namespaces or none.


def after_pod_change(pod: Pod, before: Pod | None, now: Pod | None, objects: ClusterObjects) -> bool:
    """A pod appeared that this one has affinity to, or a pod that kept this one away is gone."""
    if now is not None and before is not None and now.uid == pod.uid:
        return True
    if (now is not None and not is_placed(now)) or (before is not None and not is_placed(before)):
        return False
    near, far = _required_terms(pod)
    if now is None:
        return before is not None and (
            _all_match(pod, far, before) or _all_match(before, _required_terms(before)[1], pod)
        )
    if before is None:
        return _all_match(pod, near, now)
    if _all_match(pod, near, now) and not _all_match(pod, near, before):
        return True
    return _all_match(pod, far, before) and not _all_match(pod, far, now)


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node has joined or left a domain of a topology key of the pod's terms."""
    near, far = _required_terms(pod)
    labels = now.metadata.labels
    if before is None:
        return bool(far) or any(term.topology_key in labels for term in near)
    old = before.metadata.labels
    return any(
        term.topology_key in labels and labels[term.topology_key] != old.get(term.topology_key) for term in near
    ) or any(term.topology_key in old and old[term.topology_key] != labels.get(term.topology_key) for term in far)


Terms = Sequence[PodAffinityTerm]


def _required_terms(pod: Pod) -> tuple[Terms, Terms]:
    """The pod's required affinity and anti-affinity."""
    affinity = pod.spec.affinity
    near = None if affinity is None else affinity.pod_affinity
    far = None if affinity is None else affinity.pod_anti_affinity
    return () if near is None else near.required, () if far is None else far.required


def _all_match(owner: Pod, terms: Terms, other: Pod) -> bool:
    """Whether there are terms, and each of them matches the other pod."""
    return bool(terms) and all(_term_matches(owner, term, other) for term in terms)


def _term_matches(owner: Pod, term: PodAffinityTerm, other: Pod) -> bool:
    if term.namespaces:
        named = other.namespace in term.namespaces
    else:
        named = term.namespace_selector is None and other.namespace == owner.namespace
    if not named and not label_selector_matches(term.namespace_selector, {}):
        return False
    return label_selector_matches(term.label_selector, other.metadata.labels)


# The plugin


@dataclass(frozen=True, slots=True)
class ScaleRange:
    """The lowest raw score becomes 0 and the highest 100; all become 0 where they are the same."""

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        if low >= high:
            return np.zeros_like(raw)
        # In floats and cut off, as kube-scheduler does it: 29 of 100 makes 28.
        return (MAX_NODE_SCORE * ((raw - low) / (high - low))).astype(np.int64)


@dataclass(slots=True)
class _Cached:
    """What was computed for one class: its shard's summary, and a judge by the merged summary."""

    versions: tuple[int, int] = (-1, -1)
    summary: AffinitySummary = field(default_factory=AffinitySummary)
    namespaces: tuple[object, object] = (None, None)
    shard: ShardCounts | None = None
    judge: Judge | None = None


CACHED = StateKey[_Cached]("counts and judge of the class")


class InterPodAffinity(
    InTreePlugin, SummaryPlugin[AffinitySummary, None], PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin
):
    """Reads namespaces into the summary, which is computed again when they change: no class is prepared again."""

    name = "InterPodAffinity"
    normalizer = ScaleRange()
    registrations = (
        Registration(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE, after_pod_change),
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, after_node_change),
    )

    def __init__(self, args: InterPodAffinityArgs | None) -> None:
        self._args = InterPodAffinityArgs() if args is None else args

    def signature(self, pod: Pod) -> Hashable:
        return pod.namespace, tuple(sorted(pod.metadata.labels.items())), encode_terms(own_terms(pod))

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult()

    def passes_all(self, state: ClassState) -> bool:
        return not self._judge(state).filters

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        self._judge(state).reject(nodes)

    def pre_score(self, state: ClassState) -> Status:
        return SUCCESS if uses_preferences(own_terms(state.pod), self._args) else SKIP

    def scores_alike(self, state: ClassState) -> bool:
        return not state.summaries[self.name].get("scored")

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return self._judge(state).scores(nodes)

    def summarize(self, state: ClassState, nodes: NodeView) -> AffinitySummary:
        cached = self._cached(state)
        versions = (nodes.version, state.objects.generation(ObjectKind.NAMESPACE))
        if cached.versions != versions:
            table = view_of(nodes).table
            summary = _of_namespaces(state.pod, table.objects)
            if table.shared_hostnames:
                summary["hostnames"] = sorted(table.shared_hostnames)
            cached.summary = self._shard(state, summary).summarize(table, summary)
            cached.versions = versions
        return cached.summary

    def merge(self, one: AffinitySummary, other: AffinitySummary) -> AffinitySummary:
        return merged(one, other)

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        keys = sorted({term.topology_key for term in own_terms(state.pod)})
        return Topology(tuple(keys), tuple(key for key in keys if key != HOSTNAME)) if keys else None

    def tracker(
        self, pod: Pod, summary: AffinitySummary | None, feasible: None, scores: Range | None
    ) -> Tracker | None:
        summary = {} if summary is None else summary
        return AffinityTracker(self._rules(pod, summary), summary, scores)

    def _rules(self, pod: Pod, summary: AffinitySummary) -> Rules:
        return Rules(pod, self._args, summary.get("namespaces", []), summary.get("labels", {}))

    def _cached(self, state: ClassState) -> _Cached:
        cached = state.get(CACHED)
        if cached is None:
            cached = state[CACHED] = _Cached()
        return cached

    def _shard(self, state: ClassState, summary: AffinitySummary) -> ShardCounts:
        """By the rules with the summary's namespaces."""
        cached = self._cached(state)
        namespaces = (summary.get("namespaces", []), summary.get("labels", {}))
        if cached.shard is None or cached.namespaces != namespaces:
            cached.shard = ShardCounts(self._rules(state.pod, summary))
            cached.namespaces = namespaces
        return cached.shard

    def _judge(self, state: ClassState) -> Judge:
        cached = self._cached(state)
        summary = cast(AffinitySummary, state.summaries[self.name])
        if cached.judge is None or cached.judge.summary is not summary:
            cached.judge = Judge(self._shard(state, summary), summary)
        return cached.judge


def _of_namespaces(pod: Pod, objects: ClusterObjects) -> AffinitySummary:
    """The part of a summary that the cluster's namespaces make."""
    summary: AffinitySummary = {}
    namespace = objects.namespaces.get(pod.namespace)
    if namespace is not None and namespace.labels:
        summary["labels"] = namespace.labels
    selecting = selecting_terms(own_terms(pod))
    if selecting:
        known = objects.namespaces.values()
        summary["namespaces"] = [
            sorted(each.name for each in known if label_selector_matches(term.namespace_selector, each.labels))
            for term in selecting
        ]
    return summary
