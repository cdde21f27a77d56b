"""Claims and slices of `resource.k8s.io/v1beta1` (Kubernetes v1.32) in the form of v1.

Classes have one form in all versions, and v1beta2 has the form of v1.
"""

from collections.abc import Mapping
from typing import Any

Plain = Mapping[str, Any]


def claim_from_v1beta1(claim: Plain) -> dict[str, Any]:
    """Requests say below `exactly` what they ask for, unless they have alternatives."""
    spec = claim.get("spec") or {}
    devices = spec.get("devices") or {}
    requests = [_request(each) for each in devices.get("requests") or []]
    return {**claim, "spec": {**spec, "devices": {**devices, "requests": requests}}}


def slice_from_v1beta1(resource_slice: Plain) -> dict[str, Any]:
    """Devices have their fields themselves, not below `basic`."""
    spec = resource_slice.get("spec") or {}
    devices = [_device(each) for each in spec.get("devices") or []]
    return {**resource_slice, "spec": {**spec, "devices": devices}}


def _request(request: Plain) -> dict[str, Any]:
    if request.get("firstAvailable") or "exactly" in request:
        return dict(request)
    return {"name": request.get("name", ""), "exactly": {key: request[key] for key in request if key != "name"}}


def _device(device: Plain) -> dict[str, Any]:
    rest = {key: value for key, value in device.items() if key != "basic"}
    return {**rest, **(device.get("basic") or {})}
