"""What all pods of a class in a round have in common, for those who ask later why they were placed where they are."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple, cast

from shared.messages.rounds import ClassAnswer

MOST_NODES = 4
"""Best nodes that are remembered."""
_MOST_RUNGS = 2 * MOST_NODES

_Head = tuple[int | str, ...]
"""The beginning of one worker's ladder: score, tie and node of each rung, in a row."""


class ClassView(NamedTuple):
    """`feasible` of `nodes` were so for the class at the beginning of its round. `heads`: how its ladders begin.

    They are kept as they came, and compared only when `flotilla explain` asks.
    """

    feasible: int = 0
    nodes: int = 0
    heads: tuple[_Head, ...] = ()

    @property
    def rungs(self) -> int:
        return sum(map(len, self.heads)) // 3

    def best(self) -> list[tuple[str, int]]:
        """The best nodes with their scores. A ladder names a node again for each further pod; the first time counts."""
        rungs = [rung for head in self.heads for rung in zip(head[::3], head[1::3], head[2::3], strict=True)]
        if len(self.heads) > 1:
            rungs.sort(reverse=True)
        best: dict[str, int] = {}
        for score, _, node in cast(list[tuple[int, int, str]], rungs):
            best.setdefault(node, score)
        return list(islice(best.items(), MOST_NODES))


NO_VIEW = ClassView()


def view_of(feasible: int, nodes: int, answers: Sequence[ClassAnswer]) -> ClassView:
    return ClassView(feasible, nodes, tuple([_head_of(answer) for answer in answers]))


def _head_of(answer: ClassAnswer) -> _Head:
    """A lone rung is followed by the second best node."""
    ladder, second = answer.ladder, answer.runner_up
    if len(ladder.nodes) == 1:
        head = ladder.scores[0], ladder.ties[0], ladder.nodes[0]
        return head if second is None else (*head, second[1], 0, second[0])
    some = slice(_MOST_RUNGS)
    return tuple(chain.from_iterable(zip(ladder.scores[some], ladder.ties[some], ladder.nodes[some], strict=False)))
