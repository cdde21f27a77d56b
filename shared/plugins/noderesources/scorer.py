"""What the resource scores have in common: for each resource of the plugin's args, use and capacity of every node."""

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
class Column:
    """One resource. `used` and `capacity` are rows of nodes; `request` broadcasts against them.

    `counted` is None where the resource counts for all pods on all nodes.
    """

    request: Amounts
    used: Amounts
    capacity: Amounts
    counted: NDArray[np.bool_] | None

    @property
    def safe_capacity(self) -> Amounts:
        return self.capacity if self.counted is None else np.maximum(self.capacity, 1)


def columns(
    resources: Sequence[str], requests: Sequence[tuple[int, ...]], which: Rows | None, view: NodeView, *, non_zero: bool
) -> list[Column]:
    """One Column a resource, pods x nodes; with `which`, one pod a node: the i-th node is paired with pod `which[i]`.

    A resource does not count on nodes that have none of it, nor, unless it is a basic one, for pods that do not ask
    for it.
    """
    amounts = np.array(requests, dtype=np.int64).reshape(len(requests), len(resources))
    found: list[Column] = []
    for i, name in enumerate(resources):
        request = amounts[:, i, None] if which is None else amounts[which, i]
        number = view.table.resources.known(name)
        if number is None:
            nothing = np.zeros(len(view), dtype=np.int64)
            found.append(Column(request, nothing, nothing, np.zeros(len(view), dtype=np.bool_)))
            continue
        capacity = view.allocatable[number]
        used = (view.non_zero if non_zero and number in (CPU, MEMORY) else view.used)[number]
        if number not in (CPU, MEMORY) or not capacity.all():
            counted = capacity > 0
            if is_scalar_resource(name):
                counted = counted & (request > 0)
            found.append(Column(request, used, capacity, counted))
        else:
            found.append(Column(request, used, capacity, None))
    return found
