"""Device claims, slices and classes, as far as pods that wait for them depend on them.

These fields are equal in all versions of the API (v1beta1, v1beta2, v1). Requests and devices differ, and no decision
reads them yet.
"""

from msgspec import field

from shared.model.base import ApiStruct, ClusterWide, Digest, Namespaced, ObjectMeta

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Followed by a class's name: the extended resource of that class."""


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The devices allocated to a claim; kept only to tell whether there are any, and whether they changed."""

    allocation: Digest = Digest()
    reserved_for: Digest = Digest()
    devices: Digest = Digest()


class ResourceClaim(Namespaced, frozen=True, kw_only=True):
    """A claim to devices."""

    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)

    @property
    def uid(self) -> str:
        """The uid, or the key if there is none."""
        return self.metadata.uid or self.key

    @property
    def owner_uid(self) -> str | None:
        """The uid of its controller; None without one."""
        return next((owner.uid for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation != ""


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    """`extended_resource_name`: a resource by which pods may request a device of the class without a claim."""

    extended_resource_name: str | None = None


class DeviceClass(ClusterWide, frozen=True, kw_only=True):
    """A class of devices."""

    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


class CountedMeta(ObjectMeta, frozen=True, kw_only=True):
    """`generation` rises with every change of the spec."""

    generation: int = 0


class ResourceSlice(ClusterWide, frozen=True, kw_only=True):
    """Devices that a driver offers; kept only to tell whether they changed."""

    metadata: CountedMeta = field(default_factory=CountedMeta)
