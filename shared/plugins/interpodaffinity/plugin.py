"""InterPodAffinity keeps pods near to pods that they want near, and away from those that they, or these, want far.

Summary: see `summary.Summary`. A pod without terms of its own is judged by those of others, which only the merged
summary tells of; so it is not skipped beforehand, but its nodes then cost next to nothing.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
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
from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.terms import encode_terms
from shared.config.args import InterPodAffinityArgs
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import (
    FilterPlugin,
    PodParts,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SummaryPlugin,
    Tracker,
    Verdicts,
)
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import HOSTNAME
from shared.plugins.hints import podaffinity as hints
from shared.plugins.interpodaffinity.counts import ShardCounts
from shared.plugins.interpodaffinity.judging import NOT_AFFINE, NOT_ANTI, Judge
from shared.plugins.interpodaffinity.rules import Rules, has_say, own_terms, selecting_terms
from shared.plugins.interpodaffinity.summary import Summary, merged
from shared.plugins.interpodaffinity.tracker import AffinityTracker


@dataclass(frozen=True, slots=True)
class ScaleRange:
    """The lowest raw score becomes 0 and the highest 100; all become 0 where they are the same."""

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        if low >= high:
            return np.zeros_like(raw)
        # In floats and cut off, as kube-scheduler does it: 29 of 100 makes 28.
        return (MAX_NODE_SCORE * ((raw - low) / (high - low))).astype(np.int64)


class InterPodAffinity(SummaryPlugin, PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "InterPodAffinity"
    reads_of_pod = PodParts.TEMPLATE
    normalizer = ScaleRange()

    def __init__(self, args: InterPodAffinityArgs | None) -> None:
        self._args = InterPodAffinityArgs() if args is None else args

    def signature(self, pod: Pod) -> Hashable:
        return pod.namespace, tuple(sorted(pod.metadata.labels.items())), encode_terms(own_terms(pod))

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        """Namespaces are read into the summary, which is made anew when they change."""
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE, hints.after_pod_change),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, hints.after_node_change),
        )

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        return PreFilterResult()

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        return self._judge(state).verdicts(view)

    def filter_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Verdicts:
        if any(self._judge(state).filters for state in states):
            return super().filter_all(states, which, view)
        return np.zeros(len(view) if which is not None else (len(states), len(view)), dtype=np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        if verdict == NOT_AFFINE:
            return unresolvable("node(s) didn't match pod affinity rules")
        if verdict == NOT_ANTI:
            return unschedulable("node(s) didn't match pod anti-affinity rules")
        return unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

    def pre_score(self, state: CycleState) -> Status:
        return SUCCESS if has_say(own_terms(state.pod), self._args) else SKIP

    def has_no_say(self, state: CycleState) -> bool:
        return not state.summaries[self.name].get("scored")

    def score(self, state: CycleState, view: NodeView) -> Scores:
        return self._judge(state).scores(view)

    def score_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Scores:
        if all(self.has_no_say(state) for state in states):
            return np.zeros(len(view) if which is not None else (len(states), len(view)), dtype=np.int64)
        return super().score_all(states, which, view)

    def summarize(self, state: CycleState, table: NodeTable) -> Any:
        memory = self._memory(state)
        seen = (table.load_log.position, table.objects.generation(ObjectKind.NAMESPACE))
        if memory.seen != seen:
            memory.summary = self._summarize(state, memory, table)
            memory.seen = seen
        return memory.summary

    def merge(self, one: Any, other: Any) -> Any:
        return merged(one, other)

    def topology(self, state: CycleState, table: NodeTable) -> Topology | None:
        keys = sorted({term.topology_key for term in own_terms(state.pod)})
        return Topology(tuple(keys), tuple(key for key in keys if key != HOSTNAME)) if keys else None

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker:
        return AffinityTracker(_rules(pod, self._args, summary), summary, scores)

    # Inside

    def _memory(self, state: CycleState) -> "_Memory":
        memory: _Memory | None = state.read(self.name, "memory")
        if memory is None:
            memory = _Memory()
            state.write(self.name, "memory", memory)
        return memory

    def _shard(self, state: CycleState, summary: Summary) -> ShardCounts:
        """By the rules as they are with these namespaces."""
        memory = self._memory(state)
        said = (summary.get("namespaces", []), summary.get("labels", {}))
        if memory.shard is None or memory.said != said:
            memory.shard = ShardCounts(_rules(state.pod, self._args, summary))
            memory.said = said
        return memory.shard

    def _judge(self, state: CycleState) -> Judge:
        memory = self._memory(state)
        summary = cast(Summary, state.summaries[self.name])
        if memory.judge is None or memory.judge.summary is not summary:
            memory.judge = Judge(self._shard(state, summary), summary)
        return memory.judge

    def _summarize(self, state: CycleState, memory: "_Memory", table: NodeTable) -> Summary:
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
