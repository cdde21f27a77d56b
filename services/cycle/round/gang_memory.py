"""Where gangs were placed lately, for members that left the queue before it knew.

A gang with a topology goes where its placed members are, which the queue says of each member. Members that are popped
one after the other (beyond the minimum, or restarted) may be on their way while the first of them is decided.
"""

from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from services.cycle.round.admission import PodInfo
from shared.bounded import BoundedDict
from shared.messages.queue import MAX_PLACED_ON, Gang

MAX_GANGS = 1 << 12


class GangMemory:
    def __init__(self) -> None:
        self._placed: BoundedDict[str, tuple[float, tuple[str, ...]]] = BoundedDict(MAX_GANGS)
        """By gang: when members were placed last, and some of their nodes."""

    def placed(self, info: PodInfo, node: str, now: float) -> None:
        if info.gang is not None and info.gang.topology:
            _, nodes = self._placed.get(info.gang.key, (0.0, ()))
            if node not in nodes:
                nodes = (node, *nodes)[:MAX_PLACED_ON]
            self._placed[info.gang.key] = now, nodes

    def informed(self, members: Sequence[PodInfo]) -> list[PodInfo]:
        """The members of one gang, each with the nodes of those that were placed since it left the queue."""
        return [self._informed(info) for info in members]

    def _informed(self, info: PodInfo) -> PodInfo:
        if info.gang is None or not info.gang.topology:
            return info
        at, nodes = self._placed.get(info.gang.key, (0.0, ()))
        return replace(info, gang=placed_too(info.gang, nodes)) if nodes and info.taken_at <= at else info


def placed_too(gang: Gang, nodes: Sequence[str]) -> Gang:
    """The gang, with more of its members on these nodes."""
    if not gang.topology:
        return gang
    return replace_fields(gang, placed_on=tuple(dict.fromkeys((*gang.placed_on, *nodes)))[:MAX_PLACED_ON])
