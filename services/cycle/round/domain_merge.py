"""Merges ladders of one class in a round whose decisions matter beyond the nodes that they fill.

Spreading and affinity are about topology domains: one placement opens or closes whole domains for other pods, and
changes the scores of the nodes there. So the class's trackers judge every placement, and ladders are split by domain,
because a domain that is closed now may open again later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flotilla.results import NodeDomains
from services.cycle.round.ladder_merge import NoPlacement, Placement, WriteSet, beside
from shared.framework.profile import Framework, PluginTracker, as_sent
from shared.framework.signatures import PluginFailed
from shared.messages.rounds import Ladder
from shared.model.load import PodLoad


@dataclass(slots=True)
class Trackers:
    """The trackers of one class."""

    each: list[PluginTracker]

    @property
    def touched(self) -> bool:
        """Whether a decision has changed which nodes they admit."""
        for each in self.each:
            try:
                if each.enforced and each.tracker.touched:
                    return True
            except Exception as cause:
                raise _failed(each, "touched", cause) from cause
        return False

    def admit(self, place: NodeDomains) -> bool:
        for each in self.each:
            try:
                if each.enforced and not each.tracker.admits(place):
                    return False
            except Exception as cause:
                raise _failed(each, "admits", cause) from cause
        return True

    def shift(self, place: NodeDomains, own: int) -> int:
        total = 0
        for each in self.each:
            try:
                total += each.weight * int(each.tracker.shift(place, own)) if each.weight else 0
            except Exception as cause:
                raise _failed(each, "shift", cause) from cause
        return total

    def concerned(self, load: PodLoad) -> list[PluginTracker]:
        """The trackers that pods with this load may matter to."""
        concerned: list[PluginTracker] = []
        for each in self.each:
            try:
                concerned += [each] if each.tracker.concerns(load) else []
            except Exception as cause:
                raise _failed(each, "concerns", cause) from cause
        return concerned

    def summaries(self, framework: Framework) -> dict[str, object]:
        """What the merged summary will be after the round, by plugin."""
        found: dict[str, object] = {}
        for each in self.each:
            try:
                found[each.plugin] = as_sent(framework.summaries[each.plugin], each.tracker.summary())
            except Exception as cause:
                raise _failed(each, "summary", cause) from cause
        return found


class Followers:
    """The trackers of all classes of a round, which follow each decision.

    If a tracker raises, its class is `broken`: no further pod of it can be decided in this round.
    """

    def __init__(self, trackers: Mapping[str, Trackers]) -> None:
        self.broken: dict[str, PluginFailed] = {}
        self._trackers = dict(trackers)
        self._listening: dict[str, list[tuple[str, PluginTracker]]] = {}
        """By class, the trackers that its pods may matter to, each with its own class."""

    def is_touched(self, class_id: str) -> bool:
        trackers = self._trackers.get(class_id)
        try:
            return trackers is not None and trackers.touched
        except PluginFailed as cause:
            self.give_up(class_id, cause)
            return False

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        concerned = self._listening.get(class_id)
        if concerned is None:
            concerned = self._listening[class_id] = self._concerned(load)
        for owner, each in concerned:
            try:
                each.tracker.placed(class_id, load, place)
            except Exception as cause:
                self.give_up(owner, _failed(each, "placed", cause))

    def give_up(self, class_id: str, cause: PluginFailed) -> None:
        self.broken.setdefault(class_id, cause)
        self._trackers.pop(class_id, None)
        self._listening.clear()

    def _concerned(self, load: PodLoad) -> list[tuple[str, PluginTracker]]:
        found: list[tuple[str, PluginTracker]] = []
        for owner, trackers in list(self._trackers.items()):
            try:
                found += [(owner, each) for each in trackers.concerned(load)]
            except PluginFailed as cause:
                self.give_up(owner, cause)
        return found


def _failed(of: PluginTracker, method: str, cause: Exception) -> PluginFailed:
    failed = PluginFailed(of.plugin, f"tracker.{method}", repr(cause))
    failed.__cause__ = cause
    return failed


@dataclass(slots=True)
class _DomainLadder:
    """The part of a ladder in one combination of domains. `left`: its remaining positions; `cut`: there would be more.

    `places`: for each position of the ladder, its node and what is known of its domains; `own`: the pods of the class
    that it takes to be on its node already.
    `uniform`: all have the same values of every label that trackers read, so the first stands for all.
    """

    ladder: Ladder
    seen: int
    places: list[NodeDomains]
    own: list[int]
    cut: bool
    uniform: bool = False
    left: list[int] = field(default_factory=list)


class DomainMerge:
    """Takes the best placement that the trackers admit each time."""

    def __init__(self, class_id: str, ladders: Sequence[tuple[Ladder, int]], trackers: Trackers) -> None:
        """Each ladder comes with the sequence number it was evaluated at."""
        self.trackers = trackers
        self._class_id = class_id
        self._parts = [part for ladder, seen in ladders for part in _by_domain(ladder, seen)]
        self._over = False
        self._skipped_score: int | None = None

    def take(self, written: WriteSet) -> Placement | NoPlacement:
        while not self._over:
            best = self._best()
            if best is None:
                break
            part, at, score = best
            if self._skipped_score is not None and score != self._skipped_score:
                break
            part.left.remove(at)
            place = part.places[at]
            if not written.is_stale(self._class_id, place.node):
                return Placement(place.node, score, part.seen, place, *beside(part.ladder, at))
            self._skipped_score = score
        self._over = True
        return NoPlacement.STALE

    def _best(self) -> tuple[_DomainLadder, int, int] | None:
        """Where it is, and its score."""
        best: tuple[_DomainLadder, int, int] | None = None
        rank: tuple[int, int] = (0, 0)
        for part in self._parts:
            at = self._head(part)
            if at is None:
                continue
            place = part.places[at]
            score = part.ladder.scores[at] + self.trackers.shift(place, part.own[at])
            this = score, part.ladder.ties[at]
            if best is None or this > rank or (this == rank and place.node < best[0].places[best[1]].node):
                best, rank = (part, at, score), this
        return best

    def _head(self, part: _DomainLadder) -> int | None:
        """The first placement that the trackers admit. Ends the merge if the part was cut and is used up."""
        for at in part.left:
            if self.trackers.admit(part.places[at]):
                return at
            if part.uniform:
                break
        if not part.left and part.cut:
            self._over = True
        return None


def _by_domain(ladder: Ladder, seen: int) -> list[_DomainLadder]:
    own, places = _own_before(ladder), _places(ladder)
    if not ladder.strata:
        return [_DomainLadder(ladder, seen, places, own, not ladder.complete, left=list(range(len(ladder.nodes))))]
    cut = {tuple(domains) for domains in ladder.cut}
    uniform = ladder.domains.keys() == set(ladder.strata)
    parts: dict[tuple[str | None, ...], _DomainLadder] = {}
    for at, domains in enumerate(zip(*(ladder.domains[key] for key in ladder.strata), strict=True)):
        part = parts.get(domains)
        if part is None:
            part = parts[domains] = _DomainLadder(ladder, seen, places, own, domains in cut, uniform)
        part.left.append(at)
    return list(parts.values())


def _own_before(ladder: Ladder) -> list[int]:
    counts: dict[str, int] = {}
    own: list[int] = []
    for node in ladder.nodes:
        own.append(counts.get(node, 0))
        counts[node] = own[-1] + 1
    return own


def _places(ladder: Ladder) -> list[NodeDomains]:
    keys, columns = list(ladder.domains), zip(*ladder.domains.values(), strict=True)
    rows = columns if keys else ((),) * len(ladder.nodes)
    return [
        NodeDomains(node, {key: value for key, value in zip(keys, values, strict=True) if value is not None})
        for node, values in zip(ladder.nodes, rows, strict=True)
    ]
