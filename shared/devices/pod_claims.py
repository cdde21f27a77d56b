"""DynamicResources around the search: the checks before it, what nodes are asked for, PostFilter.

Reasons are kube-scheduler's. Everything that refuses a pod here is UnschedulableAndUnresolvable; an AllocationError is
the code Error.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from shared.devices.allocator import Allocator
from shared.devices.extended import (
    SPECIAL_CLAIM,
    ClassesByResource,
    RequestMapping,
    claim_for_node,
    special_claim,
    wants_class,
)
from shared.devices.pools import DeviceNode
from shared.model.codec import encode_msgpack
from shared.model.devices import (
    DEVICE_CLASS_PREFIX,
    AllocatedDevice,
    AllocationResult,
    DeviceClass,
    DeviceCondition,
    ResourceClaim,
)
from shared.model.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from shared.model.resources import filter_requests, is_extended_resource
from shared.model.selectors import node_selector_matches
from shared.model.workloads import group_of

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
    def own(self) -> list[ResourceClaim]:
        return self.claims[: len(self.claims) - (self.special is not None)]

    @property
    def unallocated(self) -> list[ResourceClaim]:
        return [claim for claim in self.claims if claim.status.allocation is None]


class Requested(msgspec.Struct, frozen=True, eq=False):
    """What a pod needs of nodes that provide the same of its extended resources by devices.

    `reason`: why such a node cannot serve the pod. `claims`: those to allocate; `checked`: whether allocated claims
    must be available as well. `special`: the special claim if it is one of `claims`, with `mappings` as written to the
    pod's status.
    """

    reason: str | None = None
    claims: tuple[ResourceClaim, ...] = ()
    checked: bool = True
    special: ResourceClaim | None = None
    mappings: tuple[RequestMapping, ...] = ()


class GiveBack(msgspec.Struct, frozen=True):
    """What PostFilter does: one of `deallocate`, any, or all of `delete`."""

    message: str
    deallocate: tuple[ResourceClaim, ...] = ()
    delete: tuple[ResourceClaim, ...] = ()


def extended_resources(pod: Pod) -> list[str]:
    """The requested resources that a device class may provide."""
    requests = filter_requests(pod)
    return [name for name in requests if is_provided_by_devices(name)]


def is_provided_by_devices(resource: str) -> bool:
    """Whether a device class may provide the resource."""
    return is_extended_resource(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def may_claim(pod: Pod) -> bool:
    """Whether the pod has claims, or may need one for extended resources."""
    return bool(pod.spec.resource_claims) or bool(extended_resources(pod))


def content_key(found: PodClaims) -> bytes:
    """Equal for pods whose claims ask for the same or have the same devices, whatever their names.

    With equal specs otherwise, such pods get the same verdicts; only texts of errors name the claims.
    """
    parts = []
    for claim in found.claims:
        allocation = claim.status.allocation
        users = _is_unused(claim, found.pod), is_left_to_group(claim, found.pod)
        ready = (claim.status.devices, *users) if allocation is not None else None
        parts.append((claim.spec, allocation, ready, claim is found.special))
    named_twice = [found.claims.index(claim) for claim in found.claims]
    return encode_msgpack((parts, named_twice, found.is_left))


class ClaimName(NamedTuple):
    """A claim that a pod names, by `namespace/name`. `is_made_for_pod`: from a template."""

    key: str
    is_made_for_pod: bool


def claim_names(
    namespace: str, uses: Sequence[PodResourceClaim], statuses: Sequence[PodResourceClaimStatus]
) -> list[ClaimName]:
    """The claims that a pod names, as far as those of templates are made."""
    made = {each.name: each.resource_claim_name for each in reversed(statuses)}
    names = [(use.resource_claim_name or made.get(use.name), use.resource_claim_name is None) for use in uses]
    return [ClaimName(f"{namespace}/{name}", is_made) for name, is_made in names if name is not None]


def own_claims(pod: Pod, claims: Mapping[str, ResourceClaim]) -> list[ResourceClaim] | str:
    """The claims that the pod names, from all claims by `namespace/name`; or why PreEnqueue refuses the pod."""
    found: list[ResourceClaim] = []
    group = "" if pod.spec.scheduling_group is None else pod.spec.scheduling_group.pod_group_name or ""
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
        if use.resource_claim_name is None and not claim.was_made_for(pod.uid, group):
            owner = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
            return f"ResourceClaim {claim.key} was not created for Pod {pod.namespace}/{pod.name} ({owner})"
        found.append(claim)
    return found


def pre_filter(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    left: Collection[ResourceClaim],
    allocator: Allocator,
    *,
    serves_resources: bool = True,
    takes_alternatives: bool = True,
) -> PodClaims | str | None:
    """The pod's claims, why they keep it from being scheduled, or None if it has none.

    `left`: special claims of the pod. `serves_resources`: devices may serve as extended resources.
    `takes_alternatives`: requests may have subrequests.
    """
    own = own_claims(pod, claims)
    if isinstance(own, str):
        return own
    requests = filter_requests(pod)
    is_served = serves_resources and wants_class(requests, allocator.by_resource)
    special = special_claim(pod, left) if is_served else None
    found = own if special is None else [*own, special]
    if not found:
        return None
    for claim in found:
        if claim.promised:
            return f"resource claim {claim.key} is in the process of being allocated"
        if claim.status.allocation is not None:
            continue
        if claim is special:
            continue
        if (reason := _unusable(claim, allocator.classes, takes_alternatives)) is not None:
            return reason
    return PodClaims(pod, found, special, requests)


def requested(pod_claims: PodClaims, by_devices: Sequence[str] | None, by_resource: ClassesByResource) -> Requested:
    """`by_devices`: the extended resources that the node provides by devices, as `node_resources` has them."""
    special = pod_claims.special
    if special is None:
        return Requested(claims=tuple(pod_claims.unallocated))
    if pod_claims.is_left and special.spec.devices.requests:
        return Requested(LEFT_CLAIM)
    if by_devices is None:
        return Requested(CANNOT_FIT)
    if not pod_claims.has_own and (not by_devices or special.status.allocation is not None):
        return Requested(checked=False)  # an allocated one was left by an earlier attempt, without requests
    if special.status.allocation is not None:
        return Requested(claims=tuple(pod_claims.unallocated))
    made = claim_for_node(special, pod_claims.pod, by_devices, by_resource)
    claims = tuple(made.claim if claim is special else claim for claim in pod_claims.unallocated)
    return Requested(None, claims, True, made.claim, tuple(made.mappings))


def unavailable_claims(pod_claims: PodClaims, node: DeviceNode, binding_timeout: float, now: float) -> tuple[int, ...]:
    """The indices of allocated claims that the node cannot use. `now`: the time of day, for claims being prepared."""
    return tuple(
        index for index, claim in enumerate(pod_claims.claims) if not _is_available(claim, node, binding_timeout, now)
    )


def post_filter(pod_claims: PodClaims | None, unavailable: Iterable[int]) -> GiveBack:
    """What to give back so that the pod may fit later. `unavailable`: indices of claims, from all nodes.

    Whether other pods of the group use a claim that is reserved for it, or whether those for which a claim is reserved
    are of the pod's gang and wait as well, is not known here: queue and binder find out.
    """
    if pod_claims is None:
        return GiveBack(NOTHING_TO_GIVE_BACK)
    pod, indices = pod_claims.pod, sorted(set(unavailable))
    own = [claim for index in indices if (claim := pod_claims.claims[index]) is not pod_claims.special]
    of_group = tuple(claim for claim in own if is_left_to_group(claim, pod) or _may_be_left_to_members(claim, pod))
    if candidates := tuple(claim for claim in own if _is_unused(claim, pod)):
        return GiveBack(GIVEN_BACK, deallocate=(*candidates, *of_group))
    if pod_claims.is_left and pod_claims.special is not None:
        return GiveBack(DELETED, deallocate=of_group, delete=(pod_claims.special,))
    return GiveBack(STILL_NOT, deallocate=of_group)


def _unnamed(pod: Pod, use: PodResourceClaim) -> str:
    where = f'pod "{pod.namespace}/{pod.name}"'
    if use.resource_claim_template_name is None:
        return f'{where}, spec.resourceClaim "{use.name}": none of the supported fields are set'
    return f"{where}: ResourceClaim not created yet"


def _unusable(claim: ResourceClaim, classes: Mapping[str, DeviceClass], takes_alternatives: bool) -> str | None:
    """Why no request of this kind, or of this class, can be served."""
    for request in claim.spec.devices.requests:
        if request.exactly is None and request.first_available and not takes_alternatives:
            why = "has subrequests, but the DRAPrioritizedList feature is disabled"
            return f"resource claim {claim.key}, request {request.name}: {why}"
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


def _may_be_left_to_members(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for other pods, which may be of the pod's gang and have no node."""
    return group_of(pod) is not None and bool(other_pods_of(claim, pod))


def other_pods_of(claim: ResourceClaim, pod: Pod) -> list[str]:
    """The uids of the pods that the claim is reserved for besides this one; none if it is reserved for a group, too."""
    others = [each for each in claim.status.reserved_for if each.uid != pod.uid]
    return [each.uid for each in others] if all(each.resource == "pods" for each in others) else []


def is_left_to_group(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for the pod's PodGroup, and besides for this pod at most."""
    group = "" if pod.spec.scheduling_group is None else pod.spec.scheduling_group.pod_group_name or ""
    others = [each for each in claim.status.reserved_for if each.uid != pod.uid]
    return bool(group and others) and all(each.is_group(group) for each in others)
