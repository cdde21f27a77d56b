"""Searches a placement for a gang whose members, taken one after the other, do not find one.

Depth first: each step offers, for every class with open members, the nodes that are feasible with the members placed so
far; one member is placed, and the next step follows. If no member can be placed, or a bound says that too few can, the
last one is taken back and goes elsewhere. Members of one class are alike, so a state is what is on each node, in
whichever order that came about, and is visited once.

If placements can only take nodes away from other members, one class is enough to go on with: the hardest, which has
the fewest places beyond its members. Otherwise (affinity, spreading) any member may have to be next.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.cycle.round.backtracking import Backtracking
from services.cycle.round.ladder_merge import Placement

MAX_STEPS = 128
"""Steps of one gang, over all its domains. Each is one question to the workers or, if a summary changes, a few."""
MAX_SEARCHED = 32
"""Members of a gang that is searched for; a larger one would not come to an end."""
MAX_OPTIONS = 64
"""Nodes that are offered for a class in a step: more than there are members."""


class Offered(NamedTuple):
    """For one class: nodes that are feasible now, the best first, and for how many pods there is room at most.

    `complete`: there are no other nodes. `values`: of each node's labels that were asked for.
    """

    options: Sequence[Placement]
    places: int
    complete: bool = True
    values: Sequence[tuple[str | None, ...]] = ()


class PlacementSearch(Backtracking[tuple[str, Placement], str]):
    def __init__(self, wanted: Mapping[str, int], least: int, *, any_order: bool, steps: int = MAX_STEPS) -> None:
        """`wanted`: the members by class, of which `least` must be placed.

        `any_order`: a placement may make room for others, so any class may have to be next.
        """
        super().__init__(steps)
        self._wanted = dict(wanted)
        self._least = least
        self._any_order = any_order

    @property
    def open(self) -> list[str]:
        """The classes with members that may still be placed."""
        placed = Counter(class_id for class_id, _ in self.placed)
        return [each for each, n in self._wanted.items() if placed[each] < n and each not in self._dropped]

    def take(self, offered: Mapping[str, Offered]) -> None:
        """What can be placed beside `placed`: goes on to the next state, unless the search is over."""
        self.steps += 1
        placed = Counter(class_id for class_id, _ in self.placed)
        most = {each: min(offered[each].places, self._wanted[each] - placed[each]) for each in self.open}
        spare = len(self.placed) + sum(most.values()) - self._least
        if spare >= 0:
            self._branch_by(offered, placed, most, spare)
        self._go_on()

    def _branch_by(
        self, offered: Mapping[str, Offered], placed: Counter[str], most: Mapping[str, int], spare: int
    ) -> None:
        def slack(class_id: str) -> tuple[int, int]:
            of_class = offered[class_id]
            return of_class.places - (self._wanted[class_id] - placed[class_id]), len(of_class.options)

        hardest = sorted(self.open, key=slack)
        chosen = hardest if self._any_order else hardest[:1]
        self.is_cut |= any(not offered[each].complete for each in chosen)
        crowd = Counter(option.node for each in self.open for option in offered[each].options)
        left = [
            (each, option)
            for each in chosen
            for option in sorted(offered[each].options, key=lambda option: crowd[option.node])
        ]
        may_drop = not self._any_order and most[hardest[0]] <= spare
        self._branch(left, hardest[0] if may_drop else None)

    def _is_found(self) -> bool:
        return len(self.placed) >= self._least

    def _where(self, put: tuple[str, Placement]) -> tuple[str, str]:
        class_id, placement = put
        return class_id, placement.node
