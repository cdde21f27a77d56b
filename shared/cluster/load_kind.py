"""What the pods of one kind add to a node, and the numbers of the resources that every table has."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import Ints
from shared.cluster.pod_indexes import LabelClass, encode_terms
from shared.model.load import PodLoad

CPU, MEMORY, EPHEMERAL, PODS = range(4)

Amounts = NDArray[np.int64]


class LoadKind:
    """A load shared by several pods, with its amounts as a column vector.

    Resources unknown to the table are left out until a pod of this kind is placed, because no node has them.
    """

    __slots__ = ("_dense", "amounts", "columns", "label_class", "load", "non_zero", "resources", "terms", "users")

    def __init__(self, load: PodLoad, label_class: LabelClass) -> None:
        self.load = load
        self.resources: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self.amounts: Amounts = np.zeros(0, dtype=np.int64)
        self.non_zero = np.array([load.non_zero_cpu, load.non_zero_memory], dtype=np.int64)
        self.label_class = label_class
        self.terms = encode_terms(load.terms)
        self.users = 0
        self.columns: tuple[int, list[tuple[Ints, int]]] = (0, [])
        """What a pod of this kind adds to the table's columns of loads, as of one generation of these."""
        self._dense: Amounts = np.zeros(0, dtype=np.int64)

    def number(self, numbers: Callable[[str], int | None]) -> None:
        """Assign the table's resource numbers to amounts that have none yet."""
        if len(self.resources) > len(self.load.requests):
            return
        known = [(n, amount) for name, amount in self.load.requests.items() if (n := numbers(name)) is not None]
        self.resources = np.array([*(n for n, _ in known), PODS], dtype=np.intp)
        self.amounts = np.array([*(amount for _, amount in known), 1], dtype=np.int64)
        self._dense = np.zeros(0, dtype=np.int64)

    def dense(self, resources: int) -> Amounts:
        """The amounts of the first `resources` resources, zeros included; the kind's numbers must be current."""
        if len(self._dense) != resources:
            self._dense = np.zeros(resources, dtype=np.int64)
            self._dense[self.resources] = self.amounts
        return self._dense
