"""The arithmetic of the resource plugins: pure functions over arrays, classes of pods x nodes.

Requests come with the classes as first axis, node columns as plain rows; everything broadcasts. Divisions truncate, as
kube-scheduler's integer divisions do (all operands are non-negative where it matters).
"""

import numpy as np
from numpy.typing import NDArray

from shared.framework.normalize import MAX_NODE_SCORE, Scores

Amounts = NDArray[np.int64]


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


def weighted_mean(scores: list[Scores], weights: list[Amounts], *, rounded: bool) -> Scores:
    """Sum of scores x weights over the sum of weights; nought where no weight is. `rounded`: half up, else down."""
    total = sum(score * weight for score, weight in zip(scores, weights, strict=True))
    weight = np.asarray(sum(weights))
    divisor = np.maximum(weight, 1)
    if rounded:
        return np.where(weight > 0, np.floor(total / divisor + 0.5).astype(np.int64), 0)
    return np.where(weight > 0, total // divisor, 0)


def balance(used: list[Amounts], capacity: list[Amounts], counted: list[NDArray[np.bool_]]) -> Scores:
    """100 for equal shares of all resources, less the standard deviation of the shares in percent.

    A resource counts only where `counted` says so; with fewer than two nothing is out of balance.
    """
    shares = [np.minimum(u / np.maximum(c, 1), 1.0) for u, c in zip(used, capacity, strict=True)]
    count = np.asarray(sum(mask.astype(np.int64) for mask in counted))
    total = _masked_sum(shares, counted)
    mean = total / np.maximum(count, 1)
    squares = _masked_sum([(share - mean) * (share - mean) for share in shares], counted)
    highest = np.max(np.stack([np.where(m, s, -np.inf) for s, m in _together(shares, counted)]), axis=0)
    lowest = np.min(np.stack([np.where(m, s, np.inf) for s, m in _together(shares, counted)]), axis=0)
    with np.errstate(invalid="ignore"):
        of_two = (highest - lowest) / 2
    deviation = np.where(count == 2, of_two, np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0))
    return ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)


def balance_of_two(used: list[Amounts], capacity: list[Amounts]) -> Scores:
    """`balance` for just two resources that count everywhere."""
    one, other = (np.minimum(u / c, 1.0) for u, c in zip(used, capacity, strict=True))
    return ((1 - np.abs((one - other) / 2)) * MAX_NODE_SCORE).astype(np.int64)


def _masked_sum(values: list[NDArray[np.float64]], masks: list[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """In the order of the list: floating point sums depend on it."""
    total = np.zeros(1)
    for value, mask in _together(values, masks):
        total = np.where(mask, total + value, total)
    return total


def _together(
    values: list[NDArray[np.float64]], masks: list[NDArray[np.bool_]]
) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    shape = np.broadcast_shapes(*(v.shape for v in values), *(m.shape for m in masks))
    return [(np.broadcast_to(v, shape), np.broadcast_to(m, shape)) for v, m in zip(values, masks, strict=True)]
