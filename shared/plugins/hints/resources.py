"""When a pod that no node had room for is worth another attempt.

A node is looked at as if nobody were on it, and resources that the profile ignores are not ignored here.
"""

from flotilla.objects import ClusterObjects
from shared.model.devices import DEVICE_CLASS_PREFIX, DeviceClass
from shared.model.objects import Node, Pod
from shared.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    allocatable,
    filter_requests,
    placed_requests,
    pod_requests,
)
from shared.plugins.hints.anypod import holds_place

_BASIC = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})


def after_pod_event(pod: Pod, before: Pod, now: Pod | None, objects: ClusterObjects) -> bool:
    """A pod with a place is gone, or one on a node has less of what this one wants, or this one wants less."""
    if now is None:
        return holds_place(before)
    if now.uid == pod.uid:
        return True
    if not now.spec.node_name:
        return False
    had, has = placed_requests(before).requests, placed_requests(now).requests
    wanted = placed_requests(pod).requests
    return any(amount and had.get(name, 0) > has.get(name, 0) for name, amount in wanted.items())


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The empty node has room for the pod, and it is new or has more of something than before."""
    wanted = {name: amount for name, amount in filter_requests(pod).items() if amount}
    room = allocatable(now)
    if room.get(PODS, 0) < 1 or any(
        amount > room.get(name, 0) and not _is_left_to_devices(name, room, objects) for name, amount in wanted.items()
    ):
        return False
    if before is None:
        return True
    had = allocatable(before)
    return room.get(PODS, 0) > had.get(PODS, 0) or any(
        room.get(name, 0) > had.get(name, 0) or _is_left_to_devices(name, room, objects) for name in wanted
    )


def after_device_class(pod: Pod, before: DeviceClass | None, now: DeviceClass, objects: ClusterObjects) -> bool:
    """Devices of the class may be had as a resource that the pod asks for."""
    resource = now.spec.extended_resource_name
    names = [] if resource is None else [resource]
    if before is None:
        names.append(DEVICE_CLASS_PREFIX + now.name)
    elif (before.spec.extended_resource_name or "") == (resource or ""):
        return False
    requests = pod_requests(pod, use_status=False) if names else {}
    return any(name in requests for name in names)


def _is_left_to_devices(name: str, room: dict[str, int], objects: ClusterObjects) -> bool:
    """A node that has none of the resource may still have a device that is as good."""
    return name not in _BASIC and not room.get(name) and objects.devices.provides(name)
