"""Validates decisions about devices: a pod's claims must be as the decision assumed, and its devices free.

Which devices a claim gets is the worker's word; how that is written down is computed again, so that no decision says
of a device that it is shared, for administration or configured in another way than claim, class and slice say.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from services.snapshot.state.object_overlay import ObjectOverlay
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.devices.errors import AllocationError
from shared.devices.extended import SPECIAL_CLAIM, misrequested
from shared.devices.footprint import add_checked
from shared.devices.offers import PoolId, device_id
from shared.devices.pools import DeviceNode
from shared.devices.results import rebuilt
from shared.model.base import ObjectMeta
from shared.model.devices import AllocationResult, DeviceClaim, ResourceClaim, ResourceClaimSpec
from shared.model.selectors import node_selector_matches


class Wrong(NamedTuple):
    """`is_fault`: nothing has changed since the evaluation, so the worker is wrong."""

    reason: str
    is_fault: bool = False


class DeviceChecks:
    """Allocations that pass count until `forget`, so that the members of a gang are checked together.

    Members may share a claim: the first one is checked as the one that allocates it, the others as its users.
    """

    def __init__(self, objects: ObjectOverlay) -> None:
        self._objects = objects
        self._devices = objects.devices
        self._added: list[AllocationResult] = []
        self._given: dict[str, AllocationResult] = {}
        """What members before have allocated, by claim."""

    def check(
        self,
        pod_uid: str,
        group: str,
        node: DeviceNode,
        devices: DeviceDecision,
        seen: int,
        templated: Sequence[bool] | None,
    ) -> Wrong | None:
        """`group`: the pod's PodGroup. `seen`: the state that the evaluation saw.

        `templated`: which claims were made for the pod or its group, if known.
        """
        for index, each in enumerate(devices.claims):
            made = templated is not None and templated[index]
            wrong = self._check_claim((pod_uid, group), node, each, seen, is_made_for_pod=made)
            if wrong is not None:
                return wrong
        allocations: list[tuple[ResourceClaim, AllocationResult]] = []
        for claim, allocation in _allocations(pod_uid, devices, self._devices.claims):
            if self._given.get(claim.key) == allocation:
                if not _is_within_reach(allocation, node):
                    return Wrong(f"resource claim {claim.key} cannot be used on node {node.name}", is_fault=True)
                continue
            reason = self._difference(node, claim, allocation)
            if reason:
                return Wrong(reason, is_fault=self._is_unchanged(claim, allocation, seen))
            allocations.append((claim, allocation))
        return self._add(node, allocations, seen)

    def check_special(self, special: SpecialClaim, seen: int, wanted: Mapping[str, int]) -> Wrong | None:
        """The claim for extended resources must not ask for more than the pod. `wanted`: what the node lacks of it."""
        reason = misrequested(special.requests, special.mappings, wanted, self._devices.allocator.by_resource)
        if not reason:
            return None
        classes = {each.exactly.device_class_name for each in special.requests if each.exactly is not None}
        return Wrong(reason, is_fault=self._objects.classes_written(classes) <= seen)

    def forget(self) -> None:
        for each in self._added:
            self._devices.allocator.state.remove(each)
        self._added.clear()
        self._given.clear()

    def _check_claim(
        self, of: tuple[str, str], node: DeviceNode, wanted: ClaimAllocation, seen: int, *, is_made_for_pod: bool
    ) -> Wrong | None:
        # The worker may have judged another pod of the class, with a claim of its own. To the queue both seemed to be
        # alike: it does not know of attempts that go on though their pod is deleted. So what state the claim is in and
        # where it can be used is nobody's fault.
        claim = self._devices.claims.get(wanted.key)
        if claim is None or claim.uid != wanted.uid:
            return Wrong(f"resource claim {wanted.key} is gone")
        if self._objects.claim_written(wanted.key) > seen:
            return Wrong(f"resource claim {wanted.key} has changed since the evaluation")
        if claim.metadata.deletion_timestamp is not None:
            return Wrong(f"resource claim {wanted.key} is being deleted", is_fault=True)
        if is_made_for_pod and not claim.was_made_for(*of):
            return Wrong(f"resource claim {wanted.key} was made for another pod", is_fault=True)
        if claim.promised or claim.is_allocated != (wanted.allocation is None):
            state = "is allocated already" if claim.is_allocated else "is not allocated"
            return Wrong(f"resource claim {wanted.key} {state}")
        if claim.status.allocation is not None and not _is_within_reach(claim.status.allocation, node):
            return Wrong(f"resource claim {wanted.key} cannot be used on node {node.name}")
        return None

    def _difference(self, node: DeviceNode, claim: ResourceClaim, allocation: AllocationResult) -> str:
        """How the allocation differs from what a search could have found for the claim on the node."""
        offered = {device.id: device for device in self._devices.allocator.devices_of(node).devices}
        for each in map(device_id, allocation.devices.results):
            device = offered.get(each)
            if device is None:
                return f"device {each} is not offered any more"
            if not node.matches(device.node_name, device.all_nodes, device.node_selector):
                return f"device {each} cannot be used on node {node.name}"
        try:
            made = rebuilt(node, claim, allocation, self._devices.allocator.classes, offered)
        except AllocationError as cause:
            return str(cause)
        if isinstance(made, str):
            return made
        return "" if made == allocation else "the allocation says of its devices what their slices do not"

    def _add(
        self, node: DeviceNode, allocations: Sequence[tuple[ResourceClaim, AllocationResult]], seen: int
    ) -> Wrong | None:
        allocator = self._devices.allocator
        new = [allocation for _, allocation in allocations]
        reason = add_checked(allocator.state, allocator.devices_of(node).pools, new)
        if reason is not None:
            is_fault = not self._added and all(self._is_unchanged(*each, seen) for each in allocations)
            return Wrong(reason, is_fault)
        self._added += new
        self._given |= {claim.key: allocation for claim, allocation in allocations}
        return None

    def _is_unchanged(self, claim: ResourceClaim, allocation: AllocationResult, seen: int) -> bool:
        pools = {PoolId(each.driver, each.pool) for each in allocation.devices.results}
        classes = {
            option.device_class_name
            for request in claim.spec.devices.requests
            for option in (request.exactly, *request.first_available)
            if option is not None
        }
        return max(self._objects.pools_written(pools), self._objects.classes_written(classes)) <= seen


def _is_within_reach(allocation: AllocationResult, node: DeviceNode) -> bool:
    selector = allocation.node_selector
    return selector is None or node_selector_matches(selector, node.labels, node.name)


def _allocations(
    pod_uid: str, devices: DeviceDecision, claims: Mapping[str, ResourceClaim]
) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
    """New allocations with their claims. Of a claim that is named twice, the first one counts."""
    seen: set[str] = set()
    for each in devices.claims:
        if each.allocation is not None and each.key not in seen:
            seen.add(each.key)
            yield claims[each.key], each.allocation
    special = devices.special
    if special is not None:
        metadata = ObjectMeta(name=SPECIAL_CLAIM, uid=f"{pod_uid}/{SPECIAL_CLAIM}")
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=special.requests))
        yield ResourceClaim(metadata=metadata, spec=spec), special.allocation
