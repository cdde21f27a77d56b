"""What people are told of claims that cannot be satisfied."""

import pytest
from msgspec.structs import replace

from shared.devices import shortages
from shared.devices.cel_selectors import evaluate
from shared.devices.shortages import Shortages
from shared.model.codec import convert
from shared.model.devices import DeviceClass, ResourceClaim
from tests.devices.builders import CLASSES, allocation, cel, claim, device, exactly, first_of, slice_of

LARGE = 'device.attributes["d"].model == "large"'
GPU = convert(
    DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": cel('device.driver == "gpu.example.com"')}}
)


def model(name: str, of: str) -> dict[str, object]:
    return device(name, attributes={"model": {"string": of}})


def allocated(name: str, *devices: str) -> ResourceClaim:
    made = claim(exactly("r"), name=name)
    return replace(made, status=replace(made.status, allocation=allocation(*devices)))


def told(*claims: ResourceClaim, others: tuple[ResourceClaim, ...] = ()) -> list[str]:
    slices = [slice_of([model("a", "small"), model("b", "small"), model("c", "medium")])]
    return list(Shortages(slices, {**CLASSES, "gpu": GPU}, others, evaluate).of(claims))


def test_the_selector_that_no_device_satisfies_is_named() -> None:
    (line,) = told(claim(exactly("r", selectors=cel(LARGE))))
    assert line == f"claim default/c, request r: none of 3 devices satisfies a selector of the request: {LARGE}"
    (line,) = told(claim(exactly("r", deviceClassName="gpu")))
    assert line == (
        "claim default/c, request r: none of 3 devices satisfies a selector of class gpu: "
        'device.driver == "gpu.example.com"'
    )


def test_an_error_of_a_selector_is_told() -> None:
    (line,) = told(claim(exactly("r", selectors=cel('device.attributes["d"].size > 1'))))
    assert line.endswith("(CEL runtime error: no such key: size)")


def test_a_class_that_is_missing_is_named() -> None:
    assert told(claim(exactly("r", deviceClassName="tpu"))) == [
        "claim default/c, request r: there is no device class tpu"
    ]


def test_each_alternative_says_how_many_devices_are_left() -> None:
    small = {"selectors": cel('device.attributes["d"].model == "small"')}
    lines = told(claim(first_of("r", {"selectors": cel(LARGE)}, small)), others=(allocated("other", "a"),))
    assert [line.partition(": ")[2] for line in lines] == [
        f"none of 3 devices satisfies a selector of the request: {LARGE}",
        "2 devices satisfy its selectors, 1 of them are not in use",
    ]


def test_a_claim_that_has_devices_names_them() -> None:
    assert told(allocated("c", "a", "b")) == ["claim default/c has d/p/a, d/p/b"]


def test_the_number_of_examined_devices_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortages, "MAX_DEVICES", 2)
    (line,) = told(claim(exactly("r")))
    assert line.endswith("2 (of the first 2) devices satisfy its selectors, 2 of them are not in use")
