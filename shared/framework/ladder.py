"""The greedy order in which equal pods would take nodes, worked out without placing any of them.

Taking the best node again and again, for k pods of one class, only ever touches the k nodes that are best at first:
before the j-th placement at most j - 1 of them were touched, so an untouched one of them is at least as good as any
other node. For each of these nodes the key is known as a function of how many pods it has been given, and the greedy
order is the order of the *running minimum* of these functions: a node whose key rises with a placement (bin packing)
is taken again at once, exactly as greed would.

Many classes climb at once, each on candidates of its own, so that looking ahead is one call for all of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Counts = NDArray[np.int64]
Index = NDArray[np.intp]

Lookahead = Callable[[Index, Counts], Keys]
"""(which candidates, how many pods each already has) -> their keys then; negative where no further pod fits."""


class Placements(NamedTuple):
    """Which candidate each placement takes, the key it has at that moment, and whether it is full afterwards."""

    owner: Index
    key: Keys
    fills: NDArray[np.bool_]


def greedy(first: Keys, group: Index, wanted: Counts, lookahead: Lookahead) -> Placements:
    """Up to `wanted[g]` placements for every group g.

    `first` holds the candidates' keys with nothing placed, none of them negative, and `group` what each belongs to.
    The placements come group by group, in greedy order. A group whose candidates are full before gets fewer.
    """
    owner: Index = np.arange(len(first), dtype=np.intp)
    count: Counts = np.zeros(len(first), dtype=np.int64)
    key, floor = first, first
    depth: Counts = np.ones(len(first), dtype=np.int64)
    deepest = first.copy()  # of each candidate: the running minimum where its known curve ends
    while True:
        taken = _taken(floor, count, group[owner], wanted)
        times = np.bincount(owner[taken], minlength=len(first))
        short = np.flatnonzero((times == depth) & (deepest >= 0) & (depth < wanted[group]))
        if not short.size:
            room = np.bincount(owner[floor >= 0], minlength=len(first))
            of_taken = owner[taken]
            fills = (deepest[of_taken] < 0) & (count[taken] == room[of_taken] - 1)
            return Placements(of_taken, key[taken], fills)
        more_owner, more_count = _extension(
            short, depth[short], np.minimum(depth[short], (wanted[group] - depth)[short])
        )
        more_key = lookahead(more_owner, more_count)
        more_floor = _running_minimum(more_owner, more_key, deepest)
        owner, count = np.concatenate([owner, more_owner]), np.concatenate([count, more_count])
        key, floor = np.concatenate([key, more_key]), np.concatenate([floor, more_floor])
        last = np.flatnonzero(np.append(more_owner[1:] != more_owner[:-1], True))
        depth[more_owner[last]] = more_count[last] + 1
        deepest[more_owner[last]] = more_floor[last]


def _taken(floor: Keys, count: Counts, group: Index, wanted: Counts) -> Index:
    """The placements that greed makes, group by group and in order."""
    order = np.lexsort((count, -floor, group))
    sizes = np.bincount(group, minlength=len(wanted))
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[(place < np.repeat(wanted, sizes)) & (floor[order] >= 0)]


def _extension(short: Index, start: Counts, length: Counts) -> tuple[Index, Counts]:
    """For each candidate the counts start, start + 1 ... of the given length, flattened."""
    owner = np.repeat(short, length)
    ends = np.cumsum(length)
    within = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - length, length)
    return owner, np.repeat(start, length) + within


def _running_minimum(owner: Index, key: Keys, before: Keys) -> Keys:
    """Of each owner's keys in turn, starting from what the minimum was `before`."""
    floor = np.minimum(key, before[owner])
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    ends = np.append(starts[1:], len(owner))
    for step in range(1, int((ends - starts).max())):
        here = starts + step
        here = here[here < ends]
        floor[here] = np.minimum(floor[here], floor[here - 1])
    return floor
