"""DynamicResources around the search: the checks before it, Filter of one node, PostFilter.

Reasons are kube-scheduler's. Everything that refuses a pod here is UnschedulableAndUnresolvable; an AllocationError is
the code Error.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from shared.devices.allocator import Allocator
from shared.devices.extended import (
    SPECIAL_CLAIM,
    Mapped,
    claim_for_node,
    node_resources,
    special_claim,
    wants_class,
)
from shared.devices.pools import DeviceNode
from shared.model.codec import encode_msgpack
from shared.model.devices import (
    AllocatedDevice,
    AllocationResult,
    DeviceClass,
    DeviceCondition,
    ResourceClaim,
)
from shared.model.pod import Pod, PodResourceClaim
from shared.model.resources import filter_requests
from shared.model.selectors import node_selector_matches

CANNOT_FIT = "cannot fit resource"
LEFT_CLAIM = "cannot schedule extended resource claim"
NOT_AVAILABLE = "resourceclaim not available on the node"

NOTHING_TO_GIVE_BACK = "no new claims to deallocate"
GIVEN_BACK = "deallocation of ResourceClaim completed"
DELETED = "deletion of ResourceClaim completed"
STILL_NOT = "still not schedulable"


class PodClaims(msgspec.Struct, frozen=True):
    """A pod's claims in order; the special claim for extended resources is the last one."""

    pod: Pod
    claims: list[ResourceClaim]
    special: ResourceClaim | None
    requests: dict[str, int]

    @property
    def is_left(self) -> bool:
        """Whether the special claim was made by an earlier attempt."""
        return self.special is not None and self.special.name != SPECIAL_CLAIM

    @property
    def has_own(self) -> bool:
        return len(self.claims) > (self.special is not None)

    @property
    def unallocated(self) -> list[ResourceClaim]:
        return [claim for claim in self.claims if claim.status.allocation is None]


