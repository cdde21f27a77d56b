"""What allocated claims and allocations in flight take: devices, shares of devices, capacity."""

from collections.abc import Iterable

from shared.devices.offers import Amounts, DeviceId
from shared.errors import InvariantBroken
from shared.model.devices import AllocatedDevice, AllocationResult


class DeviceState:
    """Devices in use, as the sum of allocations. Devices with admin access do not count.

    A device that several allocations name (by mistake) is free once all of them are removed.
    """

    def __init__(self, allocations: Iterable[AllocationResult] = ()) -> None:
        self._exclusive: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, int] = {}
        self._capacity: dict[DeviceId, dict[str, int]] = {}
        for allocation in allocations:
            self.add(allocation)

    def equals(self, other: "DeviceState") -> bool:
        mine, others = ((each._exclusive, each._shares, each._capacity) for each in (self, other))
        return mine == others

    def add(self, allocation: AllocationResult) -> None:
        for result in allocation.devices.results:
            if not result.admin_access:
                self._change(result, 1)

    def remove(self, allocation: AllocationResult) -> None:
        """Undo `add` of an equal allocation."""
        for result in allocation.devices.results:
            if not result.admin_access:
                self._change(result, -1)

    def in_use(self, device: DeviceId) -> bool:
        """Whether a claim has the device for itself."""
        return device in self._exclusive

    def is_allocated(self, device: DeviceId) -> bool:
        """Whether any claim has the device or a share of it, so that its counters are drawn."""
        return device in self._exclusive or device in self._shares

    def capacity(self, device: DeviceId) -> Amounts | None:
        """The capacity that shares of the device take; None if no share takes any."""
        return self._capacity.get(device)

    def _change(self, result: AllocatedDevice, by: int) -> None:
        device = DeviceId(result.driver, result.pool, result.device)
        _count(self._exclusive if result.share_id is None else self._shares, device, by)
        if result.share_id is None or result.consumed_capacity is None:
            return
        amounts = self._capacity.setdefault(device, {})
        for name, text in result.consumed_capacity.items():
            amounts[name] = amounts.get(name, 0) + by * text.amount
        if by < 0 and not any(amounts.values()):
            del self._capacity[device]


def _count(counts: dict[DeviceId, int], device: DeviceId, by: int) -> None:
    count = counts.get(device, 0) + by
    if count < 0:
        raise InvariantBroken(f"device {device} is given back more often than it was allocated")
    if count:
        counts[device] = count
    else:
        del counts[device]
