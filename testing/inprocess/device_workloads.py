"""Devices of the benchmarks' nodes, and claims of their pods: one claim a pod, as if made from a template."""

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

DRIVER = "gpu.example.com"
DEVICES_OF_NODE = 8
RESOURCE = "example.com/gpu"
_THREE_TERMS = (
    f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "large" '
    f'&& device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
)
_LARGE = f'device.attributes["{DRIVER}"].model == "large"'
_SMALL = f'device.attributes["{DRIVER}"].model == "small"'


def devices_per_node(kind: str) -> int:
    """That a pod may get: selectors want large ones."""
    return DEVICES_OF_NODE - 2 if kind == "selectors" else DEVICES_OF_NODE


def device_objects(kind: str, nodes: list[str]) -> Iterator[tuple[str, Object]]:
    """Class and slices, as (kind, object): eight devices a node, of which two are small."""
    spec: Object = {"selectors": [_cel(f'device.driver == "{DRIVER}"')]}
    if kind == "extended":
        spec["extendedResourceName"] = RESOURCE
    yield "deviceclass", {"metadata": {"name": "gpu"}, "spec": spec}
    for name in nodes:
        yield from _slices(kind, name)


def template_of(kind: str, namespace: str) -> Object:
    """From which a controller makes the claims."""
    spec = {"spec": {"devices": {"requests": [_request(kind)]}}}
    return {"metadata": {"name": "gpu", "namespace": namespace}, "spec": spec}


def claim_of(kind: str, namespace: str, pod: str, pod_uid: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid, "controller": True}
    metadata = {"name": f"{pod}-gpu", "namespace": namespace, "uid": f"{pod_uid}-claim", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"devices": {"requests": [_request(kind)]}}}


def claiming(kind: str, pod: Object) -> Object:
    """The pod, which wants one device."""
    spec = pod["spec"]
    if kind == "extended":
        spec["containers"][0]["resources"]["requests"][RESOURCE] = "1"
        return pod
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    made = {"name": "gpu", "resourceClaimName": f"{pod['metadata']['name']}-gpu"}
    pod["status"] = {"resourceClaimStatuses": [made]}
    return pod


def _request(kind: str) -> Object:
    if kind == "first-available":
        alternatives = [("large", _LARGE), ("small", _SMALL)]
        listed = [{"name": name, "deviceClassName": "gpu", "selectors": [_cel(text)]} for name, text in alternatives]
        return {"name": "gpu", "firstAvailable": listed}
    exactly: Object = {"deviceClassName": "gpu"}
    if kind == "selectors":
        exactly["selectors"] = [_cel(_THREE_TERMS)]
    return {"name": "gpu", "exactly": exactly}


def _cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def _slices(kind: str, node: str) -> Iterator[tuple[str, Object]]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2 if kind == "partitions" else 1}
    devices = [_device(kind, number) for number in range(DEVICES_OF_NODE)]
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node}
    yield "resourceslice", {"metadata": {"name": f"{node}-gpus"}, "spec": spec | {"devices": devices}}
    if kind == "partitions":
        counters = [{"name": f"card-{card}", "counters": {"memory": {"value": "80Gi"}}} for card in range(2)]
        yield "resourceslice", {"metadata": {"name": f"{node}-counters"}, "spec": spec | {"sharedCounters": counters}}


def _device(kind: str, number: int) -> Object:
    model, memory = ("small", "20Gi") if number % 4 == 3 else ("large", "80Gi")
    device: Object = {
        "name": f"gpu-{number}",
        "attributes": {"model": {"string": model}, "serial": {"string": f"s-{number}"}},
        "capacity": {"memory": {"value": memory}},
    }
    if kind == "partitions":  # four partitions of each of two cards
        device["consumesCounters"] = [{"counterSet": f"card-{number // 4}", "counters": {"memory": {"value": "20Gi"}}}]
    return device
