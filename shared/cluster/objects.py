"""The cluster's objects other than nodes and pods. Every worker holds all of them, and plugins read them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from shared.bounded import BoundedDict
from shared.cluster.devices import Devices
from shared.errors import InvariantBroken
from shared.model.clusterobjects import ClusterObject, key_of, kind_of
from shared.model.codec import encode_msgpack
from shared.model.kinds import DEVICE_KINDS, ObjectKind
from shared.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    CsiVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from shared.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    PodGroup,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

MAX_PARTS = 1 << 14
"""Distinct parts that are remembered; with more, sharing saves nothing."""

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
        self._parts: BoundedDict[tuple[str, bytes], object] = BoundedDict(MAX_PARTS)

    def share(self, obj: ClusterObject) -> None:
        """Replace parts of the object by equal, known ones, in place."""
        for name, fields in _PARTS.get(type(obj), {}).items():
            part = getattr(obj, name)
            for field in fields:
                value = getattr(part, field)
                if value is not None:
                    known = self._parts.setdefault((field, encode_msgpack(value)), value)
                    msgspec.structs.force_setattr(part, field, known)


class ClusterObjects:
    """The objects by kind and key. Caches watch the generation of a kind."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKind, dict[str, Any]] = {kind: {} for kind in ObjectKind}
        self._sharing = Sharing()
        self._generations: dict[ObjectKind, int] = dict.fromkeys(ObjectKind, 0)
        of = self._objects
        self.namespaces: Mapping[str, Namespace] = of[ObjectKind.NAMESPACE]
        self.services: Mapping[str, Service] = of[ObjectKind.SERVICE]
        self.replica_sets: Mapping[str, ReplicaSet] = of[ObjectKind.REPLICA_SET]
        self.replication_controllers: Mapping[str, ReplicationController] = of[ObjectKind.REPLICATION_CONTROLLER]
        self.stateful_sets: Mapping[str, StatefulSet] = of[ObjectKind.STATEFUL_SET]
        self.persistent_volumes: Mapping[str, PersistentVolume] = of[ObjectKind.PERSISTENT_VOLUME]
        self.claims: Mapping[str, PersistentVolumeClaim] = of[ObjectKind.PERSISTENT_VOLUME_CLAIM]
        self.storage_classes: Mapping[str, StorageClass] = of[ObjectKind.STORAGE_CLASS]
        self.csi_nodes: Mapping[str, CSINode] = of[ObjectKind.CSI_NODE]
        self.csi_drivers: Mapping[str, CSIDriver] = of[ObjectKind.CSI_DRIVER]
        self.volume_attachments: Mapping[str, VolumeAttachment] = of[ObjectKind.VOLUME_ATTACHMENT]
        self.disruption_budgets: Mapping[str, PodDisruptionBudget] = of[ObjectKind.POD_DISRUPTION_BUDGET]
        self.pod_groups: Mapping[str, PodGroup] = of[ObjectKind.POD_GROUP]
        self.devices = Devices(
            of[ObjectKind.RESOURCE_CLAIM], of[ObjectKind.RESOURCE_SLICE], of[ObjectKind.DEVICE_CLASS]
        )
        self._free_by_class = _Index("storage class of free volumes", _class_of_free_volume)
        self._by_claim = _Index("claim of volumes", _claim_of_volume)
        self._by_handle = _Index("handle of volumes", _handle_of_volume)
        self._by_volume = _Index("volume of attachments", lambda each: each.spec.source.persistent_volume_name)
        self._by_node = _Index("node of attachments", lambda attachment: attachment.spec.node_name)
        self._capacities = _Index("storage class of capacities", lambda capacity: capacity.storage_class_name)
        self._services = _Index("namespace of services", lambda service: service.namespace)
        self._budgets = _Index("namespace of budgets", lambda budget: budget.namespace)
        self._indexes: Mapping[ObjectKind, tuple[_Index, ...]] = {
            ObjectKind.PERSISTENT_VOLUME: (self._free_by_class, self._by_claim, self._by_handle),
            ObjectKind.VOLUME_ATTACHMENT: (self._by_node, self._by_volume),
            ObjectKind.CSI_STORAGE_CAPACITY: (self._capacities,),
            ObjectKind.SERVICE: (self._services,),
            ObjectKind.POD_DISRUPTION_BUDGET: (self._budgets,),
        }

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    # Changes

    def upsert(self, obj: ClusterObject) -> bool:
        """False if it is known and equal."""
        kind, key = kind_of(obj), key_of(obj)
        objects = self._objects[kind]
        before = objects.get(key)
        if before == obj:
            return False
        self._sharing.share(obj)
        for index in self._indexes.get(kind, ()):
            if before is not None:
                index.remove(key, before)
            index.add(key, obj)
        objects[key] = obj
        self._generations[kind] += 1
        if kind in DEVICE_KINDS:
            self.devices.change(before, obj)
        return True

    def remove(self, kind: ObjectKind, key: str) -> bool:
        """False if it is unknown."""
        before = self._objects[kind].pop(key, None)
        if before is None:
            return False
        for index in self._indexes.get(kind, ()):
            index.remove(key, before)
        self._generations[kind] += 1
        if kind in DEVICE_KINDS:
            self.devices.change(before, None)
        return True

    # By kind

    def of(self, kind: ObjectKind) -> Mapping[str, Any]:
        return self._objects[kind]

    def generation(self, kind: ObjectKind) -> int:
        """Rises with every change of an object of this kind."""
        return self._generations[kind]

    def all(self) -> Iterator[ClusterObject]:
        for objects in self._objects.values():
            yield from objects.values()

    # By content; each mapping is by key

    def free_volumes_of_class(self, storage_class: str) -> Mapping[str, PersistentVolume]:
        """The volumes of a storage class that are reserved for no claim; with an empty name, those without a class."""
        return self._free_by_class.of(storage_class)

    def volumes_of_claim(self, claim: str) -> Mapping[str, PersistentVolume]:
        """The volumes that are bound to the claim of this key, or reserved for it."""
        return self._by_claim.of(claim)

    def volumes_of_handle(self, volume: CsiVolume) -> Mapping[str, PersistentVolume]:
        """The volumes that a CSI driver knows as this one."""
        return self._by_handle.of(_handle(volume))

    def attachments_of(self, volume: str) -> Mapping[str, VolumeAttachment]:
        """Where the volume of this name is attached."""
        return self._by_volume.of(volume)

    def attachments_on(self, node: str) -> Mapping[str, VolumeAttachment]:
        return self._by_node.of(node)

    def capacities_of_class(self, storage_class: str) -> Mapping[str, CSIStorageCapacity]:
        return self._capacities.of(storage_class)

    def services_in(self, namespace: str) -> Mapping[str, Service]:
        return self._services.of(namespace)

    def disruption_budgets_in(self, namespace: str) -> Mapping[str, PodDisruptionBudget]:
        return self._budgets.of(namespace)

    def validate(self) -> None:
        """Raises if an index differs from the objects."""
        for kind, indexes in self._indexes.items():
            for index in indexes:
                index.validate(self._objects[kind])
        self.devices.validate()


