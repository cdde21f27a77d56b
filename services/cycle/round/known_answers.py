"""Answers that workers need not be asked for again, because what they would say is known.

A ladder lists the next placements of a class in a worker's shards, each as if the ones before it were taken. So once
the first ones are taken, what remains of it is what the worker would answer now, as long as nothing else was written
that the class reads. Workers say of which ladders this holds (`ClassAnswer.lasts`). An answer is kept until

- a decision of another class goes to a node of these shards, or one with affinity rules anywhere;
- the snapshot tells of a change that is no decision, and that the answer does not include;
- a decision is refused, the shards are divided otherwise, or a worker is wrong;
- too little is left of the ladder.

A round that is decided by kept answers is decided as if the workers had been asked at that moment: by the same nodes,
scores, ties and summaries, and at the newest sequence number.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

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
"""Of whose answers each worker's are kept."""


@dataclass(slots=True)
class _Kept:
    """`seq`: the state that it was evaluated at. `taken`: how many of the ladder's placements were decided since."""

    answer: ClassAnswer
    seq: int
    taken: int = 0


class KnownAnswers:
    """What the answers say counts for the round after the last decisions, and only once their commit is answered."""

    def __init__(self) -> None:
        self.seq = 0
        """The state at which the kept answers are right: that of the last commit's answer."""
        self._kept: dict[str, BoundedDict[str, _Kept]] = {}
        """By worker and class."""

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
        for answers in self._kept.values():
            for class_id in [class_id for class_id, kept in answers.items() if kept.seq < others]:
                del answers[class_id]

    def answers(self, worker: str, wanted: Mapping[str, int]) -> list[ClassAnswer] | None:
        """What the worker would answer about these classes and numbers of pods; None if it must be asked."""
        known, found = self._kept.get(worker), list[ClassAnswer]()
        for class_id, count in wanted.items():
            kept = None if known is None else known.get(class_id)
            answer = _rest(kept, count) if kept is not None and self._offers(kept, count) else None
            if answer is None:
                return None
            found.append(answer)
        return found

    def _offers(self, kept: _Kept, count: int) -> bool:
        """Whether enough of the ladder is left, and its answer includes nothing that is not known yet."""
        ladder = kept.answer.ladder
        left = len(ladder.nodes) - kept.taken
        return left > 0 and (left >= count or ladder.complete) and kept.seq <= self.seq

    def heard(self, proposals: Proposals, wanted: Mapping[str, int]) -> Proposals:
        """Keeps the answers that last. Returns what the round is decided by: ladders as long as it wants them."""
        known = self._kept.setdefault(proposals.worker, BoundedDict(MAX_CLASSES))
        answers: list[ClassAnswer] = []
        for answer in proposals.answers:
            known.pop(answer.class_id, None)
            if answer.lasts and answer.class_id in wanted:
                kept = known[answer.class_id] = _Kept(answer, proposals.seq)
                answer = _rest(kept, wanted[answer.class_id]) or answer
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
            if not all(class_id in self._kept.get(worker, ()) for worker in workers):
                self.forget(class_id)
        written: dict[str, Counter[str]] = {}
        for info, placement in decided:
            if info.template.load.terms:
                self.clear()
                return
            written.setdefault(worker_of(placement.node), Counter())[info.class_id] += 1
        for worker, counts in written.items():
            self._take(worker, counts)

    def _take(self, worker: str, counts: Counter[str]) -> None:
        """Takes the worker's placements as decided, counted by class. With several classes no answer stays right."""
        kept = None
        if len(counts) == 1:
            ((class_id, count),) = counts.items()
            kept = self._kept[worker].get(class_id) if worker in self._kept else None
        self._kept[worker] = BoundedDict(MAX_CLASSES)
        if kept is not None:
            kept.taken += count
            self._kept[worker][class_id] = kept

    def forget(self, class_id: str) -> None:
        """Of all workers."""
        for answers in self._kept.values():
            answers.pop(class_id, None)


def _rest(kept: _Kept, count: int) -> ClassAnswer | None:
    """The worker's answer about `count` pods; None if it would name a second best node that is not known."""
    answer, at = kept.answer, kept.taken
    ladder, end = answer.ladder, at + count
    nodes, runner_up = ladder.nodes[at:end], None
    if len(set(nodes)) == 1:
        following = next((i for i in range(at + 1, len(ladder.nodes)) if ladder.nodes[i] != nodes[0]), None)
        if following is not None:
            runner_up = ladder.nodes[following], ladder.scores[following]
        elif all(node == nodes[0] for node in ladder.nodes):
            runner_up = answer.runner_up
        elif not ladder.complete:
            return None
    filled = sum(index < at for index in ladder.fills)
    return replace(
        answer,
        summary=replace(answer.summary, feasible=max(1, answer.summary.feasible - filled)),
        ladder=replace(
            ladder,
            nodes=nodes,
            scores=ladder.scores[at:end],
            ties=ladder.ties[at:end],
            complete=ladder.complete and len(ladder.nodes) - at < count,
            domains={key: values[at:end] for key, values in ladder.domains.items()},
            fills=[],
        ),
        runner_up=runner_up,
    )
