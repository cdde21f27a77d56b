"""Functions of optional values."""

from shared.cel import types
from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.types import BOOL
from shared.cel.values import NONE, CelError, CelMap, DurationValue, OptionalValue, TimestampValue, Value, go_text

_V = types.parameter("V")
_OPTIONAL = types.optional_of(_V)
_LIST = types.list_of(_V)
_LIST_OF_OPTIONALS = types.list_of(_OPTIONAL)
NO_VALUE = CelError("optional.none() dereference")
_YEAR_ONE = -62135596800 * 10**9
"""The zero time of Go."""


def _of(value: Value) -> Value:
    return OptionalValue(value)


def _of_non_zero(value: Value) -> Value:
    match value:
        case None | DurationValue(0):
            return NONE
        case bool() | int() | float() | str() | bytes() | list() | CelMap():
            return OptionalValue(value) if value else NONE
        case TimestampValue():
            return NONE if value.nanoseconds == _YEAR_ONE else OptionalValue(value)
    return OptionalValue(value)


def _none() -> Value:
    return NONE


def _value(optional: OptionalValue) -> Value:
    return optional.value if optional.present else NO_VALUE


def _has_value(optional: OptionalValue) -> Value:
    return optional.present


def _first(values: list[Value]) -> Value:
    return OptionalValue(values[0]) if values else NONE


def _last(values: list[Value]) -> Value:
    return OptionalValue(values[-1]) if values else NONE


def _unwrap(values: list[Value]) -> Value:
    for each in values:
        if not isinstance(each, OptionalValue):
            return CelError(f"value {go_text(each)} is not optional")
    return [each.value for each in values if isinstance(each, OptionalValue) and each.present]


FUNCTIONS: list[FunctionDeclaration] = [
    function("optional.of", overload("optional_of", [_V], _OPTIONAL, _of)),
    function("optional.ofNonZeroValue", overload("optional_ofNonZeroValue", [_V], _OPTIONAL, _of_non_zero)),
    function("optional.none", overload("optional_none", [], _OPTIONAL, _none)),
    function("value", member("optional_value", [_OPTIONAL], _V, _value)),
    function("hasValue", member("optional_hasValue", [_OPTIONAL], BOOL, _has_value)),
    function("or", member("optional_or_optional", [_OPTIONAL, _OPTIONAL], _OPTIONAL)),
    function("orValue", member("optional_orValue_value", [_OPTIONAL, _V], _V)),
    function("last", member("list_last", [_LIST], types.optional_of(_V), _last)),
    function("first", member("list_first", [_LIST], types.optional_of(_V), _first)),
    function("optional.unwrap", overload("optional_unwrap", [_LIST_OF_OPTIONALS], _LIST, _unwrap)),
    function("unwrapOpt", member("optional_unwrapOpt", [_LIST_OF_OPTIONALS], _LIST, _unwrap)),
]
