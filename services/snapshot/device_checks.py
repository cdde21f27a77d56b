"""Validates decisions about devices: a pod's claims must be as the decision assumed, and its devices free."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from services.snapshot.state.object_overlay import ObjectOverlay
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.devices.footprint import add_checked
from shared.devices.offers import PoolId
from shared.devices.pools import DeviceNode
from shared.model.devices import ALL, AllocationResult, DeviceRequest, ResourceClaim
from shared.model.selectors import node_selector_matches


class Wrong(NamedTuple):
    """`is_fault`: nothing has changed since the evaluation, so the worker is wrong."""

    reason: str
    is_fault: bool = False


class DeviceChecks:
    """Allocations that pass count until `forget`, so that the members of a gang are checked together."""

    def __init__(self, objects: ObjectOverlay) -> None:
        self._objects = objects
        self._devices = objects.devices
        self._added: list[AllocationResult] = []

    def check(
        self, pod_uid: str, node: DeviceNode, devices: DeviceDecision, seen: int, templated: Sequence[bool] | None
    ) -> Wrong | None:
        """`seen`: the state that the evaluation saw. `templated`: which claims were made for the pod, if known."""
        for place, each in enumerate(devices.claims):
            made = templated is not None and templated[place]
            wrong = self._check_claim(pod_uid, each, seen, is_made_for_pod=made)
            if wrong is not None:
                return wrong
        allocations = list(_allocations(devices, self._devices.claims))
        for requests, allocation in allocations:
            reason = _contradiction(requests, allocation) or self._out_of_reach(allocation, node)
            if reason:
                return Wrong(reason, is_fault=self._is_unchanged(allocation, seen))
        return self._add(node, [allocation for _, allocation in allocations], seen)

    def forget(self) -> None:
        for each in self._added:
            self._devices.allocator.state.remove(each)
        self._added.clear()

    def _check_claim(self, pod_uid: str, wanted: ClaimAllocation, seen: int, *, is_made_for_pod: bool) -> Wrong | None:
        claim = self._devices.claims.get(wanted.key)
        if claim is None or claim.uid != wanted.uid:
            return Wrong(f"resource claim {wanted.key} is gone")
        if self._objects.claim_written(wanted.key) > seen:
            return Wrong(f"resource claim {wanted.key} has changed since the evaluation")
        if claim.metadata.deletion_timestamp is not None:
            return Wrong(f"resource claim {wanted.key} is being deleted", is_fault=True)
        if is_made_for_pod and claim.owner_uid != pod_uid:
            return Wrong(f"resource claim {wanted.key} was made for another pod", is_fault=True)
        if claim.promised or claim.is_allocated != (wanted.allocation is None):
            state = "is allocated already" if claim.is_allocated else "is not allocated"
            # The worker may have judged another pod of the class, whose own claim was not as the queue had seen it.
            return Wrong(f"resource claim {wanted.key} {state}", is_fault=not is_made_for_pod)
        return None

    def _out_of_reach(self, allocation: AllocationResult, node: DeviceNode) -> str:
        selector = allocation.node_selector
        if selector is not None and not node_selector_matches(selector, node.labels, node.name):
            return f"its devices cannot be used on node {node.name}"
        taken = {(each.driver, each.pool, each.device) for each in allocation.devices.results}
        for device in self._devices.allocator.devices_of(node).devices:
            if device.id in taken and not node.matches(device.node_name, device.all_nodes, device.node_selector):
                return f"device {device.id} cannot be used on node {node.name}"
        return ""

    def _add(self, node: DeviceNode, allocations: Sequence[AllocationResult], seen: int) -> Wrong | None:
        allocator = self._devices.allocator
        reason = add_checked(allocator.state, allocator.devices_of(node).pools, allocations)
        if reason is not None:
            is_fault = not self._added and all(self._is_unchanged(each, seen) for each in allocations)
            return Wrong(reason, is_fault)
        self._added += allocations
        return None

    def _is_unchanged(self, allocation: AllocationResult, seen: int) -> bool:
        results = allocation.devices.results
        return self._objects.pools_written(PoolId(each.driver, each.pool) for each in results) <= seen


def _allocations(
    devices: DeviceDecision, claims: Mapping[str, ResourceClaim]
) -> Iterator[tuple[Sequence[DeviceRequest], AllocationResult]]:
    """New allocations with what was asked for. Of a claim that is named twice, the first one counts."""
    seen: set[str] = set()
    for each in devices.claims:
        if each.allocation is not None and each.key not in seen:
            seen.add(each.key)
            yield claims[each.key].spec.devices.requests, each.allocation
    if devices.special is not None:
        yield devices.special.requests, devices.special.allocation


def _contradiction(requests: Sequence[DeviceRequest], allocation: AllocationResult) -> str:
    """How an allocation differs from what was asked for, as far as names and numbers of devices show."""
    counts: dict[str, int] = {}
    for result in allocation.devices.results:
        counts[result.request] = counts.get(result.request, 0) + 1
    for request in requests:
        options = {f"{request.name}/{each.name}": each for each in request.first_available}
        exactly = request.exactly
        wanted = [(name, each.allocation_mode, each.count) for name, each in options.items() if name in counts]
        if exactly is not None:
            wanted = [(request.name, exactly.allocation_mode, exactly.count)]
        if len(wanted) != 1:
            return f"request {request.name} is served by {len(wanted)} alternatives"
        name, mode, count = wanted[0]
        found = counts.pop(name, 0)
        if mode != ALL and found != count:
            return f"request {name} gets {found} devices instead of {count}"
    return f"there is no request {next(iter(counts))}" if counts else ""
