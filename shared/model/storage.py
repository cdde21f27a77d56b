"""Volumes, what claims them, and what the cluster can attach and provision."""

from msgspec import field

from shared.model.affinity import LabelSelector, NodeSelector
from shared.model.base import ApiStruct, ClusterWide, Namespaced
from shared.model.pod import ResourceList, ResourceRequirements
from shared.model.quantity import Quantity
from shared.model.volumes import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    GcePersistentDisk,
    PortworxVolume,
    VsphereVolume,
)

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
    """The claim that a volume is bound to, or kept for. Without uid, any claim of that name is meant."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class VolumeNodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """The nodes that a volume can be reached from."""

    required: NodeSelector | None = None


class CsiVolume(ApiStruct, frozen=True, kw_only=True):
    """A volume of a CSI driver."""

    driver: str
    volume_handle: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True, kw_only=True):
    """What a volume is; of its sources, those that are CSI's or have moved to CSI."""

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
    """A volume of the cluster."""

    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)

    @property
    def storage_class(self) -> str:
        """The name of its class, empty if it is of none."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name)

    def is_bound_to(self, claim: "PersistentVolumeClaim") -> bool:
        """Whether it is bound to this claim, or kept for it."""
        reference = self.spec.claim_ref
        return reference is not None and reference.key == claim.key and reference.uid in ("", claim.uid)


class PersistentVolumeClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """What is claimed. A `storage_class_name` that is empty is another thing than none."""

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

    `promised`: the volume that it is to have by a decision of ours. No API server knows of it.
    """

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)
    promised: str = ""

    @property
    def storage_class(self) -> str:
        """The name of the class that it asks for, empty if none."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name or "")

    @property
    def fully_bound(self) -> bool:
        """Whether it has its volume, and the controller has finished binding it."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def selected_node(self) -> str | None:
        """The node that its volume is to be provisioned for, once that is decided."""
        return self.metadata.annotations.get(SELECTED_NODE)


class TopologyLabelRequirement(ApiStruct, frozen=True, kw_only=True):
    """A label that must have one of the values."""

    key: str
    values: list[str] = field(default_factory=list)


class TopologySelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """Requirements on a node's labels that must all hold."""

    match_label_expressions: list[TopologyLabelRequirement] = field(default_factory=list)


class StorageClass(ClusterWide, frozen=True, kw_only=True):
    """Where volumes come from, and when claims are bound."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = field(default_factory=list)


class VolumeLimits(ApiStruct, frozen=True, kw_only=True):
    """How many volumes of a driver a node can have; None: any number."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that is there on a node."""

    name: str
    node_id: str = field(default="", name="nodeID")
    topology_keys: list[str] = field(default_factory=list)
    allocatable: VolumeLimits | None = None


class CSINodeSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers of a node."""

    drivers: list[CSINodeDriver] = field(default_factory=list)


class CSINode(ClusterWide, frozen=True, kw_only=True):
    """What CSI drivers say of the node of the same name."""

    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(ApiStruct, frozen=True, kw_only=True):
    """What a driver wants of a scheduler."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ClusterWide, frozen=True, kw_only=True):
    """A CSI driver."""

    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Namespaced, frozen=True, kw_only=True):
    """How much storage of a class there is for the nodes of a topology."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class AttachmentSource(ApiStruct, frozen=True, kw_only=True):
    """The volume that is attached; None where a pod has it without a claim."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    """What is attached where, and by whom."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = field(default_factory=AttachmentSource)


class VolumeAttachment(ClusterWide, frozen=True, kw_only=True):
    """A volume that is to be attached to a node."""

    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
