"""The search for devices on one node: depth first, and the first solution wins.

Claims are served in order, in each claim its requests, for each request its alternatives. For one request devices are
taken in the order of the pools, so that sets of devices are tried and not their permutations; the next request begins
with the first device again. A device is checked in this order: in use, selectors of the class, selectors of the
request, node, capacity; then counters, taints, constraints.

**Quirks of kube-scheduler that are kept.** Counters are drawn before taints and constraints are looked at, and stay
drawn when those refuse the device; those of a shareable device also stay drawn when it is given back. They are kept by
the pool's name without its driver. With `All`, a device whose capacity is used up stays known to the constraints.

**Shortcuts.** Of n devices of which too many are asked for, the plain search tries up to 2^n sets. Three shortcuts
change no result: nothing is searched if bounds exclude a solution; a request that has fewer candidates left than it
needs fails at once; and after a device failed, an equivalent one is not tried in its place. The last two are taken only
if what they leave out would leave no traces (counters that stay drawn, above); as spent devices leave none, a search
that leaves traces is soon as short as others. What is left is bounded by MAX_STEPS, not by time, so that a decision can
be repeated.
"""

from collections.abc import Generator, Hashable, Mapping, Sequence
from enum import Enum, auto

import msgspec

from shared.devices.capacity import Share, shares
from shared.devices.constraints import Constraint, DistinctAttribute, constraints_of, value_of
from shared.devices.drawn_counters import DrawnCounters
from shared.devices.errors import AllocationError, OutOfSteps
from shared.devices.hopeless import Usable, is_hopeless
from shared.devices.offers import DeviceId, OfferedDevice
from shared.devices.pools import DeviceNode, Pool
from shared.devices.requests import Alternatives, PreparedRequest, check_number, prepare
from shared.devices.selectors import Selectors, behaviour, matches
from shared.devices.state import DeviceState
from shared.model.devices import MAX_RESULTS, DeviceClass, ResourceClaim

MAX_STEPS = 2_000_000
"""In one search: looking at a device is a step, trying to take one TAKING_STEPS. That is about a second; kube-scheduler
stops after ten. Then the pod's attempt ends with the same error as there.
"""
TAKING_STEPS = 10


class SearchOutcome(Enum):
    FOUND = auto()
    FAILED = auto()
    TOO_MANY = auto()
    """More than an allocation can hold: other devices for earlier requests do not help, other alternatives may."""


Step = Generator["Step", SearchOutcome, SearchOutcome]
"""A part of the search: yields the next part, is sent its outcome, returns its own. So no depth is too deep."""


class Taken(msgspec.Struct, frozen=True, eq=False):
    """A device for a request; `consumed`: its share of each capacity, if the device is shareable and has any."""

    request: PreparedRequest
    device: OfferedDevice
    consumed: Mapping[str, Share]


class Solution(msgspec.Struct, frozen=True, eq=False):
    """A solution: by claim its devices, and for each of its requests the alternative."""

    devices: list[list[Taken]]
    chosen: list[list[PreparedRequest]]


