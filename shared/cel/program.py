"""Programs: compiled expressions that select devices."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.cel import types
from shared.cel.attributes import Meter, Scope, Step
from shared.cel.checker import check
from shared.cel.costs import LIMIT
from shared.cel.environment import DEVICE
from shared.cel.errors import CompileError, ExpressionSource
from shared.cel.estimate import estimated_cost
from shared.cel.library.resources import parse_version
from shared.cel.parser import parse
from shared.cel.planner import plan
from shared.cel.quantity import parse as parse_quantity
from shared.cel.syntax import walk
from shared.cel.validators import validate
from shared.cel.values import (
    CelError,
    CelMap,
    CostExceededError,
    DomainMap,
    OptionalValue,
    PanickedError,
    Value,
    go_type_name,
    type_of,
)
from shared.model.devices import Device, DeviceAttribute

_FRAMES_PER_LEVEL = 12
"""Python frames that one level of nesting takes at most, in the parser."""
_DEEPEST = 1500
"""Levels of nesting that the parser's limits allow."""
_SHALLOW = 40
"""Levels that any caller's stack has room for."""


@dataclass(frozen=True, slots=True)
class SelectorDevice:
    """What a selector sees of a device: prepared once, evaluated by any number of programs."""

    variables: CelMap

    @classmethod
    def of(cls, driver: str, device: Device) -> "SelectorDevice":
        """From a device of a driver's ResourceSlice; ValueError if an attribute or capacity is malformed."""
        attributes, capacity = DomainMap(), DomainMap()
        for name, attribute in device.attributes.items():
            try:
                value = _attribute_value(attribute)
            except ValueError as cause:
                raise ValueError(f"attribute {name}: {cause}") from None
            _put(attributes, driver, name, value)
        for name, each in device.capacity.items():
            _put(capacity, driver, name, parse_quantity(str(each.value)))
        return cls(
            CelMap(
                {
                    "driver": driver,
                    "allowMultipleAllocations": device.allow_multiple_allocations,
                    "attributes": attributes,
                    "capacity": capacity,
                }
            )
        )


def _attribute_value(attribute: DeviceAttribute) -> Value:
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string is not None:
        return attribute.string
    if attribute.version is None:
        raise ValueError("unsupported attribute value")
    try:
        return parse_version(attribute.version)
    except ValueError as cause:
        raise ValueError(f"parse semantic version: {cause}") from None


def _put(domains: DomainMap, driver: str, name: str, value: Value) -> None:
    """Add a value under its domain; names without one belong to the driver."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        domain, identifier = driver, name
    values, found = domains.find(domain)
    if not found:
        values = CelMap()
        domains.insert(domain, values)
    assert isinstance(values, CelMap)
    values.insert(identifier, value)


@dataclass(frozen=True, slots=True)
class SelectorResult:
    """Whether a device matches, or why that cannot be said, and what it cost to find out."""

    matches: bool
    error: str | None
    cost: int


@dataclass(frozen=True, slots=True)
class SelectorProgram:
    """A compiled expression. `estimate` is the most that it may cost, None if unbounded."""

    expression: str
    estimate: int | None
    _step: Step
    _deep: bool

    def evaluate(self, device: SelectorDevice, limit: int = LIMIT) -> SelectorResult:
        meter = Meter(limit)
        scope = Scope(meter, {DEVICE: device.variables, f".{DEVICE}": device.variables})
        try:
            value = self._run(scope)
        except CostExceededError:
            return SelectorResult(False, "operation cancelled: actual cost limit exceeded", meter.cost)
        except PanickedError as cause:
            return SelectorResult(False, f"internal error: {cause}", meter.cost)
        if isinstance(value, CelError):
            return SelectorResult(False, value.message, meter.cost)
        matches = _as_bool(value)
        if isinstance(matches, bool):
            return SelectorResult(matches, None, meter.cost)
        error = f"CEL result of type {type_of(value).name} could not be converted to bool: {matches}"
        return SelectorResult(False, error, meter.cost)

    def _run(self, scope: Scope) -> Value:
        if not self._deep:
            return self._step(scope)
        with _deep_stack():
            return self._step(scope)


def compile_expression(expression: str, new_object: bool = False) -> SelectorProgram:
    """Compile a selector; CompileError with Kubernetes' text if it is wrong.

    `new_object` excludes functions that the API server accepts in stored objects only.
    """
    source = ExpressionSource(expression)
    with _deep_stack():
        root = parse(source)
        check(source, root, new_object)
        validate(source, root)
        if root.type not in (types.BOOL, types.ANY):
            raise CompileError(f"must evaluate to bool or the unknown type, not {root.type}")
        deep = any(len(ancestors) >= _SHALLOW for _, ancestors in walk(root))
        return SelectorProgram(expression, estimated_cost(root), plan(root), deep)


@contextmanager
def _deep_stack() -> Iterator[None]:
    """Let Python nest as deeply as the parser's limits allow; its own limit counts all frames of the process' stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST * _FRAMES_PER_LEVEL))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_CONVERSION_ERRORS: dict[str, str] = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
    "type": "type conversion not supported for 'type'",
}


def _as_bool(value: Value) -> bool | str:
    """The answer that a result is, or the content of an optional one; or why it is none."""
    match value:
        case bool():
            return value
        case CelError():
            return value.message
        case OptionalValue():
            return _as_bool(value.value) if value.present else "optional.none() dereference"
    default = f"type conversion error from '{go_type_name(value).rpartition('.')[2]}' to 'bool'"
    return _CONVERSION_ERRORS.get(type_of(value).name, default)
