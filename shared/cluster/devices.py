"""What decisions mean for resource claims, before they are carried out.

A claim of a decided pod counts as allocated and as reserved for the pod. The claim for a pod's extended resources,
which the binder creates, counts as if it existed.
"""

import msgspec

from shared.model.devices import AllocationResult, DeviceRequest


class RequestMapping(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which device request serves a container's extended resource; several may."""

    container: str
    resource: str
    request: str


class SpecialClaim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The claim to create for a pod's extended resources. `name`: set by the snapshot when it commits the decision."""

    requests: list[DeviceRequest]
    mappings: list[RequestMapping]
    allocation: AllocationResult
    name: str = ""


class PlacedDevices(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one placement of a class means for a pod's claims, which are in the order of the pod's specification.

    `allocations`: None for a claim that is allocated already.
    """

    allocations: list[AllocationResult | None] = []
    special: SpecialClaim | None = None


class ClaimAllocation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A claim of a pod, by `namespace/name`, to reserve for it.

    `allocation`: to write if the claim is not allocated yet; None if the watch shows it as allocated.
    """

    key: str
    uid: str
    allocation: AllocationResult | None = None


class DeviceDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What happens to the claims of a pod."""

    claims: list[ClaimAllocation] = []
    special: SpecialClaim | None = None
