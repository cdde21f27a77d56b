"""The free volumes of a cluster, sorted out by what claims ask for. Claims that ask alike, as those of one workload do,
share it until a volume changes.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.objects import ClusterObjects
from shared.model.kinds import ObjectKind
from shared.model.objects import PersistentVolume, PersistentVolumeClaim, encode_msgpack
from shared.model.selectors import label_selector_matches
from shared.plugins.volumes.volumebinding.claims import STORAGE, requested_storage
from shared.plugins.volumes.volumebinding.reaching import Reach

FILESYSTEM = "Filesystem"


@dataclass(frozen=True, slots=True)
class Free:
    """What a claim may get, the smallest first: the volumes' numbers, and which of them the nodes reach."""

    numbers: NDArray[np.int64]
    reach: Reach


class Shelf:
    """`volumes`: those that have a number."""

    def __init__(self, objects: ClusterObjects) -> None:
        self.generation = objects.generation(ObjectKind.PERSISTENT_VOLUME)
        self.volumes: list[PersistentVolume] = []
        self._objects = objects
        self._numbers: dict[str, int] = {}
        self._free: dict[tuple[int, bytes], Free] = {}

    def number(self, volume: PersistentVolume) -> int:
        number = self._numbers.get(volume.name)
        if number is None:
            number = self._numbers[volume.name] = len(self.volumes)
            self.volumes.append(volume)
        return number

    def free(self, claim: PersistentVolumeClaim, most: int) -> Free:
        """Enough of them for a pod of which `most` claims, this one included, look for a volume before others do."""
        asks = msgspec.structs.replace(claim.spec, storage_class_name=claim.storage_class, volume_name="")
        key = most, encode_msgpack(asks)
        free = self._free.get(key)
        if free is None:
            fitting = sorted(
                (
                    volume
                    for volume in self._objects.free_volumes_of_class(claim.storage_class).values()
                    if is_of_its_kind(volume, claim) and is_available(volume, claim)
                ),
                key=lambda volume: (volume.spec.capacity.get(STORAGE, 0), volume.name),
            )
            numbers = np.array([self.number(volume) for volume in fitting], dtype=np.int64)
            free = self._free[key] = Free(numbers, Reach(fitting, most))
        return free


def shelf_of(objects: ClusterObjects) -> Shelf:
    """As of now."""
    shelf = _SHELVES.get(objects)
    if shelf is None or shelf.generation != objects.generation(ObjectKind.PERSISTENT_VOLUME):
        shelf = _SHELVES[objects] = Shelf(objects)
    return shelf


def is_of_its_kind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Leaving aside whether anybody else has it."""
    return (
        volume.metadata.deletion_timestamp is None
        and volume.spec.capacity.get(STORAGE, 0) >= (requested_storage(claim) or 0)
        and (volume.spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)
        and (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
    )


def is_available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim may have it as far as its phase, access modes and labels go."""
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and (selector is None or label_selector_matches(selector, volume.metadata.labels))
    )


_SHELVES: WeakKeyDictionary[ClusterObjects, Shelf] = WeakKeyDictionary()
