"""Ranking: the keys of classes, the total score of each row and the tie key behind it in one number."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from flotilla.results import MAX_NODE_SCORE, Range
from shared.cluster.changes import Rows
from shared.cluster.nodetable import PODS, NodeTable
from shared.errors import InvalidConfig
from shared.framework.answers import Answers
from shared.framework.cyclestate import CycleState
from shared.framework.keymatrix import KeyMatrix, Keys, Mask, lines
from shared.framework.nominated import KeptRoom
from shared.framework.normalize import ScoreOutOfRange, Scores
from shared.framework.pernode import PerNodeFilter, PerNodeScore
from shared.framework.plugin import FilterPlugin, Reads, Verdicts
from shared.framework.podclass import PodClass, by_missed, rows_since
from shared.framework.profile import Framework
from shared.framework.results import NOTHING_SEEN
from shared.framework.tiebreak import KEY_BITS, NameRanks, random_ties
from shared.framework.view import NodeView, Own
from shared.messages.evaluation import Ties

FEWEST_TIE_BITS = 21
MOST_TIE_BITS = 52


class Ranking:
    def __init__(
        self,
        table: NodeTable,
        framework: Framework,
        ties: Ties,
        answers: Answers,
        matrix: KeyMatrix,
        kept_room: KeptRoom,
    ) -> None:
        self.table = table
        self._kept_room = kept_room
        self.framework = framework
        self.ties = ties
        self.tie_bits = _tie_bits(framework)
        self.answers = answers
        self._matrix = matrix
        self._ranks = NameRanks(table)

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
        for rows, group in by_missed(behind, _KEYED, self.table.load_log):
            self._matrix.write([c.slot for c in group], rows, self._keys(group, rows))
        for pod_class in behind:
            pod_class.keyed = position

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
        clipped = np.clip(raw, low, high)
        if plugin.unranged is not None:
            clipped = np.where(raw == plugin.unranged, raw, clipped)
        return plugin.normalizer(clipped, low, high)

    def _weighted(self, s: int, scores: Scores, feasible: Mask) -> Scores:
        """A score outside 0 to 100 would turn the order of nodes upside down: it fails the attempt instead."""
        outside = scores.view(np.uint64) > MAX_NODE_SCORE
        if outside.any() and (outside & feasible).any():
            wrong = np.broadcast_to(scores, feasible.shape)[outside & feasible]
            raise ScoreOutOfRange(self.answers.scores[s].name, int(wrong[0]))
        weighted: Scores = scores * self.framework.weights[s]
        return weighted

    def _fix(self, pod_class: PodClass) -> None:
        """The weighted scores of the plugins that read only node objects, for rows whose object changed."""
        rows = rows_since(self.table.node_log, pod_class.node_keyed)
        if rows is None:
            pod_class.keyed = NOTHING_SEEN
        index = self._matrix.index(rows)
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
        index = self._matrix.index(rows)
        slots = [c.slot for c in classes]
        feasible = lines(self._matrix.feasible, slots, index)
        totals = lines(self._matrix.fixed, slots, index).copy()
        for s in self.answers.scores_by[Reads.LOAD]:
            of_classes = [0 if s in c.mute else int(c.score_slots[s]) for c in classes]
            if not any(of_classes):
                continue
            raw = self.answers.score_pools[s].read(of_classes, index)
            if self.answers.scores[s].normalizer is None:
                totals += self._weighted(s, raw, feasible)  # where it is skipped, it answers nought
            else:
                for i, (pod_class, line) in enumerate(zip(classes, np.broadcast_to(raw, totals.shape), strict=True)):
                    if not of_classes[i]:
                        continue
                    totals[i] += self._weighted(s, self._normalized(pod_class, s, line), feasible[i])
        salts = np.array([c.salt for c in classes], dtype=np.uint64)[:, None]
        return self._pack(totals, feasible, rows, self.table.used[PODS, index], salts)

    def keys_with_own(
        self,
        classes: Sequence[PodClass],
        which: Rows,
        rows: Rows,
        own: NDArray[np.int64],
        openly: Sequence[bool] | None = None,
    ) -> NDArray[np.int64]:
        """The keys of feasible rows, if on the i-th row there were `own[i]` more pods of class `which[i]`.

        `openly`: the classes whose trackers decide, and not this, on domains that are closed at present.
        """
        answers, states = self.answers, [c.state for c in classes]
        view = NodeView(self.table, rows, Own(own, [c.kind for c in classes], which))
        feasible = np.ones(len(rows), dtype=np.bool_)
        for f in answers.filters_by[Reads.LOAD]:
            runs = [bool(c.filter_slots[f]) for c in classes]
            if any(runs):
                judge = answers.filters[f]
                among = feasible if isinstance(judge, PerNodeFilter) else None
                ask = partial(_filter_openly, judge, states, openly) if judge.opens and openly else None
                feasible &= _of_pairs(ask or partial(judge.filter_all, states), runs, which, view, among) == 0
        if self.table.nominations:
            self._kept_room.refuse_more(classes, which, rows, own, feasible)
        totals = self._matrix.fixed[np.array([c.slot for c in classes], dtype=np.intp)[which], rows]
        for s in answers.scores_by[Reads.LOAD]:
            runs = [bool(c.score_slots[s]) and s not in c.mute for c in classes]
            if not any(runs):
                continue
            scorer = answers.scores[s]
            among = feasible if isinstance(scorer, PerNodeScore) else None
            raw = _of_pairs(partial(scorer.score_all, states), runs, which, view, among)
            if scorer.normalizer is None:
                totals += self._weighted(s, raw, feasible)
            else:
                for i, pod_class in enumerate(classes):
                    if not runs[i]:
                        continue
                    at = which == i
                    totals[at] += self._weighted(s, self._normalized(pod_class, s, raw[at]), feasible[at])
        salts = np.array([c.salt for c in classes], dtype=np.uint64)[which]
        return self._pack(totals, feasible, rows, view.used[PODS], salts)

    def _pack(
        self, totals: Scores, feasible: Mask, rows: Rows | None, pods: NDArray[np.int64], salts: NDArray[np.uint64]
    ) -> Keys:
        """The total score and the tie key in one number; negative where the pod does not fit."""
        index = self._matrix.index(rows)
        if self.ties.mode == "name":
            ties = self._ranks.of(index)
        else:
            ties = random_ties(self.table.name_hash[index], pods, salts, self.tie_bits)
        return np.where(feasible, (totals << self.tie_bits) | ties, -1)


_KEYED: Callable[[PodClass], int] = attrgetter("keyed")


def _tie_bits(framework: Framework) -> int:
    highest = max(1, MAX_NODE_SCORE * sum(framework.weights))
    bits = KEY_BITS - highest.bit_length()
    if bits < FEWEST_TIE_BITS:
        raise InvalidConfig(f"profiles[{framework.name}].plugins.score", "the weights add up to too much")
    return min(bits, MOST_TIE_BITS)


def _filter_openly(
    judge: FilterPlugin, states: Sequence[CycleState], openly: Sequence[bool], which: Rows, view: NodeView
) -> Verdicts:
    verdicts = np.zeros(len(which), dtype=np.int64)
    for pod, (state, is_open) in enumerate(zip(states, openly, strict=True)):
        at = np.flatnonzero(which == pod)
        if at.size:
            part = view.take(at)
            verdicts[at] = judge.filter_open(state, part) if is_open else judge.filter(state, part)
    return verdicts


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
