"""Answers that workers need not be asked for again, because what they would say is known.

A ladder lists the next placements of a class in a worker's shards, each as if the ones before it were taken. So once
the first ones are taken, what remains of it is what the worker would answer now, as long as nothing else was written
that the class reads. Workers say of which ladders this holds (`ClassAnswer.lasts`), and what each of their placements
means for classes that came lately (`ClassAnswer.beside`): the score that the node then has for them. So a decision of
one class takes its node out of the ladders of the others, and ends them where that node would come next. An answer is
kept until

- a decision of another class goes to a node of these shards of which that is not known, or was judged by other ranges
  of raw scores than those of the kept answer; or one with affinity rules goes anywhere;
- the snapshot tells of a change that is no decision, and that the answer does not include;
- a decision is refused, the shards are divided otherwise, or a worker is wrong;
- too little is left of the ladder.

Answers with a plugin's scores that change with every placement are kept if these can be followed: as the best nodes of
each group of nodes, of all workers together (`followed_classes.py`). They are dropped, too, when a pod that the plugin
counts is decided in another class, or the labels of a placed pod have changed.

A round that is decided by kept answers is decided as if the workers had been asked at that moment: by the same nodes,
scores, ties and summaries, and at the newest sequence number.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from flotilla.results import Range
from services.cycle.round.admission import PodInfo
from services.cycle.round.followed_classes import FULL, FollowedClass, FollowedShard, Values
from services.cycle.round.ladder_merge import Placement
from shared.bounded import BoundedDict
from shared.framework.profile import Framework
from shared.framework.signatures import PluginFailed
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, Proposals
from shared.plugins.grouping import GroupedScore

AHEAD = 32
"""Placements that a worker is asked for beyond those of the round."""
MAX_AHEAD_OF = 64
"""Pods in a round, at most, for which it is: larger rounds follow each other without a pause."""
MAX_CLASSES = 64
"""That come in turn, at most, without an ask for each of their pods."""


@dataclass(slots=True)
class _Kept:
    """`seq`: the state that it was evaluated at. `left`: the placements of the ladder that still hold, by index.

    `filled`: how many nodes the placements that were decided since have filled. `complete`: no others follow. `ranges`:
    by which its scores are normalised. `floor`: a node with a lower score matters only if it is one of `nodes`.
    """

    answer: ClassAnswer
    seq: int
    left: list[int] = field(init=False)
    filled: int = 0
    complete: bool = field(init=False)
    ranges: Mapping[str, Range] | None = field(init=False)
    nodes: frozenset[str] = field(init=False)
    floor: int = field(init=False)

    def __post_init__(self) -> None:
        ladder, runner_up = self.answer.ladder, self.answer.runner_up
        self.left = list(range(len(ladder.nodes)))
        self.complete = ladder.complete
        self.ranges = self.answer.ranges.get(self.answer.class_id)
        others = [] if runner_up is None else [runner_up]
        self.nodes = frozenset((*ladder.nodes, *(node for node, _ in others)))
        self.floor = min((*ladder.scores, *(score for _, score in others)), default=0)

    holds = True

    def offers(self, count: int, keys: Collection[str] = ()) -> bool:
        """Whether enough of the ladder is left, with the nodes' values of these labels."""
        enough = bool(self.left) and (len(self.left) >= count or self.complete)
        return enough and self.answer.ladder.domains.keys() >= set(keys)

    def take(self, node: str) -> int | None:
        """Takes its next placement as decided, and returns its index; None if that is on another node."""
        ladder = self.answer.ladder
        if not self.left or ladder.nodes[self.left[0]] != node:
            return None
        at = self.left.pop(0)
        self.filled += at in ladder.fills
        return at

    def values_of(self, node: str) -> Values | None:
        return None

    def give_way(self, node: str, score: int) -> bool:
        """Another class has taken the node, which has this score since. Returns whether anything still holds."""
        answer, ladder = self.answer, self.answer.ladder
        if score == FULL:
            return False
        if answer.runner_up is not None and (answer.runner_up[0] == node or answer.runner_up[1] <= score):
            return False
        others = (at for at in self.left if ladder.nodes[at] != node)
        left = list(takewhile(lambda at: ladder.scores[at] > score, others))
        self.complete = self.complete and len(left) == len(self.left)
        self.left = left
        return bool(left)

    def rest(self, count: int) -> ClassAnswer | None:
        """The worker's answer about `count` pods; None if it would name a second best node that is not known."""
        answer, ladder = self.answer, self.answer.ladder
        at, runner_up = self.left[:count], None
        nodes = [ladder.nodes[i] for i in at]
        if len(set(nodes)) == 1:
            following = next((i for i in self.left if ladder.nodes[i] != nodes[0]), None)
            if following is not None:
                runner_up = ladder.nodes[following], ladder.scores[following]
            elif all(node == nodes[0] for node in ladder.nodes):
                runner_up = answer.runner_up
            elif not self.complete:
                return None
        summary = answer.summary
        if self.filled:
            summary = replace(summary, feasible=max(1, summary.feasible - self.filled))
        return replace(
            answer,
            summary=summary,
            ladder=replace(
                ladder,
                nodes=nodes,
                scores=[ladder.scores[i] for i in at],
                ties=[ladder.ties[i] for i in at],
                complete=self.complete and len(self.left) < count,
                domains={key: [values[i] for i in at] for key, values in ladder.domains.items()},
                fills=[],
            ),
            runner_up=runner_up,
            beside={},
            ranges={},
        )


