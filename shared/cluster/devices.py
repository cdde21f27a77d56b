"""Devices: the cluster's claims, slices and classes; and what decisions mean for claims before they are carried out.

A claim that a decided pod is given devices for counts as allocated and promised: other pods that name it wait until the
allocation is written. The claim for a pod's extended resources, which the binder creates, counts as if it existed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shared.devices.allocator import Allocator
from shared.devices.extended import SPECIAL_CLAIM, ClassesByResource, RequestMapping
from shared.devices.offers import OfferedDevice, PoolId
from shared.devices.results import share_id
from shared.devices.state import DeviceState
from shared.errors import InvariantBroken
from shared.model.base import ObjectMeta, OwnerReference
from shared.model.clusterobjects import ClusterObject
from shared.model.devices import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceAllocation,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceSlice,
)
from shared.model.kinds import ObjectKind

Touch = Callable[[Iterable[str] | None], None]
"""Gets the nodes whose devices, or the use of these, have changed; None for all nodes."""


class Devices:
    """A live view of claims by `namespace/name`, and of slices and classes by name.

    `time`: the Unix time by the snapshot's last heartbeat, 0 before.
    """

    def __init__(
        self,
        claims: Mapping[str, ResourceClaim],
        slices: Mapping[str, ResourceSlice],
        classes: Mapping[str, DeviceClass],
    ) -> None:
        self.claims = claims
        self.slices = slices
        self.classes = classes
        self.time = 0.0
        self.touch: Touch = _ignore
        self._allocator: Allocator | None = None
        self._by_resource: ClassesByResource | None = None
        self._special: dict[str, dict[str, ResourceClaim]] = {}

    @property
    def allocator(self) -> Allocator:
        """Made at the first use, and kept current from then on."""
        if self._allocator is None:
            allocator = self._allocator = Allocator(_evaluate)
            for each in self.slices.values():
                allocator.put_slice(each)
            for device_class in self.classes.values():
                allocator.put_class(device_class)
            for claim in self.claims.values():
                if claim.status.allocation is not None:
                    allocator.add(claim.status.allocation)
        return self._allocator

    def provides(self, resource: str) -> bool:
        """Whether a pod that requests this extended resource may get a device of some class."""
        if self._by_resource is None:
            self._by_resource = ClassesByResource(self.classes.values())
        return self._by_resource.get(resource) is not None

    def special_claims_of(self, uid: str) -> Collection[ResourceClaim]:
        """The claims that were made for the extended resources of the pod of this uid."""
        return self._special.get(uid, {}).values()

    def forget_node(self, name: str) -> None:
        if self._allocator is not None:
            self._allocator.forget_node(name)

    def validate(self) -> None:
        """Raises if what is in use is not what claims are allocated."""
        if self._allocator is None:
            return
        found = (claim.status.allocation for claim in self.claims.values())
        if not self._allocator.state.equals(DeviceState(each for each in found if each is not None)):
            raise InvariantBroken("devices in use do not agree with the claims")

    def change(self, before: ClusterObject | None, now: ClusterObject | None) -> None:
        """An object of a device kind was added, replaced or removed."""
        for claim, is_there in ((before, False), (now, True)):
            if isinstance(claim, ResourceClaim) and claim.is_special and claim.owner_uid:
                self._note_special(claim, claim.owner_uid, is_there=is_there)
        if isinstance(before or now, DeviceClass):
            self._by_resource = None
        allocator = self._allocator
        if allocator is None:
            return
        match before or now:
            case ResourceClaim():
                self._change_claim(allocator, before, now)
            case ResourceSlice(metadata=ObjectMeta(name=name)):
                pools = {_pool_of(each) for each in (before, now) if isinstance(each, ResourceSlice)}
                concerned = allocator.nodes_of(pools)
                if isinstance(now, ResourceSlice):
                    allocator.put_slice(now)
                else:
                    allocator.remove_slice(name)
                self._touch(concerned, allocator.nodes_of(pools))
            case DeviceClass(metadata=ObjectMeta(name=name)):
                if isinstance(now, DeviceClass):
                    allocator.put_class(now)
                else:
                    allocator.remove_class(name)

    def _note_special(self, claim: ResourceClaim, owner: str, *, is_there: bool) -> None:
        claims = self._special.setdefault(owner, {})
        if is_there:
            claims[claim.key] = claim
        else:
            del claims[claim.key]
        if not claims:
            del self._special[owner]

    def _change_claim(self, allocator: Allocator, before: ClusterObject | None, now: ClusterObject | None) -> None:
        was, is_ = _allocation_of(before), _allocation_of(now)
        if was == is_:
            return
        if was is not None:
            allocator.remove(was)
        if is_ is not None:
            allocator.add(is_)
        taken = [each for allocation in (was, is_) if allocation is not None for each in allocation.devices.results]
        self._touch(allocator.nodes_of({PoolId(each.driver, each.pool) for each in taken}))

    def _touch(self, *concerned: frozenset[str] | None) -> None:
        nodes: set[str] = set()
        for each in concerned:
            if each is None:
                self.touch(None)
                return
            nodes |= each
        if nodes:
            self.touch(sorted(nodes))


def _ignore(nodes: Iterable[str] | None) -> None:
    """No table is behind the objects."""


def _evaluate(expression: str, device: OfferedDevice) -> bool | str:
    from shared.devices.cel_selectors import evaluate  # imported at the first use, because it takes a while

    return evaluate(expression, device)


def _pool_of(resource_slice: ResourceSlice) -> PoolId:
    return PoolId(resource_slice.spec.driver, resource_slice.spec.pool.name)


def pools_in(obj: ClusterObject) -> list[PoolId]:
    """The pools that a slice publishes or a claim has devices of."""
    if isinstance(obj, ResourceSlice):
        return [_pool_of(obj)]
    allocation = _allocation_of(obj)
    return [] if allocation is None else [PoolId(each.driver, each.pool) for each in allocation.devices.results]


def _allocation_of(obj: ClusterObject | None) -> AllocationResult | None:
    return obj.status.allocation if isinstance(obj, ResourceClaim) else None


# Decisions


class SpecialClaim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The claim to create for a pod's extended resources. `name`: set by the snapshot when it commits the decision."""

    requests: list[DeviceRequest]
    mappings: list[RequestMapping]
    allocation: AllocationResult
    name: str = ""


