"""Classes with a plugin whose raw scores change with every placement, and are followed from decision to decision.

Nodes of one group always have one raw score (`shared/plugins/grouping.py`). A worker lists the best nodes of each group
by their other scores. A decision moves its node to the next group and changes the raw scores of whole groups; from
these follow the range over which they are normalised, and the total score of each listed node. So what each worker
would answer now is known, as long as no other node than a listed one can be the next.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count as count_up
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from flotilla.results import Range
from shared.framework.ladders import share_of
from shared.framework.profile import Framework, merge
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, Ladder
from shared.plugins.grouping import IGNORED, Follower, Group

FULL = -1
"""In place of a score: the node is not feasible for the class any more."""
BEST_TIE = 1 << 62
Values = tuple[str | None, ...]


class Rung(NamedTuple):
    """A node in its group. They sort by score, tie and name, the best first."""

    minus_score: int
    minus_tie: int
    node: str


@dataclass(slots=True)
class FollowedShard:
    """One worker's nodes, as its answer has them and decisions have changed them since.

    `seq`: the state that it was evaluated at. `summary`: the plugin's, of these shards.
    """

    answer: ClassAnswer
    seq: int
    plugin: str
    follower: Follower
    summary: object = field(init=False)
    counts: dict[Group, int] = field(init=False)
    """The feasible nodes of each group."""
    listed: dict[Group, list[Rung]] = field(init=False)
    floors: dict[Group, Rung] = field(init=False)
    """The last one listed, where there are more nodes: all others come after it."""
    next: dict[str, Rung] = field(init=False)
    """What each listed node is once a pod of the class was placed there."""
    others: dict[Values | None, int] = field(init=False)
    """The highest score without the plugin's of nodes that other classes took, by values; None if these are unknown."""
    taken: list[Group] = field(init=False)
    """The groups that nodes were in when pods of the class were placed there."""
    ranges: Mapping[str, Range] | None = field(init=False)
    """By which other plugins' scores are normalised."""
    holds: bool = field(init=False)
    """False once a node is full: what depends on the feasible nodes may have changed."""
    _group_of: dict[str, Group] = field(init=False)
    _at: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.summary = self.answer.summary.plugins[self.plugin]
        self.ranges = self.answer.ranges.get(self.answer.class_id)
        self.counts, self.listed, self.floors, self.next, self.others = {}, {}, {}, {}, {}
        self.taken, self.holds, self._group_of, self._at = [], True, {}, {}
        for sent in self.answer.groups:
            group = Group(tuple(sent.values), sent.pods)
            rungs = [Rung(-s, -t, node) for node, s, t in zip(sent.nodes, sent.scores, sent.ties, strict=True)]
            after = zip(sent.nodes, sent.next_scores, sent.next_ties, strict=True)
            self.next.update((node, Rung(-score, -tie, node)) for node, score, tie in after)
            self.counts[group] = sent.count
            self.listed[group] = rungs
            if len(rungs) < sent.count:
                self.floors[group] = rungs[-1]
            for node in sent.nodes:
                self._group_of[node] = group
                self._at[node] = len(self._at)

    def take(self, node: str) -> int | None:
        """A pod of the class was placed there. Returns the index of the node in what it means for others, if known."""
        group, at = self._group_of.get(node), self._at.pop(node, None)
        if group is None or at is None:
            return None
        after = self.next.pop(node)
        self._remove(node, group)
        if after.minus_score == -FULL:
            self.holds = False
            return at
        self.summary = self.follower.placed(self.summary, group)
        self.taken.append(group)
        moved = self.follower.after(group)
        self.counts[group] -= 1
        if not self.counts[group]:
            del self.counts[group], self.listed[group]
            self.floors.pop(group, None)
        self.counts[moved] = self.counts.get(moved, 0) + 1
        insort(self.listed.setdefault(moved, []), after)
        self._group_of[node] = moved
        return at

    def values_of(self, node: str) -> Values | None:
        group = self._group_of.get(node)
        return None if group is None else group.values

    def give_way(self, node: str, score: int, values: Values | None) -> bool:
        """A pod of another class was placed there, which is not counted. Returns whether anything still holds.

        `score`: of the node since, without the plugin's. `values`: of the node, if known.
        """
        if score == FULL:
            return False
        group = self._group_of.pop(node, None)
        if group is not None:
            self._remove(node, group)
            self.next.pop(node, None)
            self._at.pop(node, None)
            values = group.values
        self.others[values] = max(score, self.others.get(values, 0))
        return True

    def _remove(self, node: str, group: Group) -> None:
        rungs = self.listed[group]
        del rungs[next(i for i, rung in enumerate(rungs) if rung.node == node)]


