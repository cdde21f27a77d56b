"""Feasibility: which rows of a table a class of pods can go to, and the raw scores of the feasible ones."""

from collections.abc import Sequence

import numpy as np

from flotilla.plugin import LazyFilter, LazyScore, Mask, Reads, Scores
from flotilla.results import Range
from shared.cluster.columns import NOTHING_SEEN, Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import TableView
from shared.framework.answers import UNKNOWN, Answers, scored
from shared.framework.judge import Judge
from shared.framework.pod_class import ClassRows, PodClass, by_missed, lines

MAX_FLIPPED = 64
"""If more rows than this have changed their feasibility, raw scores are counted from nothing."""


class Feasibility:
    def __init__(self, table: NodeTable, answers: Answers, class_rows: ClassRows, judge: Judge) -> None:
        self.table = table
        self.answers = answers
        self._class_rows = class_rows
        self._judge_rows = judge
        scores = answers.scores
        self._all_ranged = [s for s, plugin in enumerate(scores) if plugin.normalizer is not None]
        self._loaded_ranges = [s for s in self._all_ranged if scores[s].score_reads is Reads.PODS]
        self._ranged = [s for s in self._all_ranged if scores[s].score_reads is Reads.NODE]
        self._lazy_scores = [s for s, plugin in enumerate(scores) if isinstance(plugin, LazyScore)]
        self._one_by_one = bool(answers.one_by_one or self._lazy_scores)

    def refresh(self, classes: Sequence[PodClass]) -> None:
        """Bring feasibility, and the ranges of raw scores, up to the table's present state."""
        position, node_position = self.table.load_log.position, self.table.node_log.position
        behind = [c for c in classes if c.feasibility.seen != position]
        if not behind:
            return
        moved = [c for c in behind if c.feasibility.node_seen != node_position]
        if moved:
            self.answers.update(moved, Reads.NODE)
        for pod_class in moved:
            self._settle(pod_class)
        self.answers.update(behind, Reads.PODS)
        for rows, group in by_missed(behind, lambda c: c.feasibility.seen, self.table.load_log):
            self._judge(group, rows)
        for pod_class in moved:
            self._recount(pod_class)
            pod_class.feasibility.node_seen = node_position
        for pod_class in behind:
            pod_class.feasibility.seen = position

    def rows(self, pod_class: PodClass) -> Mask:
        line: Mask = self._class_rows.feasible[pod_class.slot, : self.table.size]
        return line

    def ranges(self, pod_class: PodClass) -> dict[str, Range]:
        """Of a refreshed class: the lowest and the highest raw score of its feasible nodes, by plugin."""
        ranges = {
            self.answers.scores[s].name: (min(tally), max(tally))
            for s in self._ranged
            if (tally := pod_class.feasibility.tallies.get(s))
        }
        for s in self._loaded_ranges:
            found = self._range(pod_class, s, None)
            if found is not None:
                ranges[self.answers.scores[s].name] = found
        return ranges

    def ranges_among(self, pod_class: PodClass, rows: Rows) -> dict[str, Range]:
        """The same over some of the feasible rows."""
        found = {self.answers.scores[s].name: self._range(pod_class, s, rows) for s in self._all_ranged}
        return {name: range_ for name, range_ in found.items() if range_ is not None}

    def closed_rows(self, pod_class: PodClass) -> Rows:
        """Rows rejected only because their topology domain is currently closed; a round's decisions may open it."""
        size, slot = self.table.size, pod_class.slot
        settled_only = self._class_rows.settled[slot, :size] & ~self._class_rows.feasible[slot, :size]
        return self._judge_rows.rows_in_closed_domains(pod_class, np.flatnonzero(settled_only))

    # Inside

    def _settle(self, pod_class: PodClass) -> None:
        """Apply the filters that read only node objects to the rows whose object changed."""
        rows = self.table.node_log.since(pod_class.feasibility.node_seen)
        if rows is None:
            pod_class.feasibility.seen = NOTHING_SEEN
        index = self._class_rows.index(rows)
        settled = self.table.valid[index].copy()
        for f in self.answers.filters_by[Reads.NODE]:
            slot = pod_class.answers.filter_slots[f]
            if slot and not isinstance(self.answers.filters[f], LazyFilter):
                settled &= self.answers.filter_pools[f].values.zeros(int(slot), index)
        self._class_rows.settled[pod_class.slot, index] = settled

    def _judge(self, classes: list[PodClass], rows: Rows | None) -> None:
        """Feasibility of some rows (all when None), and the counts that follow from it."""
        index = self._class_rows.index(rows)
        slots = [c.slot for c in classes]
        feasible = lines(self._class_rows.settled, slots, index).copy()
        for f in self.answers.filters_by[Reads.PODS]:
            of_classes = [int(c.answers.filter_slots[f]) for c in classes]
            if any(of_classes) and not isinstance(self.answers.filters[f], LazyFilter):
                feasible &= self.answers.filter_pools[f].passes(of_classes, index)
        if self._one_by_one:
            for pod_class, line in zip(classes, feasible, strict=True):
                if self._asks_lazily(pod_class):
                    self._ask_one_by_one(pod_class, rows, line)
        if self.table.nominations:
            for pod_class, line in zip(classes, feasible, strict=True):
                self._judge_rows.reserve(pod_class, rows, line)
        before = lines(self._class_rows.feasible, slots, index)
        flipped = feasible != before
        if rows is not None and not flipped.any():
            return
        gained = feasible.sum(axis=1) - before.sum(axis=1) if rows is not None else feasible.sum(axis=1)
        for i, pod_class in enumerate(classes):
            pod_class.feasibility.count = int(gained[i]) + (0 if rows is None else pod_class.feasibility.count)
        if len(slots) == 1:
            self._class_rows.feasible[slots[0], index] = feasible[0]
        else:
            self._class_rows.feasible[np.array(slots, dtype=np.intp)[:, None], index] = feasible
        for i, pod_class in enumerate(classes):
            self._tally(pod_class, rows, feasible[i], flipped[i])

    def _asks_lazily(self, pod_class: PodClass) -> bool:
        filters, scores = pod_class.answers.filter_slots, pod_class.answers.score_slots
        muted = pod_class.answers.muted
        asked = any(scores[s] and s not in muted for s in self._lazy_scores)
        return asked or any(filters[f] for f in self.answers.one_by_one)

    def _ask_one_by_one(self, pod_class: PodClass, rows: Rows | None, feasible: Mask) -> None:
        """Ask plugins that look at one node at a time about the rows that no other filter rejected."""
        answers, at = self.answers, np.flatnonzero(feasible)
        asked = at if rows is None else rows[at]
        passes = self._judge_rows.passes_one_by_one(pod_class, asked)
        feasible[at[~passes]] = False
        here = asked[passes]
        for s, scorer in enumerate(answers.scores):
            slot = int(pod_class.answers.score_slots[s])
            if isinstance(scorer, LazyScore) and slot:
                pool = answers.score_pools[s]
                unknown = here[pool.values.read(slot, here) == UNKNOWN]
                if unknown.size:
                    view = TableView(self.table, unknown)
                    pool.values.write(slot, unknown, scored(scorer, [pool.state(slot)], None, view)[0])

    def _tally(self, pod_class: PodClass, rows: Rows | None, feasible: Mask, flipped: Mask) -> None:
        """Update the counts of raw scores over feasible nodes, unless node objects have changed as well."""
        if pod_class.feasibility.node_seen != self.table.node_log.position:
            return  # counted from nothing once all is judged
        if not pod_class.feasibility.tallies or np.count_nonzero(flipped) > MAX_FLIPPED:
            self._recount(pod_class)
            return
        for s in self._ranged:
            tally = pod_class.feasibility.tallies.get(s)
            if tally is None:
                continue
            at = np.flatnonzero(flipped)
            raw = self._raw(pod_class, s, at if rows is None else rows[at])
            for i, value in zip(at.tolist(), raw.tolist(), strict=True):
                tally[value] = tally.get(value, 0) + (1 if feasible[i] else -1)
                if tally[value] == 0:
                    del tally[value]

    def _raw(self, pod_class: PodClass, s: int, rows: Rows | None) -> Scores:
        """Of these rows, or of all feasible ones."""
        index = np.flatnonzero(self.rows(pod_class)) if rows is None else rows
        return self.answers.score_pools[s].values.read(int(pod_class.answers.score_slots[s]), index)

    def _range(self, pod_class: PodClass, s: int, rows: Rows | None) -> Range | None:
        """Of a score that changes with every placement, or over some rows only: computed, not kept."""
        if not pod_class.weights[s] or s in pod_class.answers.muted:
            return None
        raw = self._raw(pod_class, s, rows)
        unranged = self.answers.scores[s].unranged
        if unranged is not None:
            raw = raw[raw != unranged]
        return (int(raw.min()), int(raw.max())) if raw.size else None

    def _recount(self, pod_class: PodClass) -> None:
        for s in self._ranged:
            if pod_class.weights[s]:
                raw = self._raw(pod_class, s, None)
                values, counts = np.unique(raw, return_counts=True)
                pod_class.feasibility.tallies[s] = dict(zip(values.tolist(), counts.tolist(), strict=True))
