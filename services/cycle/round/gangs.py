"""Takes gangs from the backlog, and gives back the members that lost a conflict."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from services.cycle.round.admission import PodInfo, needed
from services.cycle.round.assign import RoundResult
from services.cycle.round.gang import GangRound
from services.cycle.round.gang_memory import GangMemory, placed_too
from services.cycle.round.group_tree import with_placed
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.tree_round import TreeRound
from shared.messages.state import Conflict

AnyGang = GangRound | TreeRound


def take_gang(backlog: deque[PodInfo], memory: GangMemory) -> AnyGang | None:
    """Takes the gang at the head of the backlog, if there is one: all consecutive members."""
    if not backlog or backlog[0].gang is None:
        return None
    key, is_tree = backlog[0].gang.key, bool(backlog[0].gang.groups)
    members: list[PodInfo] = []
    while backlog and (gang := backlog[0].gang) is not None and (gang.key, bool(gang.groups)) == (key, is_tree):
        members.append(backlog.popleft())
    members = memory.informed(members)
    return TreeRound(members) if is_tree else GangRound(members)


def is_tree(backlog: deque[PodInfo]) -> bool:
    """Whether a gang that is a tree is decided next. Where others of it were placed must be known then."""
    return bool(backlog) and backlog[0].gang is not None and bool(backlog[0].gang.groups)


def where_they_are(
    decided: Iterable[tuple[PodInfo, Placement]], conflicts: Mapping[str, Conflict]
) -> list[tuple[PodInfo, Placement]]:
    """The decisions; those about pods that had a place already name its node: the rest of their gang goes by it."""
    others = {uid: conflict.node for uid, conflict in conflicts.items() if conflict.node}
    return [
        (info, replace(placement, node=others[info.uid]) if info.uid in others else placement)
        for info, placement in decided
    ]


def undecided(result: RoundResult, lost: Mapping[str, PodInfo]) -> dict[str, PodInfo]:
    """The pods to decide again after `lost` lost a conflict: with withheld members of their gang, if there are any.

    The gang needs fewer members then, as the others are placed.
    """
    again = dict(lost) | {info.uid: info for info, _ in result.withheld}
    placed = [
        (0 if info.gang is None else info.gang.group, placement.node)
        for info, placement in result.decided
        if info.uid not in lost
    ]
    return {uid: _needing_fewer(info, placed) for uid, info in again.items()} if placed else again


def _needing_fewer(info: PodInfo, placed: list[tuple[int, str]]) -> PodInfo:
    if info.gang is None:
        return info
    if info.gang.groups:
        return replace(info, gang=with_placed(info.gang, placed))
    gang = placed_too(info.gang, [node for _, node in placed])
    return replace(info, gang=needed(msgspec.structs.replace(gang, least=max(0, gang.least - len(placed)))))
