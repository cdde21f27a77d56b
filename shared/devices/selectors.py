"""Selectors: CEL expressions about a device, evaluated once for devices of equal content."""

from collections.abc import Callable, Sequence

from shared.bounded import BoundedDict
from shared.devices.offers import OfferedDevice
from shared.model.devices import DeviceSelector

MOST_RESULTS_KEPT = 1 << 16
"""Results of selectors, each of an expression and a device content; a few megabytes."""

Evaluate = Callable[[str, OfferedDevice], bool | str]
"""Whether the device matches the expression, or the error, such as `CEL runtime error: no such key: x`."""


class Selectors:
    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._known: BoundedDict[tuple[str, bytes], bool | str] = BoundedDict(MOST_RESULTS_KEPT)

    def match(self, selectors: Sequence[DeviceSelector], device: OfferedDevice) -> bool | str:
        """Whether the device matches all selectors; the error of the first one that fails, with its index."""
        for index, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel is not None else ""
            key = (expression, device.content)
            result = self._known.get(key)
            if result is None:
                result = self._known[key] = self._evaluate(expression, device)
            if isinstance(result, str):
                return f"selector #{index}: {result}"
            if not result:
                return False
        return True
