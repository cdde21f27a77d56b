"""Claims to devices, and slices and classes of devices, as far as what waits for them looks at them.

They read the same in every version of the API that has them (v1beta1, v1beta2, v1). What is shaped otherwise in some,
requests and the devices themselves, nothing decides by yet.
"""

from msgspec import field

from shared.model.base import ApiStruct, ClusterWide, Digest, Namespaced, ObjectMeta

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: the extended resource that every class has."""


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Which devices a claim has got, and for whom; kept only to tell whether it has any, and whether it has changed."""

    allocation: Digest = Digest()
    reserved_for: Digest = Digest()
    devices: Digest = Digest()


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

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation != ""


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    """`extended_resource_name`: a resource that pods may ask for instead of claiming a device of the class."""

    extended_resource_name: str | None = None


class DeviceClass(ClusterWide, frozen=True, kw_only=True):
    """A class of devices."""

    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


class CountedMeta(ObjectMeta, frozen=True, kw_only=True):
    """`generation` rises with every change of the spec."""

    generation: int = 0


class ResourceSlice(ClusterWide, frozen=True, kw_only=True):
    """Devices that a driver offers. Which ones is not read, only when they have changed."""

    metadata: CountedMeta = field(default_factory=CountedMeta)
