"""Extenders in rounds and in preemption: which pods concern them, what they are asked, and what their answers change.

A pod that an extender filters or scores has a class of its own, because the extender sees the whole pod. Workers are
asked for every feasible node of such a class (`each`), then the extenders are asked about all such pods of the round at
once. If they leave some nodes out, workers are asked again, among the others: scores are normalised over these.

    ask the workers --settled--> ask the extenders --no node left out-----------------> decide
                                                   +--some left out--> ask the workers --settled--> decide
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from flotilla.results import Status
from shared.config.structs import ExtenderConfig
from shared.extenders.talk import Judgement, Reduced, in_order, interested, timeout_of
from shared.messages.preemption import Candidate
from shared.messages.rounds import ClassAnswer, Ladder
from shared.model.objects import ObjectMeta, Pod, PodSpec

MAX_OFFERS = 1 << 15
"""Offered nodes over all such pods of a round: some 50 bytes each in the workers' answers."""
SLACK = 2.0
"""Seconds beyond the extenders' own time-outs after which they count as failed."""
_OWN = "/"


@dataclass(frozen=True, slots=True)
class ExtenderQuestion:
    """May the pod go to these nodes, and how good is each?"""

    class_id: str
    pod: Pod
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VictimQuestion:
    """On which of these nodes may victims be evicted for the pod, and which victims?"""

    class_id: str
    pod: Pod
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class AskExtenders:
    """Effect: ask all questions at once; answered by ExtendersAnswered of the same round and ask."""

    round: int
    ask: int
    questions: tuple[ExtenderQuestion, ...]


@dataclass(frozen=True, slots=True)
class AskForExplanation:
    """Effect: ask this question, for an explanation; answered by ExtendersExplained of the same number and ask."""

    number: int
    ask: int
    question: ExtenderQuestion


@dataclass(frozen=True, slots=True)
class ExtendersExplained:
    """Event: what the extenders say of a pod that is explained."""

    number: int
    ask: int
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class ExtendersAnswered:
    """Event: a judgement for each class."""

    round: int
    ask: int
    judgements: Mapping[str, Judgement]


@dataclass(frozen=True, slots=True)
class AskAboutVictims:
    """Effect: ask all questions at once; answered by VictimsAnswered of the same search."""

    search: int
    questions: tuple[VictimQuestion, ...]


@dataclass(frozen=True, slots=True)
class VictimsAnswered:
    """Event: for each class the remaining candidates, or why its preemption fails."""

    search: int
    left: Mapping[str, list[Candidate] | Status]


class Extenders:
    """The configured extenders, by what they do."""

    def __init__(self, extenders: Iterable[ExtenderConfig] = ()) -> None:
        ordered = in_order(extenders)
        self._judges = tuple(extender for extender in ordered if extender.filter_verb or extender.prioritize_verb)
        self._binders = tuple(extender for extender in ordered if extender.bind_verb)
        self._preempters = tuple(extender for extender in ordered if extender.preempt_verb)

    def __bool__(self) -> bool:
        return bool(self._judges or self._binders or self._preempters)

    def judge_pod(self, pod: Pod) -> bool:
        """Whether one filters or scores it."""
        return bool(interested(self._judges, pod))

    def class_of(self, class_id: str, pod: Pod) -> str:
        """The pod's class: one of its own if an extender filters or scores it."""
        return f"{class_id}{_OWN}{pod.uid}" if interested(self._judges, pod) else class_id

    def binder_reads(self, pod: Pod) -> bool:
        """Whether the binder needs the pod to know that an extender binds it."""
        return any(extender.managed_resources for extender in interested(self._binders, pod))

    def judge_victims(self, pod: Pod) -> bool:
        return bool(interested(self._preempters, pod))

    def patience(self, questions: Iterable[ExtenderQuestion]) -> float:
        """Seconds until judgements are due: filters are asked in turn, priorities at once."""

        def longest(asked: Iterable[ExtenderConfig]) -> float:
            filters = sum(timeout_of(extender) for extender in asked if extender.filter_verb)
            return filters + max((timeout_of(extender) for extender in asked if extender.prioritize_verb), default=0.0)

        return SLACK + max((longest(interested(self._judges, each.pod)) for each in questions), default=0.0)

    def victim_patience(self, questions: Iterable[VictimQuestion]) -> float:
        """Seconds until answers about victims are due: extenders are asked in turn."""
        asked = (interested(self._preempters, question.pod) for question in questions)
        return SLACK + max((sum(map(timeout_of, extenders)) for extenders in asked), default=0.0)


