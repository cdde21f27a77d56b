"""Functions of quantities."""

from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.quantity import QuantityValue, parse
from shared.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from shared.cel.values import CelError, Value


def _quantity(text: str) -> Value:
    try:
        return parse(text)
    except ValueError as cause:
        return CelError(str(cause))


def _is_quantity(text: str) -> Value:
    return not isinstance(_quantity(text), CelError)


def _as_integer(value: QuantityValue) -> Value:
    integer = value.integer
    return CelError("cannot convert value to integer") if integer is None else integer


def _is_integer(value: QuantityValue) -> Value:
    return value.integer is not None


def _is_greater(one: QuantityValue, other: QuantityValue) -> Value:
    return one.compare(other) > 0


def _is_less(one: QuantityValue, other: QuantityValue) -> Value:
    return one.compare(other) < 0


def _add(one: QuantityValue, other: QuantityValue | int) -> Value:
    return one.add(other if isinstance(other, QuantityValue) else QuantityValue(other, 0))


def _subtract(one: QuantityValue, other: QuantityValue | int) -> Value:
    return one.subtract(other if isinstance(other, QuantityValue) else QuantityValue(other, 0))


FUNCTIONS: list[FunctionDeclaration] = [
    function("quantity", overload("string_to_quantity", [STRING], QUANTITY, _quantity)),
    function("isQuantity", overload("is_quantity_string", [STRING], BOOL, _is_quantity)),
    function("sign", overload("quantity_sign", [QUANTITY], INT, lambda value: value.sign)),
    function("isGreaterThan", member("quantity_is_greater_than", [QUANTITY, QUANTITY], BOOL, _is_greater)),
    function("isLessThan", member("quantity_is_less_than", [QUANTITY, QUANTITY], BOOL, _is_less)),
    function("compareTo", member("quantity_compare_to", [QUANTITY, QUANTITY], INT, QuantityValue.compare)),
    function("asApproximateFloat", member("quantity_get_float", [QUANTITY], DOUBLE, lambda value: value.approximate)),
    function("asInteger", member("quantity_get_int", [QUANTITY], INT, _as_integer)),
    function("isInteger", member("quantity_is_integer", [QUANTITY], BOOL, _is_integer)),
    function(
        "add",
        member("quantity_add", [QUANTITY, QUANTITY], QUANTITY, _add),
        member("quantity_add_int", [QUANTITY, INT], QUANTITY, _add),
    ),
    function(
        "sub",
        member("quantity_sub", [QUANTITY, QUANTITY], QUANTITY, _subtract),
        member("quantity_sub_int", [QUANTITY, INT], QUANTITY, _subtract),
    ),
]
