"""What the resource scores have in common: for each resource of the plugin's args, use and capacity of every node."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.cluster.nodetable import CPU, MEMORY
from shared.framework.view import NodeView
from shared.model.resources import is_scalar_resource

Amounts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """One resource: classes x 1 for `request`, 1 x nodes for `used` and `capacity`; `counted` broadcasts to both."""

    request: Amounts
    used: Amounts
    capacity: Amounts
    counted: NDArray[np.bool_]

    @property
    def safe_capacity(self) -> Amounts:
        return np.maximum(self.capacity, 1)


def columns(
    resources: Sequence[str], requests: Sequence[tuple[int, ...]], view: NodeView, *, non_zero: bool
) -> list[Column]:
    """One Column a resource. A resource does not count on nodes that have none of it, nor, unless it is a basic one,
    for pods that do not ask for it."""
    found: list[Column] = []
    for i, name in enumerate(resources):
        request = np.array([[amounts[i]] for amounts in requests], dtype=np.int64)
        number = view.table.resources.known(name)
        if number is None:
            nothing = np.zeros((1, len(view)), dtype=np.int64)
            found.append(Column(request, nothing, nothing, np.zeros((1, 1), dtype=np.bool_)))
            continue
        capacity = view.allocatable[number][None, :]
        used = (view.non_zero if non_zero and number in (CPU, MEMORY) else view.used)[number][None, :]
        counted = capacity > 0
        if is_scalar_resource(name):
            counted = counted & (request > 0)
        found.append(Column(request, used, capacity, counted))
    return found
