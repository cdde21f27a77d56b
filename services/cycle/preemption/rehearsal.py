"""Rehearses the decision on a gang as if its victims had gone already. Only what fits then is nominated.

all victims gone --placed--> each unit put back in turn --placed: it stays--> over
        |                         | unfit: it goes after all
        +--unfit--> over, in vain

A unit is a victim, or a group that is evicted as a whole. A gang of one class whose members matter to each other only
by the nodes they take needs all its victims already (see VictimPlan); of other gangs, units are put back one by one,
those that disruption budgets protect first, then the most important ones.
"""

from collections import deque
from collections.abc import Sequence

from services.cycle.commits import PlannedNomination
from services.cycle.preemption.candidate_search import Preemption
from services.cycle.preemption.gang_case import GangCase
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import RoundResult
from services.cycle.round.gang import GangRound
from services.cycle.round.gangs import AnyGang
from services.cycle.round.tree_round import TreeRound
from shared.framework.victim_sets import importance, units_of
from shared.messages.preemption import MAX_POSSIBLE, Victim

MAX_TRIALS = MAX_POSSIBLE
"""Units that are tried to be put back; of more, the others go."""


class Rehearsal:
    def __init__(self, case: GangCase, victims: Sequence[Victim], *, put_back: bool, is_last: bool) -> None:
        """`put_back`: units may turn out not to be needed. `is_last`: no other victims are tried after these."""
        self.case = case
        self.is_last = is_last
        self.victims = list(victims)
        self.placed: RoundResult | None = None
        """The last result with enough members placed."""
        self.is_asked = False
        """Whether the present round has begun."""
        self.is_over = self.is_cut = False
        """`is_cut`: nothing fits, but not all placements were tried."""
        self._units = deque(in_order_of_return(victims)[:MAX_TRIALS] if put_back else ())
        self._tried: list[Victim] = []
        """Of the unit that the present round has put back."""

    def next_round(self) -> AnyGang:
        """The gang's next decision, as if all victims were gone but those of the unit that is tried."""
        self.is_asked = True
        stay = {victim.uid for victim in self._tried}
        gone = [victim.uid for victim in self.victims if victim.uid not in stay]
        return TreeRound(self.case.pods, gone) if self.case.groups else GangRound(self.case.pods, gone)

    def take(self, gang: AnyGang, result: RoundResult) -> None:
        """The end of this round."""
        self.is_asked = False
        if gang.verdict == "placed":
            self.placed = result
            stay = {victim.uid for victim in self._tried}
            self.victims = [victim for victim in self.victims if victim.uid not in stay]
        elif self.placed is None:
            self.is_over, self.is_cut = True, gang.is_cut
            return
        self._tried = self._next_unit()
        self.is_over = not self._tried

    def _next_unit(self) -> list[Victim]:
        """Not the only one that is left: without victims the gang does not fit, or it would not be rehearsed."""
        while self._units:
            unit = self._units.popleft()
            if len(unit) < len(self.victims):
                return unit
        return []

    def nominations(self) -> list[PlannedNomination]:
        """One for each member. Victims on a node go for the first member there, all others for the first of all."""
        if self.placed is None:
            return []
        by_node: dict[str, list[Victim]] = {}
        for victim in self.victims:
            by_node.setdefault(victim.node, []).append(victim)
        nodes = {placement.node for _, placement in self.placed.decided}
        elsewhere = [victim for node, of_node in by_node.items() if node not in nodes for victim in of_node]
        planned: list[PlannedNomination] = []
        for info, placement in self.placed.decided:
            victims = sorted([*by_node.pop(placement.node, ()), *elsewhere], key=importance)
            elsewhere = []
            found = Preemption(nominated=placement.node, victims=tuple(victims))
            planned.append(self._planned(info, found, placement.seen))
        rest = [self._planned(info, Preemption(nominated=""), 0) for info, _ in self.placed.withheld]
        order = {info.uid: i for i, info in enumerate(self.case.pods)}
        return sorted([*planned, *rest], key=lambda each: order[each.info.uid])

    def _planned(self, info: PodInfo, found: Preemption, seen: int) -> PlannedNomination:
        case = self.case
        return PlannedNomination(info, (), case.unfit[info.uid], found, seen, gang=case.key, priority=case.priority)


def in_order_of_return(victims: Sequence[Victim]) -> list[list[Victim]]:
    """The units, in the order in which they are put back."""
    return list(units_of(sorted(victims, key=lambda each: (not each.violates, importance(each)))).values())
