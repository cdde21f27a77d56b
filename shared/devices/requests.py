"""The requests of claims, prepared for a search: class found, devices of `All` listed."""

from collections.abc import Mapping, Sequence

import msgspec

from shared.devices.errors import AllocationError
from shared.devices.offers import OfferedDevice
from shared.model.devices import (
    ALL,
    EXACT_COUNT,
    MAX_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from shared.model.quantity import QuantityText


class PreparedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request, or one alternative of a request, whose name is `parent` then.

    `index` numbers the prepared requests of a search. `rank`: of an alternative in its list.
    """

    index: int
    claim: ResourceClaim
    name: str
    parent: str | None
    spec: ExactDeviceRequest | DeviceSubRequest
    device_class: DeviceClass
    admin: bool
    rank: int | None = None

    @property
    def base_name(self) -> str:
        return self.name if self.parent is None else self.parent

    @property
    def full_name(self) -> str:
        return self.name if self.parent is None else f"{self.parent}/{self.name}"

    @property
    def wants_all(self) -> bool:
        return self.spec.allocation_mode == ALL

    @property
    def asked(self) -> Mapping[str, QuantityText]:
        return self.spec.capacity.requests if self.spec.capacity is not None else {}

    def tolerates(self, device: OfferedDevice) -> bool:
        return all(any(tolerates(each, taint) for each in self.spec.tolerations) for taint in device.blocking_taints)


class Alternatives(msgspec.Struct, frozen=True, eq=False):
    """What satisfies one request of a claim: the request itself, or its subrequests in order."""

    request: DeviceRequest
    options: Sequence[PreparedRequest]

    @property
    def is_list(self) -> bool:
        return bool(self.request.first_available)


def prepare(claim: ResourceClaim, classes: Mapping[str, DeviceClass], first_index: int) -> list[Alternatives]:
    """The alternatives of the claim's requests; raises AllocationError."""
    prepared: list[Alternatives] = []
    index = first_index
    for request in claim.spec.devices.requests:
        options: list[PreparedRequest] = []
        for rank, (name, parent, spec) in enumerate(_specs(claim, request)):
            device_class = _class_of(claim, name, spec, classes)
            admin = isinstance(spec, ExactDeviceRequest) and spec.admin_access
            options.append(
                PreparedRequest(index, claim, name, parent, spec, device_class, admin, None if parent is None else rank)
            )
            index += 1
        prepared.append(Alternatives(request, options))
    return prepared


def check_number(claim: ResourceClaim, least: int) -> None:
    """Raise AllocationError if the claim asks for more devices than an allocation can hold."""
    if least > MAX_RESULTS:
        raise AllocationError(
            f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
        )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _specs(
    claim: ResourceClaim, request: DeviceRequest
) -> list[tuple[str, str | None, ExactDeviceRequest | DeviceSubRequest]]:
    if request.first_available:
        return [(each.name, request.name, each) for each in request.first_available]
    if request.exactly is not None:
        return [(request.name, None, request.exactly)]
    raise AllocationError(
        f"claim {claim.key}, request {request.name}: missing device class name (unsupported request type?)"
    )


def _class_of(
    claim: ResourceClaim,
    name: str,
    spec: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
) -> DeviceClass:
    where = f"claim {claim.key}, request {name}"
    for index, selector in enumerate(spec.selectors):
        if selector.cel is None:
            raise AllocationError(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
    if not spec.device_class_name:
        raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
    found = classes.get(spec.device_class_name)
    if found is None:
        raise AllocationError(
            f"{where}: could not retrieve device class {spec.device_class_name}: "
            f'deviceclass.resource.k8s.io "{spec.device_class_name}" not found'
        )
    if spec.allocation_mode not in (ALL, EXACT_COUNT):
        raise AllocationError(f"{where}: unsupported count mode {spec.allocation_mode}")
    return found
