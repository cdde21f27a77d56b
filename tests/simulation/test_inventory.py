"""What counts as more than there is of a device."""

from collections.abc import Sequence
from typing import Any

import pytest

from shared.model.devices import ResourceClaim
from shared.model.objects import ObjectKind, object_from
from testing.simulation.inventory import GPU, LINK, PART, Inventory


def a_claim(name: str, *devices: tuple[str, str, str], bandwidth: str = "") -> ResourceClaim:
    results: list[dict[str, Any]] = [
        {"request": "r", "driver": driver, "pool": pool, "device": device} for driver, pool, device in devices
    ]
    for result in results if bandwidth else ():
        result |= {"shareID": name, "consumedCapacity": {"bandwidth": bandwidth}}
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    obj = {
        "metadata": {"name": name, "uid": name},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    claim = object_from(ObjectKind.RESOURCE_CLAIM, obj)
    assert isinstance(claim, ResourceClaim)
    return claim


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ([a_claim("a", (GPU, "n0", "gpu-0")), a_claim("b", (GPU, "n0", "gpu-1"), (GPU, "n1", "gpu-0"))], []),
        (
            [a_claim("a", (GPU, "n0", "gpu-0")), a_claim("b", (GPU, "n0", "gpu-0"))],
            [f"device {GPU}/n0/gpu-0 is allocated to several claims: a, b"],
        ),
        ([a_claim("a", (GPU, "n0", "gpu-7"))], [f"device {GPU}/n0/gpu-7 never was"]),
        (
            [a_claim("a", (LINK, "n5", "link"), bandwidth="1Gi"), a_claim("b", (LINK, "n5", "link"), bandwidth="3Gi")],
            [],
        ),
        (
            [a_claim("a", (LINK, "n5", "link"), bandwidth="2Gi"), a_claim("b", (LINK, "n5", "link"), bandwidth="3Gi")],
            [f"device {LINK}/n5/link has less bandwidth than is allocated to a, b"],
        ),
        ([a_claim("a", (PART, "n3", "part-2-0")), a_claim("b", (PART, "n3", "part-2-1"))], []),
        (
            [a_claim("a", (PART, "n3", "part-4-0")), a_claim("b", (PART, "n3", "part-1-0"))],
            ["pool n3 has less memory than 5"],
        ),
    ],
)
def test_devices_capacity_and_counters_are_not_exceeded(claims: Sequence[ResourceClaim], wrong: list[str]) -> None:
    assert Inventory().wrong(claims) == wrong
