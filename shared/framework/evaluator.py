"""ShardEvaluator: filters and scores the nodes of one table for classes of pods, incrementally.

Three levels, each recomputed only for rows that changed since it was last looked at: what plugins answer (Answers),
which nodes are feasible for a class, and the class's keys, the total score and the tie key in one integer. What only a
changed node object can change is kept apart, so that a placement costs the plugins that read loads and little more.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.load import load_of
from shared.cluster.nodetable import PODS, NodeTable
from shared.errors import InvalidConfig
from shared.framework.allowednodes import AllowedNodes
from shared.framework.answers import Answers
from shared.framework.cyclestate import CycleState
from shared.framework.keymatrix import KeyMatrix, Keys, Mask
from shared.framework.ladder import greedy
from shared.framework.normalize import MAX_NODE_SCORE, ScoreOutOfRange, Scores
from shared.framework.pernode import PerNodeFilter, PerNodeScore
from shared.framework.plugin import Reads
from shared.framework.podclass import PodClass
from shared.framework.profile import Framework
from shared.framework.results import NOTHING_SEEN, UNKNOWN
from shared.framework.status import SUCCESS, Code
from shared.framework.summary import Range, Summary
from shared.framework.tiebreak import KEY_BITS, NameRanks, Ties, random_ties
from shared.framework.view import NodeView, Own
from shared.model.objects import Pod

Item = TypeVar("Item", bound=np.generic)

FEWEST_TIE_BITS = 21
MOST_TIE_BITS = 52


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
        self.tie_bits = _tie_bits(framework)
        self.answers = Answers(table, framework)
        scores = self.answers.scores
        self._ranged = [s for s, plugin in enumerate(scores) if plugin.normalizer is not None]
        self._loaded_ranges = [s for s in self._ranged if scores[s].score_reads is Reads.LOAD]
        self._one_by_one = any(isinstance(p, PerNodeFilter | PerNodeScore) for p in (*self.answers.filters, *scores))
        self._matrix = KeyMatrix(table)
        self._ranks = NameRanks(table)

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
            chosen = np.flatnonzero(self.feasible_rows(pod_class) & among)
            ranges = self._ranges_of(pod_class, chosen)
            return Summary(nodes=self.table.node_count, feasible=len(chosen), plugins=plugins, ranges=ranges)
        ranges = {
            self.answers.scores[s].name: (min(tally), max(tally))
            for s in self._ranged
            if (tally := pod_class.tallies.get(s))
        }
        return Summary(nodes=self.table.node_count, feasible=pod_class.feasible, plugins=plugins, ranges=ranges)

    # Feasibility

    def refresh(self, classes: Sequence[PodClass]) -> None:
        """Brings feasibility, and the ranges of raw scores, up to the table's present state."""
        self._fit()
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
        for rows, group in self._by_missed(behind, _SEEN):
            if rows is None or rows.size:
                self._judge(group, rows)
        for pod_class in moved:
            self._tally_anew(pod_class, self._ranged)
            pod_class.node_seen = node_position
        for pod_class in behind:
            pod_class.seen = position

    def feasible_rows(self, pod_class: PodClass) -> Mask:
        line: Mask = self._matrix.feasible[pod_class.slot, : self.table.size]
        return line

    # Ranking

    def rank(self, classes: Sequence[PodClass], ranges: Sequence[dict[str, Range]]) -> None:
        """Brings the keys of refreshed classes up to date, scores being normalised over the given ranges."""
        position, node_position = self.table.load_log.position, self.table.node_log.position
        for pod_class, wanted in zip(classes, ranges, strict=True):
            if pod_class.ranges != wanted:
                pod_class.ranges = wanted
                pod_class.keyed = pod_class.node_keyed = NOTHING_SEEN
            if pod_class.node_keyed != node_position:
                if self.ties.mode == "name":
                    pod_class.keyed = NOTHING_SEEN  # a node that came or went has moved the ranks of all others
                self._fix(pod_class)
                pod_class.node_keyed = node_position
        behind = [c for c in classes if c.keyed != position]
        for rows, group in self._by_missed(behind, _KEYED):
            if rows is None or rows.size:
                self._matrix.write([c.slot for c in group], rows, self._keys(group, rows))
            for pod_class in group:
                pod_class.keyed = position

    def ladders(self, classes: Sequence[PodClass], wanted: Sequence[int], among: Sequence[Mask | None]) -> list[Rungs]:
        """For each ranked class up to so many placements in greedy order; `among` limits the rows."""
        best = [self._matrix.best(c.slot, n, mask) for c, n, mask in zip(classes, wanted, among, strict=True)]
        sizes = [len(rows) for rows, _ in best]
        if not any(sizes) or all(n == 1 for n in wanted):
            return [Rungs(rows, keys, len(rows) < n) for (rows, keys), n in zip(best, wanted, strict=True)]
        rows = np.concatenate([of_class for of_class, _ in best])
        group = np.repeat(np.arange(len(classes), dtype=np.intp), sizes)

        def lookahead(which: Rows, own: NDArray[np.int64]) -> Keys:
            return self._keys_with_own(classes, group[which], rows[which], own)

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

    def weighted_scores(self, pod_class: PodClass, s: int, rows: Rows) -> Scores:
        """What the s-th score plugin contributes to the total of these feasible rows."""
        raw = self.answers.score_pools[s].values[pod_class.score_slots[s], rows]
        return self._weighted(s, self._normalized(pod_class, s, raw), np.ones(len(rows), dtype=np.bool_))

    def _normalized(self, pod_class: PodClass, s: int, raw: Scores) -> Scores:
        plugin = self.answers.scores[s]
        if plugin.normalizer is None or not pod_class.weights[s]:
            return raw
        low, high = (pod_class.ranges or {}).get(plugin.name, (0, 0))
        # Outside the range there are only nodes that are not feasible, or the range was guessed wrong.
        return plugin.normalizer(np.clip(raw, low, high), low, high)

    def _weighted(self, s: int, scores: Scores, feasible: Mask) -> Scores:
        """A score outside 0 to 100 would turn the order of nodes upside down: it fails the attempt instead."""
        outside = scores.view(np.uint64) > MAX_NODE_SCORE
        if outside.any() and (outside & feasible).any():
            raise ScoreOutOfRange(self.answers.scores[s].name, int(scores[outside & feasible].flat[0]))
        weighted: Scores = scores * self.framework.weights[s]
        return weighted

    # Inside: feasibility

    def _settle(self, pod_class: PodClass) -> None:
        """What the plugins that read only node objects say, for rows whose object changed."""
        rows = None if pod_class.node_seen == NOTHING_SEEN else self.table.node_log.since(pod_class.node_seen)
        if rows is None:
            pod_class.seen = NOTHING_SEEN
        index = self._index(rows)
        settled = self.table.valid[index].copy()
        for f in self.answers.filters_by[Reads.NODE]:
            slot = pod_class.filter_slots[f]
            if slot and not isinstance(self.answers.filters[f], PerNodeFilter):
                settled &= self.answers.filter_pools[f].values[slot, index] == 0
        self._matrix.settled[pod_class.slot, index] = settled

    def _judge(self, classes: list[PodClass], rows: Rows | None) -> None:
        """Feasibility of some rows (all when None), with the counts that go with it."""
        index = self._index(rows)
        slots = [c.slot for c in classes]
        feasible = _lines(self._matrix.settled, slots, index).copy()
        for f in self.answers.filters_by[Reads.LOAD]:
            lines = [int(c.filter_slots[f]) for c in classes]
            if any(lines) and not isinstance(self.answers.filters[f], PerNodeFilter):
                feasible &= self.answers.filter_pools[f].read(lines, index) == 0
        if self._one_by_one:
            for pod_class, line in zip(classes, feasible, strict=True):
                self._ask_one_by_one(pod_class, rows, line)
        before = _lines(self._matrix.feasible, slots, index)
        flipped = feasible != before
        if rows is not None and not self._loaded_ranges and not flipped.any():
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

    def _ask_one_by_one(self, pod_class: PodClass, rows: Rows | None, feasible: Mask) -> None:
        """Lets plugins that look at one node at a time judge the rows that no other filter rejected."""
        answers, at = self.answers, np.flatnonzero(feasible)
        for f, plugin in enumerate(answers.filters):
            slot = int(pod_class.filter_slots[f])
            if isinstance(plugin, PerNodeFilter) and slot:
                here, pool = at if rows is None else rows[at], answers.filter_pools[f]
                unasked = here[pool.values[slot, here] == UNKNOWN]
                if unasked.size:
                    pool.values[slot, unasked] = plugin.filter(pool.state(slot), NodeView(self.table, unasked))
                fits = pool.values[slot, here] == 0
                feasible[at[~fits]] = False
                at = at[fits]
        here = at if rows is None else rows[at]
        for s, scorer in enumerate(answers.scores):
            slot = int(pod_class.score_slots[s])
            if isinstance(scorer, PerNodeScore) and slot:
                pool = answers.score_pools[s]
                unasked = here[pool.values[slot, here] == UNKNOWN]
                if unasked.size:
                    pool.values[slot, unasked] = scorer.score(pool.state(slot), NodeView(self.table, unasked))

    def _tally(self, pod_class: PodClass, rows: Rows | None, feasible: Mask, flipped: Mask) -> None:
        """Keeps the counts of raw scores over feasible nodes, for as long as no node object changes."""
        self._tally_anew(pod_class, self._ranged if rows is None else self._loaded_ranges)
        if rows is None or not flipped.any():
            return
        for s in self._ranged:
            tally = pod_class.tallies.get(s)
            if tally is None or s in self._loaded_ranges:
                continue
            raw = self.answers.score_pools[s].values[pod_class.score_slots[s]]
            for i in np.flatnonzero(flipped):
                value = int(raw[rows[i]])
                tally[value] = tally.get(value, 0) + (1 if feasible[i] else -1)
                if tally[value] == 0:
                    del tally[value]

    def _tally_anew(self, pod_class: PodClass, ranged: list[int]) -> None:
        for s in ranged:
            if pod_class.weights[s]:
                raw = self.answers.score_pools[s].values[pod_class.score_slots[s], : self.table.size]
                values, counts = np.unique(raw[self.feasible_rows(pod_class)], return_counts=True)
                pod_class.tallies[s] = dict(zip(values.tolist(), counts.tolist(), strict=True))

    def _ranges_of(self, pod_class: PodClass, rows: Rows) -> dict[str, Range]:
        ranges: dict[str, Range] = {}
        for s in self._ranged if rows.size else ():
            if pod_class.weights[s]:
                raw = self.answers.score_pools[s].values[pod_class.score_slots[s], rows]
                ranges[self.answers.scores[s].name] = (int(raw.min()), int(raw.max()))
        return ranges

    # Inside: keys

    def _fix(self, pod_class: PodClass) -> None:
        """The weighted scores of the plugins that read only node objects, for rows whose object changed."""
        rows = None if pod_class.node_keyed == NOTHING_SEEN else self.table.node_log.since(pod_class.node_keyed)
        if rows is None:
            pod_class.keyed = NOTHING_SEEN
        index = self._index(rows)
        fixed = np.zeros(self.table.size if rows is None else len(rows), dtype=np.int64)
        for s in self.answers.scores_by[Reads.NODE]:
            if pod_class.weights[s]:
                raw = self.answers.score_pools[s].values[pod_class.score_slots[s], index]
                possible = self._matrix.settled[pod_class.slot, index]
                fixed += self._weighted(s, self._normalized(pod_class, s, raw), possible)
        if not self.answers.scores:
            fixed += 1
        self._matrix.fixed[pod_class.slot, index] = fixed

    def _keys(self, classes: list[PodClass], rows: Rows | None) -> Keys:
        index = self._index(rows)
        slots = [c.slot for c in classes]
        feasible = _lines(self._matrix.feasible, slots, index)
        totals = _lines(self._matrix.fixed, slots, index).copy()
        for s in self.answers.scores_by[Reads.LOAD]:
            lines = [int(c.score_slots[s]) for c in classes]
            if not any(lines):
                continue
            raw = self.answers.score_pools[s].read(lines, index)
            if self.answers.scores[s].normalizer is None:
                totals += self._weighted(s, raw, feasible)  # where it is skipped, it answers nought
            else:
                for i, (pod_class, line) in enumerate(zip(classes, np.broadcast_to(raw, totals.shape), strict=True)):
                    totals[i] += self._weighted(s, self._normalized(pod_class, s, line), feasible[i])
        salts = np.array([c.salt for c in classes], dtype=np.uint64)[:, None]
        return self._pack(totals, feasible, rows, self.table.used[PODS, index], salts)

    def _keys_with_own(
        self, classes: Sequence[PodClass], which: Rows, rows: Rows, own: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The keys of feasible rows, if on the i-th row there were `own[i]` more pods of class `which[i]`."""
        answers, states = self.answers, [c.state for c in classes]
        view = NodeView(self.table, rows, Own(own, [c.kind for c in classes], which))
        feasible = np.ones(len(rows), dtype=np.bool_)
        for f in answers.filters_by[Reads.LOAD]:
            runs = [bool(c.filter_slots[f]) for c in classes]
            if any(runs):
                judge = answers.filters[f]
                among = feasible if isinstance(judge, PerNodeFilter) else None
                feasible &= _of_pairs(partial(judge.filter_all, states), runs, which, view, among) == 0
        totals = self._matrix.fixed[np.array([c.slot for c in classes], dtype=np.intp)[which], rows]
        for s in answers.scores_by[Reads.LOAD]:
            runs = [bool(c.score_slots[s]) for c in classes]
            if not any(runs):
                continue
            scorer = answers.scores[s]
            among = feasible if isinstance(scorer, PerNodeScore) else None
            raw = _of_pairs(partial(scorer.score_all, states), runs, which, view, among)
            if scorer.normalizer is None:
                totals += self._weighted(s, raw, feasible)
            else:
                for i, pod_class in enumerate(classes):
                    at = which == i
                    totals[at] += self._weighted(s, self._normalized(pod_class, s, raw[at]), feasible[at])
        salts = np.array([c.salt for c in classes], dtype=np.uint64)[which]
        return self._pack(totals, feasible, rows, view.used[PODS], salts)

    def _pack(
        self, totals: Scores, feasible: Mask, rows: Rows | None, pods: NDArray[np.int64], salts: NDArray[np.uint64]
    ) -> Keys:
        """The total score and the tie key in one number; negative where the pod does not fit."""
        index = self._index(rows)
        if self.ties.mode == "name":
            ties = self._ranks.of(index)
        else:
            ties = random_ties(self.table.name_hash[index], pods, salts, self.tie_bits)
        return np.where(feasible, (totals << self.tie_bits) | ties, -1)

    # Inside: rows

    def _fit(self) -> None:
        self._matrix.fit(self.table.capacity)
        self.answers.fit(self.table.capacity)

    def _index(self, rows: Rows | None) -> Rows | slice:
        return slice(0, self.table.size) if rows is None else rows

    def _by_missed(
        self, classes: Sequence[PodClass], position: Callable[[PodClass], int]
    ) -> Iterable[tuple[Rows | None, list[PodClass]]]:
        """The classes by the rows whose load changed since each was at `position`; singly where that is all rows."""
        groups: dict[int, list[PodClass]] = {}
        for pod_class in classes:
            groups.setdefault(position(pod_class), []).append(pod_class)
        for seen, group in groups.items():
            rows = None if seen == NOTHING_SEEN else self.table.load_log.since(seen)
            if rows is None:
                yield from ((None, [pod_class]) for pod_class in group)
            else:
                yield rows, group


_SEEN: Callable[[PodClass], int] = attrgetter("seen")
_KEYED: Callable[[PodClass], int] = attrgetter("keyed")


def _tie_bits(framework: Framework) -> int:
    highest = max(1, MAX_NODE_SCORE * sum(framework.weights))
    bits = KEY_BITS - highest.bit_length()
    if bits < FEWEST_TIE_BITS:
        raise InvalidConfig(f"profiles[{framework.name}].plugins.score", "the weights add up to too much")
    return min(bits, MOST_TIE_BITS)


def _of_pairs(
    ask: Callable[[Rows, NodeView], NDArray[np.int64]],
    runs: list[bool],
    which: Rows,
    view: NodeView,
    among: Mask | None,
) -> NDArray[np.int64]:
    """What a plugin answers for pairs of class and node; nought where it does not run, and outside `among`."""
    if among is None and all(runs):
        return ask(which, view)
    wanted = np.array(runs)[which]
    at = np.flatnonzero(wanted if among is None else wanted & among)
    answers = np.zeros(len(which), dtype=np.int64)
    if at.size:
        answers[at] = ask(which[at], view.take(at))
    return answers


def _lines(matrix: NDArray[Item], slots: list[int], index: Rows | slice) -> NDArray[Item]:
    """Some lines of a matrix at some rows: always with an axis of classes."""
    if len(slots) == 1:
        return matrix[slots[0], index][None, :]
    lines = np.array(slots, dtype=np.intp)
    return matrix[lines, index] if isinstance(index, slice) else matrix[lines[:, None], index]
