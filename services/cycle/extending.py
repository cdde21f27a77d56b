"""Extenders in a round: whom they are asked about, and what their answers make of what the workers propose.

A pod that some extender judges is a class of its own, since the extender sees all of it. Its class is asked about with
`each`: the workers offer every feasible node once, and say why the others are not. Then the extenders are asked, about
all such pods of the round at the same time. Where they leave some nodes out, the workers are asked once more, among the
nodes that are left: scores are normalised over these alone.

    asking --settled--> asking the extenders --answered, none left out--------------> decided
                                             +--some left out--> asking --settled--> decided
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from flotilla.results import Code
from services.cycle.narrowing import SLACK, Narrowing
from services.cycle.walk import Unfit
from shared.config.structs import ExtenderConfig
from shared.extenders.interest import in_order, interested, timeout_of
from shared.extenders.talk import PLUGIN, Judgement
from shared.framework.diagnosis import merge_rejections, unfit_message
from shared.messages.evaluation import Rejections, Summary
from shared.messages.rounds import ClassAnswer, Ladder
from shared.model.objects import Pod

MOST_OFFERS = 1 << 15
"""Offers of nodes, over all judged pods of a round: some 50 bytes each in the workers' answers."""
_OWN = "/"


@dataclass(frozen=True, slots=True)
class Question:
    """May this pod go to these nodes, and where best?"""

    class_id: str
    pod: Pod
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskExtenders:
    """Effect: ask all of this at the same time; the answer is an ExtendersAnswered of the same round and ask."""

    round: int
    ask: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class ExtendersAnswered:
    """Event: a judgement for each class that was asked about."""

    round: int
    ask: int
    judgements: Mapping[str, Judgement]


class Extending:
    """Which pods concern which extenders."""

    def __init__(self, extenders: Iterable[ExtenderConfig] = ()) -> None:
        ordered = in_order(extenders)
        self._judges = tuple(extender for extender in ordered if extender.filter_verb or extender.prioritize_verb)
        self._binders = tuple(extender for extender in ordered if extender.bind_verb)
        self.narrowing = Narrowing(ordered)

    def class_of(self, class_id: str, pod: Pod) -> str:
        """The class of a pod: one of its own where some extender judges it."""
        return f"{class_id}{_OWN}{pod.uid}" if interested(self._judges, pod) else class_id

    def binder_reads(self, pod: Pod) -> bool:
        """Whether the binder needs to see the pod to know that an extender is to bind it."""
        return any(extender.managed_resources for extender in interested(self._binders, pod))

    def patience(self, questions: Iterable[Question]) -> float:
        """Seconds until an answer must be there."""
        return SLACK + max((self._longest(question.pod) for question in questions), default=0.0)

    def _longest(self, pod: Pod) -> float:
        """Filters are asked one after the other, priorities at the same time."""
        asked = interested(self._judges, pod)
        filters = sum(timeout_of(extender) for extender in asked if extender.filter_verb)
        return filters + max((timeout_of(extender) for extender in asked if extender.prioritize_verb), default=0.0)


def is_judged(class_id: str) -> bool:
    """Whether this is the class of one pod that extenders judge."""
    return _OWN in class_id


def plain_class(class_id: str) -> str:
    """The class that the pod would be of without extenders: what is known of that holds for this one, too."""
    return class_id.partition(_OWN)[0]


def most_judged(nodes: int) -> int:
    """So many pods that extenders judge are taken into a round, in a cluster of so many nodes; nought: not known."""
    return max(1, MOST_OFFERS // nodes) if nodes else 1


def question_of(class_id: str, pod: Pod, answers: Iterable[ClassAnswer]) -> Question | None:
    """None where nothing is to be judged: no node is feasible, or the attempt has failed already."""
    nodes: list[str] = []
    for answer in answers:
        if answer.failure is not None or answer.pre_filter is not None:
            return None
        nodes += answer.ladder.nodes
    return Question(class_id, pod, tuple(sorted(nodes))) if nodes else None


def left_out(question: Question, judgement: Judgement) -> bool:
    """Whether the workers are to be asked once more, among the nodes that are left."""
    return judgement.failure is None and 1 < len(judgement.added) < len(question.nodes)


def judged(ladder: Ladder, judgement: Judgement) -> Ladder:
    """One shard's offers after the extenders have spoken: best first again."""
    offers = [
        (-(ladder.scores[at] + judgement.added[node]), -ladder.ties[at], node, at)
        for at, node in enumerate(ladder.nodes)
        if node in judgement.added
    ]
    offers.sort()
    order = [at for _, _, _, at in offers]
    return msgspec.structs.replace(
        ladder,
        nodes=[node for _, _, node, _ in offers],
        scores=[-score for score, _, _, _ in offers],
        ties=[ladder.ties[at] for at in order],
        domains={key: [column[at] for at in order] for key, column in ladder.domains.items()},
        volumes=[ladder.volumes[at] for at in order] if ladder.volumes else [],
    )


def judged_unfit(
    merged: Summary, rejections: Iterable[Rejections], plugins: Sequence[str], judgement: Judgement
) -> Unfit:
    """No node is left: what the plugins said of the nodes, and what the extenders said of those that had been feasible.

    A node that was dropped without a word is counted nowhere but in the number of all.
    """
    said = (Rejections(status, 1) for status in judgement.rejected.values())
    all_said = merge_rejections((*rejections, *said))
    return Unfit(
        unfit_message(merged.nodes, None, all_said),
        tuple(sorted({*plugins, PLUGIN})),
        merged.nodes,
        merged.plugins,
        potential=sum(part.nodes for part in all_said if part.status.code is Code.UNSCHEDULABLE),
        refused=dict(judgement.rejected),
    )