def is_judged(class_id: str) -> bool:
    """Whether this is the class of a single pod that an extender filters or scores."""
    return _OWN in class_id


def plain_class(class_id: str) -> str:
    """The pod's class without extenders: its merged summary is a good guess for this one."""
    return class_id.partition(_OWN)[0]


def max_judged(nodes: int) -> int:
    """How many pods that extenders judge may share a round in a cluster of `nodes` nodes; 0: not known yet."""
    return max(1, MAX_OFFERS // nodes) if nodes else 1


def question_of(class_id: str, pod: Pod, answers: Iterable[ClassAnswer]) -> ExtenderQuestion | None:
    """None if there is nothing to ask: no node is feasible, or the attempt has failed."""
    nodes: list[str] = []
    for answer in answers:
        if answer.failure is not None or answer.pre_filter is not None:
            return None
        nodes += answer.ladder.nodes
    return ExtenderQuestion(class_id, pod, tuple(sorted(nodes))) if nodes else None


def left_out(question: ExtenderQuestion, judgement: Judgement) -> bool:
    """Whether workers must be asked again, among the remaining nodes."""
    return judgement.failure is None and 1 < len(judgement.added) < len(question.nodes)


def judged(ladder: Ladder, judgement: Judgement) -> Ladder:
    """One shard's ladder with the extenders' scores added and rejected nodes removed, best first again.

    Nodes that extenders were not asked about, as their placements did not fit in a message, do not count.
    """
    offers = sorted(
        (-(ladder.scores[at] + judgement.added[node]), -ladder.ties[at], node, at)
        for at, node in enumerate(ladder.nodes)
        if node in judgement.added
    )
    order = [at for _, _, _, at in offers]
    return msgspec.structs.replace(
        ladder,
        nodes=[node for _, _, node, _ in offers],
        scores=[-score for score, _, _, _ in offers],
        ties=[ladder.ties[at] for at in order],
        complete=True,
        domains={key: [column[at] for at in order] for key, column in ladder.domains.items()},
        volumes=[ladder.volumes[at] for at in order] if ladder.volumes else [],
        choices=[ladder.choices[at] for at in order] if ladder.choices else [],
        devices=[ladder.devices[at] for at in order] if ladder.devices else [],
    )


def remaining_candidates(candidates: Sequence[Candidate], reduced: Reduced) -> list[Candidate] | Status:
    """The candidates with the victims that the extenders left, or the extenders' failure."""
    if reduced.failure is not None:
        return reduced.failure
    left: list[Candidate] = []
    for candidate in candidates:
        victims = reduced.candidates.get(candidate.node)
        if victims is not None:
            kept = {victim.uid for victim in victims.pods}
            left.append(Candidate(candidate.node, [victim for victim in candidate.victims if victim.uid in kept]))
    return left


def victim_pods(candidate: Candidate) -> list[Pod]:
    """The victims as pods, as far as the search knows them."""
    pods: list[Pod] = []
    for victim in candidate.victims:
        namespace, _, name = victim.key.rpartition("/")
        meta = ObjectMeta(name=name, namespace=namespace, uid=victim.uid)
        pods.append(Pod(metadata=meta, spec=PodSpec(node_name=candidate.node, priority=victim.priority)))
    return pods
