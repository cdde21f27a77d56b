"""Feasibility: which rows of a table a class of pods can go to, and how the feasible ones spread over raw scores."""

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from flotilla.results import Range
from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable
from shared.framework.answers import Answers
from shared.framework.keymatrix import KeyMatrix, Mask, lines
from shared.framework.nominated import KeptRoom
from shared.framework.pernode import PerNodeFilter, PerNodeScore
from shared.framework.plugin import Reads
from shared.framework.podclass import PodClass, by_missed, rows_since
from shared.framework.results import NOTHING_SEEN, UNKNOWN
from shared.framework.view import NodeView

MOST_FLIPPED = 64
"""Where more rows than this have become feasible or ceased to be so, raw scores are counted anew."""


class Feasibility:
    def __init__(self, table: NodeTable, answers: Answers, matrix: KeyMatrix, kept_room: KeptRoom) -> None:
        self.table = table
        self._kept_room = kept_room
        self.answers = answers
        self._matrix = matrix
        scores = answers.scores
        self._all_ranged = [s for s, plugin in enumerate(scores) if plugin.normalizer is not None]
        self._loaded_ranges = [s for s in self._all_ranged if scores[s].score_reads is Reads.LOAD]
        self._ranged = [s for s in self._all_ranged if scores[s].score_reads is Reads.NODE]
        self._one_by_one = any(isinstance(p, PerNodeFilter | PerNodeScore) for p in (*answers.filters, *scores))

    def refresh(self, classes: Sequence[PodClass]) -> None:
        """Brings feasibility, and the ranges of raw scores, up to the table's present state."""
        position, node_position = self.table.load_log.position, self.table.node_log.position
        behind = [c for c in classes if c.seen != position]
        if not behind:
            return
        moved = [c for c in behind if c.node_seen != node_position]
        if moved:
            self.answers.update(moved, Reads.NODE)
        for pod_class in moved:
            self._settle(pod_class)
        self.answers.update(behind, Reads.LOAD)
        for rows, group in by_missed(behind, _SEEN, self.table.load_log):
            self._judge(group, rows)
        for pod_class in moved:
            self._tally_anew(pod_class)
            pod_class.node_seen = node_position
        for pod_class in behind:
            pod_class.seen = position

    def rows(self, pod_class: PodClass) -> Mask:
        line: Mask = self._matrix.feasible[pod_class.slot, : self.table.size]
        return line

    def ranges(self, pod_class: PodClass) -> dict[str, Range]:
        """Of a refreshed class: the lowest and the highest raw score of its feasible nodes, by plugin."""
        ranges = {
            self.answers.scores[s].name: (min(tally), max(tally))
            for s in self._ranged
            if (tally := pod_class.tallies.get(s))
        }
        for s in self._loaded_ranges:
            found = self._range(pod_class, s, self.rows(pod_class))
            if found is not None:
                ranges[self.answers.scores[s].name] = found
        return ranges

    def ranges_among(self, pod_class: PodClass, rows: Rows) -> dict[str, Range]:
        """The same for some of the feasible rows."""
        found = {self.answers.scores[s].name: self._range(pod_class, s, rows) for s in self._all_ranged}
        return {name: range_ for name, range_ in found.items() if range_ is not None}

    def closed_rows(self, pod_class: PodClass) -> Rows:
        """The rows that only the present state of domains is against, which the decisions of a round may change."""
        opening = [f for f in self.answers.filters_by[Reads.LOAD] if self.answers.filters[f].opens]
        running = [f for f in opening if pod_class.filter_slots[f]]
        if not running:
            return np.empty(0, dtype=np.intp)
        size = self.table.size
        closed = self._matrix.settled[pod_class.slot, :size] & ~self.rows(pod_class)
        for f in self.answers.filters_by[Reads.LOAD]:
            slot = pod_class.filter_slots[f]
            if slot and f not in running and not isinstance(self.answers.filters[f], PerNodeFilter):
                closed &= self.answers.filter_pools[f].values[slot, :size] == 0
        for node in self.table.nominations:  # room that is kept there is not looked at here
            row = self.table.row_of(node)
            if row is not None:
                closed[row] = False
        rows = np.flatnonzero(closed)
        for f in running:
            plugin, slot = self.answers.filters[f], int(pod_class.filter_slots[f])
            state = self.answers.filter_pools[f].state(slot)
            rows = rows[plugin.filter_open(state, NodeView(self.table, rows)) == 0] if rows.size else rows
        return self._let_in_one_by_one(pod_class, rows)

    # Inside

    def _settle(self, pod_class: PodClass) -> None:
        """What the plugins that read only node objects say, for rows whose object changed."""
        rows = rows_since(self.table.node_log, pod_class.node_seen)
        if rows is None:
            pod_class.seen = NOTHING_SEEN
        index = self._matrix.index(rows)
        settled = self.table.valid[index].copy()
        for f in self.answers.filters_by[Reads.NODE]:
            slot = pod_class.filter_slots[f]
            if slot and not isinstance(self.answers.filters[f], PerNodeFilter):
                settled &= self.answers.filter_pools[f].values[slot, index] == 0
        self._matrix.settled[pod_class.slot, index] = settled

    def _judge(self, classes: list[PodClass], rows: Rows | None) -> None:
        """Feasibility of some rows (all when None), with the counts that go with it."""
        index = self._matrix.index(rows)
        slots = [c.slot for c in classes]
        feasible = lines(self._matrix.settled, slots, index).copy()
        for f in self.answers.filters_by[Reads.LOAD]:
            of_classes = [int(c.filter_slots[f]) for c in classes]
            if any(of_classes) and not isinstance(self.answers.filters[f], PerNodeFilter):
                feasible &= self.answers.filter_pools[f].read(of_classes, index) == 0
        if self._one_by_one:
            for pod_class, line in zip(classes, feasible, strict=True):
                self._ask_one_by_one(pod_class, rows, line)
        if self.table.nominations:
            for pod_class, line in zip(classes, feasible, strict=True):
                self._kept_room.refuse(pod_class, rows, line)
        before = lines(self._matrix.feasible, slots, index)
        flipped = feasible != before
        if rows is not None and not flipped.any():
            return
        gained = feasible.sum(axis=1) - before.sum(axis=1) if rows is not None else feasible.sum(axis=1)
        for i, pod_class in enumerate(classes):
            pod_class.feasible = int(gained[i]) + (0 if rows is None else pod_class.feasible)
        if len(slots) == 1:
            self._matrix.feasible[slots[0], index] = feasible[0]
        else:
            self._matrix.feasible[np.array(slots, dtype=np.intp)[:, None], index] = feasible
        for i, pod_class in enumerate(classes):
            self._tally(pod_class, rows, feasible[i], flipped[i])

    def _let_in_one_by_one(self, pod_class: PodClass, rows: Rows) -> Rows:
        """Those of the rows in closed domains that the plugins which look at one node at a time let the pod onto.

        Such a plugin may fail on a node that it need not be asked about yet; then only nodes that it has let through
        before are offered, and its failure shows once a domain is open.
        """
        try:
            return self._passed_one_by_one(pod_class, rows)
        except Exception:
            for f, plugin in enumerate(self.answers.filters):
                if isinstance(plugin, PerNodeFilter) and (slot := int(pod_class.filter_slots[f])):
                    rows = rows[self.answers.filter_pools[f].values[slot, rows] == 0]
            return rows

    def _passed_one_by_one(self, pod_class: PodClass, rows: Rows) -> Rows:
        """The rows that every plugin which looks at one node at a time lets the pod onto; asked where not known."""
        for f, plugin in enumerate(self.answers.filters):
            slot = int(pod_class.filter_slots[f])
            if isinstance(plugin, PerNodeFilter) and slot:
                pool = self.answers.filter_pools[f]
                unasked = rows[pool.values[slot, rows] == UNKNOWN]
                if unasked.size:
                    pool.values[slot, unasked] = plugin.filter(pool.state(slot), NodeView(self.table, unasked))
                rows = rows[pool.values[slot, rows] == 0]
        return rows

    def _ask_one_by_one(self, pod_class: PodClass, rows: Rows | None, feasible: Mask) -> None:
        """Lets plugins that look at one node at a time judge the rows that no other filter rejected."""
        answers, at = self.answers, np.flatnonzero(feasible)
        asked = at if rows is None else rows[at]
        here = self._passed_one_by_one(pod_class, asked)
        feasible[at[~np.isin(asked, here, assume_unique=True)]] = False
        for s, scorer in enumerate(answers.scores):
            slot = int(pod_class.score_slots[s])
            if isinstance(scorer, PerNodeScore) and slot:
                pool = answers.score_pools[s]
                unasked = here[pool.values[slot, here] == UNKNOWN]
                if unasked.size:
                    pool.values[slot, unasked] = scorer.score(pool.state(slot), NodeView(self.table, unasked))

    def _tally(self, pod_class: PodClass, rows: Rows | None, feasible: Mask, flipped: Mask) -> None:
        """Keeps the counts of raw scores over feasible nodes, for as long as no node object changes."""
        if pod_class.node_seen != self.table.node_log.position:
            return  # node objects have changed as well: counted anew when all is judged
        if not pod_class.tallies or np.count_nonzero(flipped) > MOST_FLIPPED:
            self._tally_anew(pod_class)
            return
        for s in self._ranged:
            tally = pod_class.tallies.get(s)
            if tally is None:
                continue
            raw = self.answers.score_pools[s].values[pod_class.score_slots[s]]
            for i in np.flatnonzero(flipped).tolist():
                value = int(raw[i if rows is None else rows[i]])
                tally[value] = tally.get(value, 0) + (1 if feasible[i] else -1)
                if tally[value] == 0:
                    del tally[value]

    def _range(self, pod_class: PodClass, s: int, rows: Rows | Mask) -> Range | None:
        """Of a score that changes with every placement, or over some rows only: looked for, not kept."""
        if not pod_class.weights[s] or s in pod_class.mute:
            return None
        raw = self.answers.score_pools[s].values[pod_class.score_slots[s], : self.table.size][rows]
        unranged = self.answers.scores[s].unranged
        if unranged is not None:
            raw = raw[raw != unranged]
        return (int(raw.min()), int(raw.max())) if raw.size else None

    def _tally_anew(self, pod_class: PodClass) -> None:
        for s in self._ranged:
            if pod_class.weights[s]:
                raw = self.answers.score_pools[s].values[pod_class.score_slots[s], : self.table.size]
                values, counts = np.unique(raw[self.rows(pod_class)], return_counts=True)
                pod_class.tallies[s] = dict(zip(values.tolist(), counts.tolist(), strict=True))


_SEEN: Callable[[PodClass], int] = attrgetter("seen")
