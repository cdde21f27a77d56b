"""CEL's operators."""

import operator
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

from shared.cel import types
from shared.cel.declarations import LIST_OF_A, MAP_OF_A_B, A, B, Implementation, Overload, member, unguarded
from shared.cel.library.temporal import duration_from, timestamp_from
from shared.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT
from shared.cel.values import (
    INTEGER_OVERFLOW,
    MIN_INT,
    NO_SUCH_OVERLOAD,
    Accumulated,
    CelError,
    CelMap,
    Cidr,
    DurationValue,
    Ip,
    TimestampValue,
    Uint,
    Value,
    compare,
    equal,
    integer,
    unsigned,
)

_INFINITY = float("inf")


def unsupported(function: str, value: Value) -> CelError:
    """Strings, timestamps and durations word the lack of an overload in a way of their own."""
    receives = isinstance(value, str | TimestampValue | DurationValue)
    return NO_SUCH_OVERLOAD if receives else CelError(f"no such overload: {function}")


Table = Mapping[tuple[type, type], Callable[[Any, Any], Value]]
"""What an operator computes, by the types of its operands."""


def _binary(function: str, table: Table) -> Callable[[Value, Value], Value]:
    lefts = {left for left, _ in table}

    def compute(one: Value, other: Value) -> Value:
        found = table.get((type(one), type(other)))
        if found is not None:
            try:
                return found(one, other)
            except ValueError as cause:
                return CelError(str(cause))
        return NO_SUCH_OVERLOAD if type(one) in lefts else unsupported(function, one)

    return compute


