"""The greedy order in which equal pods would take nodes, worked out without placing any of them.

Taking the best node again and again, for k pods of one class, only ever touches the k nodes that are best at first:
before the j-th placement at most j - 1 of them were touched, so an untouched one of them is at least as good as any
other node. For each of these nodes the key is known as a function of how many pods it has been given, and the greedy
order is the order of the *running minimum* of these functions: a node whose key rises with a placement (bin packing)
is taken again at once, exactly as greed would.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Index = NDArray[np.intp]

Lookahead = Callable[[Index, NDArray[np.int64]], Keys]
"""(which candidates, how many pods each already has) -> their keys then; negative where no further pod fits."""


def greedy(first: Keys, wanted: int, lookahead: Lookahead) -> tuple[Index, Keys]:
    """The first `wanted` placements: which candidate each takes, and the key it has at that moment.

    `first` holds the candidates' keys with nothing placed, all feasible. Fewer than `wanted` come back when the
    candidates are full before.
    """
    candidates = np.arange(len(first), dtype=np.intp)
    if wanted == 1:
        best = int(first.argmax())
        return candidates[best : best + 1], first[best : best + 1]
    owner, count, key, floor = candidates, np.zeros(len(first), dtype=np.int64), first, first
    depth = np.ones(len(first), dtype=np.int64)
    deepest = first  # of each candidate: the running minimum where its known curve ends
    while True:
        order = np.lexsort((count, -floor))[:wanted]
        order = order[floor[order] >= 0]
        taken = np.bincount(owner[order], minlength=len(first))
        short = np.flatnonzero((taken == depth) & (deepest >= 0) & (depth < wanted))
        if not short.size:
            return owner[order], key[order]
        more_owner, more_count = _extension(short, depth[short], np.minimum(depth[short], wanted - depth[short]))
        more_key = lookahead(more_owner, more_count)
        more_floor = _running_minimum(more_owner, more_key, deepest)
        owner, count = np.concatenate([owner, more_owner]), np.concatenate([count, more_count])
        key, floor = np.concatenate([key, more_key]), np.concatenate([floor, more_floor])
        last = np.flatnonzero(np.diff(more_owner, append=-1))
        depth[more_owner[last]] = more_count[last] + 1
        deepest = deepest.copy()
        deepest[more_owner[last]] = more_floor[last]


def _extension(short: Index, start: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[Index, NDArray[np.int64]]:
    """For each candidate the counts start, start + 1 ... of the given length, flattened."""
    owner = np.repeat(short, length)
    ends = np.cumsum(length)
    within = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - length, length)
    return owner, np.repeat(start, length) + within


def _running_minimum(owner: Index, key: Keys, before: Keys) -> Keys:
    """Of each owner's keys in turn, starting from what the minimum was `before`."""
    floor = np.minimum(key, before[owner])
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    ends = np.append(starts[1:], len(owner))
    longest = int((ends - starts).max())
    for step in range(1, longest):
        here = starts + step
        here = here[here < ends]
        floor[here] = np.minimum(floor[here], floor[here - 1])
    return floor
