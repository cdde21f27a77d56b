"""A gang that does not fit, for which victims are searched: its members, and what they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Self

from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Unfit
from services.cycle.round.gang import share_claims
from services.cycle.round.gangs import AnyGang
from services.cycle.round.group_tree import GroupTree
from services.cycle.round.tree_round import TreeRound
from shared.messages.queue import GangGroup

MAX_REPEATS = 4
"""How often victims are searched for again because other pods were decided meanwhile."""


class Stage(IntEnum):
    """How victims are searched for: by the next one only if those that were found so far are none, or not enough.

    `CHEAPEST`: the best set of those that are tried. `ON_ONE_NODE`: members that share a claim go to one node, where
    its devices can be used. `ALL`: all pods that may go are taken to be gone.
    """

    CHEAPEST = 0
    ON_ONE_NODE = 1
    ALL = 2


@dataclass(frozen=True)
class GangCase:
    """`members`: in queue order, with the reason for each.

    `keys`: the labels whose values its domain shares; `within`: those values, if other members have a place already.
    `groups`: of a tree; then `placed_in` has for each group of which members have a place the values of its own labels.
    `why`: what came of the stages before. `repeats`: how often the search has begun again.
    """

    key: str
    least: int
    priority: int
    members: Sequence[tuple[PodInfo, Unfit]]
    never_preempts: bool = False
    keys: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    groups: tuple[GangGroup, ...] = ()
    placed_in: Mapping[int, tuple[str, ...]] | None = None
    stage: Stage = Stage.CHEAPEST
    why: str = ""
    repeats: int = 0

    @property
    def pods(self) -> list[PodInfo]:
        return [info for info, _ in self.members]

    def next_stage(self, why: str) -> Self:
        """`why`: what came of this one."""
        stages = [each for each in Stage if each > self.stage and (each is Stage.ALL or share_claims(self.pods))]
        return replace(self, stage=stages[0], why=why)

    @property
    def may_repeat(self) -> bool:
        return self.repeats < MAX_REPEATS

    def again(self) -> Self:
        """From the first stage on."""
        return replace(self, stage=Stage.CHEAPEST, why="", repeats=self.repeats + 1)

    @cached_property
    def unfit(self) -> dict[str, Unfit]:
        """By uid."""
        return {info.uid: unfit for info, unfit in self.members}

    @property
    def nominated(self) -> dict[str, str]:
        return {info.uid: node for info in self.pods if (node := info.nominated_node)}

    @property
    def group(self) -> str:
        """`namespace/name`, without the API."""
        return "/".join(self.key.split("/")[-2:])

    @cached_property
    def of_group(self) -> dict[int, list[PodInfo]]:
        """The members by the number of their group."""
        found: dict[int, list[PodInfo]] = {}
        for info in self.pods:
            found.setdefault(0 if info.gang is None or not self.groups else info.gang.group, []).append(info)
        return found

    @cached_property
    def tree(self) -> GroupTree:
        """A gang that is one group is a tree of this group alone."""
        groups = self.groups or (GangGroup(self.group, 0, False, self.least),)
        return GroupTree(groups, {number: len(of) for number, of in self.of_group.items()})


def case_of(gang: AnyGang, unfit: Sequence[tuple[PodInfo, Unfit]]) -> GangCase:
    """Of a gang that does not fit, with all its members."""
    said = gang.message.priority
    own = min(info.template.priority for info in gang.members)
    priority = own if said is None else said
    never = gang.message.never_preempts or any(info.template.never_preempts for info in gang.members)
    if isinstance(gang, TreeRound):
        return GangCase(
            gang.key, gang.least, priority, unfit, never, groups=gang.message.groups, placed_in=gang.placed_in
        )
    required = [k for k, level in enumerate(gang.attempts.levels) if level.required]
    keys = tuple(gang.attempts.levels[k].key for k in required)
    counted = gang.attempts.counted
    placed = [] if counted is None or not required else counted.placed
    within = min((tuple(values[k] or "" for k in required) for values in placed), default=())
    return GangCase(gang.key, gang.least, priority, unfit, never, keys, within)
