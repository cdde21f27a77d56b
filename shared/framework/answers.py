"""Answers: what the filter and score plugins of a profile say about the nodes of a table, cached by signature.

Plugins that read only the node object are asked again when it changed, the others also when a pod came or went.
Plugins that look at one node at a time are asked later, only about nodes that passed all columnar filters.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import numpy as np

from flotilla.nodes import Ints, Mask, NodeView
from flotilla.plugin import (
    BatchFilter,
    BatchScore,
    ClassState,
    DomainFilter,
    FilterPlugin,
    LazyFilter,
    LazyScore,
    Reads,
    ScorePlugin,
    Scores,
    StateKey,
)
from shared.cluster.columns import NOTHING_SEEN, ChangeLog, Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Statuses, TableView
from shared.framework.metering import FILTER, SCORE, PluginMeter
from shared.framework.narrow import NarrowLines
from shared.framework.pod_class import ClassAnswers, PodClass
from shared.framework.profile import Framework, PreFiltered
from shared.framework.signatures import PluginFailed, key_of, named
from shared.model.kinds import ObjectKind
from shared.plugins.dynamicresources import DynamicResources

UNKNOWN = -1
"""The plugin was not asked about this row yet, or the reason of its rejection was forgotten.

A plugin whose score is this number is asked again, which costs time and no more.
"""
_UNKNOWN = np.array([UNKNOWN])
MAX_STATUSES = 1 << 14

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
    with named(plugin, "filter"):
        return _filtered(plugin, statuses, states, which, view, open_domains=open_domains)


def _filtered(
    plugin: FilterPlugin,
    statuses: Statuses,
    states: Sequence[ClassState],
    which: Rows | None,
    view: TableView,
    *,
    open_domains: bool,
) -> Ints:
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
    with named(plugin, "score"):
        return _scored(plugin, states, which, view)


def _scored(plugin: ScorePlugin, states: Sequence[ClassState], which: Rows | None, view: TableView) -> Scores:
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


def scores_alike(plugin: ScorePlugin, state: ClassState) -> bool:
    """Whether the plugin scores all nodes alike, so that it need not be asked."""
    with named(plugin, "scores_alike"):
        return plugin.scores_alike(state)


class ResultPool:
    """What one plugin answered for every row of a table, one line per signature.

    Slot 0 holds 0 for every row; it stands in for a skipped plugin. Filters answer with the number of the status that
    rejects a row, 0 if none does; scores with the raw score.
    """

    def __init__(self, log: ChangeLog, capacity: int) -> None:
        self.log = log
        self.statuses = Statuses()
        self.values = NarrowLines(4, capacity)
        self.seen: list[int] = [NOTHING_SEEN]
        self.states: list[ClassState | None] = [None]
        self._slots: dict[Hashable, int] = {}
        self._signatures: list[Hashable] = [None]
        self._users: list[int] = [1]
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(self, signature: Hashable, state: ClassState) -> int:
        """The slot for a signature; the first state that comes with a signature is the one plugins are asked with."""
        if len(self.statuses) > MAX_STATUSES:
            self.values.replace_positive(UNKNOWN)
            self.statuses = Statuses()
        slot = self._slots.get(signature)
        if slot is None:
            if self._free:
                slot = self._free.pop()
            else:
                slot = len(self.seen)
                if slot == self.values.lines:
                    self.values.add_lines(slot)
                self.seen.append(NOTHING_SEEN)
                self.states.append(None)
                self._signatures.append(None)
                self._users.append(0)
            self._slots[signature] = slot
            self._signatures[slot] = signature
            self.states[slot] = state
            self.seen[slot] = NOTHING_SEEN
        self._users[slot] += 1
        return slot

    def release(self, slot: int) -> None:
        if slot == 0:
            return
        self._users[slot] -= 1
        if self._users[slot] == 0:
            del self._slots[self._signatures[slot]]
            self.states[slot] = None
            self._free.append(slot)

    def state(self, slot: int) -> ClassState:
        state = self.states[slot]
        if state is None:
            raise LookupError(f"slot {slot} is not in use")
        return state

    def stale(self, slots: set[int]) -> dict[int, list[int]]:
        """The slots that have not seen every change, grouped by the position they have seen."""
        position = self.log.position
        groups: dict[int, list[int]] = {}
        for slot in slots:
            if slot and self.seen[slot] != position:
                groups.setdefault(self.seen[slot], []).append(slot)
        return groups

    def read(self, slots: list[int], index: Rows | slice) -> Ints:
        """Lines of answers; a single one to be broadcast if all slots are the same."""
        if slots.count(slots[0]) == len(slots):
            return self.values.read(slots[0], index)[None, :]
        return self.values.read(slots, index)

    def passes(self, slots: list[int], index: Rows | slice) -> Mask:
        """Of a filter: which rows it does not reject; shaped as by `read`."""
        if slots.count(slots[0]) == len(slots):
            return self.values.zeros(slots[0], index)[None, :]
        return self.values.zeros(slots, index)

    def store(self, slots: list[int], rows: Rows, answers: Ints) -> None:
        if len(slots) == 1:
            self.values.write(slots[0], rows, answers[0])
        else:
            self.values.write(slots, rows, answers)

    def fit(self, capacity: int) -> None:
        """Start over with lines of another length."""
        if self.values.width != capacity:
            self.values = NarrowLines(self.values.lines, capacity)


class Answers:
    def __init__(self, table: NodeTable, framework: Framework, meter: PluginMeter) -> None:
        self.table = table
        self._meter = meter
        self.filters: list[FilterPlugin] = [AllowedNodes(), *framework.filter]
        self.scores: list[ScorePlugin] = framework.score
        self.filter_pools = [ResultPool(self._log(plugin.filter_reads), table.capacity) for plugin in self.filters]
        self.score_pools = [ResultPool(self._log(plugin.score_reads), table.capacity) for plugin in self.scores]
        self.one_by_one = [f for f, plugin in enumerate(self.filters) if isinstance(plugin, LazyFilter)]
        self.filters_by = {reads: [f for f, p in enumerate(self.filters) if p.filter_reads is reads] for reads in Reads}
        self.scores_by = {reads: [s for s, p in enumerate(self.scores) if _changes_with(p) is reads] for reads in Reads}
        for of_kind in self.filters_by.values():  # columnar filters first: they leave fewer nodes to ask about
            of_kind.sort(key=lambda f: isinstance(self.filters[f], LazyFilter))
        self.scores_of_claims = [s for s, plugin in enumerate(self.scores) if isinstance(plugin, DynamicResources)]
        """Scores by what a node's devices still have for the class, which each placement there changes."""
        self._claim_scorer = next((each for each in self.scores if isinstance(each, DynamicResources)), None)
        filter_at = {plugin.name: f for f, plugin in enumerate(self.filters)}
        score_at = {plugin.name: s for s, plugin in enumerate(self.scores)}
        self._summaries = frozenset(framework.summaries)
        self._summarized = [(filter_at.get(name), score_at.get(name), name) for name in framework.summaries]

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
            slots(self.filters, self.filter_pools, filters),
            slots(self.scores, self.score_pools, scores),
            self._without_alternatives(state),
        )

    def _without_alternatives(self, state: ClassState) -> frozenset[int]:
        """Scores of claims are 0 on every node then, so that no node need be asked."""
        devices = self._claim_scorer
        return frozenset() if devices is None or devices.has_alternatives(state) else frozenset(self.scores_of_claims)

    def bytes_per_row_and_class(self) -> int:
        """At most, if the class shares what reads only node objects with others, and runs all plugins."""
        pools = [self.filter_pools[f] for f in self.filters_by[Reads.PODS]]
        pools += [self.score_pools[s] for s in self.scores_by[Reads.PODS]]
        for f, s, _ in self._summarized:
            pools += [self.filter_pools[f]] if f is not None else []
            pools += [self.score_pools[s]] if s is not None else []
        return sum(pool.values.bytes_per_number for pool in pools)

    def bytes_per_row(self) -> int:
        """Of all classes that are known."""
        return sum(len(pool) * pool.values.bytes_per_number for pool in (*self.filter_pools, *self.score_pools))

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
        state = pod_class.state
        before = state.summaries
        if before == summaries:
            return set()
        changed: set[Reads] = set()
        for f, s, name in self._summarized:
            if before.get(name) != summaries[name]:
                changed |= self._forget(pod_class.answers, f, s)
        state.summaries = dict(summaries)
        if changed:
            try:
                alike = frozenset(s for s, plugin in enumerate(self.scores) if scores_alike(plugin, state))
            except PluginFailed:
                state.summaries = before  # so that the next use of the same summaries asks again
                raise
            pod_class.answers.muted = alike | self._without_alternatives(state)
        return changed

    def use_feasible_summaries(self, pod_class: PodClass, summaries: dict[str, object]) -> set[Reads]:
        """The same for the summaries of feasible nodes, on which only scores rest."""
        before = pod_class.state.feasible_summaries
        if before == summaries:
            return set()
        changed: set[Reads] = set()
        for _, s, name in self._summarized:
            if before.get(name) != summaries.get(name):
                changed |= self._forget(pod_class.answers, None, s)
        pod_class.state.feasible_summaries = dict(summaries)
        return changed

    def _forget(self, answers: ClassAnswers, f: int | None, s: int | None) -> set[Reads]:
        reads: set[Reads] = set()
        if f is not None and answers.filter_slots[f]:
            self.filter_pools[f].seen[answers.filter_slots[f]] = NOTHING_SEEN
            reads.add(self.filters[f].filter_reads)
        if s is not None and answers.score_slots[s]:
            self.score_pools[s].seen[answers.score_slots[s]] = NOTHING_SEEN
            reads.add(_changes_with(self.scores[s]))
        return reads

    def update(self, classes: Sequence[PodClass], reads: Reads) -> None:
        """Bring the answers of the plugins that read this up to the table's present state."""
        views: dict[tuple[int, int], TableView] = {}
        for f in self.filters_by[reads]:
            plugin, pool = self.filters[f], self.filter_pools[f]
            slots = {int(c.answers.filter_slots[f]) for c in classes}
            began = self._meter.start()
            if self._update(pool, slots, views, partial(filtered, plugin, pool.statuses), f in self.one_by_one):
                self._meter.stop(plugin.name, FILTER, began)
        for s in self.scores_by[reads]:
            scorer, pool = self.scores[s], self.score_pools[s]
            slots = {int(c.answers.score_slots[s]) for c in classes}
            began = self._meter.start()
            if self._update(pool, slots, views, partial(scored, scorer), isinstance(scorer, LazyScore)):
                self._meter.stop(scorer.name, SCORE, began)

    def _update(
        self,
        pool: ResultPool,
        slots: set[int],
        views: dict[tuple[int, int], TableView],
        ask: Callable[[Sequence[ClassState], None, TableView], Ints],
        one_by_one: bool,
    ) -> bool:
        """Ask about the rows that changed; returns whether any did.

        Plugins that missed the same changes share one view, and so its columns.
        """
        asked = False
        for seen, group in pool.stale(slots).items():
            missed = (id(pool.log), seen)
            view = views.get(missed)
            if view is None:
                view = views[missed] = TableView(self.table, pool.log.since(seen))
            if one_by_one:
                for slot in group:
                    pool.values.write(slot, view.index, _UNKNOWN)
            elif view.is_whole:
                for slot in group:
                    pool.values.write(slot, view.index, ask([pool.state(slot)], None, view)[0])
            elif len(view):
                pool.store(group, view.rows, ask([pool.state(slot) for slot in group], None, view))
            asked = asked or (len(view) > 0 and not one_by_one)
            for slot in group:
                pool.seen[slot] = pool.log.position
        return asked

    def _log(self, reads: Reads) -> ChangeLog:
        return self.table.node_log if reads is Reads.NODE else self.table.load_log


def _changes_with(scorer: ScorePlugin) -> Reads:
    """A plugin that is only asked about feasible nodes has something new to say whenever a pod comes or goes."""
    return Reads.PODS if isinstance(scorer, LazyScore) else scorer.score_reads


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
