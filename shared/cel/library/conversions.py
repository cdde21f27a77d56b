"""Conversions between types: `int(x)`, `string(x)`, `type(x)` and so on."""

import re
from collections.abc import Callable, Mapping

from shared.cel import types
from shared.cel.declarations import A, Overload
from shared.cel.library.temporal import duration_text, parse_duration, parse_timestamp, timestamp_from, timestamp_text
from shared.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, CelType
from shared.cel.values import (
    INTEGER_OVERFLOW,
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
    integer,
    type_of,
    unsigned,
)

_WHOLE = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[-+]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?[0-9]+")
_SPECIAL = re.compile(r"[-+]?(?:inf|infinity)|nan", re.IGNORECASE)
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_MAX_DIGITS = 30
_INFINITY = float("inf")


def _wrong(value: Value, to: CelType) -> CelError:
    return CelError(f"type conversion error from '{type_of(value)}' to '{to}'")


def _whole(text: str) -> int | None:
    """The number that digits denote; None if they are none, or far out of range."""
    if not _WHOLE.fullmatch(text) or len(text.lstrip("+-0")) > _MAX_DIGITS:
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
    parse = float if _DECIMAL.fullmatch(value) else float.fromhex if _HEXADECIMAL.fullmatch(value) else None
    try:
        number = _INFINITY if parse is None else parse(value)
    except OverflowError:
        number = _INFINITY
    return _wrong(value, DOUBLE) if abs(number) == _INFINITY else number


def _string_to_bool(value: str) -> Value:
    if value in _TRUE:
        return True
    return False if value in _FALSE else _wrong(value, BOOL)


def _double_to_int(value: float) -> Value:
    # Doubles cannot tell the limits themselves from numbers beyond them.
    return int(value) if -(2.0**63) < value < 2.0**63 else INTEGER_OVERFLOW


def _double_to_uint(value: float) -> Value:
    return Uint(int(value)) if 0 <= value < 2.0**64 else unsigned(-1)


def _bytes_to_string(value: bytes) -> Value:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return CelError("invalid UTF-8 in bytes, cannot convert to string")


def _same(value: Value) -> Value:
    return value


_TO_STRING: Mapping[str, tuple[type, CelType, Callable[..., Value]]] = {
    "string_to_string": (str, STRING, _same),
    "bool_to_string": (bool, BOOL, lambda value: "true" if value else "false"),
    "bytes_to_string": (bytes, BYTES, _bytes_to_string),
    "double_to_string": (float, DOUBLE, go_double),
    "duration_to_string": (DurationValue, DURATION, duration_text),
    "int64_to_string": (int, INT, int.__repr__),
    "timestamp_to_string": (TimestampValue, TIMESTAMP, timestamp_text),
    "uint64_to_string": (Uint, UINT, int.__repr__),
}
_TEXTS = {kind: convert for kind, _, convert in _TO_STRING.values()}


def text_of(value: Value) -> str | None:
    """A value as `string(x)` yields it; None if it has no such form."""
    if isinstance(value, CelType):
        return value.name
    convert = _TEXTS.get(type(value))
    text = convert(value) if convert else None
    return text if isinstance(text, str) else None


FUNCTIONS = [
    Overload("type", "type", [A], types.type_of(A), type_of, guarded=False),
    Overload("dyn", "to_dyn", [A], types.DYN, _same, guarded=False),
    Overload("bool", "bool_to_bool", [BOOL], BOOL, _same),
    Overload("bool", "string_to_bool", [STRING], BOOL, _string_to_bool),
    Overload("bytes", "bytes_to_bytes", [BYTES], BYTES, _same),
    Overload("bytes", "string_to_bytes", [STRING], BYTES, lambda value: value.encode(errors="surrogatepass")),
    Overload("double", "double_to_double", [DOUBLE], DOUBLE, _same),
    Overload("double", "int64_to_double", [INT], DOUBLE, float),
    Overload("double", "string_to_double", [STRING], DOUBLE, _string_to_double),
    Overload("double", "uint64_to_double", [UINT], DOUBLE, float),
    Overload("duration", "duration_to_duration", [DURATION], DURATION, _same),
    Overload("duration", "int64_to_duration", [INT], DURATION, lambda value: _wrong(value, DURATION)),
    Overload(
        "duration",
        "string_to_duration",
        [STRING],
        DURATION,
        lambda value: parse_duration(value) or _wrong(value, DURATION),
    ),
    Overload("int", "int64_to_int64", [INT], INT, _same),
    Overload("int", "double_to_int64", [DOUBLE], INT, _double_to_int),
    Overload("int", "duration_to_int64", [DURATION], INT, lambda value: value.nanoseconds),
    Overload("int", "string_to_int64", [STRING], INT, _string_to_int),
    Overload("int", "timestamp_to_int64", [TIMESTAMP], INT, lambda value: value.nanoseconds // SECOND),
    Overload("int", "uint64_to_int64", [UINT], INT, lambda value: integer(int(value))),
    *(Overload("string", name, [source], STRING, convert) for name, (_, source, convert) in _TO_STRING.items()),
    Overload("timestamp", "timestamp_to_timestamp", [TIMESTAMP], TIMESTAMP, _same),
    Overload("timestamp", "int64_to_timestamp", [INT], TIMESTAMP, lambda value: timestamp_from(value * SECOND)),
    Overload(
        "timestamp",
        "string_to_timestamp",
        [STRING],
        TIMESTAMP,
        lambda value: parse_timestamp(value) or _wrong(value, TIMESTAMP),
    ),
    Overload("uint", "uint64_to_uint64", [UINT], UINT, _same),
    Overload("uint", "double_to_uint64", [DOUBLE], UINT, _double_to_uint),
    Overload("uint", "int64_to_uint64", [INT], UINT, unsigned),
    Overload("uint", "string_to_uint64", [STRING], UINT, _string_to_uint),
]
CONVERSIONS = frozenset(each.function for each in FUNCTIONS)
"""Functions that are called when the program is made, if their argument is constant."""
