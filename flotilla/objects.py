"""The objects that plugins read: pods, nodes, and everything else the cluster has that matters to scheduling.

The types hold what kube-scheduler's plugins read of the API objects; other fields are dropped when they are decoded.
"""

from collections.abc import Mapping
from typing import Protocol

from shared.model.devices import DeviceClass, ResourceClaim
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad, PodTerm
from shared.model.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    StorageClass,
    Taint,
    Toleration,
    Volume,
    VolumeAttachment,
)

__all__ = ["ClusterObjects", "Devices", "Namespace", "Node", "ObjectKind", "Pod", "PodLoad", "PodTerm"]
__all__ += ["LabelSelector", "LabelSelectorRequirement", "NodeSelector", "NodeSelectorRequirement", "NodeSelectorTerm"]
__all__ += ["CSIDriver", "CSINode", "CSIStorageCapacity", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"]
__all__ += ["DeviceClass", "PodDisruptionBudget", "ResourceClaim", "Service", "Volume", "VolumeAttachment"]
__all__ += ["ReplicaSet", "ReplicationController", "StatefulSet", "Taint", "Toleration"]


class Devices(Protocol):
    """Resource claims by `namespace/name` and device classes by name; empty where they are not watched."""

    @property
    def claims(self) -> Mapping[str, ResourceClaim]: ...
    @property
    def classes(self) -> Mapping[str, DeviceClass]: ...
    def provides(self, resource: str) -> bool:
        """Whether a device of some class may satisfy a request for this extended resource."""
        ...


class ClusterObjects(Protocol):
    """The objects beside nodes and pods, by key: `namespace/name`, or the name alone.

    A plugin that reads some of them declares their kinds in `reads_objects`.
    """

    def generation(self, kind: ObjectKind) -> int:
        """Rises with every change of an object of this kind."""
        ...

    @property
    def namespaces(self) -> Mapping[str, Namespace]: ...
    @property
    def services(self) -> Mapping[str, Service]: ...
    @property
    def replica_sets(self) -> Mapping[str, ReplicaSet]: ...
    @property
    def replication_controllers(self) -> Mapping[str, ReplicationController]: ...
    @property
    def stateful_sets(self) -> Mapping[str, StatefulSet]: ...
    @property
    def persistent_volumes(self) -> Mapping[str, PersistentVolume]: ...
    @property
    def claims(self) -> Mapping[str, PersistentVolumeClaim]: ...
    @property
    def storage_classes(self) -> Mapping[str, StorageClass]: ...
    @property
    def csi_nodes(self) -> Mapping[str, CSINode]: ...
    @property
    def csi_drivers(self) -> Mapping[str, CSIDriver]: ...
    @property
    def volume_attachments(self) -> Mapping[str, VolumeAttachment]: ...
    @property
    def disruption_budgets(self) -> Mapping[str, PodDisruptionBudget]: ...
    @property
    def devices(self) -> Devices: ...

    def services_in(self, namespace: str) -> Mapping[str, Service]: ...
    def disruption_budgets_in(self, namespace: str) -> Mapping[str, PodDisruptionBudget]: ...
    def volumes_of_claim(self, claim: str) -> Mapping[str, PersistentVolume]:
        """The volumes that are bound to the claim of this key, or reserved for it."""
        ...

    def free_volumes_of_class(self, storage_class: str) -> Mapping[str, PersistentVolume]: ...
    def attachments_on(self, node: str) -> Mapping[str, VolumeAttachment]: ...
    def capacities_of_class(self, storage_class: str) -> Mapping[str, CSIStorageCapacity]: ...
