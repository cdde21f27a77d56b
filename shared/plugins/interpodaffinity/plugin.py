"""InterPodAffinity keeps pods near to pods that they want near, and away from those that they, or these, want far.

Summary: see `summary.Summary`. A pod without terms of its own is judged by those of others, which only the merged
summary tells of; so it is not skipped beforehand, but its nodes then cost next to nothing.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from flotilla.plugin import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    Action,
    ClassState,
    ClusterObjects,
    FilterPlugin,
    Node,
    NodeView,
    ObjectKind,
    Pod,
    PodParts,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Range,
    Registration,
    Resource,
    ScorePlugin,
    Scores,
    StateKey,
    Status,
    SummaryPlugin,
    Topology,
    Tracker,
)
from shared.cluster.nodetable import NodeTable
from shared.cluster.terms import encode_terms
from shared.cluster.view import table_of
from shared.config.args import InterPodAffinityArgs
from shared.model.objects import PodAffinityTerm
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import HOSTNAME
from shared.plugins.interpodaffinity.counts import ShardCounts
from shared.plugins.interpodaffinity.judging import Judge
from shared.plugins.interpodaffinity.rules import Rules, has_say, own_terms, selecting_terms
from shared.plugins.interpodaffinity.summary import Summary, merged
from shared.plugins.interpodaffinity.tracker import AffinityTracker
from shared.plugins.queueing_hints import is_placed


@dataclass(frozen=True, slots=True)
class ScaleRange:
    """The lowest raw score becomes 0 and the highest 100; all become 0 where they are the same."""

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        if low >= high:
            return np.zeros_like(raw)
        # In floats and cut off, as kube-scheduler does it: 29 of 100 makes 28.
        return (MAX_NODE_SCORE * ((raw - low) / (high - low))).astype(np.int64)


MEMORY = StateKey["_Memory"]("counts and judge of the class")


class InterPodAffinity(SummaryPlugin[Summary, None], PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "InterPodAffinity"
    reads_of_pod = PodParts.TEMPLATE
    normalizer = ScaleRange()

    def __init__(self, args: InterPodAffinityArgs | None) -> None:
        self._args = InterPodAffinityArgs() if args is None else args

    def signature(self, pod: Pod) -> Hashable:
        return pod.namespace, tuple(sorted(pod.metadata.labels.items())), encode_terms(own_terms(pod))

    def reads_objects(self, state: ClassState) -> tuple[()]:
        """Namespaces are read into the summary, which is computed again when they change."""
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE, after_pod_change),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, after_node_change),
        )

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult()

    def passes_all(self, state: ClassState) -> bool:
        return not self._judge(state).filters

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        self._judge(state).reject(nodes)

    def pre_score(self, state: ClassState) -> Status:
        return SUCCESS if has_say(own_terms(state.pod), self._args) else SKIP

    def scores_alike(self, state: ClassState) -> bool:
        return not state.summaries[self.name].get("scored")

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return self._judge(state).scores(nodes)

    def summarize(self, state: ClassState, nodes: NodeView) -> Summary:
        memory = self._memory(state)
        seen = (nodes.version, state.objects.generation(ObjectKind.NAMESPACE))
        if memory.seen != seen:
            memory.summary = self._summarize(state, memory, table_of(nodes))
            memory.seen = seen
        return memory.summary

    def merge(self, one: Summary, other: Summary) -> Summary:
        return merged(one, other)

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        keys = sorted({term.topology_key for term in own_terms(state.pod)})
        return Topology(tuple(keys), tuple(key for key in keys if key != HOSTNAME)) if keys else None

    def tracker(self, pod: Pod, summary: Summary | None, feasible: None, scores: Range | None) -> Tracker | None:
        summary = {} if summary is None else summary
        return AffinityTracker(_rules(pod, self._args, summary), summary, scores)

    # Inside

    def _memory(self, state: ClassState) -> "_Memory":
        memory = state.get(MEMORY)
        if memory is None:
            memory = state[MEMORY] = _Memory()
        return memory

    def _shard(self, state: ClassState, summary: Summary) -> ShardCounts:
        """By the rules as they are with these namespaces."""
        memory = self._memory(state)
        said = (summary.get("namespaces", []), summary.get("labels", {}))
        if memory.shard is None or memory.said != said:
            memory.shard = ShardCounts(_rules(state.pod, self._args, summary))
            memory.said = said
        return memory.shard

    def _judge(self, state: ClassState) -> Judge:
        memory = self._memory(state)
        summary = cast(Summary, state.summaries[self.name])
        if memory.judge is None or memory.judge.summary is not summary:
            memory.judge = Judge(self._shard(state, summary), summary)
        return memory.judge

    def _summarize(self, state: ClassState, memory: "_Memory", table: NodeTable) -> Summary:
        summary = _of_namespaces(state.pod, table.objects)
        if table.shared_hostnames:
            summary["hostnames"] = sorted(table.shared_hostnames)
        return self._shard(state, summary).summarize(table, summary)


class _Memory:
    """What was worked out for one class: for as long as nothing changes, and for as long as the same is believed."""

    def __init__(self) -> None:
        self.seen = (-1, -1)
        self.summary: Summary = {}
        self.said: tuple[list[list[str]], Mapping[str, str]] = ([], {})
        self.shard: ShardCounts | None = None
        self.judge: Judge | None = None


def _rules(pod: Pod, args: InterPodAffinityArgs, summary: Summary) -> Rules:
    return Rules(pod, args, summary.get("namespaces", []), summary.get("labels", {}))


def _of_namespaces(pod: Pod, objects: ClusterObjects) -> Summary:
    """The part of a summary that the cluster's namespaces make."""
    summary: Summary = {}
    namespace = objects.namespaces.get(pod.namespace)
    if namespace is not None and namespace.labels:
        summary["labels"] = namespace.labels
    selecting = selecting_terms(own_terms(pod))
    if selecting:
        summary["namespaces"] = [
            sorted(
                n.name for n in objects.namespaces.values() if label_selector_matches(t.namespace_selector, n.labels)
            )
            for t in selecting
        ]
    return summary


