"""Pods and their volumes, as far as a scheduler reads them."""

from datetime import UTC, datetime

from msgspec import field

from shared.model.affinity import Affinity, Toleration, TopologySpreadConstraint
from shared.model.base import DEFAULT_NAMESPACE, ApiStruct, Count, Integer, ObjectMeta
from shared.model.quantity import Quantity

ResourceList = dict[str, Quantity]

DEFAULT_SCHEDULER = "default-scheduler"


class PersistentVolumeClaimSource(ApiStruct, frozen=True, kw_only=True):
    claim_name: str
    read_only: bool = False


class EphemeralSource(ApiStruct, frozen=True, kw_only=True):
    """A claim created for the pod; its name is the pod's name, a dash and the volume's name."""


class ImageSource(ApiStruct, frozen=True, kw_only=True):
    reference: str = ""


class GcePersistentDisk(ApiStruct, frozen=True, kw_only=True):
    pd_name: str
    read_only: bool = False


class AwsElasticBlockStore(ApiStruct, frozen=True, kw_only=True):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class AzureDisk(ApiStruct, frozen=True, kw_only=True):
    disk_name: str
    disk_uri: str = field(default="", name="diskURI")
    read_only: bool = False


class AzureFile(ApiStruct, frozen=True, kw_only=True):
    """A file share of Azure. Only persistent volumes name the namespace of its secret."""

    share_name: str
    secret_name: str = ""
    secret_namespace: str | None = None
    read_only: bool = False


class Cinder(ApiStruct, frozen=True, kw_only=True):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class VsphereVolume(ApiStruct, frozen=True, kw_only=True):
    volume_path: str


class PortworxVolume(ApiStruct, frozen=True, kw_only=True):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class Rbd(ApiStruct, frozen=True, kw_only=True):
    monitors: list[str] = field(default_factory=list)
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class Iscsi(ApiStruct, frozen=True, kw_only=True):
    iqn: str
    target_portal: str = ""
    lun: Integer = 0
    read_only: bool = False


class CsiSource(ApiStruct, frozen=True, kw_only=True):
    """A volume that a CSI driver creates for the pod without a claim."""

    driver: str = ""


class Volume(ApiStruct, frozen=True, kw_only=True):
    """A volume and its source; all sources are None if scheduling ignores it."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    image: ImageSource | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None
    rbd: Rbd | None = None
    iscsi: Iscsi | None = None
    csi: CsiSource | None = None


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A container's port; `host_port` 0 occupies no port of the node."""

    container_port: Count = 0
    host_port: Count = 0
    protocol: str = "TCP"
    host_ip: str = field(default="", name="hostIP")


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class ContainerRestartRule(ApiStruct, frozen=True, kw_only=True):
    action: str = ""


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container. An init container with `restart_policy` Always is a sidecar, which runs as long as the pod."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = field(default_factory=list)
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] = field(default_factory=list)

    @property
    def restartable(self) -> bool:
        """Whether the container, if it is an init container, is a sidecar."""
        return self.restart_policy == "Always"


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    name: str


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A device claim of the pod: an existing one, or one made from a template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(ApiStruct, frozen=True, kw_only=True):
    """The PodGroup, in the pod's namespace, that it is scheduled with."""

    pod_group_name: str | None = None


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """A pod's specification. `resources` are pod-level."""

    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER
    priority: Integer | None = None
    preemption_policy: str | None = None
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: list[Toleration] = field(default_factory=list)
    topology_spread_constraints: list[TopologySpreadConstraint] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    overhead: ResourceList = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    scheduling_gates: list[SchedulingGate] = field(default_factory=list)
    resource_claims: list[PodResourceClaim] = field(default_factory=list)
    scheduling_group: PodSchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """A container's status: `resources` are in force, `allocated_resources` were granted by the node."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The claim made from a template for one of the pod's claims; None if none was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """A pod's status. `resources` and `allocated_resources` are pod-level."""

    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[PodCondition] = field(default_factory=list)
    container_statuses: list[ContainerStatus] = field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = field(default_factory=list)
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = field(default_factory=dict)
    resource_claim_statuses: list[PodResourceClaimStatus] = field(default_factory=list)


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod. Decoding fills the namespace and the uid."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace, `default` if none was given."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or DEFAULT_NAMESPACE}/{self.metadata.name}"

    @property
    def uid(self) -> str:
        """The uid, the key if none was given."""
        return self.metadata.uid or self.key

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @property
    def started(self) -> float | None:
        """When the node started it (Unix time); None if unknown or unreadable."""
        return unix_time(self.status.start_time)


def unix_time(text: str | None) -> float | None:
    """The Unix time of an object's timestamp; None if it is absent or unreadable."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
