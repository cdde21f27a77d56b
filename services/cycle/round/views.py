"""What all pods of a class in a round have in common, for those who ask later why they were placed where they are."""

from collections.abc import Sequence
from typing import NamedTuple

from shared.messages.rounds import ClassAnswer

MOST_NODES = 4
"""Best nodes that are remembered."""


class ClassView(NamedTuple):
    """`feasible` of `nodes` were so for the class at the beginning of its round; the `best` of them, with scores."""

    feasible: int = 0
    nodes: int = 0
    best: tuple[tuple[str, int], ...] = ()


NO_VIEW = ClassView()


def view_of(feasible: int, nodes: int, answers: Sequence[ClassAnswer]) -> ClassView:
    """A ladder names a node again for each further pod; the first time counts."""
    ladders = [answer.ladder for answer in answers]
    heads = [
        head
        for ladder in ladders
        for head in zip(
            ladder.scores[: 2 * MOST_NODES], ladder.ties[: 2 * MOST_NODES], ladder.nodes[: 2 * MOST_NODES], strict=False
        )
    ]
    heads += [(each.runner_up[1], 0, each.runner_up[0]) for each in answers if each.runner_up is not None]
    if len(ladders) > 1:
        heads.sort(reverse=True)
    best: dict[str, int] = {}
    for score, _, node in heads:
        if node not in best:
            best[node] = score
            if len(best) == MOST_NODES:
                break
    return ClassView(feasible, nodes, tuple(best.items()))
