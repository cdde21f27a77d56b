"""The topology domains that a gang may lie in, and the order in which they are tried.

A gang's constraints name node labels, the widest domain first (block, rack, node). All members must lie on nodes that
share the value of each *required* label; those of *preferred* labels are shared where the gang fits so. So there are
levels: the narrowest shares all labels; each wider one gives up the narrowest preferred label that is left; the widest
shares the required ones only, which may be none: then it is the whole cluster.

Workers count for each class how many pods of it would fit on the nodes of each combination of values. What a class
could take by itself is an upper bound, so a domain with too little room holds the gang in no case.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Values = tuple[str | None, ...]
"""The values of a node's labels, one for each level; None for a missing label."""


class Level(NamedTuple):
    """A topology constraint. They come widest first."""

    key: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class Room:
    """What nodes with the same values have room for. `places`: by class, pods that fit if only they are placed.

    `score`: the sum of the nodes' scores for some class, over `nodes` feasible nodes.
    """

    places: Mapping[str, int]
    nodes: int = 0
    score: int = 0


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes that share the values of some labels, without any: the whole cluster.

    `members`: of the gang, for how many there is room at most. `places`: for how many pods of its classes, over all
    classes. `slack`: by class, the places that are left over, which is negative if there are too few.
    """

    within: tuple[tuple[str, str], ...]
    members: int
    places: int
    slack: Mapping[str, int]
    nodes: int = 0

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.within)

    @property
    def name(self) -> str:
        """For people: the narrowest value, with the wider ones that it lies in."""
        return _name(tuple(value for _, value in self.within)) or "the cluster"


CLUSTER = Domain((), 0, 0, {})
"""For a gang without constraints."""


def domains(
    levels: Sequence[Level],
    rooms: Mapping[Values, Room],
    wanted: Mapping[str, int],
    placed: Iterable[Values] = (),
) -> list[Domain]:
    """Lists all domains that the gang may lie in, the best first, whether or not they have room for enough members.

    `wanted`: the members to place, by class. `placed`: the values of nodes that other members are on already, which
    must lie in the domain too. Theirs is listed even if it is full: only some workers may tell of it.

    Domains for the most members come first; among these the narrowest ones; then the one with the least room, and if
    equal in the wider domain with the least room, so that large ones stay whole; then the one whose nodes have the
    better scores.
    """
    there = set(placed)
    found: list[tuple[tuple[object, ...], Domain]] = []
    for number, keys in enumerate(shared_labels(levels)):
        sums = {width: _sums(keys[:width], rooms) for width in range(len(keys) + 1)}
        for each in there:
            shared = tuple(value for k in keys if (value := each[k]) is not None)
            for width in range(len(shared) + 1) if len(shared) == len(keys) else ():
                sums[width].setdefault(shared[:width], Room({}))
        for values, room in sums[len(keys)].items():
            if any(tuple(each[k] for k in keys) != values for each in there):
                continue
            domain = _domain(tuple((levels[k].key, v) for k, v in zip(keys, values, strict=True)), room, wanted)
            around = [sum(sums[width][values[:width]].places.values()) for width in range(len(keys) - 1, 0, -1)]
            score = -(room.score // room.nodes) if room.nodes else 0
            found.append(((-domain.members, number, domain.places, *around, score, values), domain))
    return [domain for _, domain in sorted(found, key=lambda each: each[0])]


def holding(listed: Iterable[Domain], least: int) -> list[Domain]:
    """Those that may have room for enough members."""
    return [domain for domain in listed if domain.members >= least]


def shared_labels(levels: Sequence[Level]) -> list[tuple[int, ...]]:
    """The labels (by index) that all members share at each level, from the narrowest to the widest."""
    shared: list[tuple[int, ...]] = []
    for count in range(len(levels), -1, -1):
        keys = tuple(k for k, level in enumerate(levels) if k < count or level.required)
        if keys not in shared:
            shared.append(keys)
    return shared


def _domain(within: tuple[tuple[str, str], ...], room: Room, wanted: Mapping[str, int]) -> Domain:
    members = sum(min(count, room.places.get(class_id, 0)) for class_id, count in wanted.items())
    slack = {class_id: room.places.get(class_id, 0) - count for class_id, count in wanted.items()}
    return Domain(within, members, sum(room.places.values()), slack, room.nodes)


def _sums(keys: Sequence[int], rooms: Mapping[Values, Room]) -> dict[tuple[str, ...], Room]:
    """The room of all nodes with the same values of these labels. Nodes that lack one are in no domain."""
    places: dict[tuple[str, ...], Counter[str]] = {} if keys else {(): Counter()}
    nodes: Counter[tuple[str, ...]] = Counter()
    scores: Counter[tuple[str, ...]] = Counter()
    for values, room in rooms.items():
        shared = tuple(value for k in keys if (value := values[k]) is not None)
        if len(shared) < len(keys):
            continue
        places.setdefault(shared, Counter()).update(room.places)
        nodes[shared] += room.nodes
        scores[shared] += room.score
    return {values: Room(of_class, nodes[values], scores[values]) for values, of_class in places.items()}


# Reasons


def why_none(
    levels: Sequence[Level], listed: Sequence[Domain], least: int, total: int, placed: Sequence[Values] = ()
) -> str:
    """One sentence: why the gang fits in none of these domains. `total`: the members to place."""
    keys = shared_labels(levels)[-1]
    if not keys:
        return ""
    what = noun(levels[keys[-1]].key)
    there = {tuple(each[k] for k in keys) for each in placed}
    if len(there) > 1:
        names = " and ".join(sorted(_name(each) for each in there)[:2])
        return f"members are in {names} already, and all must be in one {what}"
    if not listed and there:
        return f"members are on a node without the label {levels[keys[-1]].key}, so no {what} holds all of them"
    if not listed:
        return f"no node has the {_labels([levels[k].key for k in keys])}, by which members lie together"
    best = max((each for each in listed if len(each.within) == len(keys)), key=lambda domain: domain.members)
    if there and not best.members:
        return f"members are in {best.name} already, where no node has room for another one"
    room = f"has room for {best.members}"
    if there:
        return f"{best.name}, where other members are, {room} of the {_needed(least, total)}"
    if not best.members:
        return (
            f"no {what} has room for any of its {total} members" if total > 1 else f"no {what} has room for its member"
        )
    return f"no {what} has room for {_members(least, total)}: the best, {best.name}, {room}"


def _name(values: Values) -> str:
    return " in ".join(str(value) for value in reversed(values))


def noun(key: str) -> str:
    """What people call the domains of a label: `example.com/rack` names racks."""
    return key.rpartition("/")[2]


def _labels(keys: Sequence[str]) -> str:
    return f"label {keys[0]}" if len(keys) == 1 else f"labels {', '.join(keys[:-1])} and {keys[-1]}"


def _members(least: int, total: int) -> str:
    if least < total:
        return f"{least} of the {total} members, which are needed"
    return f"all {total} members" if total > 1 else "its member"


def _needed(least: int, total: int) -> str:
    return f"{total} that are left" if least >= total else f"{least} more that are needed"
