"""Checks allocations that were decided on an older state against the present one, before they count."""

from collections.abc import Collection, Sequence

from shared.devices.offers import DeviceId, OfferedDevice, device_id
from shared.devices.pools import Counters, Pool, add_draws, remaining_counters
from shared.devices.state import DeviceState
from shared.model.devices import AllocatedDevice, AllocationResult, DeviceAllocation


def add_checked(state: DeviceState, pools: Sequence[Pool], allocations: Sequence[AllocationResult]) -> str | None:
    """Add all allocations to the state, or none, and return why the first one is not possible any more.

    `pools`: those of the node, of which only usable ones count.
    Looked at is what the devices are taken from: that they are still offered and free, their counters, their capacity.
    Selectors, taints and nodes are not judged again.
    """
    added: list[AllocationResult] = []
    counters = _Counters(state, pools, {each.pool for of in allocations for each in of.devices.results})
    for allocation in allocations:
        for result in allocation.devices.results:
            reason = _conflict(result, state, pools) or counters.draw(result)
            if reason is not None:
                for each in added:
                    state.remove(each)
                return reason
            single = _only(result)
            state.add(single)
            added.append(single)
    return None


class _Counters:
    """Counters as a search draws them: see its quirks.

    It keeps them by the pool's name, so if pools of several drivers have one name, it has those of one of them: the
    first that it looked at, which its result does not show. Any of them counts here.
    """

    def __init__(self, state: DeviceState, pools: Sequence[Pool], names: Collection[str]) -> None:
        self._state = state
        self._pools = pools
        self._left = {
            name: [remaining_counters(each, state) for each in pools if each.id.pool == name and each.counters]
            for name in names
        }
        self._drawn: dict[str, Counters] = {}
        self._shared: set[DeviceId] = set()

    def draw(self, result: AllocatedDevice) -> str | None:
        """Draw the counters of a device before it is added to the state, or return why they do not suffice."""
        found = _offered(result, self._pools)
        if found is None or result.admin_access or not found[0].draws:
            return None
        device, pool = found
        if device.shareable:
            if device.id in self._shared or self._state.capacity(device.id) is not None:
                return None  # the first user has drawn them
            self._shared.add(device.id)
        name = device.id.pool
        drawn = self._drawn.setdefault(name, {})
        add_draws(drawn, device, 1)
        overdrawn = [
            next((counter for counter, amount in left.items() if amount < drawn.get(counter, 0)), None)
            for left in self._left[name]
        ]
        self._left[name] = [left for left, counter in zip(self._left[name], overdrawn, strict=True) if counter is None]
        if self._left[name]:
            return None
        counter_set, counter = next(each for each in overdrawn if each is not None)
        return f"counter {counter} of {counter_set} in pool {pool.id} does not suffice for {result.device}"


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


def _offered(result: AllocatedDevice, pools: Sequence[Pool]) -> tuple[OfferedDevice, Pool] | None:
    device = device_id(result)
    found = ((each, pool) for pool in pools if pool.usable and pool.id == device.pool_id for each in pool.devices)
    return next(((each, pool) for each, pool in found if each.id == device), None)
