"""Constraints between the devices of a claim.

A constraint hears of every device that is taken and given back. Both kinds refuse a device without the attribute.
"""

from abc import ABC, abstractmethod

from shared.devices.errors import AllocationError
from shared.devices.offers import OfferedDevice
from shared.model.devices import DeviceConstraint, ResourceClaim

AttributeValue = tuple[str, object]


def value_of(device: OfferedDevice, name: str) -> AttributeValue | None:
    """The value of the attribute with this qualified name; a name without domain belongs to the domain of the driver.

    None if the device has no such attribute, or one of unknown type.
    """
    attributes = device.device.attributes
    found = attributes.get(name)
    if found is None:
        domain, slash, short = name.partition("/")
        if slash and domain == device.id.driver:
            found = attributes.get(short)
    return None if found is None else found.value


class Constraint(ABC):
    """`applies` tells whether the constraint is about a request, given its own name and that of its parent."""

    def __init__(self, requests: list[str], attribute: str) -> None:
        self._requests = frozenset(requests)
        self.attribute = attribute

    def applies(self, base_name: str, full_name: str) -> bool:
        return not self._requests or base_name in self._requests or full_name in self._requests

    @abstractmethod
    def add(self, request: str, value: AttributeValue) -> bool:
        """Take a device with this value for the request with this base name, unless that breaks the constraint."""

    @abstractmethod
    def may_add(self, request: str, value: AttributeValue) -> bool:
        """Whether `add` may succeed, now or after other devices were taken for the request."""

    @abstractmethod
    def remove(self, request: str) -> None:
        """Undo the last `add` for the request."""


class MatchAttribute(Constraint):
    """All devices have the same value."""

    def __init__(self, requests: list[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: AttributeValue | None = None
        self._count = 0

    def add(self, request: str, value: AttributeValue) -> bool:
        if self._count == 0:
            self._value = value
        elif value != self._value:
            return False
        self._count += 1
        return True

    def may_add(self, request: str, value: AttributeValue) -> bool:
        return self._count == 0 or value == self._value

    def remove(self, request: str) -> None:
        self._count -= 1


class DistinctAttribute(Constraint):
    """Devices have different values, as far as kube-scheduler remembers them.

    It remembers one value a request, that of the last device: the values a, b, a pass. Giving any device of the request
    back makes it forget that value.
    """

    def __init__(self, requests: list[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, AttributeValue] = {}

    def add(self, request: str, value: AttributeValue) -> bool:
        if value in self._values.values():
            return False
        self._values[request] = value
        return True

    def may_add(self, request: str, value: AttributeValue) -> bool:
        return all(value != other for by, other in self._values.items() if by != request)

    def remove(self, request: str) -> None:
        self._values.pop(request, None)


def constraints_of(claim: ResourceClaim) -> list[Constraint]:
    return [_constraint(claim, index, each) for index, each in enumerate(claim.spec.devices.constraints)]


def _constraint(claim: ResourceClaim, index: int, constraint: DeviceConstraint) -> Constraint:
    if constraint.match_attribute is not None:
        return MatchAttribute(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return DistinctAttribute(constraint.requests, constraint.distinct_attribute)
    raise AllocationError(f"claim {claim.key}, constraint #{index}: empty constraint (unsupported constraint type?)")
