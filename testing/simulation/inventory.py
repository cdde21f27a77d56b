"""The devices of the simulated cluster, and whether allocations take more of them than there is."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from shared.model.devices import AllocatedDevice, DeviceClass, ResourceClaim, ResourceSlice
from shared.model.objects import ObjectKind, object_from
from shared.model.quantity import QuantityText
from testing.simulation.drawing import NODES

GPU, PART, LINK, NET = (f"{name}.example.com" for name in ("gpu", "part", "link", "net"))
RESOURCE = "example.com/gpu"
"""The extended resource that class `gpu` provides."""
ATTACHED, BROKEN = "attached", "broken"
"""Binding condition and binding failure condition of the devices of SLOW_NODE."""
SLOW_NODE = "n2"
BANDWIDTH = "4Gi"
"""Of the device that claims share."""
MEMORY = 4
"""The counter of each pool of partitions."""
ZONE = "zone"
Plain = dict[str, Any]
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


def exactly(name: str, driver: str, **more: Any) -> Plain:
    return {"name": name, "exactly": _of_class(driver) | more}


def _of_class(driver: str) -> Plain:
    return {"deviceClassName": driver.partition(".")[0]}


def _size(size: int) -> list[Plain]:
    return [{"cel": {"expression": f'device.attributes["{PART}"].size == {size}'}}]


REQUESTS: dict[str, list[Plain]] = {
    "one": [exactly("gpu", GPU)],
    "pair": [exactly("gpu", GPU, count=2)],
    "half": [exactly("part", PART, selectors=_size(2))],
    "whole": [exactly("part", PART, selectors=_size(4))],
    "thin": [exactly("link", LINK, capacity={"requests": {"bandwidth": "1Gi"}})],
    "thick": [exactly("link", LINK, capacity={"requests": {"bandwidth": "3Gi"}})],
    "net": [exactly("net", NET)],
    "both": [exactly("gpu", GPU), exactly("net", NET)],
    "either": [
        {
            "name": "any",
            "firstAvailable": [
                {"name": "part", "selectors": _size(1), **_of_class(PART)},
                {"name": "gpu", **_of_class(GPU)},
            ],
        }
    ],
}
"""What claims ask for, by the name of their template."""


def classes() -> list[DeviceClass]:
    found = []
    for driver in (GPU, PART, LINK, NET):
        spec: Plain = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
        if driver == GPU:
            spec["extendedResourceName"] = RESOURCE
        metadata = {"name": driver.partition(".")[0]}
        found.append(object_from(ObjectKind.DEVICE_CLASS, {"metadata": metadata, "spec": spec}))
    return [each for each in found if isinstance(each, DeviceClass)]


class Inventory:
    """All devices that there may be. Their pools may lack some for a while."""

    def __init__(self) -> None:
        self.devices: dict[tuple[str, str], list[Plain]] = {}
        """By driver and pool."""
        for name in NODES[:3]:
            self.devices[GPU, name] = [_gpu(number, slow=name == SLOW_NODE) for number in range(2)]
        for name in NODES[3:5]:
            self.devices[PART, name] = [
                _part(f"part-{size}-{number}", size) for size in (4, 2, 1) for number in range(4 // size)
            ]
        bandwidth = {"value": BANDWIDTH, "requestPolicy": {"default": "1Gi"}}
        link = {"name": "link", "allowMultipleAllocations": True, "capacity": {"bandwidth": bandwidth}}
        self.devices[LINK, NODES[5]] = [link]
        self.devices[NET, "net"] = [{"name": f"net-{number}"} for number in range(3)]

    def slices(
        self, driver: str, pool: str, generation: int, *, without: str = "", tainted: bool = False
    ) -> list[ResourceSlice]:
        """The slices of a pool; `without`: the name of a missing device. Counters have a slice of their own."""
        devices = [each for each in self.devices[driver, pool] if each["name"] != without]
        if tainted:
            taint = {"key": "maintenance", "effect": "NoSchedule"}
            devices = [each | {"taints": [taint]} for each in devices]
        parts: list[Plain] = [{"devices": devices}]
        if driver == PART:
            parts.append({"sharedCounters": [{"name": "card", "counters": {"memory": {"value": str(MEMORY)}}}]})
        spec: Plain = {"driver": driver}
        spec["pool"] = {"name": pool, "generation": generation, "resourceSliceCount": len(parts)}
        if driver == NET:
            expression = {"key": ZONE, "operator": "In", "values": ["z0", "z1"]}
            spec["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        else:
            spec["nodeName"] = pool
        named = ({"metadata": {"name": f"{pool}-{number}"}, "spec": spec | part} for number, part in enumerate(parts))
        found = [object_from(ObjectKind.RESOURCE_SLICE, each) for each in named]
        return [each for each in found if isinstance(each, ResourceSlice)]

    def wrong(self, claims: Iterable[ResourceClaim]) -> list[str]:
        """Devices that several claims have, capacity and counters that are exceeded, devices that never were."""
        known = {(*pool, each["name"]): each for pool, devices in self.devices.items() for each in devices}
        holders: dict[DeviceId, list[str]] = defaultdict(list)
        bandwidth: Counter[DeviceId] = Counter()
        memory: Counter[str] = Counter()
        for claim in claims:
            for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
                device = result.driver, result.pool, result.device
                holders[device].append(claim.name)
                bandwidth[device] += _bandwidth(result)
        found = [f"device {'/'.join(device)} never was" for device in holders.keys() - known.keys()]
        for device in sorted(holders.keys() & known.keys()):
            named, users = "/".join(device), ", ".join(holders[device])
            if "capacity" not in known[device] and len(holders[device]) > 1:
                found.append(f"device {named} is allocated to several claims: {users}")
            if bandwidth[device] > QuantityText(BANDWIDTH).amount:
                found.append(f"device {named} has less bandwidth than is allocated to {users}")
            for draw in known[device].get("consumesCounters", ()):
                memory[device[1]] += int(draw["counters"]["memory"]["value"])
        found += [f"pool {pool} has less memory than {taken}" for pool, taken in memory.items() if taken > MEMORY]
        return sorted(found)


def _bandwidth(result: AllocatedDevice) -> int:
    consumed = result.consumed_capacity or {}
    return consumed["bandwidth"].amount if "bandwidth" in consumed else 0


def _gpu(number: int, *, slow: bool) -> Plain:
    conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [BROKEN]}
    return {"name": f"gpu-{number}"} | (conditions if slow else {})


def _part(name: str, size: int) -> Plain:
    draw = {"counterSet": "card", "counters": {"memory": {"value": str(size)}}}
    return {"name": name, "attributes": {"size": {"int": size}}, "consumesCounters": [draw]}
