"""What a pod's claims lack, for people: which selectors no device satisfies, and how many devices are left."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shared.devices.offers import DeviceId, OfferedDevice, offer
from shared.devices.selectors import Evaluate, Selectors
from shared.model.devices import (
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)

MAX_DEVICES = 4096
"""Devices that are looked at; with more, the numbers are those of the first ones."""


class Shortages:
    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Mapping[str, DeviceClass],
        all_claims: Iterable[ResourceClaim],
        evaluate: Evaluate,
    ) -> None:
        self._devices: list[OfferedDevice] = []
        for each in slices:
            self._devices += offer(each).devices
            if len(self._devices) > MAX_DEVICES:
                break
        self._is_part = len(self._devices) > MAX_DEVICES
        del self._devices[MAX_DEVICES:]
        self._classes = classes
        self._in_use = {each for claim in all_claims for each in _devices_of(claim)}
        self._selectors = Selectors(evaluate)

    def of(self, claims: Sequence[ResourceClaim]) -> Iterator[str]:
        """A line for each claim that has devices, and for each request of the others."""
        for claim in claims:
            if claim.is_allocated:
                yield f"claim {claim.key} has {', '.join(map(str, _devices_of(claim)))}"
                continue
            for request in claim.spec.devices.requests:
                if request.exactly is not None:
                    yield f"claim {claim.key}, request {request.name}: {self._lacks(request.exactly)}"
                for option in request.first_available:
                    yield f"claim {claim.key}, request {request.name}/{option.name}: {self._lacks(option)}"

    def _lacks(self, request: ExactDeviceRequest | DeviceSubRequest) -> str:
        name = request.device_class_name
        device_class = self._classes.get(name)
        if device_class is None:
            return f"there is no device class {name}"
        left = self._devices
        for owner, selectors in ((f"class {name}", device_class.spec.selectors), ("the request", request.selectors)):
            for selector in selectors:
                found, failure = self._matching(selector, left)
                if not found:
                    of = f"none of {self._number(len(left))} devices satisfies a selector of {owner}"
                    return f"{of}: {_text(selector)}" + (f" ({failure})" if failure else "")
                left = found
        free = [each for each in left if each.shareable or each.id not in self._in_use]
        return f"{self._number(len(left))} devices satisfy its selectors, {len(free):,} of them are not in use"

    def _matching(self, selector: DeviceSelector, devices: Sequence[OfferedDevice]) -> tuple[list[OfferedDevice], str]:
        """Those that match, and an error if there was one."""
        found, failure = [], ""
        for device in devices:
            result = self._selectors.match([selector], device)
            if isinstance(result, str):
                failure = result.removeprefix("selector #0: ")
            elif result:
                found.append(device)
        return found, failure

    def _number(self, count: int) -> str:
        return f"{count:,}" + (f" (of the first {MAX_DEVICES:,})" if self._is_part else "")


def _devices_of(claim: ResourceClaim) -> list[DeviceId]:
    allocation = claim.status.allocation
    results = [] if allocation is None else allocation.devices.results
    return [DeviceId(each.driver, each.pool, each.device) for each in results if not each.admin_access]


def _text(selector: DeviceSelector) -> str:
    return "" if selector.cel is None else " ".join(selector.cel.expression.split())
