"""Pods."""

from datetime import UTC, datetime

from msgspec import field

from shared.model.affinity import Affinity, Toleration, TopologySpreadConstraint
from shared.model.base import DEFAULT_NAMESPACE, ApiStruct, ObjectMeta
from shared.model.quantity import Quantity
from shared.model.volumes import Volume

ResourceList = dict[str, Quantity]

DEFAULT_SCHEDULER = "default-scheduler"


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A container's port; `host_port` 0 occupies no port of the node."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = field(default="", name="hostIP")


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """Requested and largest permitted amounts."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class ContainerRestartRule(ApiStruct, frozen=True, kw_only=True):
    """What happens when a container exits with certain codes."""

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
    """A gate that must be removed before the pod may be scheduled."""

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
    priority: int | None = None
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
    """A condition of a pod."""

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
        """The name within the namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace, `default` if none was given."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace or DEFAULT_NAMESPACE}/{self.metadata.name}"

    @property
    def uid(self) -> str:
        """The uid, the key if none was given."""
        return self.metadata.uid or self.key

    @property
    def priority(self) -> int:
        """The resolved priority, 0 if none was given."""
        return self.spec.priority or 0

    @property
    def started(self) -> float | None:
        """When the node started it (Unix time); None if unknown or unreadable."""
        text = self.status.start_time
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