class Known(NamedTuple):
    """`answers`: of workers that need not be asked. `merged`: by class, the merged summary, where it is followed."""

    answers: dict[str, list[ClassAnswer]]
    merged: dict[str, Summary]


class KnownAnswers:
    """What the answers say counts for the round after the last decisions, and only once their commit is answered."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        self.seq = 0
        """The state at which the kept answers are right: that of the last commit's answer."""
        self._frameworks = frameworks
        self._kept: dict[str, BoundedDict[str, _Kept | FollowedShard | None]] = {}
        """By worker and class; None if the class can be followed, but the answer has no groups."""
        self._followed: BoundedDict[str, FollowedClass] = BoundedDict(MAX_CLASSES)
        """As they were when a round last began."""
        self._lately: BoundedDict[str, None] = BoundedDict(MAX_CLASSES)
        self._published = 0
        self._oldest = 0
        """No kept answer was evaluated before."""

    @property
    def lately(self) -> Collection[str]:
        """The last classes whose answers have lasted: they will come again, most likely."""
        return self._lately.keys()

    def clear(self) -> None:
        self._kept.clear()

    def on_published(self, seq: int) -> None:
        """The snapshot has published up to this number. What came after the last commit may be anything."""
        self._published = seq
        if self.is_outdated:
            self.clear()

    @property
    def is_outdated(self) -> bool:
        """Whether the snapshot has published something that came after the last commit."""
        return self._published > self.seq

    def on_committed(self, seq: int, others: int | None, relabelled: int | None, *, is_whole: bool) -> None:
        """`others`: the last change that was no decision, labels of placed pods left out; `relabelled`: the last change
        of these labels. None from a snapshot of the last release.

        `is_whole`: all decisions of the commit are applied, and no worker is at fault.
        """
        self.seq = seq
        if others is None or not is_whole:
            self.clear()
            return
        newest_label = seq if relabelled is None else relabelled
        if self._oldest >= max(others, newest_label):
            return
        self._oldest = max(others, newest_label)
        for answers in self._kept.values():
            for class_id, kept in list(answers.items()):
                reads_labels = isinstance(kept, FollowedShard)
                if kept is not None and kept.seq < (self._oldest if reads_labels else others):
                    del answers[class_id]

    def offers(self, class_id: str, workers: Iterable[str]) -> bool:
        """Whether all of these workers have a ladder of the class from which its next placement can be taken."""
        kept = (self._right(worker, class_id) for worker in workers)
        return all(isinstance(each, _Kept) and each.offers(2) for each in kept)

    def answers(
        self, workers: Collection[str], wanted: Mapping[str, int], classes: Mapping[str, PodInfo], keys: Sequence[str]
    ) -> Known:
        """What workers would answer about these numbers of pods of these classes, with values of these labels."""
        followed = {class_id: self._follow(workers, classes[class_id]) for class_id in wanted}
        merged = {class_id: each.merged for class_id, each in followed.items() if each is not None}
        alone = sum(wanted.values()) == 1
        of_followed = {
            class_id: each.answers(wanted[class_id], keys, alone=alone) or {}
            for class_id, each in followed.items()
            if each is not None
        }
        answers: dict[str, list[ClassAnswer]] = {}
        for worker in workers:
            found: list[ClassAnswer] = []
            for class_id, count in wanted.items():
                kept = self._right(worker, class_id)
                if isinstance(kept, _Kept):
                    answer = kept.rest(count) if kept.offers(count, keys) else None
                else:
                    answer = of_followed.get(class_id, {}).get(worker)
                if answer is None:
                    break
                found.append(answer)
            else:
                answers[worker] = found
        return Known(answers, merged)

    def _right(self, worker: str, class_id: str) -> _Kept | FollowedShard | None:
        kept = self._kept[worker].get(class_id) if worker in self._kept else None
        return kept if kept is not None and kept.seq <= self.seq else None

    def _follow(self, workers: Collection[str], info: PodInfo) -> FollowedClass | None:
        """The class as it is now; None if the answers of some workers are not known."""
        class_id, shards = info.class_id, dict[str, FollowedShard]()
        for worker in workers:
            kept = self._right(worker, class_id)
            if not isinstance(kept, FollowedShard):
                return None
            shards[worker] = kept
        followed = self._followed.get(class_id)
        try:
            if followed is None or followed.shards.keys() != shards.keys() or not _are_same(followed.shards, shards):
                followed = self._followed[class_id] = FollowedClass(self._frameworks[info.template.profile], shards)
            followed.catch_up()
        except (ArithmeticError, LookupError, TypeError, ValueError, PluginFailed):
            self.forget(class_id)  # workers contradict each other: an ask finds out which is wrong
            return None
        return followed

    def heard(self, proposals: Proposals, classes: Mapping[str, PodInfo], wanted: Mapping[str, int]) -> Proposals:
        """Keeps the answers that last. Returns what the round is decided by: ladders as long as it wants them."""
        known = self._kept.setdefault(proposals.worker, BoundedDict(MAX_CLASSES))
        self._oldest = min(self._oldest, proposals.seq)
        if proposals.ask > 1:
            self._forget_beside(known, {answer.class_id for answer in proposals.answers})
        answers: list[ClassAnswer] = []
        for answer in proposals.answers:
            class_id = answer.class_id
            known.pop(class_id, None)
            if class_id in wanted and answer.lasts:
                kept = known[class_id] = _Kept(answer, proposals.seq)
                answer = kept.rest(wanted[class_id]) or answer
            elif class_id in wanted and answer.followed:
                known[class_id] = self._shard(classes[class_id], answer, proposals.seq) if answer.groups else None
            answers.append(answer)
        return replace(proposals, answers=answers)

    @staticmethod
    def _forget_beside(known: Mapping[str, _Kept | FollowedShard | None], classes: Collection[str]) -> None:
        """The summaries of these classes have changed: what other answers said of them was by the earlier ones."""
        for kept in known.values():
            if kept is not None:
                for class_id in classes:
                    kept.answer.beside.pop(class_id, None)

    def _shard(self, info: PodInfo, answer: ClassAnswer, seq: int) -> FollowedShard | None:
        """None if the groups do not suit the plugin: the worker may know of other rules."""
        framework = self._frameworks[info.template.profile]
        for name, plugin in framework.summaries.items():
            if isinstance(plugin, GroupedScore) and name in answer.summary.late:
                follower = plugin.follower(framework.shown(info.of_class), answer.summary.plugins.get(name))
                if follower is not None and all(len(each.values) == len(follower.labels) for each in answer.groups):
                    return FollowedShard(answer, seq, name, follower)
        return None

    def note_lasting(self, class_id: str) -> None:
        """An answer about it lasts, whether or not it is kept."""
        self._lately[class_id] = None

    def decided(
        self,
        classes: Iterable[str],
        decided: Collection[tuple[PodInfo, Placement]],
        workers: Collection[str],
        worker_of: Callable[[str], str],
    ) -> None:
        """A round about these classes was decided: their answers last if those of all workers do."""
        for class_id in classes:
            if all(class_id in self._kept.get(worker, ()) for worker in workers):
                self.note_lasting(class_id)
            else:
                self.forget(class_id)
        for info, placement in decided:
            if info.template.load.terms:
                self.clear()
                return
            kept = self._kept.get(worker_of(placement.node))
            if kept is not None:
                _take(kept, info, placement.node)

    def forget(self, class_id: str) -> None:
        """Of all workers."""
        for answers in self._kept.values():
            answers.pop(class_id, None)


