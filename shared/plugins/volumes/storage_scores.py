"""Scores of nodes by the storage that they have for a pod's claims; StorageCapacityScoring.

Claims are added up by storage class. On a node on which volumes that are there serve some claims, only those count;
elsewhere the capacity that drivers publish. A class scores by the share that is requested, a node the mean of classes.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flotilla.nodes import ABSENT, Ints, Mask, NodeView
from flotilla.objects import CSIStorageCapacity, LabelSelector
from flotilla.plugin import Scores
from flotilla.results import MAX_NODE_SCORE
from shared.config.args import UtilizationShapePoint
from shared.model.objects import PersistentVolume, PersistentVolumeClaim
from shared.model.quantity import Quantity
from shared.plugins.noderesources import shape_table
from shared.plugins.volumes.matching import NOTHING, STORAGE, Choices, requested_storage
from shared.plugins.volumes.nodecolumns import as_requirements, labelled_nodes

MAX_POINTS = 10
"""The highest score of a shape's point."""
FULL = 100
"""Percent."""


def largest_volume(capacity: CSIStorageCapacity) -> Quantity | None:
    """The driver's limit for one volume is more exact than the room that is left."""
    return capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size


class StorageOfClasses:
    """What a pod's claims request, and what is there for them, by storage class and node."""

    def __init__(self, nodes: NodeView) -> None:
        self.by_class: dict[str, tuple[Ints, Ints, Mask]] = {}
        """Requested, capacity, and where the class counts."""
        self.is_any = np.zeros(len(nodes), dtype=np.bool_)
        self._nodes = nodes

    def add_volumes(self, claim: PersistentVolumeClaim, chosen: Choices, volumes: Sequence[PersistentVolume]) -> None:
        """`chosen`: the number of the volume that the claim gets on each node."""
        where = chosen != NOTHING
        if not where.any():
            return
        requested, capacity, counts = self._of(claim)
        sizes = np.zeros(len(volumes), dtype=np.int64)
        for number in np.unique(chosen[where]).tolist():
            sizes[number] = _bytes(volumes[number].spec.capacity.get(STORAGE))
        requested += where * _bytes(requested_storage(claim))
        capacity += np.where(where, sizes[chosen], 0)
        counts |= where
        self.is_any |= where

    def add_provision(
        self, claim: PersistentVolumeClaim, published: Mapping[str, CSIStorageCapacity], where: Mask
    ) -> None:
        """Does nothing for a claim without size. Of several claims of a class, the last one's capacity counts."""
        size = requested_storage(claim)
        if size is None:
            return
        enough = sufficient((capacity for _, capacity in sorted(published.items())), size)
        amounts = np.array([*(_bytes(each.capacity) for each in enough), ABSENT], dtype=np.int64)
        there = amounts[first_reached(self._nodes, enough)]
        where = where & (there != ABSENT)
        requested, capacity, counts = self._of(claim)
        requested += where * _bytes(size)
        capacity[where] = there[where]
        counts |= where

    def _of(self, claim: PersistentVolumeClaim) -> tuple[Ints, Ints, Mask]:
        found = self.by_class.get(claim.storage_class)
        if found is None:
            n = len(self._nodes)
            found = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
            self.by_class[claim.storage_class] = found
        return found


class StorageScorer:
    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._table = shape_table([(each.utilization, each.score * MAX_NODE_SCORE // MAX_POINTS) for each in shape])

    def score(self, storage: StorageOfClasses) -> Scores:
        """The mean over the classes, rounded half up; 0 where no class counts."""
        total = np.zeros(len(storage.is_any), dtype=np.int64)
        classes = np.zeros(len(storage.is_any), dtype=np.int64)
        for requested, capacity, counts in storage.by_class.values():
            fits = (capacity > 0) & (requested <= capacity)
            used = np.where(fits, requested * FULL // np.maximum(capacity, 1), FULL)
            total += counts * self._table[used]
            classes += counts
        mean = np.floor(total / np.maximum(classes, 1) + 0.5).astype(np.int64)
        return np.where(classes > 0, mean, 0)


def _bytes(quantity: Quantity | None) -> int:
    return 0 if quantity is None else int(quantity.value)


def sufficient(capacities: Iterable[CSIStorageCapacity], size: Quantity) -> list[CSIStorageCapacity]:
    """Those with room for a volume of this size, on some nodes."""
    return [
        capacity
        for capacity in capacities
        if capacity.node_topology is not None
        and (largest := largest_volume(capacity)) is not None
        and largest.value >= size.value
    ]


def first_reached(nodes: NodeView, capacities: Sequence[CSIStorageCapacity]) -> Ints:
    """The index of the first of these that each node reaches; their number where there is none.

    Drivers of local storage describe each node by one label's value: those are looked up together.
    """
    none = len(capacities)
    first = np.full(len(nodes), none, dtype=np.int64)
    by_label: dict[str, dict[str, int]] = {}
    for rank, capacity in enumerate(capacities):
        topology = capacity.node_topology or LabelSelector()
        requirements = as_requirements(topology)
        if len(requirements) == 1 and requirements[0].operator == "In":
            for value in requirements[0].values:
                by_label.setdefault(requirements[0].key, {}).setdefault(value, rank)
        else:
            first[labelled_nodes(nodes, topology) & (first > rank)] = rank
    for key, ranks in by_label.items():
        column = nodes.label(key)
        of_value = np.full(len(column.values) + 1, none, dtype=np.int64)  # the last one is for nodes without the label
        for value, rank in ranks.items():
            number = column.number(value)
            if number is not None:
                of_value[number] = rank
        first = np.minimum(first, of_value[column.numbers])
    return first
