"""Dynamic resource allocation, `resource.k8s.io/v1`: claims, classes and slices with all that an allocation reads."""

from typing import Any

from msgspec import field

from shared.model.affinity import NodeSelector
from shared.model.base import ApiStruct, ClusterWide, Namespaced
from shared.model.quantity import QuantityText

RESOURCE_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Of `resource.k8s.io`, the newest first; a server has at least one of them. Claims' statuses are alike."""
FENCED = "flotilla.io/fenced"
"""An annotation of claims that gives them another version. PreBind writes into it the version that it replaces."""
SCHEDULING_GROUP = "scheduling.k8s.io"
"""The API group of PodGroups, for which claims may be reserved and made."""
EXACT_COUNT = "ExactCount"
ALL = "All"
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"
MAX_RESULTS = 32
"""Devices in one claim's allocation: the API allows no more."""
MAX_ALTERNATIVES = 8
"""Subrequests of one request: the API allows no more. The score of the first one."""
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Followed by a class's name: the extended resource of that class."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of the claim that a scheduler makes for a pod's extended resources; its value is `true`."""


class CelSelector(ApiStruct, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True, kw_only=True):
    cel: CelSelector | None = None


class OpaqueConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Parameters for a driver, which only the driver reads."""

    driver: str = ""
    parameters: Any = None


class ClassConfiguration(ApiStruct, frozen=True, kw_only=True):
    opaque: OpaqueConfiguration | None = None


