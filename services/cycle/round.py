"""A round: pods, their classes, and the workers' answers about these as they come in."""

from collections import Counter

from services.cycle.race import Race
from services.cycle.walk import QueuedPod, Unfit, Verdict
from shared.framework.diagnosis import merge_rejections, unfit_message
from shared.framework.profile import Framework
from shared.framework.status import error
from shared.framework.summary import Summary, merge
from shared.messages.rounds import ClassAnswer, Proposals


class Round:
    """`open`: the classes that are still to be asked about. `answered`: who has answered the present ask.

    `min_seq`: what the workers were last asked to have seen.
    """

    def __init__(self, number: int, pods: list[QueuedPod]) -> None:
        self.number = number
        self.pods = pods
        self.ask = 0
        self.min_seq = 0
        self.classes: dict[str, QueuedPod] = {}
        for queued in pods:
            self.classes.setdefault(queued.class_id, queued)
        self.counts = Counter(queued.class_id for queued in pods)
        self.open = set(self.classes)
        self.answered: dict[str, Proposals] = {}
        self._answers: dict[str, list[tuple[ClassAnswer, int]]] = {}
        self._merged: dict[str, Summary] = {}

    def start_over(self) -> None:
        """Other workers hold the shards now: what was answered before counts no more."""
        self.open = set(self.classes)

    def next_ask(self) -> None:
        self.ask += 1
        self.answered = {}

    def gather(self) -> None:
        """Everybody has answered the present ask: sorts the answers by class, each with what it had seen."""
        for class_id in self.open:
            self._answers[class_id] = []
        for proposals in self.answered.values():
            for answer in proposals.answers:
                self._answers[answer.class_id].append((answer, proposals.seq))

    def is_known_everywhere(self, class_id: str) -> bool:
        return not any(answer.unknown for answer, _ in self._answers[class_id])

    def needs_no_summary(self, class_id: str) -> bool:
        """A plugin failed, or no node had to be looked at."""
        return any(a.failure is not None or a.pre_filter is not None for a, _ in self._answers[class_id])

    def merge(self, class_id: str, framework: Framework) -> Summary:
        """What all shards together know."""
        merged = merge(framework, (answer.summary for answer, _ in self._answers[class_id]))
        self._merged[class_id] = merged
        return merged

    def verdict(self, class_id: str) -> Verdict:
        """Once everybody has answered: where pods of this class can go, or why not."""
        if class_id in self.open:
            return None
        answers = self._answers[class_id]
        for answer, _ in answers:
            if answer.failure is not None:
                return answer.failure
        restricted_by = answers[0][0].restricted_by
        pre_filter = next((answer.pre_filter for answer, _ in answers if answer.pre_filter is not None), None)
        if pre_filter is not None:
            nodes = sum(answer.summary.nodes for answer, _ in answers)
            return Unfit(unfit_message(nodes, pre_filter, ()), _named(pre_filter.plugin, *restricted_by))
        merged = self._merged[class_id]
        score_failure = answers[0][0].score_failure
        if score_failure is not None and merged.feasible > 1:
            return score_failure
        if merged.feasible and all(answer.ladder.complete and not answer.ladder.nodes for answer, _ in answers):
            return error(f"{merged.feasible} nodes are feasible, and none of them is proposed")
        if merged.feasible:
            return Race(class_id, [(answer.ladder, seq) for answer, seq in answers])
        rejections = merge_rejections(part for answer, _ in answers for part in answer.rejections)
        plugins = _named(*(part.status.plugin for part in rejections), *restricted_by)
        return Unfit(unfit_message(merged.nodes, None, rejections), plugins)


def _named(*plugins: str) -> tuple[str, ...]:
    return tuple(sorted({*plugins} - {""}))
