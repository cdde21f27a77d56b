"""Slices, classes and claims in a readable line each."""

from collections.abc import Sequence
from typing import Any

from shared.devices.pools import DeviceNode
from shared.model.base import ObjectMeta
from shared.model.codec import convert
from shared.model.devices import (
    AllocatedDevice,
    AllocationResult,
    DeviceAllocation,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from shared.model.quantity import QuantityText

NODE = DeviceNode("n", {})
ANY = DeviceClass(metadata=ObjectMeta(name="any"))
CLASSES = {"any": ANY}
DRIVER = "d"


def device(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def slice_of(devices: Sequence[dict[str, Any]], name: str = "s", **spec: Any) -> ResourceSlice:
    """A slice of the node's only pool, unless `spec` says otherwise."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    fields = {"driver": DRIVER, "pool": pool, "nodeName": NODE.name, "devices": list(devices), **spec}
    return convert(ResourceSlice, {"metadata": {"name": name}, "spec": fields})


def exactly(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "any", "count": count, **fields}}


def everything(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All", **fields}}


def first_of(name: str, *options: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"s{place}", "deviceClassName": "any", **option} for place, option in enumerate(options)]
    return {"name": name, "firstAvailable": named}


def claim(*requests: dict[str, Any], name: str = "c", **devices: Any) -> ResourceClaim:
    spec = {"devices": {"requests": list(requests), **devices}}
    return convert(ResourceClaim, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})


def allocation(*names: str, pool: str = "p", admin: bool = False) -> AllocationResult:
    """An allocation of these devices."""
    results = [
        AllocatedDevice(request="r", driver=DRIVER, pool=pool, device=name, admin_access=admin) for name in names
    ]
    return AllocationResult(devices=DeviceAllocation(results=results))


def share(name: str, amount: str | None = None) -> AllocationResult:
    """An allocation of a share of a device, with this much of its capacity `m`."""
    consumed = None if amount is None else {"m": QuantityText(amount)}
    result = AllocatedDevice(
        request="r", driver=DRIVER, pool="p", device=name, share_id="s", consumed_capacity=consumed
    )
    return AllocationResult(devices=DeviceAllocation(results=[result]))


def cel(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]
