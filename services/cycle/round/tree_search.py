"""Searches a placement for a tree of groups that deciding one group after the other does not place.

As PlacementSearch: depth first, one member a step, each step judged by workers with the members placed so far. Here a
member belongs to a pod group, may only go where the groups above it may lie with what is placed of them, and may stay
out if the tree can be met without it. The members of one class in one pod group are alike.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.cycle.round.backtracking import Backtracking
from services.cycle.round.domains import Values
from services.cycle.round.group_tree import GroupTree
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.placement_search import MAX_STEPS, Offered


class Alike(NamedTuple):
    """Members of this class in this pod group."""

    group: int
    class_id: str


class Put(NamedTuple):
    member: Alike
    placement: Placement
    values: Values
    """Of the node's labels."""


class TreeSearch(Backtracking[Put, Alike]):
    def __init__(self, tree: GroupTree, wanted: Mapping[Alike, int], labels: Sequence[str], *, any_order: bool) -> None:
        """`labels`: those by which groups have domains. `any_order`: a placement may make room for others."""
        super().__init__(MAX_STEPS)
        self.values_on: dict[int, Values] = {}
        """By group: the values of a node that members are on already."""
        self.labels = tuple(labels)
        self.any_order = any_order
        self._tree = tree
        self._wanted = dict(wanted)
        self._labels = {label: at for at, label in enumerate(labels)}

    @property
    def open(self) -> list[Alike]:
        """Members that may still be placed."""
        placed = Counter(put.member for put in self.placed)
        return [each for each, n in self._wanted.items() if placed[each] < n and each not in self._dropped]

    @property
    def kept(self) -> list[Put]:
        """What is placed, without groups that are not met."""
        counts = Counter(put.member.group for put in self.placed)
        met = {
            number for number in counts if all(self._tree.is_met(above, counts) for above in self._tree.path(number))
        }
        return [put for put in self.placed if put.member.group in met]

    def domains(self) -> dict[int, Mapping[str, str]]:
        """By group: the labels that all its members share, with those of the groups above it."""
        found: dict[int, Mapping[str, str]] = {}
        for number, group in enumerate(self._tree.groups):
            labels = dict(found.get(group.parent, {})) if number else {}
            values = self._values_of(number)
            for level in group.topology:
                value = None if values is None or level.preferred else values[self._labels[level.key]]
                labels |= {} if value is None else {level.key: value}
            found[number] = labels
        met = {above for put in self.kept for above in self._tree.path(put.member.group)}
        return {number: labels for number, labels in found.items() if number in met}

    def take(self, offered: Mapping[str, Offered]) -> None:
        """What can be placed beside `placed`, by class: goes on to the next state, unless the search is over."""
        self.steps += 1
        placed = Counter(put.member for put in self.placed)
        open_ = self.open
        options = {each: self._allowed(each, offered.get(each.class_id)) for each in open_}
        most: Counter[Alike] = Counter()
        for each in open_:
            of_class = offered.get(each.class_id)
            room = of_class.places if of_class is not None and options[each] else 0
            most[each] = min(room, self._wanted[each] - placed[each])
        if self._can_be_met(placed, most):
            chosen = sorted((each for each in open_ if options[each]), key=lambda each: len(options[each]))
            chosen = chosen if self.any_order else chosen[:1]
            self.is_cut |= any(not offered[each.class_id].complete for each in chosen)
            left = [put for each in chosen for put in options[each]]
            drop = None
            if not self.any_order and chosen and self._can_be_met(placed, most - Counter({chosen[0]: most[chosen[0]]})):
                drop = chosen[0]
            self._branch(left, drop)
        self._go_on()

    def _allowed(self, member: Alike, offered: Offered | None) -> list[Put]:
        """The options that are in the domains of all groups that the member is in."""
        if offered is None:
            return []
        values = offered.values or [()] * len(offered.options)
        return [
            Put(member, option, of_node)
            for option, of_node in zip(offered.options, values, strict=True)
            if self._is_within(member.group, of_node)
        ]

    def _is_within(self, group: int, values: Values) -> bool:
        for above in self._tree.path(group):
            keys = [level.key for level in self._tree.groups[above].topology if not level.preferred]
            there = self._values_of(above) if keys else None
            for key in keys:
                value = values[self._labels[key]]
                if value is None or (there is not None and there[self._labels[key]] != value):
                    return False
        return True

    def _values_of(self, group: int) -> Values | None:
        """Of some node that the group has members on."""
        below = {*self._tree.leaves(group)}
        return next((put.values for put in self.placed if put.member.group in below), self.values_on.get(group))

    def _can_be_met(self, placed: Mapping[Alike, int], most: Mapping[Alike, int]) -> bool:
        counts: Counter[int] = Counter()
        for each in self._wanted:
            counts[each.group] += placed.get(each, 0) + most.get(each, 0)
        return self._tree.is_met(0, counts)

    def _is_found(self) -> bool:
        """If members matter to each other, none of those that were placed may be left out."""
        if not self._tree.is_met(0, Counter(put.member.group for put in self.placed)):
            return False
        return not self.any_order or len(self.kept) == len(self.placed)

    def _where(self, put: Put) -> tuple[Alike, str]:
        return put.member, put.placement.node
