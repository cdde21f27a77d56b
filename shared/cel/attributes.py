"""Variables, fields and elements: `device.attributes["gpu.example.com"].model` is one attribute with three qualifiers.

What an attribute costs, and what selections of optional values yield, depends on that grouping, which is cel-go's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from shared.cel.values import (
    NO_SUCH_OVERLOAD,
    NONE,
    Accumulated,
    CelError,
    CelMap,
    CostExceededError,
    OptionalValue,
    Value,
    go_text,
    go_type_name,
    through_go,
    type_of,
)

# The state of one evaluation: what it has cost, and the values of variables.


class Scope:
    """The variables that a part of an expression sees; this one has those of the whole expression."""

    __slots__ = ("meter", "variables")

    def __init__(self, meter: "Meter", variables: dict[str, Value]) -> None:
        self.meter = meter
        self.variables = variables

    def resolve(self, name: str) -> Value:
        return self.variables[name]


class Meter:
    """Adds up costs, and stops the evaluation at a limit."""

    __slots__ = ("_limit", "cost")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self._limit = limit

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self._limit:
            raise CostExceededError


Step = Callable[[Scope], Value]
"""A compiled part of an expression."""


class FoldScope(Scope):
    """The variables of a comprehension: the accumulator, set when first used, and those of the iteration."""

    __slots__ = ("_accumulator", "_first", "_initial", "_initialized", "_parent", "_second", "_value", "values")

    def __init__(self, parent: Scope, accumulator: str, initial: Step, first: str, second: str) -> None:
        super().__init__(parent.meter, {})
        self._parent = parent
        self._accumulator = accumulator
        self._initial = initial
        self._first = first
        self._second = second
        self._initialized = False
        self._value: Value = None
        self.values: tuple[Value, Value] | None = None
        """Of the iteration variables; None when they are not to be seen."""

    def accumulate(self, value: Value) -> None:
        self._value = value
        self._initialized = True

    def resolve(self, name: str) -> Value:
        if name == self._accumulator:
            if not self._initialized:
                self._initialized = True
                self._value = _growing(self._initial(self._parent))
            return self._value
        if self.values is not None:
            if name == self._first:
                return self.values[0]
            if name == self._second:
                return self.values[1]
        return self._parent.resolve(name)


def _growing(value: Value) -> Value:
    """An accumulator of its own, if it starts as an empty list or map."""
    if isinstance(value, list) and not value:
        return Accumulated()
    if isinstance(value, CelMap) and not len(value):
        return CelMap()
    return value


# Attributes.

ACCESS_COST = 1
"""Of a variable, and of each qualifier."""

ABSENT = object()
"""Stands for a value that a presence test did not find."""


@dataclass(slots=True)
class Qualifier:
    """One selection or index. The key is constant, or the value of `index`."""

    key: Value = None
    index: "Attribute | None" = None
    optional: bool = False
    test_only: bool = False

    def select(self, scope: Scope, target: Value, if_present: bool) -> Value:
        """The selected value, an error, or ABSENT if it is missing and may be."""
        found = self._select(scope, target, if_present or self.test_only)
        failed = isinstance(found, CelError)
        if not (if_present and (failed or found is ABSENT)):
            scope.meter.charge(ACCESS_COST)
        return found is not ABSENT if self.test_only and not failed else found

    def _select(self, scope: Scope, target: Value, if_present: bool) -> Value:
        key = self.key
        if self.index is not None:
            key = self.index.resolve(scope)
            if isinstance(key, CelError):
                return key
            invalid = invalid_key(key)
            if invalid:
                return CelError(invalid)
        return _element(target, key, if_present)


def invalid_key(key: Value) -> str:
    """Why a value cannot be a key or index; empty if it can."""
    return "" if isinstance(key, str | bool | int | float) else f"invalid qualifier type: {go_type_name(key)}"


def _element(target: Value, key: Value, if_present: bool) -> Value:
    if isinstance(target, CelMap):
        value, found = target.select(key)
        if found:
            return value
    elif isinstance(target, list):
        index = _index(key)
        if isinstance(index, CelError):
            return index
        if 0 <= index < len(target):
            return target[index]
        return ABSENT if if_present else CelError(f"index out of bounds: {go_text(key)}")
    return ABSENT if if_present else CelError(f"no such key: {go_text(key)}")


def _index(key: Value) -> int | CelError:
    if isinstance(key, int) and not isinstance(key, bool):
        return int(key) if key < 2**63 else CelError(f"unsupported index value {go_text(key)} in list")
    if isinstance(key, float):
        whole = abs(key) < 2.0**63 and key == int(key)
        return int(key) if whole else CelError(f"unsupported index value {go_text(key)} in list")
    return CelError(f"unsupported index type '{type_of(key)}' in list")


@dataclass(slots=True)
class Attribute:
    """A variable or a computed value, with its qualifiers."""

    variable: str = ""
    operand: Step | None = None
    qualifiers: list[Qualifier] = field(default_factory=list)

    def add(self, qualifier: Qualifier) -> None:
        self.qualifiers.append(qualifier)

    def resolve(self, scope: Scope) -> Value:
        value = scope.resolve(self.variable) if self.operand is None else self.operand(scope)
        if not self.qualifiers:
            if isinstance(value, OptionalValue) and value.present:
                return OptionalValue(through_go(value.value))
            return value
        if isinstance(value, CelError):
            return value
        optional = False
        if isinstance(value, OptionalValue):
            if not value.present:
                return value
            optional = True
            value = value.value
        for qualifier in self.qualifiers:
            optional = optional or qualifier.optional
            value = qualifier.select(scope, value, optional)
            if isinstance(value, CelError):
                return value
            if value is ABSENT:
                return NONE
        return OptionalValue(value) if optional else value


@dataclass(slots=True)
class Conditional(Attribute):
    """`c ? a : b`, whose qualifiers apply to the chosen one."""

    condition: Step | None = None
    truthy: Attribute | None = None
    falsy: Attribute | None = None

    def add(self, qualifier: Qualifier) -> None:
        assert self.truthy is not None and self.falsy is not None
        self.truthy.add(qualifier)
        self.falsy.add(qualifier)

    def resolve(self, scope: Scope) -> Value:
        assert self.condition is not None and self.truthy is not None and self.falsy is not None
        condition = self.condition(scope)
        if isinstance(condition, bool):
            return self.truthy.resolve(scope) if condition else self.falsy.resolve(scope)
        return condition if isinstance(condition, CelError) else NO_SUCH_OVERLOAD
