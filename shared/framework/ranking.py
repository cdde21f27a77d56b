"""Ranking: the keys of classes, which pack the total score of each row and a tie key behind it into one number.

So the best node is the largest key. By default the tie key is a pseudo-random number drawn from the seed, the class of
the pod, the node's name and the number of pods on the node: every placement draws its node's number again, and the draw
is the same in whichever shard a node is. By name, for tests and golden data, the alphabetically first node wins.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import Ints, LazyScore, Mask, Reads, Scores
from flotilla.results import MAX_NODE_SCORE, Range
from shared.cluster.columns import NOTHING_SEEN, Rows
from shared.cluster.load_kind import PODS
from shared.cluster.nodetable import NodeTable, stable_hash
from shared.cluster.view import Planned, TableView
from shared.errors import InvalidConfig
from shared.framework.answers import Answers, of_pairs, scored
from shared.framework.judge import Judge
from shared.framework.pod_class import ClassRows, Keys, PodClass, by_missed, lines
from shared.framework.profile import Framework
from shared.framework.signatures import named
from shared.messages.evaluation import Ties

Salts = NDArray[np.uint64]

FEWEST_TIE_BITS = 21
MAX_TIE_BITS = 52
KEY_BITS = 62
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def salt(ties: Ties, class_id: str) -> np.uint64:
    return np.uint64(stable_hash(f"{ties.seed}/{class_id}"))


def random_ties(name_hash: Salts, pods: Ints, salts: Salts | np.uint64, bits: int) -> Keys:
    """`bits` random bits for each node, given its name's hash and its number of pods; salts may have an axis more."""
    mixed = (name_hash + pods.view(np.uint64) * _GOLDEN) ^ salts
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX_2
    ties: Keys = (mixed >> np.uint64(64 - bits)).view(np.int64)
    return ties


class NameRanks:
    """For every row, how many names come after its own: the alphabetically first node has the largest number."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._seen = -1
        self._ranks: Keys = np.zeros(0, dtype=np.int64)

    def of(self, rows: Rows | slice) -> Keys:
        table = self._table
        if self._seen != table.node_log.position:
            order = sorted(range(table.size), key=table.names.__getitem__, reverse=True)
            self._ranks = np.empty(table.size, dtype=np.int64)
            self._ranks[order] = np.arange(table.size)
            self._seen = table.node_log.position
        ranks: Keys = self._ranks[rows]
        return ranks


class ScoreOutOfRange(ValueError):
    """A plugin's score, after normalizing, is not from 0 to 100."""

    def __init__(self, plugin: str, score: int) -> None:
        super().__init__(f"plugin {plugin!r} returns an invalid score {score}, it should be from 0 to {MAX_NODE_SCORE}")