# Queueing hints. Namespace selectors are not looked up: they are matched against no labels, so they mean all or none.

_NO_LABELS: dict[str, str] = {}


def after_pod_change(pod: Pod, before: Pod | None, now: Pod | None, objects: ClusterObjects) -> bool:
    """A pod has come to be what this one wants near, or what keeps this one off is no more."""
    if now is not None and before is not None and now.uid == pod.uid:
        return True
    if (now is not None and not is_placed(now)) or (before is not None and not is_placed(before)):
        return False
    if now is None:
        return before is not None and (
            _means_all(pod, _anti_affinity(pod), before) or _means_all(before, _anti_affinity(before), pod)
        )
    near = _affinity(pod)
    if before is None:
        return _means_all(pod, near, now)
    if _means_all(pod, near, now) and not _means_all(pod, near, before):
        return True
    far = _anti_affinity(pod)
    return _means_all(pod, far, before) and not _means_all(pod, far, now)


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node has joined a domain, or left one, by a label that the pod's terms speak of."""
    near, far = _affinity(pod), _anti_affinity(pod)
    labels = now.metadata.labels
    if before is None:
        return bool(far) or any(term.topology_key in labels for term in near)
    old = before.metadata.labels
    return any(
        term.topology_key in labels and labels[term.topology_key] != old.get(term.topology_key) for term in near
    ) or any(term.topology_key in old and old[term.topology_key] != labels.get(term.topology_key) for term in far)


def _affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return () if affinity is None or affinity.pod_affinity is None else affinity.pod_affinity.required


def _anti_affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return () if affinity is None or affinity.pod_anti_affinity is None else affinity.pod_anti_affinity.required


def _means_all(owner: Pod, terms: Sequence[PodAffinityTerm], other: Pod) -> bool:
    """Whether there are terms, and each of them means the other pod."""
    return bool(terms) and all(_means(owner, term, other) for term in terms)


def _means(owner: Pod, term: PodAffinityTerm, other: Pod) -> bool:
    if term.namespaces:
        named = other.namespace in term.namespaces
    else:
        named = term.namespace_selector is None and other.namespace == owner.namespace
    if not named and not label_selector_matches(term.namespace_selector, _NO_LABELS):
        return False
    return label_selector_matches(term.label_selector, other.metadata.labels)
