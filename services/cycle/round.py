"""A round: pods, their classes, and the workers' answers about these as they come in."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from flotilla.results import Code, Topology, error
from services.cycle.domainrace import DomainRace, Trackers
from services.cycle.extending import (
    Question,
    is_judged,
    judged,
    judged_unfit,
    left_out,
    plain_class,
    question_of,
)
from services.cycle.gang import GangRound
from services.cycle.gangvolumes import Promised
from services.cycle.race import Race
from services.cycle.walk import QueuedPod, Unfit, Verdict
from shared.extenders.talk import Judgement
from shared.framework.diagnosis import merge_rejections, unfit_message
from shared.framework.plugin import joined
from shared.framework.profile import Framework
from shared.framework.summary import merge
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, Ladder, Proposals


class Round:
    """`open`: the classes that are still to be asked about. `answered`: who has answered the present ask.

    `min_seq`: what the workers were last asked to have seen; `least_seq`: the lowest of these in the present ask.
    `guesses`: the merged summaries that the present ask goes by; `borrowed`: those of other classes.
    `judgements`: what extenders say of classes; `among`: the nodes that they leave to these.
    `topologies`: by which labels decisions matter to each class, as far as is known; `asked_keys` are those that the
    workers were last asked to tell of.
    `gang`: what its pods are members of, some of which may have been decided in rounds before this one.
    """

    def __init__(self, number: int, pods: list[QueuedPod], gang: GangRound | None = None) -> None:
        self.number = number
        self.pods = pods
        self.gang = gang
        self.ask = 0
        self.min_seq = 0
        self.least_seq: int | None = None
        self.classes: dict[str, QueuedPod] = {}
        for queued in pods:
            self.classes.setdefault(queued.class_id, queued)
        self.counts = Counter(queued.class_id for queued in pods)
        self.open = set(self.classes)
        self.answered: dict[str, Proposals] = {}
        self.guesses: dict[str, Summary | None] = {}
        self.borrowed: dict[str, bool] = {}
        self.topologies: dict[str, Topology | None] = {}
        self.asked_keys: tuple[str, ...] = ()
        self.trackers: dict[str, Trackers] = {}
        self.among: dict[str, list[str]] = {}
        self.judgements: dict[str, Judgement] = {}
        self._questions: dict[str, Question] = {}
        self._answers: dict[str, list[tuple[ClassAnswer, int]]] = {}
        self._merged: dict[str, Summary] = {}

    @property
    def held(self) -> list[QueuedPod]:
        """Those that wait for what comes of it: of a gang, all."""
        return self.pods if self.gang is None else self.gang.members

    @property
    def promised(self) -> Promised | None:
        return None if self.gang is None else self.gang.promised()

    def start_over(self) -> None:
        """Other workers hold the shards now: what was answered before counts no more."""
        self.open = set(self.classes)
        self.among, self.judgements, self._questions = {}, {}, {}

    def next_ask(self) -> None:
        self.ask += 1
        self.answered = {}
        self.least_seq = None

    def is_to_see(self, seq: int) -> None:
        """Workers are asked the present ask, and to have seen this."""
        self.least_seq = seq if self.least_seq is None else min(self.least_seq, seq)
        self.min_seq = seq

    def unusable(self, frameworks: Mapping[str, Framework]) -> list[str]:
        """The workers that have told of something in a form that their own framework cannot merge."""
        return [
            worker
            for worker, proposals in self.answered.items()
            if not all(self._is_usable(answer, frameworks) for answer in proposals.answers)
        ]

    def _is_usable(self, answer: ClassAnswer, frameworks: Mapping[str, Framework]) -> bool:
        try:
            queued = self.classes[answer.class_id]
            framework = frameworks[queued.profile]
            merged = merge(framework, [answer.summary, answer.summary])
            if self.is_followed:
                framework.trackers(queued.pod, merged.plugins, merged.late, merged.ranges)
        except Exception:
            return False
        return True

    def gather(self) -> None:
        """Everybody has answered the present ask: sorts the answers by class, each with what it had seen."""
        for class_id in self.open:
            self._answers[class_id] = []
        for proposals in self.answered.values():
            for answer in proposals.answers:
                self._answers[answer.class_id].append((answer, proposals.seq))

    def remembered_as(self, class_id: str) -> str:
        """The class whose merged summary is to be expected for this one."""
        return class_id if class_id in self.among else plain_class(class_id)

    # Extenders

    def questions(self) -> tuple[Question, ...]:
        """What extenders are still to be asked."""
        for class_id, queued in self.classes.items():
            if is_judged(class_id) and class_id not in self.judgements and class_id not in self.open:
                answers = (answer for answer, _ in self._answers[class_id])
                question = question_of(class_id, queued.pod, answers)
                if question is not None:
                    self._questions[class_id] = question
        return tuple(each for class_id, each in self._questions.items() if class_id not in self.judgements)

    def take_judgements(self, judgements: Mapping[str, Judgement]) -> set[str]:
        """The classes about which the workers are to be asked once more, among the nodes that are left."""
        self.judgements |= judgements
        again = {c for c, judgement in judgements.items() if left_out(self._questions[c], judgement)}
        self.among |= {class_id: sorted(judgements[class_id].added) for class_id in again}
        self.open |= again
        return again

    def silence(self) -> dict[str, Judgement]:
        """A judgement for each question that nobody has answered."""
        unheard = Judgement(failure=error("the extenders have not been heard of"))
        return {question.class_id: unheard for question in self.questions()}

    # Topology

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels by which some class of the round follows what is decided."""
        return tuple(sorted({key for topology in self.topologies.values() if topology for key in topology.keys}))

    @property
    def is_followed(self) -> bool:
        """Whether decisions of this round matter to some class beyond the nodes that they fill."""
        return any(topology is not None for topology in self.topologies.values())

    def learn_topologies(self) -> None:
        """From the answers to the present ask."""
        for class_id in self.open:
            self.topologies[class_id] = joined(answer.topology for answer, _ in self._answers[class_id])

    def follow(self, frameworks: Mapping[str, Framework]) -> None:
        """Every class that has a merged summary gets its trackers, if decisions matter to any."""
        for class_id, merged in self._merged.items() if self.is_followed else ():
            queued = self.classes[class_id]
            if class_id not in self.open:
                self.trackers[class_id] = Trackers(
                    frameworks[queued.profile].trackers(queued.pod, merged.plugins, merged.late, merged.ranges)
                )

    def prediction(self, class_id: str) -> Summary:
        """The merged summary of a followed class, as the decisions of this round have changed it."""
        merged = self._merged[class_id]
        changed = {name: tracker.summary() for name, tracker in self.trackers[class_id].by_plugin()}
        return msgspec.structs.replace(merged, plugins={**merged.plugins, **changed})

    def is_known_everywhere(self, class_id: str) -> bool:
        return not any(answer.unknown for answer, _ in self._answers[class_id])

    def is_judged_by_itself(self, class_id: str) -> bool:
        """Had some worker no guess that it could use?"""
        return any(answer.by_itself for answer, _ in self._answers[class_id])

    def needs_no_summary(self, class_id: str) -> bool:
        """A plugin failed, or no node had to be looked at."""
        return any(a.failure is not None or a.pre_filter is not None for a, _ in self._answers[class_id])

    def has_merged(self, class_id: str) -> bool:
        """Whether a merged summary of it was found in this round already."""
        return class_id in self._merged

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
            plugins = _named(pre_filter.plugin, *restricted_by)
            potential = nodes if pre_filter.code is Code.UNSCHEDULABLE else 0
            return Unfit(unfit_message(nodes, pre_filter, ()), plugins, nodes, potential=potential)
        merged, judgement = self._merged[class_id], self.judgements.get(class_id)
        if judgement is not None and judgement.failure is not None:
            return judgement.failure
        nominated = [(answer.ladder, seq) for answer, seq in answers if answer.via_nominated]
        if nominated and judgement is not None:
            node = self.classes[class_id].pod.status.nominated_node_name
            only = Judgement({node: 0} if node in judgement.added else {})
            nominated = [(judged(ladder, only), seq) for ladder, seq in nominated if node in only.added]
        if nominated and (judgement is not None or not is_judged(class_id)):
            return self._race(class_id, nominated)
        feasible = merged.feasible if judgement is None else min(merged.feasible, len(judgement.added))
        score_failure = answers[0][0].score_failure
        if score_failure is not None and feasible > 1:
            return score_failure
        if not feasible:
            return self._unfit(class_id)
        if all(answer.ladder.complete and not answer.ladder.nodes for answer, _ in answers):
            return error(f"{feasible} nodes are feasible, and none of them is proposed")
        if judgement is None:
            return None if is_judged(class_id) else self._race(class_id, [(a.ladder, seq) for a, seq in answers])
        ladders = [(judged(answer.ladder, judgement), seq) for answer, seq in answers]
        return self._race(class_id, ladders) if any(ladder.nodes for ladder, _ in ladders) else None

    def _race(self, class_id: str, ladders: Sequence[tuple[Ladder, int]]) -> Race | DomainRace:
        trackers = self.trackers.get(class_id)
        return Race(class_id, ladders) if trackers is None else DomainRace(class_id, ladders, trackers)

    def _unfit(self, class_id: str) -> Unfit:
        answers, merged = self._answers[class_id], self._merged[class_id]
        rejections = merge_rejections(part for answer, _ in answers for part in answer.rejections)
        plugins = _named(*(part.status.plugin for part in rejections), *answers[0][0].restricted_by)
        judgement = self.judgements.get(class_id)
        if judgement is not None:
            return judged_unfit(merged, rejections, plugins, judgement)
        potential = sum(part.nodes for part in rejections if part.status.code is Code.UNSCHEDULABLE)
        message = unfit_message(merged.nodes, None, rejections)
        return Unfit(message, plugins, merged.nodes, merged.plugins, potential)


def _named(*plugins: str) -> tuple[str, ...]:
    return tuple(sorted({*plugins} - {""}))
