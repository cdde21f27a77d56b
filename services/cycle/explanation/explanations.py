"""Explanations: what the cycle tells of its decisions, which they never delay or change.

That is answers to people's questions (`questions.py`), hints for pods that fit nowhere (`hints.py`), and the journal of
what was decided (`journal.py`).
"""

from collections.abc import Callable, Mapping

from services.cycle.events import Answered, Effect, ExplanationAsked, Unschedulable
from services.cycle.explanation.hints import Hints
from services.cycle.explanation.journal import Journal
from services.cycle.explanation.questions import Questions, Shards
from services.cycle.extenders import Extenders, ExtendersExplained
from shared.deadlines import earliest
from shared.errors import ProtocolError
from shared.framework.profile import Framework
from shared.messages.explaining import PodExplained, ShardExplained

OWN_QUESTION = 0
"""The number of the cycle's own questions about pods; people's count from 1."""


class Explanations:
    """`workers` and `min_seq` of each call: who can be asked, and what they must have seen."""

    def __init__(
        self, epoch: int, frameworks: Mapping[str, Framework], extenders: Extenders, *, hints: bool = False
    ) -> None:
        """`hints`: whether pods that fit nowhere get Events with what would help."""
        self.journal = Journal()
        self._epoch = epoch
        self._frameworks = frameworks
        self._extenders = extenders
        self._questions = Questions(epoch, frameworks, extenders)
        self._hints = Hints(on=hints)
        self._began: float | None = None
        """When the first event came: from then on decisions are remembered."""

    def begin(self, now: float) -> None:
        if self._began is None:
            self._began = now

    @property
    def hints(self) -> Mapping[str, int]:
        """Pods by what became of their hints."""
        return self._hints.counts

    def next_deadline(self) -> float | None:
        return earliest(self._questions.next_deadline(), self._hints.next_deadline())

    def on_asked(self, asked: ExplanationAsked, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        return self._questions.on_asked(asked, workers, min_seq, now)

    def on_workers(self, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        """The shards have moved."""
        return self._questions.on_workers(workers, now) + self._questions.begin(workers, min_seq, now)

    def on_tick(self, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        return self._questions.on_tick(workers, now) + self._questions.begin(workers, min_seq, now)

    def awaits(self, explained: ShardExplained) -> bool:
        return self._questions.awaits(explained)

    def on_explained(self, explained: ShardExplained, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        effects = self._questions.on_explained(explained, workers, now)
        return effects + self._questions.begin(workers, min_seq, now)

    def on_extenders(self, explained: ExtendersExplained, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        return self._questions.on_extenders(explained) + self._questions.begin(workers, min_seq, now)

    def wait_for(self, min_seq: int) -> None:
        """Wait for this sequence number instead of a higher one that does not exist."""
        self._questions.wait_for(min_seq)

    def with_hints(
        self, effects: list[Effect], workers: Shards, min_seq: int, now: float, *, idle: bool
    ) -> tuple[list[Effect], list[ProtocolError]]:
        """Takes the answers to its own questions out of the effects, and adds hints, and the next question if the cycle
        is `idle`. Also returns what was wrong with answers.
        """
        if not self._hints.on:
            return effects, []
        kept: list[Effect] = []
        while True:
            for effect in effects:
                if isinstance(effect, Answered) and effect.number == OWN_QUESTION:
                    kept += self._hints.on_answered(effect, now)
                    continue
                kept.append(effect)
                if isinstance(effect, Unschedulable):
                    kept += self._hints.on_rejected(effect, now)
            effects = self._ask_for_hint(workers, min_seq, now, idle=idle)
            if not effects:
                break
        problems, self._hints.problems = self._hints.problems, []
        return kept, problems

    def _ask_for_hint(self, workers: Shards, min_seq: int, now: float, *, idle: bool) -> list[Effect]:
        request = self._hints.next(now, idle=idle and bool(workers) and self._questions.are_answered)
        if request is None:
            return []
        return self._questions.on_asked(ExplanationAsked(OWN_QUESTION, request), workers, min_seq, now)

    def explained(self, answered: Answered, now: float, date: Callable[[float], float]) -> PodExplained:
        """The answer to a question, with what is remembered. `date` converts times of this core to Unix times."""
        request, pod = answered.request, answered.pod
        uid, journal = self.journal.of(request.uid, request.namespace, request.name, date)
        framework = None if pod is None else self._frameworks.get(pod.spec.scheduler_name)
        weights = (
            {} if framework is None else dict(zip((p.name for p in framework.score), framework.weights, strict=True))
        )
        return PodExplained(
            epoch=self._epoch,
            seq=answered.seq,
            now=date(now),
            since=date(self._began or now),
            profiles=tuple(sorted(self._frameworks)),
            weights=weights,
            findings=answered.findings,
            problem=answered.problem,
            uid=uid,
            journal=journal,
            extenders=pod is not None and self._extenders.judge_pod(pod),
        )