class Ranking:
    def __init__(
        self,
        table: NodeTable,
        framework: Framework,
        ties: Ties,
        answers: Answers,
        class_rows: ClassRows,
        judge: Judge,
    ) -> None:
        self.table = table
        self._judge = judge
        self.framework = framework
        self.ties = ties
        self.tie_bits = _tie_bits(framework)
        self.answers = answers
        self._class_rows = class_rows
        self._ranks = NameRanks(table)

    def rank(self, classes: Sequence[PodClass], ranges: Sequence[dict[str, Range]]) -> None:
        """Bring the keys of refreshed classes up to date, with scores normalized over the given ranges."""
        position, node_position = self.table.load_log.position, self.table.node_log.position
        for pod_class, wanted in zip(classes, ranges, strict=True):
            keys = pod_class.keys
            if keys.ranges != wanted:
                keys.ranges = wanted
                keys.seen = keys.node_seen = NOTHING_SEEN
            if keys.node_seen != node_position:
                if self.ties.mode == "name":
                    keys.seen = NOTHING_SEEN  # a node that came or went has moved the ranks of all others
                self._fix(pod_class)
                keys.node_seen = node_position
        behind = [c for c in classes if c.keys.seen != position]
        for rows, group in by_missed(behind, lambda c: c.keys.seen, self.table.load_log):
            self._class_rows.write([c.slot for c in group], rows, self._keys(group, rows))
        for pod_class in behind:
            pod_class.keys.seen = position

    def weighted_scores(self, pod_class: PodClass, s: int, rows: Rows) -> Scores:
        """What the s-th score plugin contributes to the totals of these feasible rows."""
        raw = self.answers.score_pools[s].values.read(int(pod_class.answers.score_slots[s]), rows)
        return self._weighted(s, self._normalized(pod_class, s, raw), np.ones(len(rows), dtype=np.bool_))

    def _normalized(self, pod_class: PodClass, s: int, raw: Scores) -> Scores:
        plugin = self.answers.scores[s]
        if plugin.normalizer is None or not pod_class.weights[s]:
            return raw
        low, high = (pod_class.keys.ranges or {}).get(plugin.name, (0, 0))
        # Only nodes that are not feasible are outside the range, unless the range was guessed wrong. Placements of a
        # ladder may lower scores by devices below the range, by whose upper end alone these are scaled.
        clipped = np.clip(raw, 0 if s in self.answers.scores_of_claims else low, high)
        if plugin.unranged is not None:
            clipped = np.where(raw == plugin.unranged, raw, clipped)
        with named(plugin, "normalizer"):
            return plugin.normalizer(clipped, low, high)

    def _weighted(self, s: int, scores: Scores, feasible: Mask) -> Scores:
        """A score outside 0 to 100 would corrupt the order of nodes: it fails the attempt instead."""
        outside = scores.view(np.uint64) > MAX_NODE_SCORE
        if outside.any() and (outside & feasible).any():
            wrong = np.broadcast_to(scores, feasible.shape)[outside & feasible]
            raise ScoreOutOfRange(self.answers.scores[s].name, int(wrong[0]))
        weighted: Scores = scores * self.framework.weights[s]
        return weighted

    def _fix(self, pod_class: PodClass) -> None:
        """The weighted scores of the plugins that read only node objects, for rows whose object changed."""
        rows = self.table.node_log.since(pod_class.keys.node_seen)
        if rows is None:
            pod_class.keys.seen = NOTHING_SEEN
        index = self._class_rows.index(rows)
        fixed = np.zeros(self.table.size if rows is None else len(rows), dtype=np.int64)
        for s in self.answers.scores_by[Reads.NODE]:
            if pod_class.weights[s]:
                raw = self.answers.score_pools[s].values.read(int(pod_class.answers.score_slots[s]), index)
                possible = self._class_rows.settled[pod_class.slot, index]
                fixed += self._weighted(s, self._normalized(pod_class, s, raw), possible)
        if not self.answers.scores:
            fixed += 1
        self._class_rows.fixed.write(pod_class.slot, index, fixed)

    def _keys(self, classes: list[PodClass], rows: Rows | None) -> Keys:
        index = self._class_rows.index(rows)
        slots = [c.slot for c in classes]
        feasible = lines(self._class_rows.feasible, slots, index)
        totals = self._class_rows.fixed.read(slots, index)
        for s in self.answers.scores_by[Reads.PODS]:
            of_classes = [0 if s in c.answers.muted else int(c.answers.score_slots[s]) for c in classes]
            if not any(of_classes):
                continue
            raw = self.answers.score_pools[s].read(of_classes, index)
            if self.answers.scores[s].normalizer is None:
                totals += self._weighted(s, raw, feasible)  # slot 0 of skipped plugins holds 0
            else:
                for i, (pod_class, line) in enumerate(zip(classes, np.broadcast_to(raw, totals.shape), strict=True)):
                    if not of_classes[i]:
                        continue
                    totals[i] += self._weighted(s, self._normalized(pod_class, s, line), feasible[i])
        salts = np.array([c.salt for c in classes], dtype=np.uint64)[:, None]
        return self._pack(totals, feasible, rows, self.table.used[PODS, index], salts)

    def keys_with_planned(
        self,
        classes: Sequence[PodClass],
        which: Rows,
        rows: Rows,
        planned: Ints,
        open_domains: Sequence[bool] = (),
        *,
        rest: bool = False,
    ) -> Keys:
        """The keys of feasible rows, given `planned[i]` more pods of class `which[i]` on the i-th row.

        `open_domains`: the classes for which trackers, not this, decide about topology domains. `rest`: without the
        scores that are followed.
        """
        view = TableView(self.table, rows, Planned(planned, [c.kind for c in classes], which))
        return self.keys_of(classes, which, view, open_domains, rest=rest)

    def keys_of(
        self,
        classes: Sequence[PodClass],
        which: Rows,
        view: TableView,
        open_domains: Sequence[bool] = (),
        *,
        rest: bool = False,
    ) -> Keys:
        """The keys of the i-th node for class `which[i]`; it passes the class's filters of node objects."""
        answers, states, rows = self.answers, [c.state for c in classes], view.rows
        feasible = self._judge.feasible_pairs(classes, which, view, open_domains)
        totals = self._class_rows.fixed.pairs(np.array([c.slot for c in classes], dtype=np.intp)[which], rows)
        for s in answers.scores_by[Reads.PODS]:
            runs = [bool(c.answers.score_slots[s]) and s not in c.answers.muted for c in classes]
            if rest:
                runs = [runs_too and c.followed != s for c, runs_too in zip(classes, runs, strict=True)]
            if not any(runs):
                continue
            scorer = answers.scores[s]
            among = feasible if isinstance(scorer, LazyScore) else None
            raw = of_pairs(partial(scored, scorer, states), runs, which, view, among)
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

    def _pack(self, totals: Scores, feasible: Mask, rows: Rows | None, pods: Ints, salts: NDArray[np.uint64]) -> Keys:
        """The total score and the tie key in one number; negative where the pod does not fit."""
        index = self._class_rows.index(rows)
        if self.ties.mode == "name":
            ties = self._ranks.of(index)
        else:
            ties = random_ties(self.table.name_hash[index], pods, salts, self.tie_bits)
        return np.where(feasible, (totals << self.tie_bits) | ties, -1)


def _tie_bits(framework: Framework) -> int:
    highest = max(1, MAX_NODE_SCORE * sum(framework.weights))
    bits = KEY_BITS - highest.bit_length()
    if bits < FEWEST_TIE_BITS:
        raise InvalidConfig(f"profiles[{framework.name}].plugins.score", "the weights add up to too much")
    return min(bits, MAX_TIE_BITS)