class _Unknown(Exception):
    """A node that is not listed may be the next."""


class _Step(NamedTuple):
    """A possible placement; they sort as they come. `node`: empty if it is one that is not listed.

    `number`: distinguishes equal ones. `is_first`: no other pod of the ladder is on the node.
    """

    minus_score: int
    minus_tie: int
    node: str
    number: int
    group: Group
    is_first: bool


class FollowedClass:
    """All shards of a class together, at the moment of the last call of `catch_up`."""

    def __init__(self, framework: Framework, shards: Mapping[str, FollowedShard]) -> None:
        self.shards = shards
        self._numbers = count_up()
        first = next(iter(shards.values()))
        self._name, self._follower = first.plugin, first.follower
        score = next(s for s, plugin in enumerate(framework.score) if plugin.name == self._name)
        self._plugin, self._weight = framework.score[score], framework.weights[score]
        own = (_with(shard.answer.summary, shard.plugin, shard.summary) for shard in shards.values())
        self.merged = merge(framework, own)
        self._seen = {worker: len(shard.taken) for worker, shard in shards.items()}
        self._raw: dict[Group, int] = {}
        self._own: dict[str, Summary] = {}
        self._scores: dict[Group, int] = {}
        self._compute(self._groups())

    def catch_up(self) -> None:
        """Follows the decisions that were taken since."""
        taken: list[Group] = []
        for worker, shard in self.shards.items():
            taken += shard.taken[self._seen[worker] :]
            self._seen[worker] = len(shard.taken)
        if not taken:
            return
        part = self.merged.plugins[self._name]
        for group in taken:
            part = self._follower.placed(part, group)
        self.merged = _with(self.merged, self._name, part)
        changed = [set(values) for values in zip(*(group.values for group in taken), strict=True)]
        self._compute([group for group in self._groups() if group not in self._raw or _is_in(group, changed)])

    def answers(self, count: int, keys: Sequence[str], *, alone: bool) -> dict[str, ClassAnswer] | None:
        """What each worker would answer about `count` pods, with the nodes' values of these labels; None if not known.

        `alone`: the round has one pod only. If it is of this class, the best placement of each worker is enough.
        """
        if not set(keys) <= set(self._follower.labels):
            return None
        answer = self._best if alone and count else partial(self._ladder, count)
        try:
            return {worker: answer(worker, shard, keys) for worker, shard in self.shards.items()}
        except _Unknown:
            return None

    # Scores

    def _groups(self) -> list[Group]:
        return list(dict.fromkeys(group for shard in self.shards.values() for group in shard.counts))

    def _compute(self, groups: Sequence[Group]) -> None:
        """Scores, after the raw scores of these groups have changed."""
        self._raw |= zip(groups, self._raw_scores(self.merged, groups), strict=True)
        there = self._groups()
        self.merged = self._ranged(self.merged, there)
        for worker, shard in self.shards.items():
            own = _with(shard.answer.summary, self._name, shard.summary)
            self._own[worker] = self._ranged(own, shard.counts)
        self._scores = dict(zip(there, self._weighted([self._raw[group] for group in there]), strict=True))

    def _raw_scores(self, merged: Summary, groups: Sequence[Group]) -> list[int]:
        return self._follower.raw_scores(merged.plugins[self._name], merged.late[self._name], groups)

    def _ranged(self, summary: Summary, groups: Iterable[Group]) -> Summary:
        """With the range of the raw scores of these groups."""
        raw = [found for group in groups if (found := self._raw[group]) != IGNORED]
        ranges = {name: range_ for name, range_ in summary.ranges.items() if name != self._name}
        if raw:
            ranges[self._name] = min(raw), max(raw)
        return replace(summary, ranges=ranges)

    def _weighted(self, raw: Sequence[int]) -> list[int]:
        """As in Ranking: scores beyond the range, of placements to come, count as its ends."""
        low, high = self.merged.ranges.get(self._name, (0, 0))
        clipped = [each if each == IGNORED else min(max(each, low), high) for each in raw]
        assert self._plugin.normalizer is not None
        normalized = self._plugin.normalizer(np.array(clipped, dtype=np.int64), low, high)
        return [int(each) * self._weight for each in normalized.tolist()]

    # Ladders

    def _best(self, worker: str, shard: FollowedShard, keys: Sequence[str]) -> ClassAnswer:
        """The best placement and the second best node."""
        following = self._greedy(shard, list(shard.counts), looks_ahead=False)
        first = next(following)
        try:
            second = next(following, None)
        except _Unknown:
            second = None  # it is for people only
        runner_up = None if second is None else (second.node, -second.minus_score)
        return self._answer(worker, shard, [first], keys, runner_up, complete=False)

    def _ladder(self, count: int, worker: str, shard: FollowedShard, keys: Sequence[str]) -> ClassAnswer:
        strata = shard.answer.ladder.strata
        at = [self._follower.labels.index(label) for label in strata]
        parts: dict[Values, list[Group]] = {}
        for group in shard.counts:
            parts.setdefault(tuple(group.values[i] for i in at), []).append(group)
        share = share_of(count, len(parts)) if strata else count
        steps: list[_Step] = []
        cut: list[list[str | None]] = []
        runner_up: tuple[str, int] | None = None
        for values, groups in parts.items():
            following = self._greedy(shard, groups, looks_ahead=count > 1)
            found = [step for _, step in zip(range(share), following, strict=False)]
            steps += found
            if len(found) == share:
                cut.append(list(values))
            if len(parts) == share == 1:
                runner_up = next(((step.node, -step.minus_score) for step in following), None)
        return self._answer(
            worker, shard, steps, keys, runner_up, complete=not cut, strata=strata, cut=cut if strata else ()
        )

    def _answer(
        self,
        worker: str,
        shard: FollowedShard,
        steps: Sequence[_Step],
        keys: Sequence[str],
        runner_up: tuple[str, int] | None,
        *,
        complete: bool,
        strata: tuple[str, ...] = (),
        cut: Sequence[list[str | None]] = (),
    ) -> ClassAnswer:
        labels = {key: self._follower.labels.index(key) for key in keys}
        ladder = Ladder(
            nodes=[step.node for step in steps],
            scores=[-step.minus_score for step in steps],
            ties=[-step.minus_tie for step in steps],
            complete=complete,
            domains={key: [step.group.values[i] for step in steps] for key, i in labels.items()},
            strata=strata,
            cut=[*cut],
        )
        return replace(
            shard.answer,
            summary=self._own[worker],
            ladder=ladder,
            runner_up=runner_up,
            by_itself=False,
            beside={},
            ranges={},
            groups=[],
        )

    def _greedy(self, shard: FollowedShard, groups: Sequence[Group], *, looks_ahead: bool) -> Iterator[_Step]:
        """Placements in greedy order. `looks_ahead`: a node may come more than once."""
        steps = [step for group in groups if (step := self._first(shard, group, 0)) is not None]
        for values, score in shard.others.items():
            alike = [self._scores[group] for group in groups if values is None or values == group.values]
            if alike:
                steps.append(self._unlisted(-score - max(alike), groups[0]))
        heapify(steps)
        position = dict.fromkeys(groups, 0)
        while steps:
            step = heappop(steps)
            if not step.node:
                raise _Unknown
            yield step
            if not step.is_first:
                raise _Unknown  # a third pod on the node
            position[step.group] += 1
            following = self._first(shard, step.group, position[step.group])
            if following is not None:
                heappush(steps, following)
            if looks_ahead:
                heappush(steps, self._second(shard, step))

    def _first(self, shard: FollowedShard, group: Group, at: int) -> _Step | None:
        """The next node of the group; one without a name if it is not known."""
        rungs, floor, more = shard.listed[group], shard.floors.get(group), self._scores[group]
        rung = rungs[at] if at < len(rungs) else None
        if floor is not None and (rung is None or rung > floor):
            return self._unlisted(floor.minus_score - more, group)
        return None if rung is None else _Step(rung.minus_score - more, rung.minus_tie, rung.node, 0, group, True)

    def _second(self, shard: FollowedShard, step: _Step) -> _Step:
        """The same node once more, as the worker would judge it in a ladder: with one more pod on this node."""
        rung = shard.next.get(step.node)
        if rung is None or rung.minus_score == -FULL:
            raise _Unknown
        merged, name = self.merged, self._name
        placed = _with(merged, name, self._follower.placed(merged.plugins[name], step.group))
        (score,) = self._weighted(self._raw_scores(placed, [self._follower.after(step.group)]))
        return _Step(rung.minus_score - score, rung.minus_tie, step.node, 0, step.group, False)

    def _unlisted(self, minus_score: int, group: Group) -> _Step:
        """It may be any node with at most this score, so it comes before all that have it."""
        return _Step(minus_score, -BEST_TIE, "", next(self._numbers), group, False)


def _is_in(group: Group, values: Sequence[set[str | None]]) -> bool:
    """Whether the group is in a domain of these values, label by label."""
    return any(value in of_label for value, of_label in zip(group.values, values, strict=True))


def _with(summary: Summary, plugin: str, part: object) -> Summary:
    return replace(summary, plugins={**summary.plugins, plugin: part})
