"""Equal parts of objects, kept once: a cluster has far more volumes and claims than sizes, modes and zones of them."""

from collections.abc import Mapping

import msgspec

from shared.model.clusterobjects import ClusterObject
from shared.model.codec import encode_msgpack
from shared.model.storage import PersistentVolume, PersistentVolumeClaim

MOST_PARTS = 1 << 14
"""Different parts that are remembered; with more, nothing would be gained by it."""

Fields = tuple[str, ...]
_PARTS: Mapping[type, Mapping[str, Fields]] = {
    PersistentVolume: {
        "metadata": ("labels", "annotations", "owner_references"),
        "spec": ("capacity", "access_modes", "node_affinity"),
    },
    PersistentVolumeClaim: {
        "metadata": ("labels", "annotations", "owner_references"),
        "spec": ("access_modes", "resources"),
        "status": ("capacity",),
    },
}


class Sharing:
    def __init__(self) -> None:
        self._parts: dict[tuple[str, bytes], object] = {}

    def share(self, obj: ClusterObject) -> None:
        """What is equal in it and in others becomes one; it stays as it is."""
        for name, fields in _PARTS.get(type(obj), {}).items():
            part = getattr(obj, name)
            for field in fields:
                value = getattr(part, field)
                if value is not None:
                    msgspec.structs.force_setattr(part, field, self._one(field, value))

    def _one(self, field: str, value: object) -> object:
        key = field, encode_msgpack(value)
        found = self._parts.get(key)
        if found is None:
            if len(self._parts) >= MOST_PARTS:
                self._parts.clear()
            found = self._parts[key] = value
        return found