class NodeVerdict(msgspec.Struct, frozen=True):
    """Filter's result for one node.

    `unavailable`: places of allocated claims that the node cannot use, for PostFilter. `claims` are those allocated,
    with `allocations` in the same order; `mappings` as written to the pod's status.
    """

    reason: str | None = None
    unavailable: tuple[int, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    allocations: tuple[AllocationResult, ...] = ()
    mappings: tuple[Mapped, ...] = ()


class GiveBack(msgspec.Struct, frozen=True):
    """What PostFilter does: one of `deallocate`, any, or all of `delete`."""

    message: str
    deallocate: tuple[ResourceClaim, ...] = ()
    delete: tuple[ResourceClaim, ...] = ()


def content_key(found: PodClaims) -> bytes:
    """Equal for pods whose claims ask for the same or have the same devices, whatever their names.

    With equal specs otherwise, such pods get the same verdicts; only texts of errors name the claims.
    """
    parts = []
    for claim in found.claims:
        allocation = claim.status.allocation
        ready = (claim.status.devices, _is_unused(claim, found.pod)) if allocation is not None else None
        parts.append((claim.spec, allocation, ready, claim is found.special))
    named_twice = [found.claims.index(claim) for claim in found.claims]
    return encode_msgpack((parts, named_twice, found.is_left))


def own_claims(pod: Pod, claims: Mapping[str, ResourceClaim]) -> list[ResourceClaim] | str:
    """The claims that the pod names, from all claims by `namespace/name`; or why PreEnqueue refuses the pod."""
    found: list[ResourceClaim] = []
    for use in pod.spec.resource_claims:
        name = use.resource_claim_name
        if name is None:
            status = next((each for each in pod.status.resource_claim_statuses if each.name == use.name), None)
            if status is None:
                return _unnamed(pod, use)
            name = status.resource_claim_name
            if name is None:  # none was needed
                continue
        key = f"{pod.namespace}/{name}"
        claim = claims.get(key)
        if claim is None:
            return f'could not find ResourceClaim "{key}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{claim.name}" is being deleted'
        if use.resource_claim_name is None and claim.owner_uid != pod.uid:
            return f"ResourceClaim {claim.key} was not created for Pod {pod.namespace}/{pod.name} (Pod is not owner)"
        found.append(claim)
    return found


def pre_filter(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    allocator: Allocator,
    in_flight: Collection[str],
) -> PodClaims | str | None:
    """The pod's claims, why they keep it from being scheduled, or None if it has none.

    `in_flight`: uids of claims whose allocation is decided, but not written yet.
    """
    own = own_claims(pod, claims)
    if isinstance(own, str):
        return own
    requests = filter_requests(pod)
    special = special_claim(pod, claims.values()) if wants_class(requests, allocator.by_resource) else None
    found = own if special is None else [*own, special]
    if not found:
        return None
    for claim in found:
        if claim.status.allocation is not None:
            continue
        if claim.uid in in_flight:
            return f"resource claim {claim.key} is in the process of being allocated"
        if claim is not special and (reason := _missing_class(claim, allocator.classes)) is not None:
            return reason
    return PodClaims(pod, found, special, requests)


def filter_node(
    pod_claims: PodClaims,
    node: DeviceNode,
    allocatable: Mapping[str, int],
    allocator: Allocator,
    binding_timeout: float,
    now: float,
) -> NodeVerdict:
    """Whether the node can serve the pod's claims, and with which devices; raises AllocationError.

    `now` is the time of day, for allocated claims whose devices are still being prepared.
    """
    by_resource = allocator.by_resource
    special = pod_claims.special
    mappings: list[Mapped] = []
    if special is not None:
        if pod_claims.is_left and special.spec.devices.requests:
            return NodeVerdict(LEFT_CLAIM)
        resources = node_resources(pod_claims.requests, allocatable, by_resource)
        if resources is None:
            return NodeVerdict(CANNOT_FIT)
        if not resources and not pod_claims.has_own:
            return NodeVerdict()
        if special.status.allocation is not None:  # left by an earlier attempt, without requests
            if not pod_claims.has_own:
                return NodeVerdict()
        else:
            made = claim_for_node(special, pod_claims.pod, resources, by_resource)
            special, mappings = made.claim, made.mappings
    unavailable = tuple(
        place for place, claim in enumerate(pod_claims.claims) if not _is_available(claim, node, binding_timeout, now)
    )
    unallocated = [special if claim is pod_claims.special and special else claim for claim in pod_claims.unallocated]
    allocations = allocator.allocate(node, unallocated) if unallocated else []
    if isinstance(allocations, str):
        return NodeVerdict(allocations)
    if unavailable:
        return NodeVerdict(NOT_AVAILABLE, unavailable)
    return NodeVerdict(None, (), tuple(unallocated), tuple(allocations), tuple(mappings))


def post_filter(pod_claims: PodClaims | None, unavailable: Iterable[int]) -> GiveBack:
    """What to give back so that the pod may fit later. `unavailable`: places of claims, from all nodes."""
    if pod_claims is None:
        return GiveBack(NOTHING_TO_GIVE_BACK)
    candidates = tuple(
        claim
        for place in sorted(set(unavailable))
        if (claim := pod_claims.claims[place]) is not pod_claims.special and _is_unused(claim, pod_claims.pod)
    )
    if candidates:
        return GiveBack(GIVEN_BACK, deallocate=candidates)
    if pod_claims.is_left and pod_claims.special is not None:
        return GiveBack(DELETED, delete=(pod_claims.special,))
    return GiveBack(STILL_NOT)


def _unnamed(pod: Pod, use: PodResourceClaim) -> str:
    where = f'pod "{pod.namespace}/{pod.name}"'
    if use.resource_claim_template_name is None:
        return f'{where}, spec.resourceClaim "{use.name}": none of the supported fields are set'
    return f"{where}: ResourceClaim not created yet"


def _missing_class(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> str | None:
    for request in claim.spec.devices.requests:
        wanted = {f"{request.name}/{each.name}": each.device_class_name for each in request.first_available}
        if request.exactly is not None:
            wanted = {request.name: request.exactly.device_class_name}
        if not wanted:
            return f"resource claim {claim.key}, request {request.name}: unknown request type"
        for name, device_class in wanted.items():
            if device_class not in classes:
                return f"request {name}: device class {device_class} does not exist"
    return None


def _is_available(claim: ResourceClaim, node: DeviceNode, binding_timeout: float, now: float) -> bool:
    """Whether an allocated claim can be used on the node; one that is not allocated yet is no obstacle."""
    allocation = claim.status.allocation
    if allocation is None:
        return True
    selector = allocation.node_selector
    if selector is not None and not node_selector_matches(selector, node.labels, node.name):
        return False
    ready = is_ready(claim)
    return ready is True or (ready is None and not _timed_out(allocation, binding_timeout, now))


def is_ready(claim: ResourceClaim) -> bool | None:
    """Whether the drivers have prepared an allocated claim's devices: None while they have not, False if one failed.

    Devices are looked at in order, up to the first one that is not prepared.
    """
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else []:
        if not result.binding_conditions:
            continue
        conditions = _conditions_of(claim, result)
        if conditions is None:
            return None
        states = {condition.type: condition.status for condition in reversed(conditions)}
        if any(states.get(name) == "True" for name in result.binding_failure_conditions):
            return False
        if any(states.get(name) != "True" for name in result.binding_conditions):
            return None
    return True


def _conditions_of(claim: ResourceClaim, result: AllocatedDevice) -> list[DeviceCondition] | None:
    wanted = (result.driver, result.pool, result.device)
    return next(
        (each.conditions for each in claim.status.devices if (each.driver, each.pool, each.device) == wanted), None
    )


def _timed_out(allocation: AllocationResult, binding_timeout: float, now: float) -> bool:
    if allocation.allocation_timestamp is None:
        return False
    if not any(result.binding_conditions for result in allocation.devices.results):
        return False
    return _time_of(allocation.allocation_timestamp) + binding_timeout < now


def _time_of(timestamp: str) -> float:
    """Seconds since 1970; the far future for a text that is no time."""
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return float("inf")
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()


def _is_unused(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for no pod, or for this one alone."""
    reserved = claim.status.reserved_for
    return not reserved or (len(reserved) == 1 and reserved[0].uid == pod.uid)
