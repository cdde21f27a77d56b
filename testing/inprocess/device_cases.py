"""Allocations of devices in the form of the golden cases."""

from collections import Counter
from typing import Any

import msgspec

from shared.cluster.devices import DeviceDecision, SpecialClaim
from shared.model.codec import encode_json
from shared.model.devices import AllocationResult

SPECIAL = "<extended-resources>"


def written_devices(devices: DeviceDecision | None) -> dict[str, Any]:
    """By claim; a claim that the pod names again comes a second time as `name#2`, and so on."""
    if devices is None:
        return {}
    written: dict[str, Any] = {}
    times: Counter[str] = Counter()
    for each in devices.claims:
        if each.allocation is not None:
            name = each.key.partition("/")[2]
            times[name] += 1
            written[name if times[name] == 1 else f"{name}#{times[name]}"] = _allocation(each.allocation)
    if devices.special is not None:
        written[SPECIAL] = _special(devices.special)
    return written


def _special(special: SpecialClaim) -> dict[str, Any]:
    """The requests have the defaults that the API server would write."""
    return {
        **_allocation(special.allocation),
        "requests": [
            {
                "name": request.name,
                "exactly": {
                    "deviceClassName": request.exactly.device_class_name,
                    "allocationMode": request.exactly.allocation_mode,
                    "count": request.exactly.count,
                },
            }
            for request in special.requests
            if request.exactly is not None
        ],
        "mappings": [
            {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
            for each in special.mappings
        ],
    }


def _allocation(allocation: AllocationResult) -> dict[str, Any]:
    """As written to the claim's status, without the ids of shares."""
    plain = msgspec.json.decode(encode_json(allocation))
    results = plain["devices"].get("results", [])
    for result in results:
        if result.pop("shareID", None) is not None:
            result["shared"] = True
    written = {"results": results}
    if "config" in plain["devices"]:
        written["config"] = plain["devices"]["config"]
    if "nodeSelector" in plain:
        written["nodeSelector"] = plain["nodeSelector"]
    return written
