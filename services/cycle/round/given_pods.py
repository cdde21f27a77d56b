"""Decided members of a gang, as workers assume them on their nodes while they judge the next step."""

from collections.abc import Sequence

from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import device_decision
from services.cycle.round.ladder_merge import Placement
from shared.messages.rounds import Given
from shared.messages.state import Loads
from shared.model.load import PodLoad

Decided = Sequence[tuple[PodInfo, Placement]]


class GivenPods:
    """Each step names the members of the one before and some more: only these are written down."""

    def __init__(self) -> None:
        self._decided: list[tuple[PodInfo, Placement]] = []
        self._given: list[Given] = []
        self._loads = Loads()

    def of(self, decided: Decided) -> tuple[list[Given], list[PodLoad]]:
        """The members, and the loads to which they refer by number."""
        self._cut(_same_at_first(decided, self._decided))
        for info, placement in decided[len(self._given) :]:
            self._decided.append((info, placement))
            self._given.append(
                Given(
                    info.uid,
                    placement.node,
                    self._loads.number(info.template.load),
                    placement.volumes,
                    device_decision(info, placement),
                    info.name if placement.devices is not None else "",
                )
            )
        return list(self._given), list(self._loads.items)

    def _cut(self, left: int) -> None:
        """Forgets the members behind the first ones, and the loads that only they have."""
        if left == len(self._given):
            return
        del self._decided[left:], self._given[left:]
        self._loads = Loads()
        for info, _ in self._decided:
            self._loads.number(info.template.load)


def _same_at_first(some: Decided, others: Decided) -> int:
    for number, ((info, placement), (other_info, other_placement)) in enumerate(zip(some, others, strict=False)):
        if info is not other_info or placement is not other_placement:
            return number
    return min(len(some), len(others))
