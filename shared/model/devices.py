"""Claims to devices and the classes of devices, as far as what waits for them looks at them.

They are not among the kinds that every worker holds: nothing decides by devices yet.
"""

from typing import Any, TypeVar

from msgspec import field

from shared.errors import InvalidObject
from shared.model.base import ApiStruct
from shared.model.codec import convert
from shared.model.node import UNNAMED
from shared.model.scope import ClusterWide, Namespaced

T = TypeVar("T", "ResourceClaim", "DeviceClass")

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: the extended resource that every class has."""


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Which devices a claim has got, and for whom; kept only to tell whether it has changed."""

    allocation: dict[str, Any] | None = None
    reserved_for: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)


class ResourceClaim(Namespaced, frozen=True, kw_only=True):
    """A claim to devices."""

    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)

    @property
    def uid(self) -> str:
        """The uid, the key if none was given."""
        return self.metadata.uid or self.key

    @property
    def owner_uid(self) -> str | None:
        """The uid of whatever controls it; None if nothing does."""
        return next((owner.uid for owner in self.metadata.owner_references if owner.controller), None)


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    """`extended_resource_name`: a resource that pods may ask for instead of claiming a device of the class."""

    extended_resource_name: str | None = None


class DeviceClass(ClusterWide, frozen=True, kw_only=True):
    """A class of devices."""

    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


def claim_from(obj: object) -> ResourceClaim:
    """The claim in plain data; raises InvalidObject."""
    return _named(convert("ResourceClaim", ResourceClaim, obj))


def device_class_from(obj: object) -> DeviceClass:
    """The class in plain data; raises InvalidObject."""
    return _named(convert("DeviceClass", DeviceClass, obj))


def _named(obj: T) -> T:
    if not obj.name:
        raise InvalidObject(type(obj).__name__, UNNAMED, "metadata.name", "must not be empty")
    return obj
