"""Merges the shards' ladders of one class into one greedy order, placement by placement."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from flotilla.results import NodeDomains
from shared.cluster.devices import PlacedDevices
from shared.cluster.volumes import VolumeDecision
from shared.messages.rounds import Ladder


@dataclass(frozen=True, slots=True)
class Placement:
    """`seen`: the sequence number it was evaluated at. `place`: its node's domains, if they matter in this round.

    `choices`: for each claim that gets a free volume, those it could get there; as in the ladder.
    """

    node: str
    score: int
    seen: int
    place: NodeDomains | None = None
    volumes: VolumeDecision | None = None
    devices: PlacedDevices | None = None
    choices: list[list[str]] | None = None


class NoPlacement(Enum):
    """Why a class has no placement to offer."""

    STALE = "a decision of this round has changed what the best placement was judged on"
    EXHAUSTED = "no node has room for another pod"


class WriteSet:
    """The nodes written by a round's decisions, each with the class that wrote it.

    A placement reads its node. It was evaluated with the earlier placements of its own class in place, as a ladder is
    in greedy order, and without any other decision of the round. So it is stale if another class has written its node.
    """

    def __init__(self) -> None:
        self._class_of: dict[str, str] = {}

    def add(self, class_id: str, node: str) -> None:
        """A node has one writer per round, as only placements that are not stale are decided."""
        self._class_of[node] = class_id

    def __bool__(self) -> bool:
        return bool(self._class_of)

    def is_stale(self, class_id: str, node: str) -> bool:
        return self._class_of.get(node, class_id) != class_id


class Beside(NamedTuple):
    """What a placement decides about volumes and devices."""

    volumes: VolumeDecision | None
    devices: PlacedDevices | None
    choices: list[list[str]] | None


def beside(ladder: Ladder, at: int) -> Beside:
    return Beside(
        ladder.volumes[at] if ladder.volumes else None,
        ladder.devices[at] if ladder.devices else None,
        ladder.choices[at] if ladder.choices else None,
    )


class LadderMerge:
    """Takes the best head of all ladders each time: that is the greedy order of all shards together.

    A stale head is skipped only for an equally good one. Otherwise the class waits for the next round.
    """

    def __init__(self, class_id: str, ladders: Sequence[tuple[Ladder, int]]) -> None:
        """Each ladder comes with the sequence number it was evaluated at."""
        self._class_id = class_id
        self._ladders = ladders
        self._heads = [0] * len(ladders)
        self._over = False
        self._skipped_score: int | None = None

    def take(self, written: WriteSet) -> Placement | NoPlacement:
        while not self._over:
            best = self._best()
            if best is None:
                break
            if best < 0:
                if self._skipped_score is None:
                    return NoPlacement.EXHAUSTED
                break
            ladder, seen = self._ladders[best]
            at = self._heads[best]
            node, score = ladder.nodes[at], ladder.scores[at]
            if self._skipped_score is not None and score != self._skipped_score:
                break
            self._heads[best] += 1
            if not written.is_stale(self._class_id, node):
                return Placement(node, score, seen, None, *beside(ladder, at))
            self._skipped_score = score
        self._over = True
        return NoPlacement.STALE

    def _best(self) -> int | None:
        """The ladder with the best head; -1 if all are used up; None if one ended before its shard's last node."""
        best = -1
        for i, (ladder, _) in enumerate(self._ladders):
            if self._heads[i] == len(ladder.nodes):
                if not ladder.complete:
                    return None
            elif best < 0 or self._is_better(i, best):
                best = i
        return best

    def _is_better(self, one: int, other: int) -> bool:
        a, b = self._ladders[one][0], self._ladders[other][0]
        i, j = self._heads[one], self._heads[other]
        if a.scores[i] != b.scores[j]:
            return a.scores[i] > b.scores[j]
        if a.ties[i] != b.ties[j]:
            return a.ties[i] > b.ties[j]
        return a.nodes[i] < b.nodes[j]
