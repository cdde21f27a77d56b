"""One class's pods in one round: the shards' ladders, merged as they are climbed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from flotilla.results import NodeDomains
from services.cycle.footprints import Written
from shared.cluster.volumes import VolumeDecision
from shared.messages.rounds import Ladder


@dataclass(frozen=True, slots=True)
class Rung:
    """A placement that can be had now; `seen` is the sequence number that it was evaluated at.

    `place`: the domains that its node is in, in a round in which they matter.
    """

    node: str
    score: int
    seen: int
    place: NodeDomains | None = None
    volumes: VolumeDecision | None = None


class NoRung(Enum):
    """Why a class has no placement to offer."""

    STALE = "what the best one was judged on has changed in this round"
    EXHAUSTED = "no node has room for one more"


class Race:
    """Takes the best head among the ladders, again and again.

    A ladder holds its shard's placements in greedy order, each as if those before it had been taken, so taking the
    best head gives the greedy order of all shards together. A head that another class's decision has made stale is
    passed over only for an equally good one; otherwise the class waits for the next round.
    """

    def __init__(self, class_id: str, ladders: Sequence[tuple[Ladder, int]]) -> None:
        """Each ladder comes with the sequence number it was evaluated at."""
        self._class_id = class_id
        self._ladders = ladders
        self._at = [0] * len(ladders)
        self._over = False
        self._passed_over: int | None = None

    def take(self, written: Written) -> Rung | NoRung:
        if self._over:
            return NoRung.STALE
        while True:
            best = self._best()
            if best is None:
                self._over = True
                return NoRung.STALE
            if best < 0:
                return NoRung.EXHAUSTED if self._passed_over is None else self._give_up()
            ladder, seen = self._ladders[best]
            at = self._at[best]
            node, score = ladder.nodes[at], ladder.scores[at]
            if self._passed_over is not None and score != self._passed_over:
                return self._give_up()
            self._at[best] += 1
            if not written.is_stale(self._class_id, node):
                return Rung(node, score, seen, volumes=ladder.volumes[at] if ladder.volumes else None)
            self._passed_over = score

    def _give_up(self) -> NoRung:
        self._over = True
        return NoRung.STALE

    def _best(self) -> int | None:
        """The ladder with the best head; -1 when all are at their end, None when one ended before its shard did."""
        best = -1
        for i, (ladder, _) in enumerate(self._ladders):
            at = self._at[i]
            if at == len(ladder.nodes):
                if not ladder.complete:
                    return None
                continue
            if best < 0 or self._better(i, best):
                best = i
        return best

    def _better(self, one: int, other: int) -> bool:
        a, b = self._ladders[one][0], self._ladders[other][0]
        i, j = self._at[one], self._at[other]
        if a.scores[i] != b.scores[j]:
            return a.scores[i] > b.scores[j]
        if a.ties[i] != b.ties[j]:
            return a.ties[i] > b.ties[j]
        return a.nodes[i] < b.nodes[j]
