"""Persistent volumes, their claims, and what the cluster can attach and provision."""

from msgspec import field

from shared.model.affinity import LabelSelector, NodeSelector
from shared.model.base import ApiStruct, ClusterWide, Namespaced
from shared.model.pod import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    GcePersistentDisk,
    PortworxVolume,
    ResourceList,
    ResourceRequirements,
    VsphereVolume,
)
from shared.model.quantity import Quantity

BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
"""The access mode of a claim that only one pod of the cluster may use."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
AZURE_FILE_RESOURCE_GROUP = "kubernetes.io/azure-file-resource-group"
DEFAULT_STORAGE_CLASS = "storageclass.kubernetes.io/is-default-class"

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class ClaimReference(ApiStruct, frozen=True, kw_only=True):
    """The claim that a volume is bound to or reserved for; without uid, any claim of that name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class VolumeNodeAffinity(ApiStruct, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class CsiVolume(ApiStruct, frozen=True, kw_only=True):
    driver: str
    volume_handle: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True, kw_only=True):
    """A volume's specification; of its sources, CSI and those migrated to CSI."""

    capacity: ResourceList = field(default_factory=dict)
    access_modes: list[str] = field(default_factory=list)
    storage_class_name: str = ""
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    csi: CsiVolume | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None


class PersistentVolumeStatus(ApiStruct, frozen=True, kw_only=True):
    """`phase`: Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(ClusterWide, frozen=True, kw_only=True):
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)

    @property
    def storage_class(self) -> str:
        """The name of its class, empty without one."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name)

    def is_bound_to(self, claim: "PersistentVolumeClaim") -> bool:
        """Whether it is bound to this claim, or reserved for it."""
        reference = self.spec.claim_ref
        return reference is not None and reference.key == claim.key and reference.uid in ("", claim.uid)


class PersistentVolumeClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """A claim's specification. An empty `storage_class_name` differs from None."""

    access_modes: list[str] = field(default_factory=list)
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """`phase`: Pending, Bound or Lost."""

    phase: str = ""
    capacity: ResourceList = field(default_factory=dict)


class PersistentVolumeClaim(Namespaced, frozen=True, kw_only=True):
    """A claim to a volume.

    `promised`: the volume assigned by a decision of ours; not a field of the API.
    """

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)
    promised: str = ""

    @property
    def storage_class(self) -> str:
        """The requested class, empty without one."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name or "")

    @property
    def fully_bound(self) -> bool:
        """Whether it has a volume, and the controller has finished binding it."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def selected_node(self) -> str | None:
        """The node that its volume is to be provisioned for, once decided."""
        return self.metadata.annotations.get(SELECTED_NODE)


class TopologyLabelRequirement(ApiStruct, frozen=True, kw_only=True):
    key: str
    values: list[str] = field(default_factory=list)


class TopologySelectorTerm(ApiStruct, frozen=True, kw_only=True):
    match_label_expressions: list[TopologyLabelRequirement] = field(default_factory=list)


class StorageClass(ClusterWide, frozen=True, kw_only=True):
    """A storage class: where volumes come from, and when claims are bound."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = field(default_factory=list)


class VolumeLimits(ApiStruct, frozen=True, kw_only=True):
    """A node's limit of volumes of a driver; None: no limit."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True, kw_only=True):
    name: str
    node_id: str = field(default="", name="nodeID")
    topology_keys: list[str] = field(default_factory=list)
    allocatable: VolumeLimits | None = None


class CSINodeSpec(ApiStruct, frozen=True, kw_only=True):
    drivers: list[CSINodeDriver] = field(default_factory=list)


class CSINode(ClusterWide, frozen=True, kw_only=True):
    """What CSI drivers report about the node of that name."""

    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(ApiStruct, frozen=True, kw_only=True):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ClusterWide, frozen=True, kw_only=True):
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Namespaced, frozen=True, kw_only=True):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class AttachmentSource(ApiStruct, frozen=True, kw_only=True):
    """The attached volume; None if a pod uses it without a claim."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = field(default_factory=AttachmentSource)


class VolumeAttachment(ClusterWide, frozen=True, kw_only=True):
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
