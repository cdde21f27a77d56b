"""Shares of a device's capacity, by its request policy."""

from typing import Any

import pytest

from shared.devices.capacity import prepare_capacity, shares
from shared.model.codec import convert
from shared.model.devices import DeviceCapacity
from shared.model.quantity import QuantityText

STEPS = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "7Gi", "step": "2Gi"}}
DECIMAL = {"default": "500", "validRange": {"min": "500", "step": "500"}}
VALUES = {"default": "2Gi", "validValues": ["2Gi", "4Gi"]}


def share(policy: dict[str, Any] | None, asked: str | None) -> str | None:
    capacity = convert(DeviceCapacity, {"value": "20Gi", **({"requestPolicy": policy} if policy else {})})
    requests = {} if asked is None else {"memory": QuantityText(asked)}
    taken = shares({"memory": prepare_capacity(capacity)}, requests)
    return None if taken is None else str(taken["memory"].text)


@pytest.mark.parametrize(
    ("policy", "asked", "text"),
    [
        (None, None, "20Gi"),
        (None, "2147483648", "2147483648"),
        (None, "1.5Gi", "1.5Gi"),
        (STEPS, None, "1Gi"),
        (STEPS, "100Mi", "1Gi"),
        (STEPS, "1Gi", "1Gi"),
        (STEPS, "1025Mi", "3Gi"),
        (STEPS, "3072Mi", "3Gi"),
        (STEPS, "7Gi", "7Gi"),
        (STEPS, "7169Mi", None),
        (DECIMAL, "501", "1k"),
        (DECIMAL, "1001", "1500"),
        (DECIMAL, "499500m", "500"),
        (DECIMAL, "500500m", "1k"),
        ({"default": "10M", "validRange": {"min": "10M", "step": "10M"}}, "11M", "20000000"),
        ({"default": "1", "validRange": {"min": "1"}}, "3", "3"),
        ({"default": "1", "validRange": {"min": "1"}}, "1500m", "1500m"),
        (VALUES, None, "2Gi"),
        (VALUES, "1Gi", "2Gi"),
        (VALUES, "2049Mi", "4Gi"),
        (VALUES, "5Gi", None),
    ],
)
def test_a_request_is_rounded_up_to_what_the_policy_allows(
    policy: dict[str, Any] | None, asked: str | None, text: str | None
) -> None:
    assert share(policy, asked) == text


def test_a_device_without_the_capacity_serves_no_request_for_it() -> None:
    capacity = prepare_capacity(convert(DeviceCapacity, {"value": "20Gi"}))
    assert shares({"memory": capacity}, {"d/memory": QuantityText("1Gi")}) is None
