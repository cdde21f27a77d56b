"""The arithmetic of the resource plugins: pure functions over arrays, classes of pods x nodes.

Requests come with the classes as first axis, node columns as plain rows; everything broadcasts. Divisions truncate, as
kube-scheduler's integer divisions do (all operands are non-negative where it matters).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.framework.normalize import MAX_NODE_SCORE, Scores

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]


def least_allocated(used: Amounts, capacity: Amounts) -> Scores:
    """The free share in percent; nought when overfull. `capacity` is positive."""
    return np.where(used > capacity, 0, (capacity - used) * MAX_NODE_SCORE // capacity)


def most_allocated(used: Amounts, capacity: Amounts) -> Scores:
    """The used share in percent. `capacity` is positive."""
    return np.minimum(used, capacity) * MAX_NODE_SCORE // capacity


def by_shape(used: Amounts, capacity: Amounts, shape: Scores) -> Scores:
    """A score looked up by utilization in percent (`shape` has 101 entries). `capacity` is positive."""
    return shape[np.where(used > capacity, 100, used * 100 // capacity)]


def shape_table(points: list[tuple[int, int]]) -> Scores:
    """The broken line through (utilization, score) points, at 0 to 100 percent.

    Slopes truncate towards nought, also where they fall.
    """
    table = np.empty(101, dtype=np.int64)
    for p in range(101):
        table[p] = points[-1][1]
        for i, (utilization, score) in enumerate(points):
            if p <= utilization:
                if i == 0:
                    table[p] = score
                else:
                    u0, s0 = points[i - 1]
                    rise = (score - s0) * (p - u0)
                    table[p] = s0 + (abs(rise) // (utilization - u0)) * (1 if rise >= 0 else -1)
                break
    return table


def weighted_mean(scores: Sequence[Scores], weights: Sequence[Amounts | int], *, rounded: bool) -> Scores:
    """Sum of scores x weights over the sum of weights; nought where no weight is. `rounded`: half up, else down."""
    total = scores[0] * weights[0]
    weight = weights[0]
    for score, more in zip(scores[1:], weights[1:], strict=True):
        total = total + score * more
        weight = weight + more
    if isinstance(weight, int) and not rounded:
        mean: Scores = total // weight
        return mean
    divisor = np.maximum(weight, 1)
    mean = np.floor(total / divisor + 0.5).astype(np.int64) if rounded else total // divisor
    return np.where(np.asarray(weight) > 0, mean, 0)


def balance(used: Sequence[Amounts], capacity: Sequence[Amounts], counted: Sequence[Mask]) -> Scores:
    """100 for equal shares of all resources, less the standard deviation of the shares in percent.

    A resource counts only where `counted` says so; with fewer than two nothing is out of balance.
    """
    shape = np.broadcast_shapes(*(u.shape for u in used), *(mask.shape for mask in counted))
    masks = np.stack([np.broadcast_to(mask, shape) for mask in counted])
    shares = np.stack([np.broadcast_to(np.minimum(u / c, 1.0), shape) for u, c in zip(used, capacity, strict=True)])
    shares[~masks] = 0.0
    count = np.count_nonzero(masks, axis=0)
    divisor = np.maximum(count, 1)
    distance = np.where(masks, shares - _in_order(shares) / divisor, 0.0)
    deviation = np.sqrt(_in_order(distance * distance) / divisor)
    # Two shares differ from their mean by half their difference; that is what is computed, and rounds otherwise.
    highest = np.where(masks, shares, -1.0).max(axis=0)
    lowest = np.where(masks, shares, 2.0).min(axis=0)
    deviation = np.where(count == 2, (highest - lowest) / 2, np.where(count > 2, deviation, 0.0))
    return ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)


def balance_of_two(used: Sequence[Amounts], capacity: Sequence[Amounts]) -> Scores:
    """`balance` for just two resources that count everywhere."""
    one, other = (np.minimum(u / c, 1.0) for u, c in zip(used, capacity, strict=True))
    return ((1 - np.abs((one - other) / 2)) * MAX_NODE_SCORE).astype(np.int64)


def _in_order(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the first axis, one after the other: floating point sums depend on the order."""
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total