def _whole_quotient(one: int, other: int) -> int:
    """Rounded towards zero."""
    if not other:
        raise ValueError("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _quotient(one: float, other: float) -> float:
    if other:
        return one / other
    if not one or one != one:
        return float("nan")
    negative = (one < 0) != (str(other)[0] == "-")
    return -_INFINITY if negative else _INFINITY


def _rest(one: int, other: int) -> int:
    if not other:
        raise ValueError("modulus by zero")
    if one == MIN_INT and other == -1:
        raise ValueError(INTEGER_OVERFLOW.message)
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _later(time: TimestampValue, nanoseconds: int) -> Value:
    if nanoseconds == -MIN_INT:
        return INTEGER_OVERFLOW  # the least duration has no negative
    return timestamp_from(time.nanoseconds + nanoseconds, time.zone)


_SUMS: Table = {
    (int, int): lambda one, other: integer(one + other),
    (Uint, Uint): lambda one, other: unsigned(int(one) + int(other)),
    (float, float): operator.add,
    (str, str): operator.add,
    (bytes, bytes): operator.add,
    (DurationValue, DurationValue): lambda one, other: duration_from(one.nanoseconds + other.nanoseconds),
    (DurationValue, TimestampValue): lambda one, other: _later(other, one.nanoseconds),
    (TimestampValue, DurationValue): lambda one, other: _later(one, other.nanoseconds),
}
_DIFFERENCES: Table = {
    (int, int): lambda one, other: integer(one - other),
    (Uint, Uint): lambda one, other: unsigned(int(one) - int(other)),
    (float, float): operator.sub,
    (DurationValue, DurationValue): lambda one, other: duration_from(one.nanoseconds - other.nanoseconds),
    (TimestampValue, TimestampValue): lambda one, other: duration_from(one.nanoseconds - other.nanoseconds),
    (TimestampValue, DurationValue): lambda one, other: _later(one, -other.nanoseconds),
}
_PRODUCTS: Table = {
    (int, int): lambda one, other: integer(one * other),
    (Uint, Uint): lambda one, other: unsigned(int(one) * int(other)),
    (float, float): operator.mul,
}
_QUOTIENTS: Table = {
    (int, int): lambda one, other: integer(_whole_quotient(one, other)),
    (Uint, Uint): lambda one, other: unsigned(_whole_quotient(one, other)),
    (float, float): _quotient,
}
_RESTS: Table = {(int, int): _rest, (Uint, Uint): lambda one, other: Uint(_rest(one, other))}
_sum = _binary("_+_", _SUMS)


def add(one: Value, other: Value) -> Value:
    if not isinstance(one, list):
        return _sum(one, other)
    if not isinstance(other, list):
        return NO_SUCH_OVERLOAD
    if isinstance(one, Accumulated):
        one += other
        return one
    return one + other


def _negate(value: Value) -> Value:
    match value:
        case bool():
            return NO_SUCH_OVERLOAD
        case Uint():
            return unsupported("-_", value)
        case int():
            return integer(-value)
        case float():
            return -value
        case DurationValue():
            return duration_from(-value.nanoseconds)
    return unsupported("-_", value)


def _not(value: Value) -> Value:
    return not value if isinstance(value, bool) else NO_SUCH_OVERLOAD


def _not_strictly_false(value: Value) -> Value:
    return value if isinstance(value, bool) else True


def _ordered(function: str, holds: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def ordered(one: Value, other: Value) -> Value:
        if not isinstance(one, bool | int | float | str | bytes | TimestampValue | DurationValue):
            return unsupported(function, one)
        order = compare(one, other)
        return order if isinstance(order, CelError) else holds(order)

    return ordered


def contains(container: Value, item: Value) -> Value:
    if isinstance(container, list):
        return any(equal(item, each) is True for each in container)
    if isinstance(container, CelMap):
        return container.find(item)[1]
    return NO_SUCH_OVERLOAD


def _in(item: Value, container: Value) -> Value:
    return contains(container, item)


def _size(value: Value) -> Value:
    size = size_of(value)
    return unsupported("size", value) if size is None or isinstance(value, Ip | Cidr) else size


def size_of(value: Value) -> int | None:
    """The length of what has one. Addresses count in bytes."""
    match value:
        case str() | bytes() | list() | CelMap():
            return len(value)
        case Ip():
            return 4 if value.address.version == 4 else 16
        case Cidr():
            return -(-value.bits // 8)
    return None


_NUMBERS = {"int64": INT, "uint64": UINT, "double": DOUBLE}
_ORDERED_TYPES = {
    "bool": BOOL,
    **_NUMBERS,
    "string": STRING,
    "bytes": BYTES,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
}


def _order(function: str, stem: str, holds: Callable[[int], bool]) -> list[Overload]:
    """For values of the same type, and for numbers of different types."""
    same = [Overload(function, f"{stem}_{name}", [each, each], BOOL) for name, each in _ORDERED_TYPES.items()]
    mixed = [
        Overload(function, f"{stem}_{one}_{other}", [_NUMBERS[one], _NUMBERS[other]], BOOL)
        for one, other in permutations(_NUMBERS, 2)
    ]
    return unguarded(_ordered(function, holds), *same, *mixed)


def _arithmetic(function: str, stem: str, implementation: Implementation, *numbers: str) -> list[Overload]:
    overloads = [Overload(function, f"{stem}_{name}", [_NUMBERS[name]] * 2, _NUMBERS[name]) for name in numbers]
    return unguarded(implementation, *overloads)


_OPTIONAL_LIST = types.optional_of(LIST_OF_A)
_OPTIONAL_MAP = types.optional_of(MAP_OF_A_B)

FUNCTIONS = [
    Overload("_?_:_", "conditional", [BOOL, A, A], A),
    Overload("_&&_", "logical_and", [BOOL, BOOL], BOOL),
    Overload("_||_", "logical_or", [BOOL, BOOL], BOOL),
    Overload("!_", "logical_not", [BOOL], BOOL, _not, guarded=False),
    Overload("@not_strictly_false", "not_strictly_false", [BOOL], BOOL, _not_strictly_false, guarded=False),
    Overload("_==_", "equals", [A, A], BOOL),
    Overload("_!=_", "not_equals", [A, A], BOOL),
    *unguarded(
        add,
        Overload("_+_", "add_bytes", [BYTES, BYTES], BYTES),
        Overload("_+_", "add_double", [DOUBLE, DOUBLE], DOUBLE),
        Overload("_+_", "add_duration_duration", [DURATION, DURATION], DURATION),
        Overload("_+_", "add_duration_timestamp", [DURATION, TIMESTAMP], TIMESTAMP),
        Overload("_+_", "add_timestamp_duration", [TIMESTAMP, DURATION], TIMESTAMP),
        Overload("_+_", "add_int64", [INT, INT], INT),
        Overload("_+_", "add_list", [LIST_OF_A, LIST_OF_A], LIST_OF_A),
        Overload("_+_", "add_string", [STRING, STRING], STRING),
        Overload("_+_", "add_uint64", [UINT, UINT], UINT),
    ),
    *unguarded(
        _binary("_-_", _DIFFERENCES),
        Overload("_-_", "subtract_double", [DOUBLE, DOUBLE], DOUBLE),
        Overload("_-_", "subtract_duration_duration", [DURATION, DURATION], DURATION),
        Overload("_-_", "subtract_int64", [INT, INT], INT),
        Overload("_-_", "subtract_timestamp_duration", [TIMESTAMP, DURATION], TIMESTAMP),
        Overload("_-_", "subtract_timestamp_timestamp", [TIMESTAMP, TIMESTAMP], DURATION),
        Overload("_-_", "subtract_uint64", [UINT, UINT], UINT),
    ),
    *_arithmetic("_*_", "multiply", _binary("_*_", _PRODUCTS), "double", "int64", "uint64"),
    *_arithmetic("_/_", "divide", _binary("_/_", _QUOTIENTS), "double", "int64", "uint64"),
    *_arithmetic("_%_", "modulo", _binary("_%_", _RESTS), "int64", "uint64"),
    Overload("-_", "negate_double", [DOUBLE], DOUBLE, _negate, guarded=False),
    Overload("-_", "negate_int64", [INT], INT, _negate, guarded=False),
    *_order("_<_", "less", lambda order: order < 0),
    *_order("_<=_", "less_equals", lambda order: order <= 0),
    *_order("_>_", "greater", lambda order: order > 0),
    *_order("_>=_", "greater_equals", lambda order: order >= 0),
    Overload("_[_]", "index_list", [LIST_OF_A, INT], A),
    Overload("_[_]", "index_map", [MAP_OF_A_B, A], B),
    Overload("_[_]", "optional_list_index_int", [_OPTIONAL_LIST, INT], types.optional_of(A)),
    Overload("_[_]", "optional_map_index_value", [_OPTIONAL_MAP, A], types.optional_of(B)),
    Overload("_?._", "select_optional_field", [types.DYN, STRING], types.optional_of(B)),
    Overload("_[?_]", "list_optindex_optional_int", [LIST_OF_A, INT], types.optional_of(A)),
    Overload("_[?_]", "optional_list_optindex_optional_int", [_OPTIONAL_LIST, INT], types.optional_of(A)),
    Overload("_[?_]", "map_optindex_optional_value", [MAP_OF_A_B, A], types.optional_of(B)),
    Overload("_[?_]", "optional_map_optindex_optional_value", [_OPTIONAL_MAP, A], types.optional_of(B)),
    Overload("@in", "in_list", [A, LIST_OF_A], BOOL, _in, guarded=False),
    Overload("@in", "in_map", [A, MAP_OF_A_B], BOOL, _in, guarded=False),
    *unguarded(
        _size,
        Overload("size", "size_bytes", [BYTES], INT),
        member("size", "bytes_size", [BYTES], INT),
        Overload("size", "size_list", [LIST_OF_A], INT),
        member("size", "list_size", [LIST_OF_A], INT),
        Overload("size", "size_map", [MAP_OF_A_B], INT),
        member("size", "map_size", [MAP_OF_A_B], INT),
        Overload("size", "size_string", [STRING], INT),
        member("size", "string_size", [STRING], INT),
    ),
]
