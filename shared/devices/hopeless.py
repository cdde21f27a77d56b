"""Bounds that tell without a search that there is no solution: each is found by one look at the devices.

They hold whatever is taken first: all requests together need as many devices, and as much of each counter, as each of
them needs at least; so do those that a constraint forces to devices of one value, or of different values.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.devices.capacity import Share
from shared.devices.constraints import AttributeValue, Constraint, MatchAttribute, value_of
from shared.devices.offers import Amounts, OfferedDevice
from shared.devices.pools import Counters, add_draws
from shared.devices.requests import Alternatives

Group = frozenset[int]
"""The options of a request, any of which serves it."""


class Usable(msgspec.Struct, frozen=True, eq=False):
    """A device with what each option that it can serve alone takes of its capacity.

    `used`: capacity taken already. `counters`: what is left of its pool's.
    """

    device: OfferedDevice
    taken: Mapping[int, Mapping[str, Share]]
    used: Amounts
    counters: Counters


def is_hopeless(
    requests: Sequence[Sequence[Alternatives]],
    constraints: Sequence[Sequence[Constraint]],
    needed: Mapping[int, int],
    devices: Sequence[Usable],
) -> bool:
    """`needed`: devices by option. Options with admin access count alone, as they may share devices with others."""
    everything: list[Group] = []
    for of_claim, constraining in zip(requests, constraints, strict=True):
        for alternatives in of_claim:
            if all(_lacks([frozenset({option.index})], needed, devices) for option in alternatives.options):
                return True
        exclusive = [each for each in of_claim if not any(option.admin for option in each.options)]
        everything += map(_group, exclusive)
        for constraint in constraining:
            bound = [
                _group(each)
                for each in exclusive
                if all(constraint.applies(option.base_name, option.full_name) for option in each.options)
            ]
            if bound and _lacks_values(constraint, bound, needed, devices):
                return True
    return len(everything) > 1 and _lacks(everything, needed, devices)


def _group(alternatives: Alternatives) -> Group:
    return frozenset(option.index for option in alternatives.options)


def _lacks_values(
    constraint: Constraint, groups: Sequence[Group], needed: Mapping[int, int], devices: Sequence[Usable]
) -> bool:
    by_value: defaultdict[AttributeValue, list[Usable]] = defaultdict(list)
    options = frozenset().union(*groups)
    for each in devices:
        value = value_of(each.device, constraint.attribute)
        if value is not None and not options.isdisjoint(each.taken):
            by_value[value].append(each)
    if isinstance(constraint, MatchAttribute):
        return all(_lacks(groups, needed, alike) for alike in by_value.values())
    return len(by_value) < len(groups)  # at least the last devices of all requests differ


def _lacks(groups: Sequence[Group], needed: Mapping[int, int], devices: Iterable[Usable]) -> bool:
    demand = sum(min(max(needed[option], 1) for option in group) for group in groups)
    supply = 0
    drawing: list[Usable] = []
    free = 0
    """Uses that draw no counters."""
    for each in devices:
        uses = _uses(each, groups)
        supply += uses
        if uses and each.counters and not each.device.shareable:
            drawing.append(each)
        else:
            free += uses
    if supply < demand:
        return True
    return bool(drawing) and demand > free and _overdraws(drawing, demand - free)


def _uses(each: Usable, groups: Sequence[Group]) -> int:
    """How many of the requests the device can serve at most; each takes a device once."""
    serving = [group for group in groups if not group.isdisjoint(each.taken)]
    if not serving or not each.device.shareable:
        return min(len(serving), 1)
    options = [each.taken[option] for group in serving for option in group if option in each.taken]
    uses = len(serving)
    for name, offered in each.device.capacity.items():
        least = min(taken[name].amount for taken in options)
        if least > 0:
            uses = min(uses, (offered.total - each.used.get(name, 0)) // least)
    return uses


def _overdraws(devices: Sequence[Usable], count: int) -> bool:
    """Whether any `count` of the devices draw more of a counter than there is."""
    pools: dict[str, tuple[Counters, list[Counters]]] = {}
    for each in devices:
        drawn: Counters = {}
        add_draws(drawn, each.device, 1)
        pools.setdefault(each.device.id.pool, (each.counters, []))[1].append(drawn)
    for left, draws in pools.values():
        elsewhere = len(devices) - len(draws)
        if count > elsewhere:
            for counter, amount in left.items():
                least = sorted(drawn.get(counter, 0) for drawn in draws)[: count - elsewhere]
                if sum(least) > amount:
                    return True
    return False
