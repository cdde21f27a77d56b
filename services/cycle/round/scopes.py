"""What workers answer to steps of a gang that are not like any round: counted places, and offered nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flotilla.results import Status
from services.cycle.round.domains import Room, Values
from services.cycle.round.ladder_merge import Placement, beside
from services.cycle.round.placement_search import Offered
from shared.messages.rounds import ClassAnswer, Proposals

Answers = Sequence[tuple[ClassAnswer, int]]
"""Each worker's answer about one class, and the sequence number it was evaluated at."""


@dataclass(frozen=True, slots=True)
class Counted:
    """`rooms`: by the values of the nodes' labels. `placed`: the values of the nodes that were asked about.

    `limited_by`: the plugins that reject further pods.
    """

    rooms: Mapping[Values, Room]
    placed: Sequence[Values] = ()
    limited_by: frozenset[str] = frozenset()


def counted(answers: Mapping[str, Answers], wanted: Mapping[str, int], proposals: Iterable[Proposals]) -> Counted:
    """Merges what all workers have counted. Of a class that was not counted, all members find room everywhere."""
    places: dict[Values, Counter[str]] = {}
    nodes: Counter[Values] = Counter()
    scores: Counter[Values] = Counter()
    limited_by: set[str] = set()
    for class_id, of_class in answers.items():
        for answer, _ in of_class:
            limited_by |= {*answer.limited_by, *answer.restricted_by}
            limited_by |= set() if answer.pre_filter is None else {answer.pre_filter.plugin}
            for each in answer.places:
                values = tuple(each.values)
                places.setdefault(values, Counter())[class_id] += each.places
                nodes[values] += each.nodes
                scores[values] += each.score
    for class_id in wanted.keys() - answers.keys():
        for of_values in places.values():
            of_values[class_id] = wanted[class_id]
    placed = [tuple(values) for each in proposals for values in each.values.values()]
    rooms = {values: Room(of_values, nodes[values], scores[values]) for values, of_values in places.items()}
    return Counted(rooms, placed, frozenset(limited_by - {""}))


def failure_of(answers: Answers) -> Status | None:
    return next((answer.failure for answer, _ in answers if answer.failure is not None), None)


def offered(answers: Answers, labels: Sequence[str] = ()) -> Offered:
    """The nodes that all workers offer for a class, the best first, with ties broken as in any round.

    `labels`: those whose values the result has for each node.
    """
    found: list[tuple[tuple[int, int, str], Placement, tuple[str | None, ...]]] = []
    for answer, seen in answers:
        ladder = answer.ladder
        for at, node in enumerate(ladder.nodes):
            placement = Placement(node, ladder.scores[at], seen, None, *beside(ladder, at))
            values = tuple(ladder.domains[label][at] for label in labels)
            found.append(((-ladder.scores[at], -ladder.ties[at], node), placement, values))
    found.sort(key=lambda each: each[0])
    options, values_of = [placement for _, placement, _ in found], [values for _, _, values in found]
    room = sum(each.places for answer, _ in answers for each in answer.places)
    return Offered(options, room, all(answer.ladder.complete for answer, _ in answers), values_of)
