"""Checks allocations that were decided on an older state against the present one, before they count."""

from collections.abc import Sequence

from shared.devices.offers import OfferedDevice, device_id
from shared.devices.pools import Pool, remaining_counters
from shared.devices.state import DeviceState
from shared.model.devices import AllocatedDevice, AllocationResult, DeviceAllocation


def add_checked(state: DeviceState, pools: Sequence[Pool], allocations: Sequence[AllocationResult]) -> str | None:
    """Add all allocations to the state, or none, and return why the first one is not possible any more.

    `pools`: those of the node, of which only usable ones count.
    Looked at is what the devices are taken from: that they are still offered and free, their counters, their capacity.
    Selectors, taints and nodes are not judged again.
    """
    added: list[AllocationResult] = []
    for allocation in allocations:
        for result in allocation.devices.results:
            single = _only(result)
            reason = _conflict(result, state, pools)
            if reason is None:
                state.add(single)
                added.append(single)
                reason = _overdrawn(result, state, pools)
            if reason is not None:
                for each in added:
                    state.remove(each)
                return reason
    return None


def _only(result: AllocatedDevice) -> AllocationResult:
    return AllocationResult(devices=DeviceAllocation(results=[result]))


def _conflict(result: AllocatedDevice, state: DeviceState, pools: Sequence[Pool]) -> str | None:
    found = _offered(result, pools)
    if found is None:
        return f"device {device_id(result)} is not offered any more"
    if result.admin_access:
        return None
    device, _ = found
    if result.share_id is None:
        taken = state.in_use(device.id) or (device.shareable and state.is_allocated(device.id))
        return f"device {device.id} is in use" if taken else None
    if state.in_use(device.id):
        return f"device {device.id} is in use"
    used = state.capacity(device.id) or {}
    for name, text in (result.consumed_capacity or {}).items():
        capacity = device.capacity.get(name)
        if capacity is None or used.get(name, 0) + text.amount > capacity.total:
            return f"device {device.id} has less {name} left than {text}"
    return None


def _overdrawn(result: AllocatedDevice, state: DeviceState, pools: Sequence[Pool]) -> str | None:
    """A counter of the device's pool of which the state, with the device, takes more than there is."""
    found = _offered(result, pools)
    if found is None or result.admin_access or not found[0].draws:
        return None
    for (counter_set, counter), left in remaining_counters(found[1], state).items():
        if left < 0:
            return f"counter {counter} of {counter_set} in pool {found[1].id} does not suffice for {result.device}"
    return None


def _offered(result: AllocatedDevice, pools: Sequence[Pool]) -> tuple[OfferedDevice, Pool] | None:
    device = device_id(result)
    found = ((each, pool) for pool in pools if pool.usable and pool.id == device.pool_id for each in pool.devices)
    return next(((each, pool) for each, pool in found if each.id == device), None)
