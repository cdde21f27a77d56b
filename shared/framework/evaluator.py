"""ShardEvaluator: filters and scores the nodes of one table for classes of pods, incrementally.

Three levels, each recomputed only for rows that changed since it was last looked at:
plugin answers (a ResultPool per plugin, a line per signature) -> feasibility per class -> keys per class (the total
score and the tie key in one integer). The highest key of every block of rows is kept, so that the best node of a
class is found without looking at all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import ChangeLog, Rows
from shared.cluster.load import load_of
from shared.cluster.nodetable import NodeTable
from shared.errors import InvalidConfig
from shared.framework.allowednodes import AllowedNodes
from shared.framework.cyclestate import CycleState
from shared.framework.keymatrix import KeyMatrix
from shared.framework.ladder import greedy
from shared.framework.normalize import MAX_NODE_SCORE, Scores
from shared.framework.pernode import PerNodeFilter, PerNodeScore
from shared.framework.plugin import FilterPlugin, Reads, ScorePlugin
from shared.framework.podclass import PodClass
from shared.framework.profile import Framework
from shared.framework.results import NOTHING_SEEN, UNKNOWN, ResultPool
from shared.framework.status import Code
from shared.framework.summary import Range, Summary
from shared.framework.tiebreak import KEY_BITS, NameRanks, Ties, random_ties
from shared.framework.view import NodeView
from shared.model.objects import Pod

Mask = NDArray[np.bool_]

Item = TypeVar("Item", bound=np.generic)

FEWEST_TIE_BITS = 21


class ShardEvaluator:
    def __init__(self, table: NodeTable, framework: Framework, ties: Ties) -> None:
        self.table = table
        self.framework = framework
        self.ties = ties
        self.tie_bits = _tie_bits(framework)
        self.filters: list[FilterPlugin] = [AllowedNodes(), *framework.filter]
        self.filter_pools = [ResultPool(self._log(p.filter_reads), table.capacity) for p in self.filters]
        self.scores: list[ScorePlugin] = framework.score
        self.score_pools = [ResultPool(self._log(p.score_reads), table.capacity) for p in self.scores]
        self._ranged = [s for s, plugin in enumerate(self.scores) if plugin.normalizer is not None]
        filter_at = {plugin.name: f for f, plugin in enumerate(self.filters)}
        score_at = {plugin.name: s for s, plugin in enumerate(self.scores)}
        self._summarized = [(filter_at.get(name), score_at.get(name), name) for name in framework.summaries]
        self._matrix = KeyMatrix(table)
        self._ranks = NameRanks(table)

    # Classes

    def prepare(self, class_id: str, pod: Pod) -> PodClass:
        """Runs what needs no node (PreFilter, PreScore) and makes room for the answers."""
        state = CycleState(pod)
        pre = self.framework.run_pre_filter(state)
        failure = pre.rejection if pre.rejection is not None and pre.rejection.code is Code.ERROR else None
        if pre.rejection is None:
            status = self.framework.run_pre_score(state)
            failure = None if status.ok else status
        AllowedNodes.restrict(state, pre)
        looked_at = pre.rejection is None and failure is None
        skip_filter = state.skip_filter if pre.nodes is not None else state.skip_filter | {AllowedNodes.name}
        filters = [looked_at and plugin.name not in skip_filter for plugin in self.filters]
        scores = [looked_at and plugin.name not in state.skip_score for plugin in self.scores]
        self._fit_pools()
        return PodClass(
            id=class_id,
            state=state,
            pre=pre,
            failure=failure,
            kind=self.table.kind(load_of(pod)),
            salt=np.uint64(self.ties.salt(class_id)),
            slot=self._matrix.acquire(),
            filter_slots=_slots(self.filters, self.filter_pools, filters, state),
            score_slots=_slots(self.scores, self.score_pools, scores, state),
            weights=np.array(self.framework.weights, dtype=np.int64) * scores,
        )

    def release(self, pod_class: PodClass) -> None:
        self._matrix.release(pod_class.slot)
        for pools, slots in ((self.filter_pools, pod_class.filter_slots), (self.score_pools, pod_class.score_slots)):
            for pool, slot in zip(pools, slots, strict=True):
                pool.release(int(slot))

    def bytes_per_class(self) -> int:
        """An upper bound of what one more class costs in memory."""
        return (len(self.filters) + len(self.scores) + 2) * 8 * self.table.capacity

    # Summaries

    def summarize(self, pod_class: PodClass) -> dict[str, object]:
        """The plugins' own summaries of this shard's nodes."""
        return {n: plugin.summarize(pod_class.state, self.table) for n, plugin in self.framework.summaries.items()}

    def believe(self, pod_class: PodClass, summaries: dict[str, object]) -> None:
        """Evaluate on these merged summaries from now on."""
        versions: list[int] = []
        for pool, slot, name in self._summary_lines(pod_class):
            state = pool.state(slot)
            if name not in state.summaries or state.summaries[name] != summaries[name]:
                state.summaries[name] = summaries[name]
                pool.forget(slot)
            versions.append(pool.versions[slot])
        pod_class.state.summaries.update(summaries)
        if pod_class.versions != versions:
            pod_class.versions = versions
            pod_class.seen = pod_class.keyed = NOTHING_SEEN

    # Feasibility

    def refresh(self, classes: Sequence[PodClass]) -> None:
        """Brings feasibility, and the ranges of raw scores, up to the table's present state."""
        self._fit_pools()
        views: dict[tuple[int, int], NodeView] = {}
        for f, plugin in enumerate(self.filters):
            self._update_filter(plugin, self.filter_pools[f], {int(c.filter_slots[f]) for c in classes}, views)
        for s, scorer in enumerate(self.scores):
            self._update_score(scorer, self.score_pools[s], {int(c.score_slots[s]) for c in classes}, views)
        position = self.table.load_log.position
        for seen, group in _grouped(classes, "seen", position).items():
            rows = None if seen == NOTHING_SEEN else self.table.load_log.since(seen)
            if rows is None:
                for pod_class in group:
                    self._settle([pod_class], None)
            elif rows.size:
                self._settle(group, rows)
            for pod_class in group:
                pod_class.seen = position
                pod_class.node_seen = self.table.node_log.position

    def summary(self, pod_class: PodClass, plugins: dict[str, object], among: Mask | None = None) -> Summary:
        """What this shard contributes to the merged summary of a refreshed class; `among` limits its nodes."""
        if among is not None:
            feasible = int(np.count_nonzero(self.feasible_rows(pod_class) & among))
            ranges = self._ranges_among(pod_class, among)
            return Summary(nodes=self.table.node_count, feasible=feasible, plugins=plugins, ranges=ranges)
        ranges = {}
        for s in self._ranged:
            tally = pod_class.tallies.get(s)
            if tally:
                ranges[self.scores[s].name] = (min(tally), max(tally))
        return Summary(nodes=self.table.node_count, feasible=pod_class.feasible, plugins=plugins, ranges=ranges)

    # Ranking

    def rank(self, classes: Sequence[PodClass], ranges: Sequence[dict[str, Range]]) -> None:
        """Brings the keys of refreshed classes up to date, scores being normalised over the given ranges."""
        for pod_class, wanted in zip(classes, ranges, strict=True):
            if pod_class.ranges != wanted:
                pod_class.ranges = wanted
                pod_class.keyed = NOTHING_SEEN
        position = self.table.load_log.position
        for keyed, group in _grouped(classes, "keyed", position).items():
            rows = None if keyed == NOTHING_SEEN else self.table.load_log.since(keyed)
            for part in [group] if rows is not None else [[c] for c in group]:
                if rows is None or rows.size:
                    slots = np.array([c.slot for c in part], dtype=np.intp)
                    self._matrix.write(slots, rows, self._keys(part, rows))
            for pod_class in group:
                pod_class.keyed = position

    def ladder(self, pod_class: PodClass, wanted: int, among: Mask | None = None) -> tuple[Rows, NDArray[np.int64]]:
        """Up to `wanted` placements of a ranked class in greedy order: rows and keys; `among` limits the rows."""
        rows, keys = self._matrix.best(pod_class.slot, wanted, among)
        if not rows.size:
            return rows, keys
        owner, taken = greedy(keys, wanted, lambda which, own: self._keys_with_own(pod_class, rows[which], own))
        return rows[owner], taken

    def feasible_rows(self, pod_class: PodClass) -> Mask:
        return self._matrix.feasible[pod_class.slot, : self.table.size]

    def _ranges_among(self, pod_class: PodClass, among: Mask) -> dict[str, Range]:
        chosen = np.flatnonzero(self.feasible_rows(pod_class) & among)
        if not chosen.size:
            return {}
        ranges: dict[str, Range] = {}
        for s in self._ranged:
            if pod_class.weights[s]:
                raw = self.score_pools[s].values[pod_class.score_slots[s], chosen]
                ranges[self.scores[s].name] = (int(raw.min()), int(raw.max()))
        return ranges

    def normalized(self, pod_class: PodClass, s: int, raw: Scores) -> Scores:
        """The weighted score that the s-th score plugin gives for these raw scores."""
        normalizer = self.scores[s].normalizer
        if normalizer is not None:
            raw = normalizer(raw, *(pod_class.ranges or {}).get(self.scores[s].name, (0, 0)))
        weighted: Scores = raw * pod_class.weights[s]
        return weighted

    # Inside: plugin answers

    def _summary_lines(self, pod_class: PodClass) -> Iterator[tuple[ResultPool, int, str]]:
        """Where this class's answers stand that depend on a merged summary."""
        for f, s, name in self._summarized:
            if f is not None and pod_class.filter_slots[f]:
                yield self.filter_pools[f], int(pod_class.filter_slots[f]), name
            if s is not None and pod_class.score_slots[s]:
                yield self.score_pools[s], int(pod_class.score_slots[s]), name

    def _update_filter(self, plugin: FilterPlugin, pool: ResultPool, slots: set[int], views: "_Views") -> None:
        for seen, group in pool.stale(slots).items():
            rows = pool.rows_since(seen)
            if isinstance(plugin, PerNodeFilter):
                _mark_unknown(pool, group, rows)
            elif rows is None:
                for slot in group:
                    pool.values[slot, : self.table.size] = plugin.filter(pool.state(slot), NodeView(self.table))
            elif rows.size:
                view = self._view(views, pool.log, seen, rows)
                _store(pool, group, rows, plugin.filter_many([pool.state(slot) for slot in group], view))
            for slot in group:
                pool.seen[slot] = pool.log.position

    def _update_score(self, plugin: ScorePlugin, pool: ResultPool, slots: set[int], views: "_Views") -> None:
        for seen, group in pool.stale(slots).items():
            rows = pool.rows_since(seen)
            if isinstance(plugin, PerNodeScore):
                _mark_unknown(pool, group, rows)
            elif rows is None:
                for slot in group:
                    pool.values[slot, : self.table.size] = plugin.score(pool.state(slot), NodeView(self.table))
            elif rows.size:
                view = self._view(views, pool.log, seen, rows)
                _store(pool, group, rows, plugin.score_many([pool.state(slot) for slot in group], view))
            for slot in group:
                pool.seen[slot] = pool.log.position

    def _view(self, views: "_Views", log: ChangeLog, seen: int, rows: Rows) -> NodeView:
        """Plugins that missed the same changes share one view, and so its gathered columns."""
        key = (id(log), seen)
        if key not in views:
            views[key] = NodeView(self.table, rows)
        return views[key]

    # Inside: classes

    def _settle(self, classes: list[PodClass], rows: Rows | None) -> None:
        slots = np.array([c.slot for c in classes], dtype=np.intp)
        feasible = self._feasible(classes, rows)
        index = rows if rows is not None else slice(0, self.table.size)
        before = _take(self._matrix.feasible, slots, index)
        for i, pod_class in enumerate(classes):
            self._ask_about_nodes(pod_class, np.flatnonzero(feasible[i]), rows, feasible[i])
            gained = int(np.count_nonzero(feasible[i]))
            pod_class.feasible = (
                gained if rows is None else pod_class.feasible + gained - int(np.count_nonzero(before[i]))
            )
        _put(self._matrix.feasible, slots, index, feasible)
        for i, pod_class in enumerate(classes):
            self._tally(pod_class, rows, before[i], feasible[i])

    def _feasible(self, classes: list[PodClass], rows: Rows | None) -> Mask:
        index = rows if rows is not None else slice(0, self.table.size)
        feasible = np.repeat(self.table.valid[index][None, :], len(classes), axis=0)
        for f, pool in enumerate(self.filter_pools):
            slots = [int(c.filter_slots[f]) for c in classes]
            if any(slots) and not isinstance(self.filters[f], PerNodeFilter):
                feasible &= _answers(pool, slots, index) == 0
        return feasible

    def _ask_about_nodes(self, pod_class: PodClass, at: Rows, rows: Rows | None, feasible: Mask) -> None:
        """Lets the one-node-at-a-time plugins judge the rows (at `at` in `feasible`) that no other filter rejected."""
        for f, plugin in enumerate(self.filters):
            slot = int(pod_class.filter_slots[f])
            if not isinstance(plugin, PerNodeFilter) or not slot:
                continue
            here = at if rows is None else rows[at]
            pool = self.filter_pools[f]
            unasked = here[pool.values[slot, here] == UNKNOWN]
            if unasked.size:
                pool.values[slot, unasked] = plugin.filter(pool.state(slot), NodeView(self.table, unasked))
            fits = pool.values[slot, here] == 0
            feasible[at[~fits]] = False
            at = at[fits]
        here = at if rows is None else rows[at]
        for s, scorer in enumerate(self.scores):
            slot = int(pod_class.score_slots[s])
            if isinstance(scorer, PerNodeScore) and slot:
                pool = self.score_pools[s]
                unasked = here[pool.values[slot, here] == UNKNOWN]
                if unasked.size:
                    pool.values[slot, unasked] = scorer.score(pool.state(slot), NodeView(self.table, unasked))

    def _tally(self, pod_class: PodClass, rows: Rows | None, before: Mask, after: Mask) -> None:
        """Keeps the counts of raw scores over feasible nodes."""
        anew = rows is None or pod_class.node_seen != self.table.node_log.position
        for s in self._ranged:
            if not pod_class.weights[s]:
                continue
            raw = self.score_pools[s].values[pod_class.score_slots[s]]
            if anew or self.scores[s].score_reads is Reads.LOAD:
                values, counts = np.unique(raw[: self.table.size][self.feasible_rows(pod_class)], return_counts=True)
                pod_class.tallies[s] = dict(zip(values.tolist(), counts.tolist(), strict=True))
            elif rows is not None:
                tally = pod_class.tallies[s]
                for i in np.flatnonzero(before != after):
                    value = int(raw[rows[i]])
                    tally[value] = tally.get(value, 0) + (1 if after[i] else -1)
                    if not tally[value]:
                        del tally[value]

    # Inside: keys

    def _keys(self, classes: list[PodClass], rows: Rows | None) -> NDArray[np.int64]:
        index = rows if rows is not None else slice(0, self.table.size)
        feasible = _take(self._matrix.feasible, np.array([c.slot for c in classes], dtype=np.intp), index)
        totals = np.zeros(feasible.shape, dtype=np.int64)
        for s, pool in enumerate(self.score_pools):
            slots = [int(c.score_slots[s]) for c in classes]
            if not any(slots):
                continue
            raw = _answers(pool, slots, index)
            if self.scores[s].normalizer is None:
                totals += raw * np.array([[c.weights[s]] for c in classes], dtype=np.int64)
            else:
                lines = raw if len(raw) == len(classes) else np.broadcast_to(raw, totals.shape)
                for i, pod_class in enumerate(classes):
                    if pod_class.weights[s]:
                        totals[i] += self.normalized(pod_class, s, lines[i])
        if not self.scores:
            totals += 1
        return self._pack(
            totals, feasible, NodeView(self.table, rows), np.array([[c.salt] for c in classes], dtype=np.uint64)
        )

    def _keys_with_own(self, pod_class: PodClass, rows: Rows, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """The keys of feasible rows, if `own` pods of the class were on each of them already."""
        view = NodeView(self.table, rows, own=own, own_kind=pod_class.kind)
        feasible = np.ones(len(rows), dtype=np.bool_)
        for plugin, pool, slot in zip(self.filters, self.filter_pools, pod_class.filter_slots, strict=True):
            if slot and plugin.filter_reads is Reads.LOAD:
                feasible &= plugin.filter(pool.state(int(slot)), view) == 0
        totals = np.zeros(len(rows), dtype=np.int64)
        for s, scorer in enumerate(self.scores):
            slot, pool = int(pod_class.score_slots[s]), self.score_pools[s]
            if slot:
                depends = scorer.score_reads is Reads.LOAD
                raw = scorer.score(pool.state(slot), view) if depends else pool.values[slot, rows]
                totals += self.normalized(pod_class, s, raw)
        if not self.scores:
            totals += 1
        return self._pack(totals, feasible, view, pod_class.salt)

    def _pack(self, totals: Scores, feasible: Mask, view: NodeView, salts: object) -> NDArray[np.int64]:
        if self.ties.mode == "name":
            ties = self._ranks.of(view.rows)
        else:
            ties = random_ties(view, np.asarray(salts, dtype=np.uint64), self.tie_bits)
        return np.where(feasible, (totals << self.tie_bits) | ties, -1)

    def _fit_pools(self) -> None:
        """The table grew: make the lines as long as it is; its logs already void what they held."""
        capacity = self.table.capacity
        self._matrix.fit(capacity)
        for pool in (*self.filter_pools, *self.score_pools):
            if pool.values.shape[1] != capacity:
                pool.values = np.zeros((pool.values.shape[0], capacity), dtype=np.int64)

    def _log(self, reads: Reads) -> ChangeLog:
        return self.table.node_log if reads is Reads.NODE else self.table.load_log


_Views = dict[tuple[int, int], NodeView]


def _tie_bits(framework: Framework) -> int:
    highest = max(1, MAX_NODE_SCORE * sum(framework.weights))
    bits = KEY_BITS - highest.bit_length()
    if bits < FEWEST_TIE_BITS:
        raise InvalidConfig(f"profiles[{framework.name}].plugins.score", "the weights add up to too much")
    return min(bits, 52)


def _slots(
    plugins: Sequence[FilterPlugin | ScorePlugin], pools: list[ResultPool], run: list[bool], state: CycleState
) -> NDArray[np.intp]:
    """Where each plugin's answers stand; 0 for a plugin that is not run."""
    return np.array(
        [
            pool.acquire(plugin.cache_key(state), state) if runs else 0
            for plugin, pool, runs in zip(plugins, pools, run, strict=True)
        ],
        dtype=np.intp,
    )


def _grouped(classes: Iterable[PodClass], attribute: str, position: int) -> dict[int, list[PodClass]]:
    """The classes that are not up to `position`, by how far they are."""
    groups: dict[int, list[PodClass]] = {}
    for pod_class in classes:
        at: int = getattr(pod_class, attribute)
        if at != position:
            groups.setdefault(at, []).append(pod_class)
    return groups


def _mark_unknown(pool: ResultPool, slots: list[int], rows: Rows | None) -> None:
    for slot in slots:
        pool.values[slot, slice(None) if rows is None else rows] = UNKNOWN


def _store(pool: ResultPool, slots: list[int], rows: Rows, answers: NDArray[np.int64]) -> None:
    _put(pool.values, np.array(slots, dtype=np.intp), rows, answers)


def _answers(pool: ResultPool, slots: list[int], index: Rows | slice) -> NDArray[np.int64]:
    """Lines of answers; just one where all slots are the same."""
    if slots.count(slots[0]) == len(slots):
        return pool.values[slots[0], index][None, :]
    return _take(pool.values, np.array(slots, dtype=np.intp), index)


def _take(matrix: NDArray[Item], slots: NDArray[np.intp], index: Rows | slice) -> NDArray[Item]:
    if len(slots) == 1:
        return matrix[slots[0], index][None, :]
    return matrix[slots, index] if isinstance(index, slice) else matrix[slots[:, None], index]


def _put(matrix: NDArray[Item], slots: NDArray[np.intp], index: Rows | slice, values: NDArray[Item]) -> None:
    if len(slots) == 1:
        matrix[slots[0], index] = values[0]
    elif isinstance(index, slice):
        matrix[slots, index] = values
    else:
        matrix[slots[:, None], index] = values
