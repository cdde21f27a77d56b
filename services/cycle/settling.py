"""Settling: once all workers have answered, which classes of a round have been judged by the right merged summary."""

from collections.abc import Mapping

from services.cycle.knowledge import Knowledge
from services.cycle.round import Round
from shared.framework.profile import Framework

MOST_ASKS = 8
"""So often is a class asked about in one round. If its summary still moves then, what was true an ask ago will do."""


class Settling:
    """`nodes`: how many nodes there are, by the last merged summary."""

    def __init__(self, knowledge: Knowledge, frameworks: Mapping[str, Framework]) -> None:
        self._knowledge = knowledge
        self._frameworks = frameworks
        self.nodes = 0

    def gather(self, round_: Round, workers: int) -> None:
        """Takes the answers of so many workers in. What is still to be asked about stays open."""
        round_.gather()
        round_.learn_topologies()
        self._knowledge.learn_topologies(round_.topologies)
        round_.open = {class_id for class_id in round_.open if not self._is_settled(round_, class_id, workers)}

    def _is_settled(self, round_: Round, class_id: str, workers: int) -> bool:
        """Have the workers judged this class by the merged summary? If not, it is their guess for the next time.

        Where it never stands still, they have at last judged by one of this round, which knows of all decided before.
        """
        if not round_.is_known_everywhere(class_id):
            return False
        if round_.needs_no_summary(class_id):
            self._knowledge.forget(round_.remembered_as(class_id))  # it may be the guess that a plugin fails on
            return True
        profile, is_first = round_.classes[class_id].profile, not round_.has_merged(class_id)
        merged = round_.merge(class_id, self._frameworks[profile])
        self._knowledge.expect(round_.remembered_as(class_id), profile, merged)
        self.nodes = merged.nodes
        guess = round_.guesses[class_id]
        if guess is None or round_.is_judged_by_itself(class_id):
            return workers == 1  # the only shard's own summary is the merged one
        if round_.ask >= MOST_ASKS and not is_first and not round_.borrowed[class_id]:
            return True
        return merged.agrees_with(guess)