class _Index:
    """Objects by a value that they contain."""

    def __init__(self, name: str, value_of: Callable[[Any], str | None]) -> None:
        self._name = name
        self._value_of = value_of
        self._groups: dict[str, dict[str, Any]] = {}

    def add(self, key: str, obj: object) -> None:
        value = self._value_of(obj)
        if value is not None:
            self._groups.setdefault(value, {})[key] = obj

    def remove(self, key: str, obj: object) -> None:
        value = self._value_of(obj)
        if value is not None:
            group = self._groups[value]
            del group[key]
            if not group:
                del self._groups[value]

    def of(self, value: str) -> Mapping[str, Any]:
        return self._groups.get(value, _NONE)

    def validate(self, objects: Mapping[str, Any]) -> None:
        fresh = _Index(self._name, self._value_of)
        for key, obj in objects.items():
            fresh.add(key, obj)
        if fresh._groups != self._groups:
            raise InvariantBroken(f"the index by {self._name} does not agree with the objects")


def _class_of_free_volume(volume: PersistentVolume) -> str | None:
    return volume.storage_class if volume.spec.claim_ref is None else None


def _claim_of_volume(volume: PersistentVolume) -> str | None:
    reference = volume.spec.claim_ref
    return None if reference is None else reference.key


def _handle_of_volume(volume: PersistentVolume) -> str | None:
    return None if volume.spec.csi is None else _handle(volume.spec.csi)


def _handle(volume: CsiVolume) -> str:
    return f"{volume.driver}/{volume.volume_handle}"


_NONE: Mapping[str, Any] = {}
