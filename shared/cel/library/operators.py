"""CEL's operators."""

from collections.abc import Callable

from shared.cel import types
from shared.cel.declarations import LIST_OF_A, MAP_OF_A_B, A, B, Overload, function, member, overload
from shared.cel.library.temporal import INTEGER_OVERFLOW, duration_from, timestamp_from
from shared.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, CelType
from shared.cel.values import (
    MAX_INT,
    MAX_UINT,
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
)

_UNSIGNED_OVERFLOW = CelError("unsigned integer overflow")
_INFINITY = float("inf")


def _integer(value: int) -> Value:
    return value if MIN_INT <= value <= MAX_INT else INTEGER_OVERFLOW


def _unsigned(value: int) -> Value:
    return Uint(value) if 0 <= value <= MAX_UINT else _UNSIGNED_OVERFLOW


def _receives(value: Value) -> bool:
    """Strings, timestamps and durations word the lack of an overload in a way of their own."""
    return isinstance(value, str | TimestampValue | DurationValue)


def _unsupported(operator: str, value: Value) -> CelError:
    return NO_SUCH_OVERLOAD if _receives(value) else CelError(f"no such overload: {operator}")


def _add(one: Value, other: Value) -> Value:
    if isinstance(one, Accumulated) and isinstance(other, list):
        one += other
        return one
    match one, other:
        case bool(), _:
            return _unsupported("_+_", one)
        case (Uint(), Uint()):
            return _unsigned(int(one) + int(other))
        case (str(), str()) | (bytes(), bytes()) | (list(), list()) | (float(), float()):
            return one + other  # type: ignore[operator]
        case DurationValue(), DurationValue():
            return duration_from(one.nanoseconds + other.nanoseconds)
        case DurationValue(), TimestampValue():
            return timestamp_from(one.nanoseconds + other.nanoseconds, other.zone)
        case TimestampValue(), DurationValue():
            return timestamp_from(one.nanoseconds + other.nanoseconds, one.zone)
    if type(one) is int and type(other) is int:
        return _integer(one + other)
    if isinstance(one, int | float | str | bytes | list | DurationValue | TimestampValue):
        return NO_SUCH_OVERLOAD
    return _unsupported("_+_", one)


def _subtract(one: Value, other: Value) -> Value:
    match one, other:
        case bool(), _:
            return _unsupported("_-_", one)
        case (Uint(), Uint()):
            return _unsigned(int(one) - int(other))
        case (float(), float()):
            return one - other
        case DurationValue(), DurationValue():
            return duration_from(one.nanoseconds - other.nanoseconds)
        case TimestampValue(), TimestampValue():
            return duration_from(one.nanoseconds - other.nanoseconds)
        case TimestampValue(), DurationValue(nanoseconds=nanoseconds):
            if nanoseconds == MIN_INT:
                return INTEGER_OVERFLOW  # it has no negative
            return timestamp_from(one.nanoseconds - nanoseconds, one.zone)
    if type(one) is int and type(other) is int:
        return _integer(one - other)
    if isinstance(one, int | float | DurationValue | TimestampValue):
        return NO_SUCH_OVERLOAD
    return _unsupported("_-_", one)


def _multiply(one: Value, other: Value) -> Value:
    if isinstance(one, int | float) and type(one) is not bool:
        if type(one) is not type(other):
            return NO_SUCH_OVERLOAD
        assert isinstance(other, int | float)
        if isinstance(one, float):
            return one * other
        product = int(one) * int(other)
        return _unsigned(product) if isinstance(one, Uint) else _integer(product)
    return _unsupported("_*_", one)


def _divide(one: Value, other: Value) -> Value:
    if isinstance(one, int | float) and type(one) is not bool:
        if type(one) is not type(other):
            return NO_SUCH_OVERLOAD
        if isinstance(one, float):
            assert isinstance(other, float)
            return _double_quotient(one, other)
        assert isinstance(other, int)
        if not other:
            return CelError("division by zero")
        quotient = abs(one) // abs(other)
        quotient = quotient if (one < 0) == (other < 0) else -quotient
        return _unsigned(quotient) if isinstance(one, Uint) else _integer(quotient)
    return _unsupported("_/_", one)


def _double_quotient(one: float, other: float) -> float:
    if other:
        return one / other
    if not one or one != one:
        return float("nan")
    negative = (one < 0) != (str(other)[0] == "-")
    return -_INFINITY if negative else _INFINITY


def _modulo(one: Value, other: Value) -> Value:
    if isinstance(one, int) and type(one) is not bool:
        if type(one) is not type(other):
            return NO_SUCH_OVERLOAD
        assert isinstance(other, int)
        if not other:
            return CelError("modulus by zero")
        if one == MIN_INT and other == -1:
            return INTEGER_OVERFLOW
        rest = abs(one) % abs(other)
        return Uint(rest) if isinstance(one, Uint) else (-rest if one < 0 else rest)
    return _unsupported("_%_", one)


def _negate(value: Value) -> Value:
    match value:
        case bool():
            return NO_SUCH_OVERLOAD
        case Uint():
            return _unsupported("-_", value)
        case int():
            return _integer(-value)
        case float():
            return -value
        case DurationValue():
            return duration_from(-value.nanoseconds)
    return _unsupported("-_", value)


def _not(value: Value) -> Value:
    return not value if isinstance(value, bool) else NO_SUCH_OVERLOAD


def _not_strictly_false(value: Value) -> Value:
    return value if isinstance(value, bool) else True


