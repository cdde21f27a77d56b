"""The claims to devices and the classes of devices that are known; none as long as nobody tells of them."""

from shared.model.devices import DEVICE_CLASS_PREFIX, DeviceClass, ResourceClaim


class Devices:
    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        """By `namespace/name`."""
        self.classes: dict[str, DeviceClass] = {}

    def provides(self, resource: str) -> bool:
        """Whether what a pod asks for as this extended resource may be a device of some class."""
        if not self.classes:
            return False
        if resource.startswith(DEVICE_CLASS_PREFIX):
            return resource.removeprefix(DEVICE_CLASS_PREFIX) in self.classes
        return any(each.spec.extended_resource_name == resource for each in self.classes.values())
