"""Where gangs were placed lately, for members that left the queue before it knew.

A gang with a topology goes where its placed members are, which the queue says of each member. Members that are popped
one after the other (beyond the minimum, or restarted) may be on their way while the first of them is decided.
"""

from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from services.cycle.round.admission import PodInfo
from services.cycle.round.group_tree import key_of, path_of
from shared.bounded import BoundedDict
from shared.messages.queue import MAX_PLACED_ON, Gang, GangGroup

MAX_GANGS = 1 << 12


class GangMemory:
    def __init__(self) -> None:
        self._placed: BoundedDict[str, tuple[float, tuple[str, ...]]] = BoundedDict(MAX_GANGS)
        """By gang: when members were placed last, and some of their nodes."""

    def placed(self, info: PodInfo, node: str, now: float) -> None:
        for key in _keys(info.gang):
            _, nodes = self._placed.get(key, (0.0, ()))
            if node not in nodes:
                nodes = (node, *nodes)[:MAX_PLACED_ON]
            self._placed[key] = now, nodes

    def informed(self, members: Sequence[PodInfo]) -> list[PodInfo]:
        """The members of one gang, each with the nodes of those that were placed since it left the queue."""
        first = members[0].gang
        if first is None or not first.groups:
            return [self._informed(info) for info in members]
        groups = tuple(self._group_informed(members[0], first, number) for number in range(len(first.groups)))
        return [
            info if info.gang is None else replace(info, gang=replace_fields(info.gang, groups=groups))
            for info in members
        ]

    def _group_informed(self, info: PodInfo, gang: Gang, number: int) -> GangGroup:
        group = gang.groups[number]
        at, nodes = self._placed.get(key_of(gang, number), (0.0, ())) if group.topology else (0.0, ())
        if not nodes or info.taken_at > at:
            return group
        return replace_fields(group, placed_on=tuple(dict.fromkeys((*group.placed_on, *nodes)))[:MAX_PLACED_ON])

    def _informed(self, info: PodInfo) -> PodInfo:
        if info.gang is None or not info.gang.topology:
            return info
        at, nodes = self._placed.get(info.gang.key, (0.0, ()))
        return replace(info, gang=placed_too(info.gang, nodes)) if nodes and info.taken_at <= at else info


def _keys(gang: Gang | None) -> list[str]:
    """The groups with a topology that a member is in."""
    if gang is None or not gang.groups:
        return [gang.key] if gang is not None and gang.topology else []
    return [key_of(gang, number) for number in path_of(gang.groups, gang.group) if gang.groups[number].topology]


def placed_too(gang: Gang, nodes: Sequence[str]) -> Gang:
    """The gang, with more of its members on these nodes."""
    if not gang.topology:
        return gang
    return replace_fields(gang, placed_on=tuple(dict.fromkeys((*gang.placed_on, *nodes)))[:MAX_PLACED_ON])
