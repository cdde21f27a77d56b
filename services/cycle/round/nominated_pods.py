"""Nominated pods of a round: each takes the node that it is nominated to if it may; otherwise it is like its class.

A nomination keeps others of the class off the node, and not the pod itself: workers judge that node once more for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from flotilla.results import error
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import ClassVerdict, Unfit
from shared.messages.evaluation import Rejections
from shared.messages.rounds import ClassAnswer, KeptOut, Ladder, NominatedPod, OwnNodes

OLD_WORKER = error("a worker cannot judge a nominated pod of a gang")
"""One of the previous release."""

Answers = Sequence[tuple[ClassAnswer, int]]
"""Of all workers about one class, each with the sequence number that it was evaluated at."""


class NominatedPods:
    def __init__(self, pods: Iterable[PodInfo]) -> None:
        self._of_class: dict[str, dict[str, PodInfo]] = {}
        self.apart: list[PodInfo] = []
        """Those that must be classes of their own, as a worker does not judge them otherwise."""
        for info in pods:
            if info.nominated is not None:
                self._of_class.setdefault(info.class_id, {})[info.uid] = info

    def __bool__(self) -> bool:
        return bool(self._of_class)

    def asked(self, class_id: str) -> list[NominatedPod]:
        return [each for info in self._of_class.get(class_id, {}).values() if (each := info.nominated) is not None]

    def node_of(self, class_id: str, uid: str) -> str:
        """The node that this pod of the class is nominated to; empty if it is not asked about."""
        info = self._of_class.get(class_id, {}).get(uid)
        return "" if info is None else info.nominated_node

    def verdicts(
        self,
        class_id: str,
        verdict: ClassVerdict,
        answers: Answers,
        placed: Callable[[str, Ladder, int], ClassVerdict],
        unfit: Callable[[Iterable[Rejections]], Unfit],
    ) -> dict[str, ClassVerdict]:
        """The verdicts on those to which `verdict`, that on their class, does not apply, by uid.

        `placed`: the verdict on the pod with this uid and ladder. `unfit`: the class's, if these were the rejections.
        """
        pods = self._of_class.get(class_id)
        holds_for_all = any(answer.pre_filter is not None or answer.failure is not None for answer, _ in answers)
        if not pods or verdict is None or holds_for_all:
            return {}
        found: dict[str, ClassVerdict] = {}
        for answer, seq in answers:
            if answer.own_nodes is None:  # of the previous release
                self.apart += [info for info in pods.values() if info.gang is None]
                return {uid: None if info.gang is None else OLD_WORKER for uid, info in pods.items()}
            for uid, ladder in _each(answer.own_nodes):
                found[uid] = placed(uid, ladder, seq)
            if not isinstance(verdict, Unfit):
                continue
            for kept_out in answer.own_nodes.unfit:
                moved = _moved(kept_out)
                why = unfit((*_rejections(answers), *moved)) if moved else verdict
                found[kept_out.uid] = replace(why, in_vain=kept_out.in_vain)
        return found


def _moved(kept_out: KeptOut) -> list[Rejections]:
    """The pod's own node, counted with the status that it has for this pod."""
    if kept_out.status is None or kept_out.of_class is None:
        return []
    return [Rejections(kept_out.of_class, -1), Rejections(kept_out.status, 1)]


def _rejections(answers: Answers) -> list[Rejections]:
    return [part for answer, _ in answers for part in answer.rejections]


def _each(own: OwnNodes) -> Iterable[tuple[str, Ladder]]:
    """Each pod that may go to its node, with a ladder that has only this node."""
    ladder = own.ladder
    for at, uid in enumerate(own.fit):
        domains = {key: [values[at]] for key, values in ladder.domains.items()}
        yield uid, msgspec.structs.replace(ladder, nodes=[ladder.nodes[at]], scores=[0], ties=[0], domains=domains)
