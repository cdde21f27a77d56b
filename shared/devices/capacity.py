"""Consumable capacity: which share of a device's capacity a request gets, and whether it fits.

Requests name a capacity literally: `memory` is not `gpu.example.com/memory`. Amounts are in billionths.
"""

from collections.abc import Mapping

import msgspec

from shared.model.devices import CapacityRequestPolicy, DeviceCapacity
from shared.model.quantity import UNIT, Quantity, QuantityText

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class Share(msgspec.Struct, frozen=True):
    """An amount, and how it is written in an allocation. `checked`: the policy still has to allow it."""

    amount: int
    text: QuantityText
    checked: bool = True


class OfferedCapacity(msgspec.Struct, frozen=True):
    total: int
    unasked: Share
    policy: CapacityRequestPolicy | None


def prepare_capacity(capacity: DeviceCapacity) -> OfferedCapacity:
    policy = capacity.request_policy
    default = policy.default if policy is not None else None
    whole = Share(capacity.value.amount, capacity.value)
    unasked = whole if default is None else Share(default.amount, default, checked=False)
    return OfferedCapacity(capacity.value.amount, unasked, policy)


def shares(capacity: Mapping[str, OfferedCapacity], asked: Mapping[str, QuantityText]) -> dict[str, Share] | None:
    """What the request takes of each capacity of a device; None if the device has no such capacity or share."""
    if any(name not in capacity for name in asked):
        return None
    taken = {}
    for name, offered in capacity.items():
        wanted = asked.get(name)
        share = offered.unasked if wanted is None else _rounded(wanted, offered.policy)
        if share.checked and offered.policy is not None and not _allowed(share.amount, offered.policy):
            return None
        taken[name] = share
    return taken


def _rounded(wanted: QuantityText, policy: CapacityRequestPolicy | None) -> Share:
    """The smallest share allowed by the policy that holds the request; the request itself if none does."""
    amount = wanted.amount
    if policy is None:
        return Share(amount, wanted)
    bounds = policy.valid_range
    if bounds is not None and bounds.min is not None:
        if amount < bounds.min.amount:
            return Share(bounds.min.amount, bounds.min)
        if bounds.step is None:
            return Share(amount, wanted)
        least, step = bounds.min.amount.value, bounds.step.amount.value
        units = least - (least - amount.value) // step * step
        return Share(units * UNIT, _binary_text(units))
    for value in policy.valid_values:
        if amount <= value.amount:
            return Share(value.amount, value)
    return Share(amount, wanted)


def _allowed(amount: int, policy: CapacityRequestPolicy) -> bool:
    bounds = policy.valid_range
    if bounds is not None:
        if bounds.max is not None and amount > bounds.max.amount:
            return False
        if bounds.step is None:
            return True
        least = bounds.min.amount.value if bounds.min is not None else 0
        return (Quantity(amount).value - least) % bounds.step.amount.value == 0
    return not policy.valid_values or any(amount == value.amount for value in policy.valid_values)


def _binary_text(units: int) -> QuantityText:
    """Whole units as kube-scheduler writes an amount that it has computed: with the largest exact binary suffix, and
    below 1024 with a decimal one.
    """
    if units == 1000:
        return QuantityText("1k")
    power = 0
    while units and units % 1024 == 0 and power + 1 < len(_BINARY):
        units //= 1024
        power += 1
    return QuantityText(f"{units}{_BINARY[power]}")
