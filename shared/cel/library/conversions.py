"""Conversions between types: `int(x)`, `string(x)`, `type(x)` and so on."""

import re
from collections.abc import Callable

from shared.cel import types
from shared.cel.declarations import A, FunctionDeclaration, Overload, function, overload
from shared.cel.library.temporal import (
    TIMESTAMP_OVERFLOW,
    duration_text,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from shared.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, CelType
from shared.cel.values import (
    FIRST_SECOND,
    LAST_SECOND,
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    SECOND,
    CelError,
    DurationValue,
    TimestampValue,
    Uint,
    Value,
    go_double,
    type_of,
)

_INTEGER_OVERFLOW = CelError("integer overflow")
_UNSIGNED_OVERFLOW = CelError("unsigned integer overflow")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[-+]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?[0-9]+")
_SPECIAL = re.compile(r"[-+]?(?:inf|infinity)|nan", re.IGNORECASE)
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_MOST_DIGITS = 30


def _wrong(value: Value, to: CelType) -> CelError:
    return CelError(f"type conversion error from '{type_of(value)}' to '{to}'")


def _identity(value: Value) -> Value:
    return value


def _whole(text: str) -> int | None:
    """The number that digits denote; None if they are none, or far out of range."""
    if not _WHOLE.fullmatch(text) or len(text.lstrip("+-0")) > _MOST_DIGITS:
        return None
    return int(text)


def _string_to_int(value: str) -> Value:
    number = _whole(value)
    return number if number is not None and MIN_INT <= number <= MAX_INT else _wrong(value, INT)


def _string_to_uint(value: str) -> Value:
    number = _whole(value) if value[:1].isdigit() else None
    return Uint(number) if number is not None and number <= MAX_UINT else _wrong(value, UINT)


def _string_to_double(value: str) -> Value:
    if _SPECIAL.fullmatch(value):
        return float(value)
    if _DECIMAL.fullmatch(value):
        number = float(value)
    elif _HEXADECIMAL.fullmatch(value):
        try:
            number = float.fromhex(value)
        except OverflowError:
            return _wrong(value, DOUBLE)
    else:
        return _wrong(value, DOUBLE)
    return _wrong(value, DOUBLE) if number in (float("inf"), float("-inf")) else number


def _string_to_bool(value: str) -> Value:
    if value in _TRUE:
        return True
    return False if value in _FALSE else _wrong(value, BOOL)


def _string_to_duration(value: str) -> Value:
    return parse_duration(value) or _wrong(value, DURATION)


def _string_to_timestamp(value: str) -> Value:
    return parse_timestamp(value) or _wrong(value, TIMESTAMP)


def _double_to_int(value: float) -> Value:
    # Doubles cannot tell the limits themselves from numbers beyond them.
    return int(value) if -(2.0**63) < value < 2.0**63 else _INTEGER_OVERFLOW


def _double_to_uint(value: float) -> Value:
    return Uint(int(value)) if 0 <= value < 2.0**64 else _UNSIGNED_OVERFLOW


def _uint_to_int(value: int) -> Value:
    return int(value) if value <= MAX_INT else _INTEGER_OVERFLOW


def _int_to_uint(value: int) -> Value:
    return Uint(value) if value >= 0 else _UNSIGNED_OVERFLOW


def _int_to_duration(value: int) -> Value:
    return _wrong(value, DURATION)


def _int_to_timestamp(value: int) -> Value:
    return TimestampValue(value * SECOND) if FIRST_SECOND <= value <= LAST_SECOND else TIMESTAMP_OVERFLOW


def _bytes_to_string(value: bytes) -> Value:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return CelError("invalid UTF-8 in bytes, cannot convert to string")


def _string_to_bytes(value: str) -> Value:
    return value.encode(errors="surrogatepass")


def _duration_to_int(value: DurationValue) -> Value:
    return value.nanoseconds


def _timestamp_to_int(value: TimestampValue) -> Value:
    return value.nanoseconds // SECOND


def _bool_to_string(value: bool) -> Value:
    return "true" if value else "false"


def _whole_to_string(value: int) -> Value:
    return str(int(value))


def text_of(value: Value) -> str | None:
    """A value as `string(x)` yields it; None if it has no such form."""
    convert = _TO_STRING.get(type(value))
    text = convert(value) if convert else None
    return text if isinstance(text, str) else None


_TO_STRING: dict[type, Callable[..., Value]] = {
    str: _identity,
    bool: _bool_to_string,
    bytes: _bytes_to_string,
    float: go_double,
    DurationValue: duration_text,
    int: _whole_to_string,
    Uint: _whole_to_string,
    TimestampValue: timestamp_text,
    CelType: lambda value: value.name,
}


def _to(result: CelType, *forms: tuple[str, CelType, Callable[..., Value]]) -> list[Overload]:
    return [overload(name, [source], result, convert) for name, source, convert in forms]


FUNCTIONS: list[FunctionDeclaration] = [
    function("type", overload("type", [A], types.type_of(A)), implementation=type_of),
    function("dyn", overload("to_dyn", [A], types.DYN), implementation=_identity),
    function("bool", *_to(BOOL, ("bool_to_bool", BOOL, _identity), ("string_to_bool", STRING, _string_to_bool))),
    function("bytes", *_to(BYTES, ("bytes_to_bytes", BYTES, _identity), ("string_to_bytes", STRING, _string_to_bytes))),
    function(
        "double",
        *_to(
            DOUBLE,
            ("double_to_double", DOUBLE, _identity),
            ("int64_to_double", INT, float),
            ("string_to_double", STRING, _string_to_double),
            ("uint64_to_double", UINT, float),
        ),
    ),
    function(
        "duration",
        *_to(
            DURATION,
            ("duration_to_duration", DURATION, _identity),
            ("int64_to_duration", INT, _int_to_duration),
            ("string_to_duration", STRING, _string_to_duration),
        ),
    ),
    function(
        "int",
        *_to(
            INT,
            ("int64_to_int64", INT, _identity),
            ("double_to_int64", DOUBLE, _double_to_int),
            ("duration_to_int64", DURATION, _duration_to_int),
            ("string_to_int64", STRING, _string_to_int),
            ("timestamp_to_int64", TIMESTAMP, _timestamp_to_int),
            ("uint64_to_int64", UINT, _uint_to_int),
        ),
    ),
    function(
        "string",
        *_to(
            STRING,
            ("string_to_string", STRING, _identity),
            ("bool_to_string", BOOL, _bool_to_string),
            ("bytes_to_string", BYTES, _bytes_to_string),
            ("double_to_string", DOUBLE, go_double),
            ("duration_to_string", DURATION, duration_text),
            ("int64_to_string", INT, _whole_to_string),
            ("timestamp_to_string", TIMESTAMP, timestamp_text),
            ("uint64_to_string", UINT, _whole_to_string),
        ),
    ),
    function(
        "timestamp",
        *_to(
            TIMESTAMP,
            ("timestamp_to_timestamp", TIMESTAMP, _identity),
            ("int64_to_timestamp", INT, _int_to_timestamp),
            ("string_to_timestamp", STRING, _string_to_timestamp),
        ),
    ),
    function(
        "uint",
        *_to(
            UINT,
            ("uint64_to_uint64", UINT, _identity),
            ("double_to_uint64", DOUBLE, _double_to_uint),
            ("int64_to_uint64", INT, _int_to_uint),
            ("string_to_uint64", STRING, _string_to_uint),
        ),
    ),
]
CONVERSIONS = frozenset(each.name for each in FUNCTIONS)
"""Functions that are called when the program is made, if their argument is constant."""
