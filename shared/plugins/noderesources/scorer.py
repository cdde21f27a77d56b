"""What the resource scores have in common: use and capacity of every node, for each resource of the plugin's args."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.nodetable import CPU, MEMORY
from shared.framework.view import NodeView
from shared.model.resources import is_scalar_resource

Amounts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shares:
    """Resources x nodes, with an axis of pods in front where `request` has one.

    `counted` is None where all resources count for all pods on all nodes; elsewhere `capacity` is at least one.
    """

    request: Amounts
    used: Amounts
    capacity: Amounts
    counted: NDArray[np.bool_] | None


def shares(
    resources: Sequence[str], requests: Sequence[tuple[int, ...]], which: Rows | None, view: NodeView, *, non_zero: bool
) -> Shares:
    """For every pod on every node; with `which`, for pod `which[i]` on the i-th node only.

    A resource does not count on nodes that have none of it, nor, unless it is a basic one, for pods that do not ask
    for it.
    """
    amounts = np.array(requests, dtype=np.int64).reshape(len(requests), len(resources))
    request = amounts[:, :, None] if which is None else amounts[which].T
    known = view.table.resources.known
    numbers = [None if name == "pods" else known(name) for name in resources]  # how many pods is not an amount
    if numbers == [CPU, MEMORY]:
        used = view.non_zero if non_zero else view.used[:2]
        if view.has_basics:
            return Shares(request, used, view.allocatable[:2], None)
        capacity = view.allocatable[:2]
    else:
        nothing = np.zeros(len(view), dtype=np.int64)
        used = np.stack([nothing if n is None else _used(view, n, non_zero=non_zero) for n in numbers])
        capacity = np.stack([nothing if n is None else view.allocatable[n] for n in numbers])
    optional = np.array([is_scalar_resource(name) for name in resources])[:, None]
    counted = (capacity > 0) & (~optional | (request > 0))
    return Shares(request, used, np.maximum(capacity, 1), counted)


def _used(view: NodeView, number: int, *, non_zero: bool) -> Amounts:
    row: Amounts = (view.non_zero if non_zero and number in (CPU, MEMORY) else view.used)[number]
    return row
