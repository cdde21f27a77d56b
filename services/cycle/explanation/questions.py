"""Explanations of single pods, one at a time, beside rounds and searches, which they never delay or change.

    waiting --first in line--> asking --all answered by the merged summaries--> answered
                                |  ^                              |
                                +--+ a summary has changed, or    +--of interest to extenders--> judging --> answered
                                     the shards have moved

No decision is made, so the only thing ever sent again is the question. Every asker gets an answer within `PATIENCE`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from services.cycle.events import Answered, Ask, Effect, ExplanationAsked
from services.cycle.explanation.extender_views import question_about, with_judgement, without_judgement
from services.cycle.explanation.merging import merge_findings
from services.cycle.extenders import AskForExplanation, Extenders, ExtendersExplained
from shared.errors import FlotillaError
from shared.framework.profile import MAX_ASKS, Framework, is_mergeable, merge, merging_failed
from shared.framework.signatures import PluginFailed
from shared.messages.evaluation import Summary
from shared.messages.explaining import (
    MAX_ASKED_NODES,
    MAX_SUPPOSED,
    ExplainNodes,
    ExplainPod,
    NodeFindings,
    ShardExplained,
)
from shared.model.objects import Pod, pod_from_msgpack

MAX_WAITING = 16
"""Questions in line; further ones are refused."""
PATIENCE = 8.0
"""Seconds until a question is answered without findings, from when it came: less than the askers wait."""
ASK_DEADLINE = 1.0
"""Seconds until a worker that has not answered is asked again."""
EXTENDER_PATIENCE = 3.0
"""Seconds until extenders that are asked for an explanation count as silent."""
SILENT = f"the extenders have not answered within {EXTENDER_PATIENCE:g} s"
BUSY = f"{MAX_WAITING} questions are waiting for an explanation already; ask again"
TOO_MANY_NODES = f"at most {MAX_ASKED_NODES} nodes can be asked about"
TOO_MUCH_SUPPOSED = f"at most {MAX_SUPPOSED} changed nodes, and removed or added pods, can be supposed"
NO_WORKERS = "not every node has a worker that answers for it now; ask again in a second"
LATE = f"the workers have not answered within {PATIENCE:g} s"

Shards = Mapping[str, frozenset[int]]


@dataclass(slots=True)
class Question:
    number: int
    """Of the request, by which the service finds who asked."""
    request: ExplainPod
    pod: Pod
    due: float
    ask: int = 0
    asked_at: float = 0.0
    guess: Summary | None = None
    borrowed: bool = True
    detailed: bool = False
    """Whether the present ask is for more than counts: not before the guess is worth it."""
    offers: bool = False
    """Whether extenders are asked about the nodes that plugins leave."""
    answered: dict[str, ShardExplained] = field(default_factory=dict)
    judging: tuple[NodeFindings, int] | None = None
    """While extenders are asked: the findings so far, and the state that they are about."""

    @property
    def profile(self) -> str:
        return self.pod.spec.scheduler_name

    def message(self, epoch: int, number: int, min_seq: int) -> ExplainNodes:
        """To the workers. `number`: the cycle's own count of questions, in which answers are named."""
        request, pod = self.request, self.pod
        return ExplainNodes(
            epoch=epoch,
            number=number,
            ask=self.ask,
            min_seq=min_seq,
            profile=self.profile,
            pod=pod,
            guess=self.guess,
            borrowed=self.borrowed,
            nodes=request.nodes,
            supposed=request.supposed,
            details=self.detailed,
            offers=self.detailed and self.offers,
            everywhere=request.everywhere,
        )


