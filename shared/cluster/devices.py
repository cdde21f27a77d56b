"""The claims to devices and the classes of devices that are known; none where nobody tells of them."""

from collections.abc import Mapping

from shared.model.devices import DEVICE_CLASS_PREFIX, DeviceClass, ResourceClaim


class Devices:
    def __init__(self, claims: Mapping[str, ResourceClaim], classes: Mapping[str, DeviceClass]) -> None:
        """A view of claims by `namespace/name` and classes by name, as they change."""
        self.claims = claims
        self.classes = classes

    def provides(self, resource: str) -> bool:
        """Whether what a pod asks for as this extended resource may be a device of some class."""
        if not self.classes:
            return False
        if resource.startswith(DEVICE_CLASS_PREFIX):
            return resource.removeprefix(DEVICE_CLASS_PREFIX) in self.classes
        return any(each.spec.extended_resource_name == resource for each in self.classes.values())
