"""ShardEvaluator: filters and scores the nodes of one table for classes of pods, incrementally.

Three levels, each recomputed only for rows that changed since it was last looked at: what plugins answer (Answers),
which nodes are feasible for a class (Feasibility), and the class's keys (Ranking). What only a changed node object can
change is kept apart, so that a placement costs the plugins that read loads and little more. On top stand the ladders.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.load import load_of
from shared.cluster.nodetable import NodeTable
from shared.framework.allowednodes import AllowedNodes
from shared.framework.answers import Answers
from shared.framework.cyclestate import CycleState
from shared.framework.feasibility import Feasibility
from shared.framework.keymatrix import KeyMatrix, Keys, Mask
from shared.framework.ladder import greedy
from shared.framework.normalize import Scores
from shared.framework.podclass import PodClass
from shared.framework.profile import Framework
from shared.framework.ranking import Ranking
from shared.framework.results import NOTHING_SEEN
from shared.framework.status import SUCCESS, Code
from shared.framework.summary import Range, Summary
from shared.framework.tiebreak import Ties
from shared.model.objects import Pod


class Rungs(NamedTuple):
    """Placements of one class in greedy order. `complete`: after them no node of the table has room for one more."""

    rows: Rows
    keys: Keys
    complete: bool


class ShardEvaluator:
    def __init__(self, table: NodeTable, framework: Framework, ties: Ties) -> None:
        self.table = table
        self.framework = framework
        self.ties = ties
        self.answers = Answers(table, framework)
        self._matrix = KeyMatrix(table)
        self._feasibility = Feasibility(table, self.answers, self._matrix)
        self._ranking = Ranking(table, framework, ties, self.answers, self._matrix)
        self.tie_bits = self._ranking.tie_bits
        self._capacity = table.capacity

    # Classes

    def prepare(self, class_id: str, pod: Pod) -> PodClass:
        """Runs what needs no node (PreFilter, PreScore) and makes room for the answers."""
        state = CycleState(pod)
        pre = self.framework.run_pre_filter(state)
        failure = pre.rejection if pre.rejection is not None and pre.rejection.code is Code.ERROR else None
        pre_score = SUCCESS if pre.rejection is not None else self.framework.run_pre_score(state)
        AllowedNodes.restrict(state, pre)
        looked_at = pre.rejection is None
        skip_filter = state.skip_filter if pre.nodes is not None else state.skip_filter | {AllowedNodes.name}
        filters = [looked_at and plugin.name not in skip_filter for plugin in self.answers.filters]
        scored = looked_at and pre_score.ok
        scores = [scored and plugin.name not in state.skip_score for plugin in self.answers.scores]
        self._fit()
        filter_slots, score_slots = self.answers.acquire(class_id, state, filters, scores)
        return PodClass(
            id=class_id,
            state=state,
            pre=pre,
            failure=failure,
            score_failure=None if pre_score.ok else pre_score,
            kind=self.table.kind(load_of(pod)),
            salt=np.uint64(self.ties.salt(class_id)),
            slot=self._matrix.acquire(),
            filter_slots=filter_slots,
            score_slots=score_slots,
            weights=[weight if runs else 0 for weight, runs in zip(self.framework.weights, scores, strict=True)],
        )

    def release(self, pod_class: PodClass) -> None:
        self._matrix.release(pod_class.slot)
        self.answers.release(pod_class)

    def bytes_per_class(self) -> int:
        """About what one more class costs in memory, if it shares what reads only node objects with others."""
        return (self.answers.lines_per_class() + KeyMatrix.LINES_PER_CLASS) * 8 * self.table.capacity

    # Summaries

    def summarize(self, pod_class: PodClass) -> dict[str, object]:
        """The plugins' own summaries of this shard's nodes."""
        return {n: plugin.summarize(pod_class.state, self.table) for n, plugin in self.framework.summaries.items()}

    def believe(self, pod_class: PodClass, summaries: dict[str, object]) -> None:
        """Evaluate on these merged summaries from now on."""
        if self.answers.believe(pod_class, summaries):
            pod_class.seen = pod_class.node_seen = pod_class.keyed = pod_class.node_keyed = NOTHING_SEEN

    def summary(self, pod_class: PodClass, plugins: dict[str, object], among: Mask | None = None) -> Summary:
        """What this shard contributes to the merged summary of a refreshed class; `among` limits its nodes."""
        if among is not None:
            chosen = np.flatnonzero(self._feasibility.rows(pod_class) & among)
            ranges = self._feasibility.ranges_among(pod_class, chosen)
            return Summary(nodes=self.table.node_count, feasible=len(chosen), plugins=plugins, ranges=ranges)
        ranges = self._feasibility.ranges(pod_class)
        return Summary(nodes=self.table.node_count, feasible=pod_class.feasible, plugins=plugins, ranges=ranges)

    # Evaluating

    def refresh(self, classes: Sequence[PodClass]) -> None:
        """Brings feasibility, and the ranges of raw scores, up to the table's present state."""
        self._fit()
        self._feasibility.refresh(classes)

    def feasible_rows(self, pod_class: PodClass) -> Mask:
        return self._feasibility.rows(pod_class)

    def rank(self, classes: Sequence[PodClass], ranges: Sequence[dict[str, Range]]) -> None:
        """Brings the keys of refreshed classes up to date, scores being normalised over the given ranges."""
        self._ranking.rank(classes, ranges)

    def weighted_scores(self, pod_class: PodClass, s: int, rows: Rows) -> Scores:
        """What the s-th score plugin contributes to the total of these feasible rows."""
        return self._ranking.weighted_scores(pod_class, s, rows)

    def ladders(self, classes: Sequence[PodClass], wanted: Sequence[int], among: Sequence[Mask | None]) -> list[Rungs]:
        """For each ranked class up to so many placements in greedy order; `among` limits the rows."""
        best = [self._matrix.best(c.slot, n, mask) for c, n, mask in zip(classes, wanted, among, strict=True)]
        sizes = [len(rows) for rows, _ in best]
        if not any(sizes) or all(n == 1 for n in wanted):
            return [Rungs(rows, keys, len(rows) < n) for (rows, keys), n in zip(best, wanted, strict=True)]
        rows = np.concatenate([of_class for of_class, _ in best])
        group = np.repeat(np.arange(len(classes), dtype=np.intp), sizes)

        def lookahead(which: Rows, own: NDArray[np.int64]) -> Keys:
            return self._ranking.keys_with_own(classes, group[which], rows[which], own)

        counts = np.array(wanted, dtype=np.int64)
        owner, keys, fills = greedy(np.concatenate([of_class for _, of_class in best]), group, counts, lookahead)
        ends = np.searchsorted(group[owner], np.arange(1, len(classes) + 1)).tolist()
        placed = rows[owner]
        found: list[Rungs] = []
        for i, (pod_class, start, end) in enumerate(zip(classes, [0, *ends[:-1]], ends, strict=True)):
            valid, moves = self._until_ranges_move(pod_class, placed[start:end], fills[start:end])
            complete = not moves and end - start < wanted[i]
            found.append(Rungs(placed[start : start + valid], keys[start : start + valid], complete))
        return found

    def _until_ranges_move(self, pod_class: PodClass, rows: Rows, fills: Mask) -> tuple[int, bool]:
        """How many of these placements it takes until the last feasible node with an extreme raw score is full.

        From then on scores are normalised over another range, and what follows in any ladder is void.
        """
        upto, moves = len(rows), False
        for s, tally in pod_class.tallies.items():
            low, high = (pod_class.ranges or {}).get(self.answers.scores[s].name, (0, 0))
            if low == high or not pod_class.weights[s]:
                continue
            raw = self.answers.score_pools[s].values[pod_class.score_slots[s]]
            left = dict(tally)
            for place in np.flatnonzero(fills[:upto]).tolist():
                value = int(raw[rows[place]])
                left[value] -= 1
                if left[value] == 0 and value in (low, high):
                    upto, moves = place + 1, True
                    break
        return upto, moves

    def _fit(self) -> None:
        """The table may have grown."""
        if self._capacity != self.table.capacity:
            self._capacity = self.table.capacity
            self._matrix.fit(self._capacity)
            self.answers.fit(self._capacity)