class ClaimConfiguration(ApiStruct, frozen=True, kw_only=True):
    """`requests`: those that it is for, all without any."""

    requests: list[str] = field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class AllocatedConfiguration(ApiStruct, frozen=True, kw_only=True):
    source: str = ""
    requests: list[str] = field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceToleration(ApiStruct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceTaint(ApiStruct, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class CapacityRequirements(ApiStruct, frozen=True, kw_only=True):
    requests: dict[str, QuantityText] = field(default_factory=dict)


class ExactDeviceRequest(ApiStruct, frozen=True, kw_only=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] = field(default_factory=list)
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: list[DeviceToleration] = field(default_factory=list)
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(ApiStruct, frozen=True, kw_only=True):
    """One of the alternatives of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = field(default_factory=list)
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    tolerations: list[DeviceToleration] = field(default_factory=list)
    capacity: CapacityRequirements | None = None


class DeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """Either `exactly` what is asked for, or alternatives of which the first available one is taken."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = field(default_factory=list)


class DeviceConstraint(ApiStruct, frozen=True, kw_only=True):
    """Values of an attribute must be the same, or all different, among the devices of these requests (all if empty)."""

    requests: list[str] = field(default_factory=list)
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(ApiStruct, frozen=True, kw_only=True):
    requests: list[DeviceRequest] = field(default_factory=list)
    constraints: list[DeviceConstraint] = field(default_factory=list)
    config: list[ClaimConfiguration] = field(default_factory=list)


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    devices: DeviceClaim = field(default_factory=DeviceClaim)


class AllocatedDevice(ApiStruct, frozen=True, kw_only=True):
    """A device of an allocation. One with a `share_id` is shared, and `consumed_capacity` is this share."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    tolerations: list[DeviceToleration] = field(default_factory=list)
    binding_conditions: list[str] = field(default_factory=list)
    binding_failure_conditions: list[str] = field(default_factory=list)
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, QuantityText] | None = None


class DeviceAllocation(ApiStruct, frozen=True, kw_only=True):
    results: list[AllocatedDevice] = field(default_factory=list)
    config: list[AllocatedConfiguration] = field(default_factory=list)


class AllocationResult(ApiStruct, frozen=True, kw_only=True):
    """The devices of a claim, and the nodes that can use them: all without a selector."""

    devices: DeviceAllocation = field(default_factory=DeviceAllocation)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(ApiStruct, frozen=True, kw_only=True):
    """A pod, or a PodGroup, whose pods know its name and not its uid."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    def is_group(self, name: str) -> bool:
        return (self.api_group, self.resource, self.name) == (SCHEDULING_GROUP, "podgroups", name)


class DeviceCondition(ApiStruct, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True, kw_only=True):
    """What the driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: list[DeviceCondition] = field(default_factory=list)


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] = field(default_factory=list)
    devices: list[AllocatedDeviceStatus] = field(default_factory=list)


class ResourceClaim(Namespaced, frozen=True, kw_only=True):
    """`spec` is required: a claim without one must not look like a claim that asks for nothing.

    `promised`: the allocation is decided, and the API server does not have it yet. The snapshot sets it.
    """

    spec: ResourceClaimSpec
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)
    promised: bool = False

    @property
    def uid(self) -> str:
        return self.metadata.uid or self.key

    @property
    def owner_uid(self) -> str | None:
        """The uid of its controller; None without one."""
        return next((owner.uid for owner in self.metadata.owner_references if owner.controller), None)

    def was_made_for(self, pod_uid: str, group: str) -> bool:
        """Whether it was made from a template for the pod of this uid, or for its PodGroup of this name, if any."""
        owner = next((owner for owner in self.metadata.owner_references if owner.controller), None)
        if owner is None or owner.uid == pod_uid:
            return owner is not None
        return self.is_of_group and bool(group) and owner.name == group

    @property
    def is_of_group(self) -> bool:
        """Whether it was made from a template for a PodGroup, whose pods share it."""
        owner = next((owner for owner in self.metadata.owner_references if owner.controller), None)
        return owner is not None and owner.kind == "PodGroup" and owner.api_version.startswith(f"{SCHEDULING_GROUP}/")

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation is not None

    @property
    def is_special(self) -> bool:
        """Whether a scheduler made it for the extended resources of its owner."""
        return self.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    selectors: list[DeviceSelector] = field(default_factory=list)
    config: list[ClassConfiguration] = field(default_factory=list)
    extended_resource_name: str | None = None


class DeviceClass(ClusterWide, frozen=True, kw_only=True):
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


class DeviceAttribute(ApiStruct, frozen=True, kw_only=True):
    """One of the values is set."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string: str | None = None
    version: str | None = None

    @property
    def value(self) -> tuple[str, object] | None:
        """The value with its type, for comparisons; None if it is of an unknown type."""
        if self.string is not None:
            return "string", self.string
        if self.int_value is not None:
            return "int", self.int_value
        if self.bool_value is not None:
            return "bool", self.bool_value
        if self.version is not None:
            return "version", self.version
        return None


class CapacityRange(ApiStruct, frozen=True, kw_only=True):
    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True, kw_only=True):
    """What a share of the capacity may be."""

    default: QuantityText | None = None
    valid_values: list[QuantityText] = field(default_factory=list)
    valid_range: CapacityRange | None = None


class DeviceCapacity(ApiStruct, frozen=True, kw_only=True):
    value: QuantityText = QuantityText("0")
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct, frozen=True, kw_only=True):
    value: QuantityText = QuantityText("0")


class CounterSet(ApiStruct, frozen=True, kw_only=True):
    """Counters that several devices of a pool draw from."""

    name: str = ""
    counters: dict[str, Counter] = field(default_factory=dict)


class CounterConsumption(ApiStruct, frozen=True, kw_only=True):
    """What a device takes from a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = field(default_factory=dict)


class Device(ApiStruct, frozen=True, kw_only=True):
    """A device of a slice. The fields about nodes count in slices with `perDeviceNodeSelection`."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: list[CounterConsumption] = field(default_factory=list)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: list[DeviceTaint] = field(default_factory=list)
    binds_to_node: bool = False
    binding_conditions: list[str] = field(default_factory=list)
    binding_failure_conditions: list[str] = field(default_factory=list)
    allow_multiple_allocations: bool = False


class ResourcePool(ApiStruct, frozen=True, kw_only=True):
    """The pool that a slice is part of. Of several generations the highest counts."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct, frozen=True, kw_only=True):
    driver: str = ""
    pool: ResourcePool = field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = field(default_factory=list)
    shared_counters: list[CounterSet] = field(default_factory=list)


class ResourceSlice(ClusterWide, frozen=True, kw_only=True):
    spec: ResourceSliceSpec
