"""The selectors of the golden cases as Python functions."""

from collections.abc import Callable
from typing import Any

from shared.devices.offers import OfferedDevice

GPU, ORG = "gpu.example.com", "example.org"


class NoSuchKey(Exception):
    pass


class Fields:
    """A domain of a device: names without domain belong to the driver's."""

    def __init__(self, device: OfferedDevice, found: dict[str, Any], domain: str) -> None:
        self._found = {}
        for name, value in found.items():
            own, slash, short = name.partition("/")
            if (own if slash else device.id.driver) == domain:
                self._found[short if slash else name] = value

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            raise NoSuchKey(name)
        return self._found[name]

    def get(self, name: str, default: object = None) -> Any:
        return self._found.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self._found


def attributes(device: OfferedDevice, domain: str = GPU) -> Fields:
    found = {name: each.value[1] for name, each in device.device.attributes.items() if each.value is not None}
    return Fields(device, found, domain)


def memory(device: OfferedDevice) -> int:
    """In units of 1 Gi."""
    capacity = {name: each.value.amount.value for name, each in device.device.capacity.items()}
    return int(Fields(device, capacity, GPU)["memory"]) // 2**30


def _newer(device: OfferedDevice) -> bool:
    firmware = attributes(device).get("fw")
    return firmware is not None and [int(part) for part in firmware.partition("-")[0].split(".")] > [1, 1, 0]


def _is_gpu(device: OfferedDevice) -> bool:
    return device.id.driver == GPU


_A = 'device.attributes["gpu.example.com"]'
_C = 'device.capacity["gpu.example.com"]'
FUNCTIONS: dict[str, Callable[[OfferedDevice], Any]] = {
    'device.driver == "gpu.example.com"': _is_gpu,
    'device.driver == "net.example.com"': lambda device: device.id.driver == "net.example.com",
    "device.allowMultipleAllocations": lambda device: device.shareable,
    f'{_A}.model == "big"': lambda device: attributes(device)["model"] == "big",
    f'{_A}.model == "small"': lambda device: attributes(device)["model"] == "small",
    f"{_A}.model": lambda device: attributes(device)["model"],
    f'{_A}.nope == "x"': lambda device: attributes(device)["nope"] == "x",
    f"{_A}.idx >= 1": lambda device: attributes(device)["idx"] >= 1,
    f'"idx" in {_A} && {_A}.idx >= 1': lambda device: attributes(device).get("idx", 0) >= 1,
    f"{_A}.?idx.orValue(0) < 2": lambda device: attributes(device).get("idx", 0) < 2,
    f'has({_A}.fw) && {_A}.fw.isGreaterThan(semver("1.1.0"))': _newer,
    f"cel.bind(a, {_A}, a.?ecc.orValue(false) || a.numa == 0)": lambda device: (
        attributes(device).get("ecc", False) or attributes(device)["numa"] == 0
    ),
    f'{_C}.memory.compareTo(quantity("40Gi")) >= 0': lambda device: memory(device) >= 40,
    f'!({_C}.memory == quantity("16Gi"))': lambda device: memory(device) != 16,
    'device.attributes["example.org"].?link.orValue("none") in ["l0", "l1"]': lambda device: (
        attributes(device, ORG).get("link") in ("l0", "l1")
    ),
    'device.attributes["example.org"].link == "l0"': lambda device: attributes(device, ORG)["link"] == "l0",
    f'device.driver == "gpu.example.com" && {_A}.model == "big"': lambda device: (
        _is_gpu(device) and attributes(device)["model"] == "big"
    ),
    f'device.driver == "gpu.example.com" && {_A}.numa == 1': lambda device: (
        _is_gpu(device) and attributes(device)["numa"] == 1
    ),
    f'device.driver == "gpu.example.com" && {_C}.memory.compareTo(quantity("8Gi")) >= 0': lambda device: (
        _is_gpu(device) and memory(device) >= 8
    ),
}


def evaluate(expression: str, device: OfferedDevice) -> bool | str:
    try:
        result = FUNCTIONS[expression](device)
    except NoSuchKey as missing:
        return f"CEL runtime error: no such key: {missing}"
    if isinstance(result, bool):
        return result
    return (
        "CEL runtime error: CEL result of type string could not be converted to bool: "
        "unsupported native conversion from string to 'bool'"
    )
