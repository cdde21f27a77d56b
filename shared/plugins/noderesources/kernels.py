"""What the resource plugins share: the use and capacity of nodes, and arithmetic over resources x nodes.

If classes of pods have an axis, it comes first; everything broadcasts. Divisions truncate, as kube-scheduler's integer
divisions do (all operands are non-negative where it matters).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import MAX_NODE_SCORE, Index, Ints, Mask, NodeView, Scores
from shared.model.resources import CPU, MEMORY, is_scalar_resource

Fractions = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shares:
    """Resources x nodes, with an axis of classes in front if `request` has one.

    `counted` is None if all resources count for all classes on all nodes; otherwise `capacity` is at least one.
    """

    request: Ints
    used: Ints
    capacity: Ints
    counted: Mask | None


def shares(
    resources: Sequence[str],
    requests: Sequence[tuple[int, ...]],
    which: Index | None,
    nodes: NodeView,
    *,
    non_zero: bool,
) -> Shares:
    """For every class on every node; with `which`, for class `which[i]` on the i-th node only.

    A resource does not count on nodes that have none of it, nor, unless it is a basic one, for pods that do not request
    it.
    """
    amounts = np.array(requests, dtype=np.int64).reshape(len(requests), len(resources))
    request = amounts[:, :, None] if which is None else amounts[which].T
    resources = tuple(resources)
    if resources == (CPU, MEMORY):
        used = nodes.non_zero_requested() if non_zero else nodes.requested(CPU, MEMORY)
        capacity = nodes.allocatable(CPU, MEMORY)
        if capacity.all():
            return Shares(request, used, capacity, None)
    else:
        names = tuple("" if name == "pods" else name for name in resources)  # how many pods is not an amount
        used, capacity = nodes.requested(*names), nodes.allocatable(*names)
        if non_zero:
            used = used.copy()
            for number, name in enumerate((CPU, MEMORY)):
                if name in resources:
                    used[resources.index(name)] = nodes.non_zero_requested()[number]
    optional = np.array([is_scalar_resource(name) for name in resources])[:, None]
    counted = (capacity > 0) & (~optional | (request > 0))
    return Shares(request, used, np.maximum(capacity, 1), counted)


def least_allocated(used: Ints, capacity: Ints) -> Scores:
    """The free share in percent; 0 when overfull. `capacity` is positive."""
    scores: Scores = np.maximum(capacity - used, 0) * MAX_NODE_SCORE // capacity
    return scores


def most_allocated(used: Ints, capacity: Ints) -> Scores:
    """The used share in percent. `capacity` is positive."""
    return np.minimum(used, capacity) * MAX_NODE_SCORE // capacity


def by_shape(used: Ints, capacity: Ints, shape: Scores) -> Scores:
    """A score looked up by utilization in percent (`shape` has 101 entries). `capacity` is positive."""
    return shape[np.where(used > capacity, 100, used * 100 // capacity)]


def shape_table(points: list[tuple[int, int]]) -> Scores:
    """The broken line through (utilization, score) points, at 0 to 100 percent.

    Slopes truncate towards 0, also where they fall.
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


def weighted_mean(scores: Scores, weights: Ints, *, rounded: bool) -> Scores:
    """Over the resources: sum of scores x weights over the sum of weights; 0 where no weight is.

    `rounded`: half up, else down.
    """
    total = (scores * weights).sum(axis=-2)
    weight = weights.sum(axis=-2)
    if weight.shape == (1,) and not rounded:
        of_all: Scores = total // max(1, int(weight[0]))
        return of_all
    divisor = np.maximum(weight, 1)
    mean = np.floor(total / divisor + 0.5).astype(np.int64) if rounded else total // divisor
    return np.where(weight > 0, mean, 0)


def balance(used: Ints, capacity: Ints, counted: Mask | None) -> Scores:
    """100 for equal shares of all resources, less the standard deviation of the shares in percent.

    A resource counts only where `counted` says so; with fewer than two nothing is out of balance.
    `capacity` is positive.
    """
    fractions = np.minimum(used / capacity, 1.0)
    if counted is None and fractions.shape[-2] == 2:
        deviation = np.abs(fractions[..., 0, :] - fractions[..., 1, :]) / 2
    else:
        deviation = _deviation(*np.broadcast_arrays(fractions, True if counted is None else counted))
    scores: Scores = ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
    return scores


def _deviation(fractions: Fractions, counted: Mask) -> Fractions:
    count = np.count_nonzero(counted, axis=-2)
    divisor = np.maximum(count, 1)
    mean = _in_order(np.where(counted, fractions, 0.0)) / divisor
    distance = np.where(counted, fractions - mean[..., None, :], 0.0)
    of_many = np.sqrt(_in_order(distance * distance) / divisor)
    # The deviation of two shares is half their difference; computed so, it rounds as kube-scheduler's does.
    highest = np.where(counted, fractions, -np.inf).max(axis=-2)
    lowest = np.where(counted, fractions, np.inf).min(axis=-2)
    of_two = np.where(count == 2, highest - lowest, 0.0) / 2
    return np.where(count > 2, of_many, of_two)


def _in_order(values: Fractions) -> Fractions:
    """The sum over the resources, one after the other: floating point sums depend on the order."""
    total: Fractions = values[..., 0, :].copy()
    for resource in range(1, values.shape[-2]):
        total += values[..., resource, :]
    return total