def _ordered(operator: str, holds: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def ordered(one: Value, other: Value) -> Value:
        if not isinstance(one, bool | int | float | str | bytes | TimestampValue | DurationValue):
            return _unsupported(operator, one)
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
    return _unsupported("size", value) if size is None or isinstance(value, Ip | Cidr) else size


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


_ORDERED_TYPES = {
    "bool": BOOL,
    "int64": INT,
    "uint64": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
}
_NUMBERS = {"int64": INT, "uint64": UINT, "double": DOUBLE}


def _order_overloads(stem: str) -> list[Overload]:
    """For values of the same type, and for numbers of different types."""
    same = [overload(f"{stem}_{name}", [each, each], BOOL) for name, each in _ORDERED_TYPES.items()]
    mixed = [
        overload(f"{stem}_{one}_{other}", [_NUMBERS[one], _NUMBERS[other]], BOOL)
        for one in _NUMBERS
        for other in _NUMBERS
        if one != other
    ]
    return same + mixed


def _arithmetic(stem: str, named: dict[str, CelType]) -> list[Overload]:
    return [overload(f"{stem}_{name}", [each, each], each) for name, each in named.items()]


_WHOLE_NUMBERS = {"int64": INT, "uint64": UINT}
_OPTIONAL_LIST = types.optional_of(LIST_OF_A)
_OPTIONAL_MAP = types.optional_of(MAP_OF_A_B)

FUNCTIONS = [
    function("_?_:_", overload("conditional", [BOOL, A, A], A)),
    function("_&&_", overload("logical_and", [BOOL, BOOL], BOOL)),
    function("_||_", overload("logical_or", [BOOL, BOOL], BOOL)),
    function("!_", overload("logical_not", [BOOL], BOOL), implementation=_not),
    function("@not_strictly_false", overload("not_strictly_false", [BOOL], BOOL), implementation=_not_strictly_false),
    function("_==_", overload("equals", [A, A], BOOL)),
    function("_!=_", overload("not_equals", [A, A], BOOL)),
    function(
        "_+_",
        overload("add_bytes", [BYTES, BYTES], BYTES),
        overload("add_double", [DOUBLE, DOUBLE], DOUBLE),
        overload("add_duration_duration", [DURATION, DURATION], DURATION),
        overload("add_duration_timestamp", [DURATION, TIMESTAMP], TIMESTAMP),
        overload("add_timestamp_duration", [TIMESTAMP, DURATION], TIMESTAMP),
        overload("add_int64", [INT, INT], INT),
        overload("add_list", [LIST_OF_A, LIST_OF_A], LIST_OF_A),
        overload("add_string", [STRING, STRING], STRING),
        overload("add_uint64", [UINT, UINT], UINT),
        implementation=_add,
    ),
    function(
        "_-_",
        overload("subtract_double", [DOUBLE, DOUBLE], DOUBLE),
        overload("subtract_duration_duration", [DURATION, DURATION], DURATION),
        overload("subtract_int64", [INT, INT], INT),
        overload("subtract_timestamp_duration", [TIMESTAMP, DURATION], TIMESTAMP),
        overload("subtract_timestamp_timestamp", [TIMESTAMP, TIMESTAMP], DURATION),
        overload("subtract_uint64", [UINT, UINT], UINT),
        implementation=_subtract,
    ),
    function("_*_", *_arithmetic("multiply", _NUMBERS), implementation=_multiply),
    function("_/_", *_arithmetic("divide", _NUMBERS), implementation=_divide),
    function("_%_", *_arithmetic("modulo", _WHOLE_NUMBERS), implementation=_modulo),
    function(
        "-_",
        overload("negate_double", [DOUBLE], DOUBLE),
        overload("negate_int64", [INT], INT),
        implementation=_negate,
    ),
    function("_<_", *_order_overloads("less"), implementation=_ordered("_<_", lambda order: order < 0)),
    function("_<=_", *_order_overloads("less_equals"), implementation=_ordered("_<=_", lambda order: order <= 0)),
    function("_>_", *_order_overloads("greater"), implementation=_ordered("_>_", lambda order: order > 0)),
    function("_>=_", *_order_overloads("greater_equals"), implementation=_ordered("_>=_", lambda order: order >= 0)),
    function(
        "_[_]",
        overload("index_list", [LIST_OF_A, INT], A),
        overload("index_map", [MAP_OF_A_B, A], B),
        overload("optional_list_index_int", [_OPTIONAL_LIST, INT], types.optional_of(A)),
        overload("optional_map_index_value", [_OPTIONAL_MAP, A], types.optional_of(B)),
    ),
    function("_?._", overload("select_optional_field", [types.DYN, STRING], types.optional_of(B))),
    function(
        "_[?_]",
        overload("list_optindex_optional_int", [LIST_OF_A, INT], types.optional_of(A)),
        overload("optional_list_optindex_optional_int", [_OPTIONAL_LIST, INT], types.optional_of(A)),
        overload("map_optindex_optional_value", [MAP_OF_A_B, A], types.optional_of(B)),
        overload("optional_map_optindex_optional_value", [_OPTIONAL_MAP, A], types.optional_of(B)),
    ),
    function(
        "@in",
        overload("in_list", [A, LIST_OF_A], BOOL),
        overload("in_map", [A, MAP_OF_A_B], BOOL),
        implementation=_in,
    ),
    function(
        "size",
        overload("size_bytes", [BYTES], INT),
        member("bytes_size", [BYTES], INT),
        overload("size_list", [LIST_OF_A], INT),
        member("list_size", [LIST_OF_A], INT),
        overload("size_map", [MAP_OF_A_B], INT),
        member("map_size", [MAP_OF_A_B], INT),
        overload("size_string", [STRING], INT),
        member("string_size", [STRING], INT),
        implementation=_size,
    ),
]
