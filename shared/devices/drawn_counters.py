"""Counters of pools as one search draws them, with kube-scheduler's quirks.

They are kept by the pool's name without its driver: of several pools of one name, the first that was looked at has its
counters drawn from. A device draws before anything else is looked at. If it is refused then, or is shareable, what it
has drawn is never given back: a *trace*. A device whose counters do not suffice beside the traces is *spent*.
"""

from collections import Counter
from collections.abc import Sequence

from shared.devices.offers import OfferedDevice
from shared.devices.pools import Counters, Pool, add_draws, remaining_counters
from shared.devices.state import DeviceState


class DrawnCounters:
    """`traces`: how often a trace was left, or a choice between pools of one name made."""

    def __init__(self, pools: Sequence[Pool], state: DeviceState) -> None:
        self.traces = 0
        self._pools = {pool.id: pool for pool in pools}
        self._state = state
        self._available: dict[str, Counters] = {}
        self._drawn: dict[str, Counters] = {}
        self._left: dict[str, Counters] = {}
        """The part of `_drawn` that is never given back."""
        names = Counter(pool.id.pool for pool in pools if pool.counters)
        self._ambiguous = {name for name, count in names.items() if count > 1}

    def draw(self, device: OfferedDevice) -> bool:
        """Draw the device's counters, unless any counter of the pool is or would be overdrawn."""
        available = self._counters_of(device)
        drawn = self._drawn.setdefault(device.id.pool, {})
        add_draws(drawn, device, 1)
        if _suffices(available, drawn):
            return True
        add_draws(drawn, device, -1)
        return False

    def give_back(self, device: OfferedDevice) -> None:
        if device.draws:
            add_draws(self._drawn[device.id.pool], device, -1)

    def leave(self, device: OfferedDevice) -> None:
        """What the device has just drawn stays drawn."""
        if _draws_anything(device):
            add_draws(self._left.setdefault(device.id.pool, {}), device, 1)
            self.traces += 1

    def may_leave(self, device: OfferedDevice, refusable: bool) -> bool:
        """Whether trying the device may leave a trace. `refusable`: it may be refused after it has drawn."""
        if device.draws and device.id.pool in self._ambiguous and device.id.pool not in self._available:
            return True
        return _draws_anything(device) and not self.is_spent(device) and (refusable or device.shareable)

    def is_spent(self, device: OfferedDevice) -> bool:
        left = self._left.get(device.id.pool)
        if left is None or not device.draws or device.shareable:
            return False
        drawn = dict(left)
        add_draws(drawn, device, 1)
        return not _suffices(self._counters_of(device), drawn)

    def unambiguous(self, device: OfferedDevice) -> Counters:
        """What allocated devices leave of the counters that the device draws; none if pools of one name have them."""
        if not device.draws or device.id.pool in self._ambiguous:
            return {}
        return self._counters_of(device)

    def _counters_of(self, device: OfferedDevice) -> Counters:
        known = self._available.get(device.id.pool)
        if known is None:
            known = self._available[device.id.pool] = remaining_counters(self._pools[device.id.pool_id], self._state)
            self.traces += device.id.pool in self._ambiguous
        return known


def _suffices(available: Counters, drawn: Counters) -> bool:
    return all(amount >= drawn.get(counter, 0) for counter, amount in available.items())


def _draws_anything(device: OfferedDevice) -> bool:
    return any(amount for draw in device.draws for amount in draw.amounts.values())
