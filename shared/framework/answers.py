"""Answers: what the filter and score plugins of a profile say about the nodes of a table, cached by signature.

Plugins that read only the node object are asked again when it changed, the others also when a pod came or went.
Plugins that look at one node at a time are asked later, only about nodes that passed all columnar filters.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from flotilla.plugin import (
    BatchFilter,
    BatchScore,
    ClassState,
    DomainFilter,
    FilterPlugin,
    Ints,
    Mask,
    NodeView,
    PerNodeFilter,
    PerNodeScore,
    Reads,
    ScorePlugin,
    Scores,
    StateKey,
)
from shared.cluster.changes import ChangeLog, Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Statuses, TableView
from shared.framework.pod_class import ClassAnswers, PodClass
from shared.framework.profile import Framework, PreFiltered
from shared.framework.result_pool import NOTHING_SEEN, ResultPool
from shared.framework.signatures import key_of
from shared.model.kinds import ObjectKind

PRE_FILTERED = StateKey[PreFiltered]("the outcome of PreFilter")


class AllowedNodes(FilterPlugin):
    """Rejects nodes outside those to which PreFilter plugins restricted the pod; its statuses name no plugin."""

    name = ""
    filter_reads = Reads.NODE

    def cache_key(self, state: ClassState) -> Hashable:
        pre = state[PRE_FILTERED]
        return tuple(sorted(pre.nodes or ())), pre.restricted_by

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        pre = state[PRE_FILTERED]
        nodes.reject(~nodes.named(pre.nodes or ()), pre.outside)


def filtered(
    plugin: FilterPlugin,
    statuses: Statuses,
    states: Sequence[ClassState],
    which: Rows | None,
    view: TableView,
    *,
    open_domains: bool = False,
) -> Ints:
    """The number of the status that rejects each node, 0 if none. Classes x nodes; with `which`, one entry a node."""
    verdicts = np.zeros((len(states), len(view)) if which is None else len(view), dtype=np.int64)
    if isinstance(plugin, BatchFilter):
        view.record(verdicts, statuses)
        plugin.filter_batch(states, which, view)
        return verdicts
    ask = plugin.filter_with_open_domains if open_domains and isinstance(plugin, DomainFilter) else plugin.filter
    if which is None or len(states) == 1:
        for line, state in zip(verdicts if which is None else [verdicts], states, strict=True):
            if not plugin.passes_all(state):
                view.record(line, statuses)
                ask(state, view)
        return verdicts
    for pod, state in enumerate(states):
        if plugin.passes_all(state):
            continue
        at = np.flatnonzero(which == pod)
        if at.size:
            part, line = view.take(at), np.zeros(len(at), dtype=np.int64)
            part.record(line, statuses)
            ask(state, part)
            verdicts[at] = line
    return verdicts


def scored(plugin: ScorePlugin, states: Sequence[ClassState], which: Rows | None, view: TableView) -> Scores:
    """Raw scores: classes x nodes; with `which`, one entry a node."""
    if isinstance(plugin, BatchScore):
        return plugin.score_batch(states, which, view)
    if which is None:
        return np.stack([plugin.score(state, view) for state in states])
    if len(states) == 1:
        return plugin.score(states[0], view)
    scores = np.zeros(len(view), dtype=np.int64)
    for pod, state in enumerate(states):
        at = np.flatnonzero(which == pod)
        scores[at] = plugin.score(state, view.take(at))
    return scores


@dataclass(frozen=True, slots=True)
class _Source:
    """One plugin at one point: how to ask it, and where its answers are cached."""

    pool: ResultPool
    slot: Callable[[PodClass], int]
    ask: Callable[[Sequence[ClassState], TableView], Ints]
    one_by_one: bool


class Answers:
    def __init__(self, table: NodeTable, framework: Framework) -> None:
        self.table = table
        self.filters: list[FilterPlugin] = [AllowedNodes(), *framework.filter]
        self.scores: list[ScorePlugin] = framework.score
        self.filter_pools = [ResultPool(self._log(plugin.filter_reads), table.capacity) for plugin in self.filters]
        self.score_pools = [ResultPool(self._log(plugin.score_reads), table.capacity) for plugin in self.scores]
        self.one_by_one = [f for f, plugin in enumerate(self.filters) if isinstance(plugin, PerNodeFilter)]
        self.filters_by = {reads: [f for f, p in enumerate(self.filters) if p.filter_reads is reads] for reads in Reads}
        self.scores_by = {reads: [s for s, p in enumerate(self.scores) if _changes_with(p) is reads] for reads in Reads}
        for of_kind in self.filters_by.values():  # columnar filters first: they leave fewer nodes to ask about
            of_kind.sort(key=lambda f: isinstance(self.filters[f], PerNodeFilter))
        self._sources = {reads: self._sources_reading(reads) for reads in Reads}
        filter_at = {plugin.name: f for f, plugin in enumerate(self.filters)}
        score_at = {plugin.name: s for s, plugin in enumerate(self.scores)}
        self._summaries = frozenset(framework.summaries)
        self._summarized = [(filter_at.get(name), score_at.get(name), name) for name in framework.summaries]

    def _sources_reading(self, reads: Reads) -> list[_Source]:
        return [self._filter_source(f) for f in self.filters_by[reads]] + [
            self._score_source(s) for s in self.scores_by[reads]
        ]

    def _filter_source(self, f: int) -> _Source:
        plugin, pool = self.filters[f], self.filter_pools[f]

        def ask(states: Sequence[ClassState], view: TableView) -> Ints:
            return filtered(plugin, pool.statuses, states, None, view)

        return _Source(pool, lambda c: int(c.answers.filter_slots[f]), ask, isinstance(plugin, PerNodeFilter))

    def _score_source(self, s: int) -> _Source:
        plugin = self.scores[s]

        def ask(states: Sequence[ClassState], view: TableView) -> Ints:
            return scored(plugin, states, None, view)

        slot = self.score_pools[s]
        return _Source(slot, lambda c: int(c.answers.score_slots[s]), ask, isinstance(plugin, PerNodeScore))

    def acquire(
        self,
        class_id: str,
        state: ClassState,
        filters: list[bool],
        scores: list[bool],
        reads: Mapping[str, Sequence[ObjectKind]],
    ) -> ClassAnswers:
        """A line of answers for each plugin that runs; plugins that are skipped use slot 0.

        Classes share answers by signature, unless these rest on a merged summary, which may differ between classes. If
        a plugin has no usable key, PluginFailed, and no slot is taken.
        """
        plugins: list[FilterPlugin | ScorePlugin] = [*self.filters, *self.scores]
        keys: dict[str, Hashable] = {}  # a plugin that filters and scores is asked once
        for plugin, runs in zip(plugins, (*filters, *scores), strict=True):
            if runs and plugin.name not in keys:
                whose = class_id if plugin.name in self._summaries else None
                key = key_of(plugin, partial(plugin.cache_key, state))
                stamp = tuple(self.table.objects.generation(kind) for kind in reads.get(plugin.name, ()))
                keys[plugin.name] = key, whose, stamp

        def slots(plugins: Sequence[FilterPlugin | ScorePlugin], pools: list[ResultPool], run: list[bool]) -> Rows:
            of_each = zip(plugins, pools, run, strict=True)
            return np.array([pool.acquire(keys[p.name], state) if r else 0 for p, pool, r in of_each], dtype=np.intp)

        return ClassAnswers(
            slots(self.filters, self.filter_pools, filters), slots(self.scores, self.score_pools, scores)
        )

    def lines_per_class(self) -> int:
        """How many lines a class most likely has for itself."""
        of_pods = len(self.filters_by[Reads.PODS]) + len(self.scores_by[Reads.PODS])
        return of_pods + sum((f is not None) + (s is not None) for f, s, _ in self._summarized)

    def release(self, answers: ClassAnswers) -> None:
        for pools, slots in ((self.filter_pools, answers.filter_slots), (self.score_pools, answers.score_slots)):
            for pool, slot in zip(pools, slots, strict=True):
                pool.release(int(slot))

    def fit(self, capacity: int) -> None:
        """The table grew: make the lines as long as it is. Its logs already void what they held."""
        for pool in (*self.filter_pools, *self.score_pools):
            pool.fit(capacity)

    def use_summaries(self, pod_class: PodClass, summaries: dict[str, object]) -> set[Reads]:
        """Answer on these merged summaries from now on. Returns what the affected plugins read."""
        changed: set[Reads] = set()
        before = pod_class.state.summaries
        if before != summaries:
            for f, s, name in self._summarized:
                if before.get(name) != summaries[name]:
                    changed |= self._forget(pod_class.answers, f, s)
            pod_class.state.summaries = dict(summaries)
        if changed:
            state = pod_class.state
            pod_class.answers.muted = frozenset(s for s, plugin in enumerate(self.scores) if plugin.scores_alike(state))
        return changed

    def use_feasible_summaries(self, pod_class: PodClass, summaries: dict[str, object]) -> set[Reads]:
        """The same for the summaries of feasible nodes, on which only scores rest."""
        changed: set[Reads] = set()
        before = pod_class.state.feasible_summaries
        if before != summaries:
            for _, s, name in self._summarized:
                if before.get(name) != summaries.get(name):
                    changed |= self._forget(pod_class.answers, None, s)
            pod_class.state.feasible_summaries = dict(summaries)
        return changed

    def _forget(self, answers: ClassAnswers, f: int | None, s: int | None) -> set[Reads]:
        reads: set[Reads] = set()
        if f is not None and answers.filter_slots[f]:
            self.filter_pools[f].forget(int(answers.filter_slots[f]))
            reads.add(self.filters[f].filter_reads)
        if s is not None and answers.score_slots[s]:
            self.score_pools[s].forget(int(answers.score_slots[s]))
            reads.add(_changes_with(self.scores[s]))
        return reads

    def update(self, classes: Sequence[PodClass], reads: Reads) -> None:
        """Bring the answers of the plugins that read this up to the table's present state."""
        views: dict[tuple[int, int], TableView] = {}
        for source in self._sources[reads]:
            pool = source.pool
            for slots, view in self._stale(pool, {source.slot(c) for c in classes}, views):
                if source.one_by_one:
                    pool.mark_unknown(slots, view.index)
                elif view.is_whole:
                    for slot in slots:
                        pool.values[slot, view.index] = source.ask([pool.state(slot)], view)[0]
                elif len(view):
                    pool.store(slots, view.rows, source.ask([pool.state(slot) for slot in slots], view))

    def _stale(
        self, pool: ResultPool, slots: set[int], views: dict[tuple[int, int], TableView]
    ) -> Iterator[tuple[list[int], TableView]]:
        """The slots that missed changes, with a view of the rows that they missed; up to date once handled.

        Plugins that missed the same changes share one view, and so its columns.
        """
        for seen, group in pool.stale(slots).items():
            missed = (id(pool.log), seen)
            if missed not in views:
                rows = None if seen == NOTHING_SEEN else pool.log.since(seen)
                views[missed] = TableView(self.table, rows)
            yield group, views[missed]
            pool.caught_up(group)

    def _log(self, reads: Reads) -> ChangeLog:
        return self.table.node_log if reads is Reads.NODE else self.table.load_log


def _changes_with(scorer: ScorePlugin) -> Reads:
    """A plugin that is only asked about feasible nodes has something new to say whenever a pod comes or goes."""
    return Reads.PODS if isinstance(scorer, PerNodeScore) else scorer.score_reads


def of_pairs(
    ask: Callable[[Rows, TableView], Ints],
    runs: Sequence[bool],
    which: Rows,
    view: TableView,
    among: Mask | None = None,
) -> Ints:
    """A plugin's answers for pairs of class and node; 0 where it does not run, and outside `among`."""
    if among is None and all(runs):
        return ask(which, view)
    wanted = np.array(runs)[which]
    at = np.flatnonzero(wanted if among is None else wanted & among)
    answers = np.zeros(len(which), dtype=np.int64)
    if at.size:
        answers[at] = ask(which[at], view.take(at))
    return answers