class PlacedDevices(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one placement of a class means for a pod's claims, which are in the order of the pod's specification.

    `allocations`: None for a claim that is allocated already.
    """

    allocations: list[AllocationResult | None] = []
    special: SpecialClaim | None = None


class ClaimAllocation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A claim of a pod, by `namespace/name`, to reserve for it.

    `allocation`: to write if the claim is not allocated yet; None if the watch shows it as allocated. `version`: the
    only one of the claim at which it may be allocated. `devices`: those of a claim that is allocated already; with
    others it may not reach the node. The snapshot sets both when it commits the decision.
    """

    key: str
    uid: str
    allocation: AllocationResult | None = None
    version: str = ""
    devices: list[str] = []


class DeviceDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What happens to the claims of a pod."""

    claims: list[ClaimAllocation] = []
    special: SpecialClaim | None = None


def decision_of(placed: PlacedDevices, claims: Sequence[tuple[str, str]], pod_uid: str) -> DeviceDecision:
    """A placement of a class as the decision for one of its pods. `claims`: key and uid of each claim of the pod."""
    special = placed.special
    if special is not None:
        allocation = _for_claim(special.allocation, f"{pod_uid}/{SPECIAL_CLAIM}")
        special = msgspec.structs.replace(special, allocation=allocation)
    return DeviceDecision(
        [
            ClaimAllocation(key, uid, None if allocation is None else _for_claim(allocation, uid))
            for (key, uid), allocation in zip(claims, placed.allocations, strict=True)
        ],
        special,
    )


def _for_claim(allocation: AllocationResult, uid: str) -> AllocationResult:
    """The allocation with the claim's own ids of shares."""
    results = allocation.devices.results
    if all(each.share_id is None for each in results):
        return allocation
    own = [
        each if each.share_id is None else msgspec.structs.replace(each, share_id=share_id(uid, index))
        for index, each in enumerate(results)
    ]
    return msgspec.structs.replace(allocation, devices=DeviceAllocation(results=own, config=allocation.devices.config))


@dataclass(frozen=True, slots=True)
class Allocated:
    """A claim is given devices."""

    uid: str
    allocation: AllocationResult

    def over(self, obj: ClusterObject) -> ClusterObject:
        """The claim as it will be; the same object if it is allocated, or another claim of this name."""
        if not isinstance(obj, ResourceClaim) or obj.uid != self.uid or obj.is_allocated:
            return obj
        status = msgspec.structs.replace(obj.status, allocation=self.allocation)
        return msgspec.structs.replace(obj, status=status, promised=True)


@dataclass(frozen=True, slots=True)
class Created:
    """A claim will be created for a pod's extended resources."""

    claim: ResourceClaim

    def over(self, obj: ClusterObject) -> ClusterObject:
        """With the allocation, until the claim shows one."""
        if not isinstance(obj, ResourceClaim) or obj.is_allocated or obj.owner_uid != self.claim.owner_uid:
            return obj
        return msgspec.structs.replace(obj, status=self.claim.status, promised=True)


Slot = tuple[ObjectKind, str]


def changes_of_claims(
    namespace: str, pod_name: str, pod_uid: str, devices: DeviceDecision
) -> Iterator[tuple[Slot, Allocated | Created]]:
    """The changes to claims if a pod gets these devices. Of a claim named twice, the first allocation counts."""
    seen: set[str] = set()
    for each in devices.claims:
        if each.allocation is not None and each.key not in seen:
            seen.add(each.key)
            yield (ObjectKind.RESOURCE_CLAIM, each.key), Allocated(each.uid, each.allocation)
    special = devices.special
    if special is not None:
        owner = OwnerReference(api_version="v1", kind="Pod", name=pod_name, uid=pod_uid, controller=True)
        metadata = ObjectMeta(
            name=special.name or f"{SPECIAL_CLAIM}/{pod_uid}",
            namespace=namespace,
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=[owner],
        )
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=special.requests))
        status = ResourceClaimStatus(allocation=special.allocation)
        claim = ResourceClaim(metadata=metadata, spec=spec, status=status, promised=True)
        yield (ObjectKind.RESOURCE_CLAIM, claim.key), Created(claim)