class Questions:
    def __init__(self, epoch: int, frameworks: Mapping[str, Framework], extenders: Extenders) -> None:
        self._epoch = epoch
        self._extenders = extenders
        self._frameworks = frameworks
        self._waiting: deque[Question] = deque()
        self._current: Question | None = None
        self._number = 0
        self._min_seq = 0
        self._latest: dict[str, Summary] = {}
        """By profile, the last merged summary: a pod that is asked about is often asked about again, changed."""

    @property
    def are_answered(self) -> bool:
        return self._current is None and not self._waiting

    def next_deadline(self) -> float | None:
        current = self._current
        if current is None and not self._waiting:
            return None
        deadlines = [question.due for question in self._waiting]
        if current is not None:
            deadlines += [current.due] if current.judging else [current.due, current.asked_at + ASK_DEADLINE]
        return min(deadlines)

    def on_asked(self, asked: ExplanationAsked, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        request = asked.request
        if not request.body:
            return [Answered(asked.number, request, None, None)]
        try:
            pod = pod_from_msgpack(request.body)
        except (msgspec.DecodeError, FlotillaError, ValueError, RecursionError) as cause:
            return [Answered(asked.number, request, None, None, f"the pod cannot be read: {cause}")]
        if pod.spec.scheduler_name not in self._frameworks:
            return [Answered(asked.number, request, pod, None)]
        if len(request.nodes) > MAX_ASKED_NODES:
            return [Answered(asked.number, request, pod, None, TOO_MANY_NODES)]
        if request.supposed.changes > MAX_SUPPOSED:
            return [Answered(asked.number, request, pod, None, TOO_MUCH_SUPPOSED)]
        if len(self._waiting) >= MAX_WAITING:
            return [Answered(asked.number, request, pod, None, BUSY)]
        offers = not request.brief and self._extenders.judge_pod(pod)
        self._waiting.append(Question(asked.number, request, pod, now + PATIENCE, offers=offers))
        return self.begin(workers, min_seq, now)

    def begin(self, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        """Asks about the first in line, unless one is asked about. `min_seq`: what workers must have seen."""
        if self._current is not None or not self._waiting or not workers:
            return []
        question = self._current = self._waiting.popleft()
        self._number += 1
        question.guess = self._latest.get(question.profile)
        self._min_seq = min_seq
        return self._ask(question, workers, now)

    def on_workers(self, workers: Shards, now: float) -> list[Effect]:
        """The shards have moved: asks again."""
        return [] if self._current is None or not workers else self._ask(self._current, workers, now)

    def wait_for(self, min_seq: int) -> None:
        """Wait for this sequence number instead of a higher one that does not exist."""
        self._min_seq = min(self._min_seq, min_seq)

    def on_tick(self, workers: Shards, now: float) -> list[Effect]:
        effects: list[Effect] = []
        why = LATE if workers else NO_WORKERS
        while self._waiting and self._waiting[0].due <= now:
            question = self._waiting.popleft()
            effects.append(Answered(question.number, question.request, question.pod, None, why))
        current = self._current
        if current is None:
            return effects
        if current.due <= now and current.judging is not None:
            findings, seq = current.judging
            return [*effects, *self._end(current, without_judgement(findings, SILENT), seq)]
        if current.due <= now:
            self._current = None
            return [*effects, Answered(current.number, current.request, current.pod, None, why)]
        if current.asked_at + ASK_DEADLINE <= now and current.judging is None:
            current.asked_at = now
            message = self._message(current)
            effects += [Ask(worker, message) for worker in workers if worker not in current.answered]
        return effects

    def awaits(self, explained: ShardExplained) -> bool:
        """Whether this is a worker's first answer to the present ask, and of use."""
        current = self._current
        if current is None or explained.epoch != self._epoch or explained.worker in current.answered:
            return False
        if (explained.number, explained.ask) != (self._number, current.ask) or explained.seq < self._min_seq:
            return False
        return is_mergeable(self._frameworks[current.profile], explained.summary)

    def on_explained(self, explained: ShardExplained, workers: Shards, now: float) -> list[Effect]:
        current = self._current
        if current is None:
            return []
        current.answered[explained.worker] = explained
        if len(current.answered) < len(workers):
            return []
        answers = [current.answered[worker] for worker in sorted(current.answered)]
        try:
            is_settled = self._is_settled(current, answers)
        except PluginFailed as cause:
            self._current = None
            return [Answered(current.number, current.request, current.pod, None, merging_failed(cause).message)]
        if not is_settled:
            return self._ask(current, workers, now)
        findings = merge_findings([each.findings for each in answers])
        seq = min(each.seq for each in answers)
        about = question_about(current.pod, findings) if current.offers else None
        if about is None:
            return self._end(current, msgspec.structs.replace(findings, offers=()), seq)
        current.judging = findings, seq
        current.due = min(current.due, now + EXTENDER_PATIENCE)
        return [AskForExplanation(self._number, current.ask, about)]

    def on_extenders(self, explained: ExtendersExplained) -> list[Effect]:
        """Late answers, and those to an earlier ask, are ignored."""
        current = self._current
        if current is None or current.judging is None:
            return []
        if (explained.number, explained.ask) != (self._number, current.ask):
            return []
        findings, seq = current.judging
        return self._end(current, with_judgement(findings, explained.judgement), seq)

    def _end(self, current: Question, findings: NodeFindings, seq: int) -> list[Effect]:
        self._current = None
        return [Answered(current.number, current.request, current.pod, findings, "", seq)]

    def _is_settled(self, current: Question, answers: list[ShardExplained]) -> bool:
        """Whether all were judged by the merged summary. If not, it is the guess of the next ask, if there is one."""
        if any(each.findings.failure or each.findings.pre_filter for each in answers):
            return True
        merged = merge(self._frameworks[current.profile], (each.summary for each in answers))
        by_itself = any(each.by_itself for each in answers)
        if by_itself and len(answers) == 1:  # asked in detail, as there is nothing to agree on
            self._latest[current.profile] = merged
            return True
        settled = (
            (current.detailed or current.request.brief)
            and not by_itself
            and merged.agrees_with(current.guess)
            and merged.feasible == _count(current.guess)
        )
        if not settled and current.ask < MAX_ASKS:
            current.guess, current.borrowed = merged, False
            return False
        self._latest[current.profile] = merged
        return True

    def _ask(self, question: Question, workers: Shards, now: float) -> list[Effect]:
        question.ask += 1
        question.asked_at = now
        question.answered, question.judging = {}, None
        question.detailed = not question.request.brief and (len(workers) == 1 or not question.borrowed)
        message = self._message(question)
        return [Ask(worker, message) for worker in workers]

    def _message(self, question: Question) -> ExplainNodes:
        return question.message(self._epoch, self._number, self._min_seq)


def _count(guess: Summary | None) -> int:
    """The feasible nodes that a worker was told of, by which it knows whether evictions are worth looking for."""
    return 0 if guess is None else guess.feasible
