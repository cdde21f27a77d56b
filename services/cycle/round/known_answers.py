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

A round that is decided by kept answers is decided as if the workers had been asked at that moment: by the same nodes,
scores, ties and summaries, and at the newest sequence number.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from msgspec.structs import replace

from services.cycle.round.admission import PodInfo
from services.cycle.round.ladder_merge import Placement
from shared.bounded import BoundedDict
from shared.messages.rounds import ClassAnswer, Proposals

AHEAD = 32
"""Placements that a worker is asked for beyond those of the round."""
MAX_AHEAD_OF = 64
"""Pods in a round, at most, for which it is: larger rounds follow each other without a pause."""
MAX_CLASSES = 64
"""That come in turn, at most, without an ask for each of their pods."""
FULL = -1
"""In place of a score: the node is not feasible for the class any more."""


@dataclass(slots=True)
class _Kept:
    """`seq`: the state that it was evaluated at. `left`: the placements of the ladder that still hold, by index.

    `filled`: how many nodes the placements that were decided since have filled. `complete`: no others follow.
    """

    answer: ClassAnswer
    seq: int
    left: list[int] = field(init=False)
    filled: int = 0
    complete: bool = field(init=False)
    nodes: frozenset[str] = field(init=False)
    lowest: int = field(init=False)

    def __post_init__(self) -> None:
        ladder = self.answer.ladder
        self.left = list(range(len(ladder.nodes)))
        self.complete = ladder.complete
        self.nodes, self.lowest = frozenset(ladder.nodes), min(ladder.scores, default=0)

    def offers(self, count: int) -> bool:
        """Whether enough of the ladder is left."""
        return bool(self.left) and (len(self.left) >= count or self.complete)

    def take(self, node: str) -> int | None:
        """Takes its next placement as decided, and returns its index; None if that is on another node."""
        ladder = self.answer.ladder
        if not self.left or ladder.nodes[self.left[0]] != node:
            return None
        at = self.left.pop(0)
        self.filled += at in ladder.fills
        return at

    def give_way(self, node: str, score: int) -> bool:
        """Another class has taken the node, which has this score since. Returns whether anything still holds."""
        answer, ladder = self.answer, self.answer.ladder
        if score == FULL:
            return False
        if answer.runner_up is not None and (answer.runner_up[0] == node or answer.runner_up[1] <= score):
            return False
        if score < self.lowest and node not in self.nodes:
            return True
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
        return replace(
            answer,
            summary=replace(answer.summary, feasible=max(1, answer.summary.feasible - self.filled)),
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


class KnownAnswers:
    """What the answers say counts for the round after the last decisions, and only once their commit is answered."""

    def __init__(self) -> None:
        self.seq = 0
        """The state at which the kept answers are right: that of the last commit's answer."""
        self._kept: dict[str, BoundedDict[str, _Kept]] = {}
        """By worker and class."""
        self._lately: BoundedDict[str, None] = BoundedDict(MAX_CLASSES)
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
        if seq > self.seq:
            self.clear()

    def on_committed(self, seq: int, others: int | None, *, is_whole: bool) -> None:
        """`others`: the last change that was no decision; None if the snapshot does not tell.

        `is_whole`: all decisions of the commit are applied, and no worker is at fault.
        """
        self.seq = seq
        if others is None or not is_whole:
            self.clear()
            return
        if self._oldest < others:
            self._oldest = others
            for answers in self._kept.values():
                for class_id in [class_id for class_id, kept in answers.items() if kept.seq < others]:
                    del answers[class_id]

    def answers(self, worker: str, wanted: Mapping[str, int]) -> list[ClassAnswer] | None:
        """What the worker would answer about these classes and numbers of pods; None if it must be asked."""
        known, found = self._kept.get(worker), list[ClassAnswer]()
        for class_id, count in wanted.items():
            kept = None if known is None else known.get(class_id)
            is_right = kept is not None and kept.seq <= self.seq
            answer = kept.rest(count) if kept is not None and is_right and kept.offers(count) else None
            if answer is None:
                return None
            found.append(answer)
        return found

    def heard(self, proposals: Proposals, wanted: Mapping[str, int]) -> Proposals:
        """Keeps the answers that last. Returns what the round is decided by: ladders as long as it wants them."""
        known = self._kept.setdefault(proposals.worker, BoundedDict(MAX_CLASSES))
        self._oldest = min(self._oldest, proposals.seq)
        answers: list[ClassAnswer] = []
        for answer in proposals.answers:
            known.pop(answer.class_id, None)
            if answer.lasts and answer.class_id in wanted:
                kept = known[answer.class_id] = _Kept(answer, proposals.seq)
                answer = kept.rest(wanted[answer.class_id]) or answer
            answers.append(answer)
        return replace(proposals, answers=answers)

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
                self._lately[class_id] = None
            else:
                self.forget(class_id)
        for info, placement in decided:
            if info.template.load.terms:
                self.clear()
                return
            self._take(self._kept.get(worker_of(placement.node), BoundedDict(0)), info.class_id, placement.node)

    def _take(self, kept: BoundedDict[str, _Kept], class_id: str, node: str) -> None:
        """Takes a worker's placement as decided: of its answers, those are dropped that may not be right any more."""
        of_class = kept.get(class_id)
        at = None if of_class is None else of_class.take(node)
        if of_class is None or at is None:
            kept.clear()
            return
        told = of_class.answer
        for other, answer in list(kept.items()):
            is_known = other in told.beside and told.ranges.get(other) == answer.answer.ranges.get(other)
            if other != class_id and not (is_known and answer.give_way(node, told.beside[other][at])):
                del kept[other]

    def forget(self, class_id: str) -> None:
        """Of all workers."""
        for answers in self._kept.values():
            answers.pop(class_id, None)
