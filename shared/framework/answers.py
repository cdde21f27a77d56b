"""Answers: what the filter and score plugins of a profile say about the nodes of a table, kept for each signature.

Plugins that read only the node object are asked again when that changed, the others also when a pod came or went.
Plugins that look at one node at a time are not asked here but when the classes know which nodes passed all others.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import ChangeLog, Rows
from shared.cluster.nodetable import NodeTable
from shared.framework.allowednodes import AllowedNodes
from shared.framework.cyclestate import CycleState
from shared.framework.pernode import PerNodeFilter, PerNodeScore
from shared.framework.plugin import FilterPlugin, Reads, ScorePlugin
from shared.framework.podclass import PodClass
from shared.framework.podreads import key_of
from shared.framework.profile import Framework
from shared.framework.results import NOTHING_SEEN, ResultPool
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind

Slots = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Source:
    """One plugin at one point: how it is asked, and where its answers are kept."""

    pool: ResultPool
    slot: Callable[[PodClass], int]
    ask: Callable[[CycleState, NodeView], NDArray[np.int64]]
    ask_all: Callable[[Sequence[CycleState], Rows | None, NodeView], NDArray[np.int64]]
    one_by_one: bool


class Answers:
    def __init__(self, table: NodeTable, framework: Framework) -> None:
        self.table = table
        self.filters: list[FilterPlugin] = [AllowedNodes(), *framework.filter]
        self.scores: list[ScorePlugin] = framework.score
        self.filter_pools = [ResultPool(self._log(plugin.filter_reads), table.capacity) for plugin in self.filters]
        self.score_pools = [ResultPool(self._log(plugin.score_reads), table.capacity) for plugin in self.scores]
        self.filters_by = {reads: [f for f, p in enumerate(self.filters) if p.filter_reads is reads] for reads in Reads}
        self.scores_by = {reads: [s for s, p in enumerate(self.scores) if _changes_with(p) is reads] for reads in Reads}
        for of_kind in self.filters_by.values():  # the others first: they spare questions about single nodes
            of_kind.sort(key=lambda f: isinstance(self.filters[f], PerNodeFilter))
        self._sources = {reads: self._sources_reading(reads) for reads in Reads}
        filter_at = {plugin.name: f for f, plugin in enumerate(self.filters)}
        score_at = {plugin.name: s for s, plugin in enumerate(self.scores)}
        self._summaries = frozenset(framework.summaries)
        self._summarized = [(filter_at.get(name), score_at.get(name), name) for name in framework.summaries]

    def _sources_reading(self, reads: Reads) -> list[_Source]:
        filters = ((f, self.filters[f]) for f in self.filters_by[reads])
        scores = ((s, self.scores[s]) for s in self.scores_by[reads])
        return [
            _Source(
                self.filter_pools[f],
                _filter_slot(f),
                plugin.filter,
                plugin.filter_all,
                isinstance(plugin, PerNodeFilter),
            )
            for f, plugin in filters
        ] + [
            _Source(
                self.score_pools[s], _score_slot(s), plugin.score, plugin.score_all, isinstance(plugin, PerNodeScore)
            )
            for s, plugin in scores
        ]

    def acquire(
        self,
        class_id: str,
        state: CycleState,
        filters: list[bool],
        scores: list[bool],
        reads: Mapping[str, Sequence[ObjectKind]],
    ) -> tuple[Slots, Slots]:
        """Where the plugins' answers for a class stand, in each pool; 0 for a plugin that is not run.

        Classes share answers by signature, unless these rest on a merged summary: what one class believes at the
        moment must not show in another's answers. If a plugin has no usable key, PluginFailed, and no slot is taken.
        """
        plugins: list[FilterPlugin | ScorePlugin] = [*self.filters, *self.scores]
        keys: dict[str, Hashable] = {}  # a plugin that filters and scores is asked once
        for plugin, runs in zip(plugins, (*filters, *scores), strict=True):
            if runs and plugin.name not in keys:
                whose = class_id if plugin.name in self._summaries else None
                key = key_of(plugin, partial(plugin.cache_key, state))
                keys[plugin.name] = key, whose, self._stamp(reads.get(plugin.name, ()))

        def slots(plugins: Sequence[FilterPlugin | ScorePlugin], pools: list[ResultPool], run: list[bool]) -> Slots:
            of_each = zip(plugins, pools, run, strict=True)
            return np.array([pool.acquire(keys[p.name], state) if r else 0 for p, pool, r in of_each], dtype=np.intp)

        return slots(self.filters, self.filter_pools, filters), slots(self.scores, self.score_pools, scores)

    def _stamp(self, kinds: Sequence[ObjectKind]) -> tuple[int, ...]:
        """Answers that rest on objects are shared for as long as these are what they were."""
        return tuple(self.table.objects.generation(kind) for kind in kinds)

    def lines_per_class(self) -> int:
        """How many lines a class most likely has for itself."""
        of_loads = len(self.filters_by[Reads.LOAD]) + len(self.scores_by[Reads.LOAD])
        return of_loads + sum((f is not None) + (s is not None) for f, s, _ in self._summarized)

    def release(self, pod_class: PodClass) -> None:
        for pools, slots in ((self.filter_pools, pod_class.filter_slots), (self.score_pools, pod_class.score_slots)):
            for pool, slot in zip(pools, slots, strict=True):
                pool.release(int(slot))

    def fit(self, capacity: int) -> None:
        """The table grew: make the lines as long as it is; its logs already void what they held."""
        for pool in (*self.filter_pools, *self.score_pools):
            pool.fit(capacity)

    def believe(self, pod_class: PodClass, summaries: dict[str, object]) -> set[Reads]:
        """Answer on these merged summaries from now on. What do the plugins read whose answers may change?"""
        changed: set[Reads] = set()
        before = pod_class.state.summaries
        if before != summaries:
            for f, s, name in self._summarized:
                if before.get(name) != summaries[name]:
                    changed |= self._forget(pod_class, f, s)
            pod_class.state.summaries = dict(summaries)
        return changed

    def believe_late(self, pod_class: PodClass, late: dict[str, object]) -> set[Reads]:
        """The same for the summaries of feasible nodes, which only scores rest on."""
        changed: set[Reads] = set()
        before = pod_class.state.late
        if before != late:
            for _, s, name in self._summarized:
                if before.get(name) != late.get(name):
                    changed |= self._forget(pod_class, None, s)
            pod_class.state.late = dict(late)
        return changed

    def _forget(self, pod_class: PodClass, f: int | None, s: int | None) -> set[Reads]:
        """The answers of a plugin to a class are to be computed from nothing; what do they depend on?"""
        reads: set[Reads] = set()
        if f is not None and pod_class.filter_slots[f]:
            self.filter_pools[f].forget(int(pod_class.filter_slots[f]))
            reads.add(self.filters[f].filter_reads)
        if s is not None and pod_class.score_slots[s]:
            self.score_pools[s].forget(int(pod_class.score_slots[s]))
            reads.add(_changes_with(self.scores[s]))
        return reads

    def update(self, classes: Sequence[PodClass], reads: Reads) -> None:
        """Brings the answers of the plugins that read this up to the table's present state."""
        views: dict[tuple[int, int], NodeView] = {}
        for source in self._sources[reads]:
            pool = source.pool
            for slots, view in self._stale(pool, {source.slot(c) for c in classes}, views):
                if source.one_by_one:
                    pool.mark_unknown(slots, view.index)
                elif view.is_whole:
                    for slot in slots:
                        pool.values[slot, view.index] = source.ask(pool.state(slot), view)
                elif len(view):
                    pool.store(slots, view.rows, source.ask_all([pool.state(slot) for slot in slots], None, view))

    def _stale(
        self, pool: ResultPool, slots: set[int], views: dict[tuple[int, int], NodeView]
    ) -> Iterator[tuple[list[int], NodeView]]:
        """The slots that missed changes, with a view of the rows that they missed; up to date once handled.

        Plugins that missed the same changes share one view, and so its gathered columns.
        """
        for seen, group in pool.stale(slots).items():
            missed = (id(pool.log), seen)
            if missed not in views:
                rows = None if seen == NOTHING_SEEN else pool.log.since(seen)
                views[missed] = NodeView(self.table, rows)
            yield group, views[missed]
            pool.caught_up(group)

    def _log(self, reads: Reads) -> ChangeLog:
        return self.table.node_log if reads is Reads.NODE else self.table.load_log


def _filter_slot(f: int) -> Callable[[PodClass], int]:
    return lambda pod_class: int(pod_class.filter_slots[f])


def _score_slot(s: int) -> Callable[[PodClass], int]:
    return lambda pod_class: int(pod_class.score_slots[s])


def _changes_with(scorer: ScorePlugin) -> Reads:
    """A plugin that is only asked about feasible nodes has something new to say whenever a pod comes or goes."""
    return Reads.LOAD if isinstance(scorer, PerNodeScore) else scorer.score_reads
