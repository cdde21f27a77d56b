"""Whether a device is right for a request, and its selectors: CEL, evaluated once for devices of equal content."""

from collections.abc import Callable, Hashable, Sequence

from shared.bounded import BoundedDict
from shared.devices.constraints import value_of
from shared.devices.offers import OfferedDevice
from shared.devices.pools import DeviceNode
from shared.devices.requests import PreparedRequest
from shared.model.devices import DeviceSelector

MAX_RESULTS_KEPT = 1 << 16
"""Results of selectors, each of an expression and a device content; a few megabytes."""

Evaluate = Callable[[str, OfferedDevice], bool | str]
"""Whether the device matches the expression, or the error, such as `CEL runtime error: no such key: x`."""


class Selectors:
    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._known: BoundedDict[tuple[str, bytes], bool | str] = BoundedDict(MAX_RESULTS_KEPT)

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


def matches(request: PreparedRequest, device: OfferedDevice, node: DeviceNode, selectors: Selectors) -> bool | str:
    """Whether the selectors of class and request and the node are right; or the error of a selector."""
    device_class = request.device_class
    by_class = selectors.match(device_class.spec.selectors, device)
    if isinstance(by_class, str):
        return f"class {device_class.name}: {by_class}"
    if not by_class:
        return False
    by_request = selectors.match(request.spec.selectors, device)
    if isinstance(by_request, str):
        return f"claim {request.claim.key}: {by_request}"
    if not by_request or not device.per_device_selection:
        return by_request
    return node.matches(device.node_name, device.all_nodes, device.node_selector)


def may_match(request: PreparedRequest, device: OfferedDevice, selectors: Selectors) -> bool:
    """Whether the device is right for the request on some node, or a selector fails on it."""
    return bool(
        selectors.match(request.device_class.spec.selectors, device) and selectors.match(request.spec.selectors, device)
    )


def behaviour(
    device: OfferedDevice,
    node: DeviceNode,
    requests: Sequence[PreparedRequest],
    attributes: Sequence[str],
    selectors: Selectors,
) -> Hashable | None:
    """Equal for devices that can stand in for each other while they are unused; None if a selector fails.

    `attributes`: those that constraints compare.
    """
    answers = []
    for request in requests:
        answer = matches(request, device, node, selectors)
        if isinstance(answer, str):
            return None
        answers.append((answer, request.tolerates(device)))
    return (
        tuple(answers),
        tuple(value_of(device, attribute) for attribute in attributes),
        device.shareable,
        device.capacity_key,
        tuple((draw.counter_set, tuple(sorted(draw.amounts.items()))) for draw in device.draws),
    )
