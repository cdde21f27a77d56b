"""Devices as slices offer them, prepared so that a search compares ready values."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from shared.devices.capacity import OfferedCapacity, prepare_capacity
from shared.model.affinity import NodeSelector
from shared.model.codec import encode_msgpack
from shared.model.devices import AllocatedDevice, Counter, Device, DeviceTaint, ResourceSlice

BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
Amounts = Mapping[str, int]
"""By name, in billionths."""


class PoolId(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class CounterDraw(NamedTuple):
    """What a device takes from the counters of a set."""

    counter_set: str
    amounts: Amounts


class OfferedDevice(msgspec.Struct, frozen=True, eq=False):
    """A device of a slice.

    `content` is equal for devices that no selector can tell apart; `node_name` and `node_selector` are those of the
    device in a slice with per-device selection, else those of the slice.
    """

    id: DeviceId
    device: Device
    content: bytes
    shareable: bool
    blocking_taints: tuple[DeviceTaint, ...]
    draws: tuple[CounterDraw, ...]
    capacity: dict[str, OfferedCapacity]
    capacity_key: bytes
    per_device_selection: bool
    node_name: str | None
    node_selector: NodeSelector | None
    all_nodes: bool


class OfferedSlice(msgspec.Struct, frozen=True, eq=False):
    """A slice with its devices prepared."""

    name: str
    pool: PoolId
    slice: ResourceSlice
    devices: tuple[OfferedDevice, ...]


def offer(resource_slice: ResourceSlice) -> OfferedSlice:
    spec = resource_slice.spec
    pool = PoolId(spec.driver, spec.pool.name)
    devices = tuple(_offer_device(pool, resource_slice, device) for device in spec.devices)
    return OfferedSlice(resource_slice.name, pool, resource_slice, devices)


def without_sharing(device: OfferedDevice) -> OfferedDevice:
    """The device as a selector sees it that is not told whether it can be shared."""
    if not device.shareable:
        return device
    plain = msgspec.structs.replace(device.device, allow_multiple_allocations=False)
    content = _content(device.id.driver, plain)
    return msgspec.structs.replace(device, device=plain, shareable=False, content=content)


def device_id(of: AllocatedDevice) -> DeviceId:
    return DeviceId(of.driver, of.pool, of.device)


def amounts_of(counters: Mapping[str, Counter]) -> dict[str, int]:
    return {name: int(counter.value.amount) for name, counter in counters.items()}


def _offer_device(pool: PoolId, resource_slice: ResourceSlice, device: Device) -> OfferedDevice:
    spec = resource_slice.spec
    per_device = spec.per_device_node_selection
    return OfferedDevice(
        id=DeviceId(pool.driver, pool.pool, device.name),
        device=device,
        content=_content(pool.driver, device),
        shareable=device.allow_multiple_allocations,
        blocking_taints=tuple(taint for taint in device.taints if taint.effect in BLOCKING_EFFECTS),
        draws=tuple(CounterDraw(each.counter_set, amounts_of(each.counters)) for each in device.consumes_counters),
        capacity={name: prepare_capacity(capacity) for name, capacity in device.capacity.items()},
        capacity_key=encode_msgpack(sorted(device.capacity.items())),
        per_device_selection=per_device,
        node_name=device.node_name if per_device else spec.node_name,
        node_selector=device.node_selector if per_device else spec.node_selector,
        all_nodes=device.all_nodes if per_device else spec.all_nodes,
    )


def _content(driver: str, device: Device) -> bytes:
    attributes, capacity = sorted(device.attributes.items()), sorted(device.capacity.items())
    return encode_msgpack((driver, device.allow_multiple_allocations, attributes, capacity))
