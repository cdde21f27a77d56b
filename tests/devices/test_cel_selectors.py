"""Selectors in CEL, on devices of slices."""

from collections import Counter
from typing import Any

import pytest

from shared.devices.cel_selectors import evaluate
from shared.devices.offers import OfferedDevice, offer
from shared.devices.selectors import Selectors
from shared.model.devices import CelSelector, DeviceSelector
from tests.devices.builders import device, slice_of

FIELDS: dict[str, Any] = {
    "attributes": {"idx": {"int": 1}, "fw": {"version": "1.10.0"}, "example.org/link": {"string": "l1"}},
    "capacity": {"memory": {"value": "40Gi"}},
    "allowMultipleAllocations": True,
}


def offered(**fields: Any) -> OfferedDevice:
    return offer(slice_of([device("g", **fields)])).devices[0]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('device.driver == "d" && device.attributes["d"].idx == 1', True),
        ('device.attributes["d"].fw.isGreaterThan(semver("1.9.0"))', True),
        ('device.attributes["example.org"].link == "l0"', False),
        ('device.capacity["d"].memory.compareTo(quantity("40Gi")) == 0', True),
        ("device.allowMultipleAllocations", True),
        ('device.attributes["d"].nope == 1', "CEL runtime error: no such key: nope"),
    ],
)
def test_selectors_see_the_driver_attributes_and_capacity(expression: str, result: bool | str) -> None:
    assert evaluate(expression, offered(**FIELDS)) == result


def test_an_expression_that_does_not_compile_says_so() -> None:
    result = evaluate("device.driver ==", offered())
    assert isinstance(result, str)
    assert result.startswith("CEL compile error: ")


def test_devices_of_equal_content_are_evaluated_once() -> None:
    asked: Counter[str] = Counter()

    def ask(expression: str, candidate: OfferedDevice) -> bool | str:
        asked[expression] += 1
        return evaluate(expression, candidate)

    selectors = Selectors(ask)
    wanted = [DeviceSelector(cel=CelSelector(expression=text)) for text in ("true", 'device.driver == "d"', "error")]
    for _ in range(3):
        assert str(selectors.match(wanted, offered(**FIELDS))).startswith("selector #2: CEL compile error: ")
    assert asked == {"true": 1, 'device.driver == "d"': 1, "error": 1}
    assert selectors.match(wanted[:2], offered()) is True
    assert asked["true"] == 2