def _are_same(some: Mapping[str, FollowedShard], others: Mapping[str, FollowedShard]) -> bool:
    return all(shard is others[worker] for worker, shard in some.items())


def _take(kept: BoundedDict[str, _Kept | FollowedShard | None], info: PodInfo, node: str) -> None:
    """Takes a worker's placement as decided: of its answers, those are dropped that may not be right any more."""
    of_class = kept.get(info.class_id)
    values = None if of_class is None else of_class.values_of(node)
    at = None if of_class is None else of_class.take(node)
    if of_class is None or at is None:
        kept.clear()
        return
    if not of_class.holds:
        del kept[info.class_id]
    beside, ranges, dropped = of_class.answer.beside, of_class.answer.ranges, list[str]()
    for other, answer in kept.items():
        if answer is of_class or answer is None:
            continue
        scores = beside.get(other)
        if scores is None or ranges.get(other) != answer.ranges:
            dropped.append(other)
            continue
        score = scores[at]
        if isinstance(answer, _Kept):
            if FULL < score < answer.floor and node not in answer.nodes:
                continue  # as for most classes: it was not the next for them, nor is it now
            still_holds = answer.give_way(node, score)
        elif answer.follower.counts(info.template.load):
            still_holds = False
        else:
            alike = isinstance(of_class, FollowedShard) and of_class.follower.labels == answer.follower.labels
            still_holds = answer.give_way(node, score, values if alike else None)
        if not still_holds:
            dropped.append(other)
    for other in dropped:
        del kept[other]
