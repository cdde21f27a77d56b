"""Extenders in a search for victims: what they leave of the candidates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flotilla.results import Status
from shared.config.structs import ExtenderConfig
from shared.extenders.interest import in_order, interested, timeout_of
from shared.extenders.talk import Reduced
from shared.messages.preemption import Candidate
from shared.model.objects import ObjectMeta, Pod, PodSpec

SLACK = 2.0
"""Seconds beyond the extenders' own time-outs after which they count as silent."""


@dataclass(frozen=True, slots=True)
class VictimQuestion:
    """On which of these nodes may pods make way for this one, and which?"""

    class_id: str
    pod: Pod
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class AskAboutVictims:
    """Effect: ask all of this at the same time; the answer is a VictimsAnswered of the same search."""

    search: int
    questions: tuple[VictimQuestion, ...]


@dataclass(frozen=True, slots=True)
class VictimsAnswered:
    """Event: for each class the candidates that are left, or why the search fails."""

    search: int
    left: Mapping[str, list[Candidate] | Status]


class Narrowing:
    """Which pods' victims concern extenders."""

    def __init__(self, extenders: Iterable[ExtenderConfig] = ()) -> None:
        self._extenders = tuple(extender for extender in in_order(extenders) if extender.preempt_verb)

    def concerns(self, pod: Pod) -> bool:
        return bool(interested(self._extenders, pod))

    def patience(self, questions: Iterable[VictimQuestion]) -> float:
        """Seconds until an answer must be there: one extender is asked after the other."""
        asked = (interested(self._extenders, question.pod) for question in questions)
        return SLACK + max((sum(map(timeout_of, extenders)) for extenders in asked), default=0.0)


def left_of(candidates: Sequence[Candidate], reduced: Reduced) -> list[Candidate] | Status:
    """The candidates with the victims that are left of each, or the failure."""
    if reduced.failure is not None:
        return reduced.failure
    left: list[Candidate] = []
    for candidate in candidates:
        victims = reduced.candidates.get(candidate.node)
        if victims is not None:
            kept = {victim.uid for victim in victims.pods}
            left.append(Candidate(candidate.node, [victim for victim in candidate.victims if victim.uid in kept]))
    return left


def as_pods(candidate: Candidate) -> list[Pod]:
    """The victims as far as the search knows them."""
    pods: list[Pod] = []
    for victim in candidate.victims:
        namespace, _, name = victim.key.rpartition("/")
        meta = ObjectMeta(name=name, namespace=namespace, uid=victim.uid)
        pods.append(Pod(metadata=meta, spec=PodSpec(node_name=candidate.node, priority=victim.priority)))
    return pods