class Search:
    """One search. `run` returns None if the devices do not suffice, and raises AllocationError."""

    def __init__(
        self,
        node: DeviceNode,
        pools: Sequence[Pool],
        claims: Sequence[ResourceClaim],
        state: DeviceState,
        classes: Mapping[str, DeviceClass],
        selectors: Selectors,
    ) -> None:
        self._node = node
        self._state = state
        self._selectors = selectors
        self._devices = [device for pool in pools if pool.usable for device in pool.devices]
        self._selectable: dict[tuple[int, DeviceId], bool] = {}
        self._shares: dict[tuple[int, bytes], dict[str, Share] | None] = {}
        self._steps = 0
        # what the partial solution takes
        self._taken: list[list[Taken]] = [[] for _ in claims]
        self._users: dict[DeviceId, set[int]] = {}
        self._capacity: dict[DeviceId, dict[str, int]] = {}
        self._counters = DrawnCounters(pools, state)
        self._requests: list[list[Alternatives]] = []
        self._options: list[PreparedRequest] = []
        self._everything: dict[int, list[OfferedDevice]] = {}
        self._needed: dict[int, int] = {}
        self._constraints: list[list[Constraint]] = []
        self._chosen: dict[tuple[int, int], PreparedRequest] = {}
        for claim in claims:
            self._prepare(claim, classes, pools)
        self._constrained = {
            option.index: any(
                constraint.applies(option.base_name, option.full_name) for constraint in self._constraints[claim]
            )
            for claim, requests in enumerate(self._requests)
            for alternatives in requests
            for option in alternatives.options
        }
        self._ordered = self._order_matters()
        self._behaviours: dict[int, Hashable] = {}

    def run(self) -> Solution | None:
        if self._is_hopeless():
            return None
        stack = [self._next_request(0, 0)]
        outcome: SearchOutcome | None = None
        while stack:
            try:
                child = next(stack[-1]) if outcome is None else stack[-1].send(outcome)
            except StopIteration as stop:
                stack.pop()
                outcome = stop.value
            else:
                stack.append(child)
                outcome = None
        if outcome is not SearchOutcome.FOUND:
            return None
        chosen = [
            [self._chosen[claim, request] for request in range(len(requests))]
            for claim, requests in enumerate(self._requests)
        ]
        return Solution(self._taken, chosen)

    def _prepare(self, claim: ResourceClaim, classes: Mapping[str, DeviceClass], pools: Sequence[Pool]) -> None:
        requests = prepare(claim, classes, len(self._options))
        least = 0
        for alternatives in requests:
            for option in alternatives.options:
                self._options.append(option)
                if option.wants_all:
                    self._everything[option.index] = self._all_devices(option, pools)
                    self._needed[option.index] = len(self._everything[option.index])
                else:
                    self._needed[option.index] = option.spec.count
            least += min(self._needed[option.index] for option in alternatives.options)
        check_number(claim, least)
        self._requests.append(requests)
        self._constraints.append(constraints_of(claim))

    def _all_devices(self, request: PreparedRequest, pools: Sequence[Pool]) -> list[OfferedDevice]:
        """The devices that `All` means on this node, in use or not."""
        found: list[OfferedDevice] = []
        for pool in pools:
            if not pool.usable:
                why = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"claim {request.claim.key}, request {request.name}: asks for all devices, "
                    f"but resource pool {pool.id} is currently {why}"
                )
            found += [
                device
                for device in pool.devices
                if self._is_selectable(request, device) and self._shares_of(request, device) is not None
            ]
        return found

    def _next_request(self, claim: int, request: int) -> Step:
        if claim == len(self._requests):
            return SearchOutcome.FOUND
        if request == len(self._requests[claim]):
            outcome = yield self._next_request(claim + 1, 0)
            # more devices than fit into a later claim may fit after another choice of alternatives in this one
            return SearchOutcome.FAILED if outcome is SearchOutcome.TOO_MANY else outcome
        alternatives = self._requests[claim][request]
        summary = SearchOutcome.TOO_MANY
        for option in alternatives.options:
            outcome = yield self._take_devices(claim, request, option, 0, 0)
            if outcome is SearchOutcome.FOUND:
                self._chosen[claim, request] = option
                return outcome
            if outcome is SearchOutcome.FAILED:
                summary = SearchOutcome.FAILED
        return summary

    def _take_devices(self, claim: int, request: int, option: PreparedRequest, count: int, start: int) -> Step:
        """Take the option's devices from number `count` on, of the devices from `start` on, and then what follows."""
        needed = self._needed[option.index]
        if option.wants_all and not needed:
            return SearchOutcome.FAILED
        if count >= needed:
            return (yield self._next_request(claim, request + 1))
        if len(self._taken[claim]) + needed - count > MAX_RESULTS:
            return SearchOutcome.TOO_MANY
        if option.wants_all:
            device = self._everything[option.index][count]
            if not self._take(claim, option, device):
                return SearchOutcome.FAILED
            outcome = yield self._take_devices(claim, request, option, count + 1, 0)
            if outcome is not SearchOutcome.FOUND:
                self._give_back(claim)
            return outcome
        if not self._are_enough(claim, option, start, needed - count):
            return SearchOutcome.FAILED
        may_skip = self._may_skip(claim, request)
        failed: set[Hashable] = set()
        for position in range(start, len(self._devices)):
            self._count_steps(1)
            device = self._devices[position]
            untouched = self._is_untouched(device)
            if failed:
                if self._behaviour(position) not in failed:
                    if self._ordered:
                        failed.clear()
                elif untouched:
                    continue
            traces = self._counters.traces
            if not self._is_candidate(claim, option, device) or not self._take(claim, option, device):
                continue
            outcome = yield self._take_devices(claim, request, option, count + 1, position + 1)
            if outcome is SearchOutcome.FOUND:
                return outcome
            self._give_back(claim)
            if outcome is SearchOutcome.TOO_MANY:
                return outcome
            if may_skip and untouched and self._counters.traces == traces:
                failed.add(self._behaviour(position))
        return SearchOutcome.FAILED

    def _count_steps(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise OutOfSteps(self._node.name)

    # One device

    def _is_candidate(self, claim: int, request: PreparedRequest, device: OfferedDevice) -> bool:
        if request.admin:
            if claim in self._users.get(device.id, ()):
                return False
        elif self._is_in_use(device):
            return False
        return self._is_selectable(request, device) and self._shares_of(request, device) is not None

    def _is_in_use(self, device: OfferedDevice) -> bool:
        return self._state.in_use(device.id) or bool(self._users.get(device.id))

    def _is_selectable(self, request: PreparedRequest, device: OfferedDevice) -> bool:
        key = (request.index, device.id)
        known = self._selectable.get(key)
        if known is None:
            answer = matches(request, device, self._node, self._selectors)
            if isinstance(answer, str):
                raise AllocationError(answer)
            known = self._selectable[key] = answer
        return known

    def _shares_of(self, request: PreparedRequest, device: OfferedDevice) -> dict[str, Share] | None:
        """The device's capacity that the request takes; None if the device cannot serve it even when unused."""
        key = (request.index, device.capacity_key)
        if key not in self._shares:
            self._shares[key] = shares(device.capacity, request.asked)
        taken = self._shares[key]
        return taken if taken is not None and self._fits(device, taken) else None

    def _fits(self, device: OfferedDevice, taken: Mapping[str, Share]) -> bool:
        before = self._state.capacity(device.id) or {}
        now = self._capacity.get(device.id, {})
        return all(
            share.amount + before.get(name, 0) + now.get(name, 0) <= device.capacity[name].total
            for name, share in taken.items()
        )

    def _take(self, claim: int, request: PreparedRequest, device: OfferedDevice) -> bool:
        """Add the device to the partial solution, unless counters, taints or constraints refuse it."""
        self._count_steps(TAKING_STEPS)
        if request.admin:
            if not device.shareable and claim in self._users.get(device.id, ()):
                return False
        elif self._is_in_use(device):
            return False
        draws = bool(device.draws) and not (device.shareable and self._has_shares(device))
        if draws and not self._counters.draw(device):
            return False
        refused = not request.tolerates(device) or not self._add_to_constraints(claim, request, device)
        if draws and (refused or device.shareable):
            self._counters.leave(device)
        if refused:
            return False
        if not device.shareable:
            self._users.setdefault(device.id, set()).add(claim)
        taken = self._shares_of(request, device)
        if taken is None:
            return False
        consumed = taken if device.shareable else {}
        if device.shareable:
            capacity = self._capacity.setdefault(device.id, {})
            for name, share in consumed.items():
                capacity[name] = capacity.get(name, 0) + share.amount
        self._taken[claim].append(Taken(request, device, consumed))
        return True

    def _give_back(self, claim: int) -> None:
        """Undo the last `_take` of the claim."""
        taken = self._taken[claim].pop()
        device = taken.device
        for constraint in self._constraints[claim]:
            if constraint.applies(taken.request.base_name, taken.request.full_name):
                constraint.remove(taken.request.base_name)
        if not device.shareable:
            self._users[device.id].discard(claim)
            self._counters.give_back(device)
        elif taken.consumed and (capacity := self._capacity.get(device.id)) is not None:
            for name, share in taken.consumed.items():
                capacity[name] -= share.amount
            if not any(capacity.values()):
                del self._capacity[device.id]

    def _add_to_constraints(self, claim: int, request: PreparedRequest, device: OfferedDevice) -> bool:
        added: list[Constraint] = []
        for constraint in self._constraints[claim]:
            if not constraint.applies(request.base_name, request.full_name):
                continue
            value = value_of(device, constraint.attribute)
            if value is None or not constraint.add(request.base_name, value):
                if request.wants_all:
                    raise AllocationError(
                        f"claim {request.claim.key}, request {request.name}: cannot add device {device.id} "
                        "because a claim constraint would not be satisfied"
                    )
                for each in added:
                    each.remove(request.base_name)
                return False
            added.append(constraint)
        return True

    def _has_shares(self, device: OfferedDevice) -> bool:
        return self._state.capacity(device.id) is not None or device.id in self._capacity

    # Shortcuts

    def _all_constraints(self) -> list[Constraint]:
        return [constraint for constraints in self._constraints for constraint in constraints]

    def _order_matters(self) -> bool:
        """Whether equivalent devices can stand in for each other only if no other device is between them."""
        constraints = self._all_constraints()
        if any(isinstance(each, DistinctAttribute) for each in constraints):
            return True
        return any(
            device.draws and (device.shareable or device.blocking_taints or constraints) for device in self._devices
        )

    def _may_skip(self, claim: int, request: int) -> bool:
        """Whether no request after this one may end the search with an error of its own: `All` with a constraint."""
        return not any(
            option.wants_all and self._constrained[option.index]
            for place, requests in enumerate(self._requests[claim:], claim)
            for alternatives in requests[request + 1 if place == claim else 0 :]
            for option in alternatives.options
        )

    def _is_hopeless(self) -> bool:
        """Whether there is certainly no solution, and the plain search would end without an error.

        Traces do not matter here: they never make a solution.
        """
        if self._everything and self._all_constraints():
            return False
        usable: list[Usable] = []
        for device in self._devices:
            taken: dict[int, Mapping[str, Share]] = {}
            for option in self._options:
                answer = matches(option, device, self._node, self._selectors)
                if isinstance(answer, str):
                    return False
                free = option.admin or not self._state.in_use(device.id)
                consumed = self._shares_of(option, device) if answer and free and option.tolerates(device) else None
                if consumed is not None:
                    taken[option.index] = consumed
            if taken:
                used = self._state.capacity(device.id) or {}
                usable.append(Usable(device, taken, used, self._counters.unambiguous(device)))
        return is_hopeless(self._requests, self._constraints, self._needed, usable)

    def _may_satisfy(self, claim: int, request: PreparedRequest, device: OfferedDevice) -> bool:
        """Whether constraints allow the device now, or once other devices were taken for the request."""
        for constraint in self._constraints[claim]:
            if constraint.applies(request.base_name, request.full_name):
                value = value_of(device, constraint.attribute)
                if value is None or not constraint.may_add(request.base_name, value):
                    return False
        return True

    def _are_enough(self, claim: int, request: PreparedRequest, start: int, needed: int) -> bool:
        """Whether enough candidates are left, or looking at them may leave traces.

        If not, the plain search would look at all of them, so the first error among their selectors counts.
        """
        errors = []
        for position in range(start, len(self._devices)):
            self._count_steps(1)
            device = self._devices[position]
            try:
                is_candidate = self._is_candidate(claim, request, device)
            except AllocationError as error:
                errors.append(error)
                continue
            if is_candidate:
                tolerated = request.tolerates(device)
                if self._counters.may_leave(device, self._constrained[request.index] or not tolerated):
                    return True
                if tolerated and self._may_satisfy(claim, request, device) and not self._counters.is_spent(device):
                    needed -= 1
            if needed <= 0:
                return True
        if errors:
            raise errors[0]
        return False

    def _is_untouched(self, device: OfferedDevice) -> bool:
        """Whether the partial solution does not use the device."""
        return not self._users.get(device.id) and device.id not in self._capacity

    def _behaviour(self, position: int) -> Hashable:
        """What distinguishes the device in this search: equal for devices that can stand in for each other."""
        known = self._behaviours.get(position)
        if known is None:
            known = self._behaviours[position] = self._behaviour_of(position)
        return known

    def _behaviour_of(self, position: int) -> Hashable:
        device = self._devices[position]
        attributes = [constraint.attribute for constraint in self._all_constraints()]
        unused = behaviour(device, self._node, self._options, attributes, self._selectors)
        if unused is None:
            return position
        capacity = self._state.capacity(device.id)
        return (
            unused,
            self._state.in_use(device.id),
            None if capacity is None else tuple(sorted(capacity.items())),
            device.id.pool_id if device.draws else None,
        )
