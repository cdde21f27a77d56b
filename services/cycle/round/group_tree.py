"""The groups of a gang that is a tree: what each needs, and whether it has it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from shared.messages.queue import MAX_PLACED_ON, Gang, GangGroup
from shared.model.composite_groups import MAX_LEVELS


class GroupTree:
    """Groups are named by their numbers; 0 is the root."""

    def __init__(self, groups: Sequence[GangGroup], members: Mapping[int, int]) -> None:
        """`members`: how many members of each pod group are to be placed."""
        self.groups = groups
        self._members = members
        self._children: list[list[int]] = [[] for _ in groups]
        for number, group in enumerate(groups):
            if group.parent < number:
                self._children[group.parent].append(number)

    def children(self, number: int) -> list[int]:
        return self._children[number]

    def path(self, number: int) -> list[int]:
        """The group and those above it."""
        return path_of(self.groups, number)

    def leaves(self, number: int) -> Iterator[int]:
        """The pod groups from here on down."""
        if not self.groups[number].is_composite:
            yield number
        for child in self._children[number]:
            yield from self.leaves(child)

    def least(self, number: int) -> int | None:
        """How many members must be placed at least; None if it cannot be met."""
        group = self.groups[number]
        if not group.is_composite:
            return group.least if group.least <= self._members.get(number, 0) else None
        needs = sorted(need for child in self._children[number] if (need := self.least(child)) is not None)
        return sum(needs[: group.least]) if len(needs) >= group.least else None

    def needs_all(self, number: int) -> bool:
        """Whether it is met only if all members below it are placed."""
        group, children = self.groups[number], self._children[number]
        if not group.is_composite:
            return group.least == self._members.get(number, 0)
        return group.least == len(children) and all(self.needs_all(child) for child in children)

    def is_one(self, number: int) -> bool:
        """Whether all members below it can be placed as those of one group."""
        return self.needs_all(number) and not any(self._has_topology(child) for child in self._children[number])

    def is_met(self, number: int, placed: Mapping[int, int]) -> bool:
        """`placed`: how many members of each pod group have a place."""
        group = self.groups[number]
        if not group.is_composite:
            return placed.get(number, 0) >= group.least
        return self.met_below(number, placed) >= group.least

    def met_below(self, number: int, placed: Mapping[int, int]) -> int:
        """How many of the groups in this one are met."""
        return sum(self.is_met(child, placed) for child in self._children[number])

    def unit(self) -> int:
        """The group that must be met; those above it only say where it may lie."""
        number = 0
        while len(self._children[number]) == 1 and self.groups[number].least == 1:
            (number,) = self._children[number]
        return number

    def _has_topology(self, number: int) -> bool:
        return bool(self.groups[number].topology) or any(map(self._has_topology, self._children[number]))


def is_tree_of(groups: Sequence[GangGroup], number: int) -> bool:
    """Whether this is a tree in which this number is a pod group."""
    depths: list[int] = []
    for at, group in enumerate(groups):
        if at and not (group.parent < at and groups[group.parent].is_composite):
            return False
        depths.append(depths[group.parent] + 1 if at else 1)
    return number < len(groups) and not groups[number].is_composite and max(depths) <= MAX_LEVELS


def key_of(gang: Gang, number: int) -> str:
    """The key by which the group would be a gang of its own."""
    namespace = gang.key.split("/")[-2]
    group = gang.groups[number]
    kind = "compositepodgroup." if group.is_composite else ""
    return f"{kind}scheduling.k8s.io/{namespace}/{group.name}"


def with_placed(gang: Gang, placed: Iterable[tuple[int, str]], *, counts: bool = True) -> Gang:
    """The tree after members of these groups were placed on these nodes. `counts`: no other members are needed then."""
    groups = list(gang.groups)
    placed = list(placed)
    fewer = Counter(number for number, _ in placed)
    nodes: dict[int, list[str]] = {}
    for number, node in placed:
        for above in path_of(groups, number):
            nodes.setdefault(above, []).append(node)
    for number, there in nodes.items():
        group = groups[number]
        least = max(group.least - fewer[number], 0) if counts and not group.is_composite else group.least
        on = tuple(dict.fromkeys((*group.placed_on, *there)))[:MAX_PLACED_ON] if group.topology else ()
        groups[number] = GangGroup(group.name, group.parent, group.is_composite, least, group.topology, on)
    return replace(gang, groups=tuple(groups), least=max(gang.least - len(placed) * counts, 0))


def path_of(groups: Sequence[GangGroup], number: int) -> list[int]:
    """The group and those above it."""
    path = [number]
    while groups[path[-1]].parent < path[-1]:
        path.append(groups[path[-1]].parent)
    return path
