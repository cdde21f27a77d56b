"""Whether a volume can be made for a claim, seen from each node."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from flotilla.objects import ClusterObjects
from flotilla.plugin import Mask, NodeView
from shared.errors import ClusterError
from shared.model.objects import CSIStorageCapacity, LabelSelector, PersistentVolumeClaim, StorageClass
from shared.model.quantity import Quantity
from shared.plugins.volumes.nodecolumns import as_requirements, labelled_nodes, nodes_of_topologies
from shared.plugins.volumes.volumebinding.claims import requested_storage

NO_PROVISIONER = "kubernetes.io/no-provisioner"

POSSIBLE, IMPOSSIBLE, NO_SPACE = range(3)

Prospects = NDArray[np.int64]
"""POSSIBLE, IMPOSSIBLE or NO_SPACE on each node."""


class NoClass(ClusterError):
    """A claim's storage class went away."""


def prospects(nodes: NodeView, claim: PersistentVolumeClaim, objects: ClusterObjects) -> Prospects:
    storage_class = objects.storage_classes.get(claim.storage_class)
    if storage_class is None:
        raise NoClass(f'failed to find storage class "{claim.storage_class}"')
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return np.full(len(nodes), IMPOSSIBLE, dtype=np.int64)
    found = np.where(nodes_of_topologies(nodes, storage_class.allowed_topologies), POSSIBLE, IMPOSSIBLE)
    size = requested_storage(claim)
    if size is not None and tells_capacity(objects, storage_class):
        found[(found == POSSIBLE) & ~_have_space(nodes, storage_class, size, objects)] = NO_SPACE
    return found


def tells_capacity(objects: ClusterObjects, storage_class: StorageClass) -> bool:
    """Whether the driver publishes how much room there is where."""
    driver = objects.csi_drivers.get(storage_class.provisioner)
    return driver is not None and bool(driver.spec.storage_capacity)


def _have_space(nodes: NodeView, storage_class: StorageClass, size: Quantity, objects: ClusterObjects) -> Mask:
    sufficient = (
        capacity.node_topology
        for capacity in objects.capacities_of_class(storage_class.name).values()
        if capacity.node_topology is not None and _is_sufficient(capacity, size)
    )
    return _any_matches(nodes, sufficient)


def _is_sufficient(capacity: CSIStorageCapacity, size: Quantity) -> bool:
    """The largest volume that can be made tells it more exactly than the room that is left."""
    limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return limit is not None and limit.value >= size.value


def _any_matches(nodes: NodeView, selectors: Iterable[LabelSelector]) -> Mask:
    """Drivers of local storage tell of each node by one label's value: those are looked up together."""
    values: dict[str, set[str]] = {}
    matching = np.zeros(len(nodes), dtype=np.bool_)
    for selector in selectors:
        requirements = as_requirements(selector)
        if len(requirements) == 1 and requirements[0].operator == "In":
            values.setdefault(requirements[0].key, set()).update(requirements[0].values)
        else:
            matching |= labelled_nodes(nodes, selector)
    for key, wanted in values.items():
        matching |= nodes.label(key).any_of(wanted)
    return matching
