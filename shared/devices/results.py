"""Allocations as they are written to claims, and the score of a node."""

import uuid
from collections.abc import Iterable, Mapping, Sequence

from shared.devices.capacity import shares
from shared.devices.errors import AllocationError
from shared.devices.offers import DeviceId, OfferedDevice, device_id
from shared.devices.pools import DeviceNode
from shared.devices.requests import PreparedRequest, prepare
from shared.devices.search import Solution, Taken
from shared.model.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from shared.model.devices import (
    FROM_CLAIM,
    FROM_CLASS,
    MAX_ALTERNATIVES,
    AllocatedConfiguration,
    AllocatedDevice,
    AllocationResult,
    DeviceAllocation,
    DeviceClass,
    ResourceClaim,
)

CANNOT_ALLOCATE = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"

_SHARES = uuid.UUID("5c1b7e0c-6f2e-4d0a-9a53-2f9d1f6f3c55")


def allocations(node: DeviceNode, claims: Sequence[ResourceClaim], found: Solution) -> list[AllocationResult]:
    return [
        AllocationResult(
            devices=DeviceAllocation(
                results=[_result(claim, index, each) for index, each in enumerate(taken)],
                config=_configuration(claim, chosen),
            ),
            node_selector=_node_selector(claim, taken, node.name),
        )
        for claim, taken, chosen in zip(claims, found.devices, found.chosen, strict=True)
    ]


def rebuilt(
    node: DeviceNode,
    claim: ResourceClaim,
    allocation: AllocationResult,
    classes: Mapping[str, DeviceClass],
    devices: Mapping[DeviceId, OfferedDevice],
) -> AllocationResult | str:
    """The allocation as a search writes it down for these devices, or how they differ from what the claim asks for.

    Selectors and constraints are not judged. Raises AllocationError.
    """
    by_request: dict[str, list[AllocatedDevice]] = {}
    for result in allocation.devices.results:
        by_request.setdefault(result.request, []).append(result)
    chosen: dict[str, PreparedRequest] = {}
    for alternatives in prepare(claim, classes, 0):
        options = [each for each in alternatives.options if not alternatives.is_list or each.full_name in by_request]
        if len(options) != 1:
            return f"request {alternatives.request.name} is served by {len(options)} alternatives"
        option, found = options[0], len(by_request.get(options[0].full_name, ()))
        if not option.wants_all and found != option.spec.count:
            return f"request {option.full_name} gets {found} devices instead of {option.spec.count}"
        chosen[option.full_name] = option
    foreign = next((name for name in by_request if name not in chosen), None)
    if foreign is not None:
        return f"there is no request {foreign}"
    taken: list[Taken] = []
    for result in allocation.devices.results:
        device, request = devices[device_id(result)], chosen[result.request]
        if not request.tolerates(device):
            return f"request {result.request} does not tolerate the taints of device {device.id}"
        consumed = shares(device.capacity, request.asked)
        if consumed is None:
            return f"device {device.id} has no capacity that request {result.request} asks for"
        taken.append(Taken(request, device, consumed if device.shareable else {}))
    return allocations(node, [claim], Solution([taken], [list(chosen.values())]))[0]


def score(claims: Sequence[ResourceClaim], allocations: Iterable[AllocationResult]) -> int:
    """How early the chosen alternatives are in their lists, summed over all claims.

    `allocations` are those of the claims without one, in order.
    """
    new = iter(allocations)
    total = 0
    for claim in claims:
        allocation = claim.status.allocation if claim.status.allocation is not None else next(new)
        chosen = {result.request for result in allocation.devices.results}
        for request in claim.spec.devices.requests:
            for rank, option in enumerate(request.first_available):
                if f"{request.name}/{option.name}" in chosen:
                    total += MAX_ALTERNATIVES - rank
    return total


def score_of(found: Solution) -> int:
    """The same for a solution."""
    total = 0
    for chosen in found.chosen:
        for request in chosen:
            if request.rank is not None:
                total += MAX_ALTERNATIVES - request.rank
    return total


def share_id(claim_uid: str, index: int) -> str:
    """The id of a share, from the claim and the index among its results, so that a decision can be repeated."""
    return str(uuid.uuid5(_SHARES, f"{claim_uid}/{index}"))


def _result(claim: ResourceClaim, index: int, taken: Taken) -> AllocatedDevice:
    device = taken.device
    return AllocatedDevice(
        request=taken.request.full_name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=taken.request.admin,
        tolerations=taken.request.spec.tolerations,
        binding_conditions=device.device.binding_conditions,
        binding_failure_conditions=device.device.binding_failure_conditions,
        share_id=share_id(claim.uid, index) if device.shareable else None,
        consumed_capacity={name: share.text for name, share in taken.consumed.items()} or None,
    )


def _configuration(claim: ResourceClaim, chosen: Sequence[PreparedRequest]) -> list[AllocatedConfiguration]:
    """The configuration of each class once, with all its requests; that of the claim once per matching request."""
    requests_of: dict[str, list[str]] = {}
    for request in chosen:
        requests_of.setdefault(request.device_class.name, []).append(request.full_name)
    classes = {request.device_class.name: request.device_class for request in chosen}
    configuration = [
        AllocatedConfiguration(source=FROM_CLASS, requests=requests, opaque=each.opaque)
        for name, requests in requests_of.items()
        for each in classes[name].spec.config
    ]
    for config in claim.spec.devices.config:
        wanted = set(config.requests)
        matching = sum(not wanted.isdisjoint((request.base_name, request.full_name)) for request in chosen)
        entry = AllocatedConfiguration(source=FROM_CLAIM, requests=config.requests, opaque=config.opaque)
        configuration += [entry] * (matching if wanted else 1)
    return configuration


def _node_selector(claim: ResourceClaim, taken: Sequence[Taken], node: str) -> NodeSelector | None:
    """The nodes that can use all devices: this one if any device is bound to it, else what all selectors ask for."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for each in taken:
        device = each.device
        if device.node_name is not None or device.device.binds_to_node:
            this_node = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[this_node])])
        terms = device.node_selector.node_selector_terms if device.node_selector is not None else []
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim.name}: "
                f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    merged = NodeSelectorTerm(match_fields=fields, match_expressions=expressions)
    return NodeSelector(node_selector_terms=[merged])


def _add_new(requirements: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    known = {(each.key, each.operator, frozenset(each.values)) for each in requirements}
    for each in more:
        key = (each.key, each.operator, frozenset(each.values))
        if key not in known:
            known.add(key)
            requirements.append(each)
