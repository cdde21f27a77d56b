"""One class's pods in a round in which decisions matter beyond the nodes that they fill.

Spreading and affinity speak of topology domains: where one pod goes opens and closes whole domains to others, and
changes what nodes there are worth. So the class's trackers are asked of every placement, and the ladders are climbed
domain by domain: a domain that is closed now may be open again later.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flotilla.results import NodeDomains
from services.cycle.footprints import Written
from services.cycle.race import NoRung, Rung
from shared.framework.plugin import Tracker
from shared.messages.rounds import Ladder
from shared.model.load import PodLoad


@dataclass(slots=True)
class Trackers:
    """Those of one class, by plugin, with the weight that each one's scores have."""

    each: list[tuple[str, Tracker, int]]

    def by_plugin(self) -> Iterator[tuple[str, Tracker]]:
        return ((plugin, tracker) for plugin, tracker, _ in self.each)

    @property
    def touched(self) -> bool:
        return any(tracker.touched for _, tracker, _ in self.each)

    def admit(self, place: NodeDomains) -> bool:
        return all(tracker.admits(place) for _, tracker, _ in self.each)

    def shift(self, place: NodeDomains, own: int) -> int:
        return sum(weight * tracker.shift(place, own) for _, tracker, weight in self.each if weight)

    def concerned(self, load: PodLoad) -> list[Tracker]:
        """Those that pods like this may matter to."""
        return [tracker for _, tracker, _ in self.each if tracker.concerns(load)]


@dataclass(slots=True)
class _Stair:
    """The rungs of one ladder within one domain. `left`: their numbers; `cut`: there would be more.

    `alike`: they have the values of all labels that trackers go by in common, so that one stands for all.
    """

    ladder: Ladder
    seen: int
    cut: bool
    left: list[int] = field(default_factory=list)
    alike: bool = False


class DomainRace:
    """Takes the best placement that the trackers admit, again and again."""

    def __init__(self, class_id: str, ladders: Sequence[tuple[Ladder, int]], trackers: Trackers) -> None:
        """Each ladder comes with the sequence number it was evaluated at."""
        self.trackers = trackers
        self._class_id = class_id
        self._stairs = [stair for ladder, seen in ladders for stair in _stairs(ladder, seen)]
        self._own = [_own_before(stair.ladder) for stair in self._stairs]
        self._over = False
        self._passed_over: int | None = None

    def take(self, written: Written) -> Rung | NoRung:
        while not self._over:
            found = self._best()
            if found is None:
                break
            rung, stair, at = found
            if self._passed_over is not None and rung.score != self._passed_over:
                break
            stair.left.remove(at)
            if not written.is_stale(self._class_id, rung.node):
                return rung
            self._passed_over = rung.score
        self._over = True
        return NoRung.STALE

    def _best(self) -> tuple[Rung, _Stair, int] | None:
        best: tuple[tuple[int, int], Rung, _Stair, int] | None = None
        for number, stair in enumerate(self._stairs):
            found = self._head(stair, self._own[number])
            if found is None:
                continue
            rung, at = found
            rank = (rung.score, stair.ladder.ties[at])
            if best is None or rank > best[0] or (rank == best[0] and rung.node < best[1].node):
                best = (rank, rung, stair, at)
        return None if best is None else best[1:]

    def _head(self, stair: _Stair, own: list[int]) -> tuple[Rung, int] | None:
        """The first placement of a stair that is admitted."""
        for at in stair.left:
            place = _place(stair.ladder, at)
            if self.trackers.admit(place):
                score = stair.ladder.scores[at] + self.trackers.shift(place, own[at])
                volumes = stair.ladder.volumes[at] if stair.ladder.volumes else None
                return Rung(place.node, score, stair.seen, place, volumes), at
            if stair.alike:
                break
        if not stair.left and stair.cut:
            self._over = True
        return None


def _stairs(ladder: Ladder, seen: int) -> list[_Stair]:
    if not ladder.strata:
        return [_Stair(ladder, seen, not ladder.complete, list(range(len(ladder.nodes))))]
    cut = {tuple(domains) for domains in ladder.cut}
    columns = [ladder.domains[key] for key in ladder.strata]
    alike = ladder.domains.keys() == set(ladder.strata)
    by_domain: dict[tuple[str | None, ...], _Stair] = {}
    for at in range(len(ladder.nodes)):
        domains = tuple(column[at] for column in columns)
        stair = by_domain.get(domains)
        if stair is None:
            stair = by_domain[domains] = _Stair(ladder, seen, domains in cut, alike=alike)
        stair.left.append(at)
    return list(by_domain.values())


def _own_before(ladder: Ladder) -> list[int]:
    """How many pods of the class each placement takes to be on its node already."""
    counts: dict[str, int] = {}
    own: list[int] = []
    for node in ladder.nodes:
        own.append(counts.get(node, 0))
        counts[node] = own[-1] + 1
    return own


def _place(ladder: Ladder, at: int) -> NodeDomains:
    domains = {key: value for key, column in ladder.domains.items() if (value := column[at]) is not None}
    return NodeDomains(ladder.nodes[at], domains)
