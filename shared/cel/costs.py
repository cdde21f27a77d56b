"""What calls cost at run time, in cel-go's units."""

import math
from collections.abc import Callable, Mapping, Sequence

from shared.cel.library.operators import size_of
from shared.cel.quantity import QuantityValue
from shared.cel.values import (
    CelMap,
    Cidr,
    Ip,
    NamedFormat,
    OptionalValue,
    Semver,
    Url,
    Value,
    bounded,
)

LIMIT = 1_000_000
"""Of one evaluation of a selector."""
LIST, MAP, STRUCT = 10, 30, 40
"""What it costs to create one."""
PER_CHARACTER = 0.1
PER_REGEX_CHARACTER = 0.25

CallCost = Callable[[Sequence[Value], Value], int]
"""The cost of a call from its arguments and its result."""


def size(value: Value) -> int:
    """The length of what has one; 1 for other values."""
    if isinstance(value, OptionalValue) and value.present:
        return size(value.value)
    length = size_of(value)
    return 1 if length is None else length


def _own_size(value: Value) -> int:
    """`size`, for Kubernetes' functions, to which an optional is no container."""
    length = size_of(value)
    return 1 if length is None else length


def traversal(length: float, factor: float = PER_CHARACTER) -> int:
    return math.ceil(length * factor)


def needs_result(cost: CallCost) -> bool:
    """Whether the cost of a call depends on its result; others are charged before the call."""
    return cost in (_joined, _output)


def call_cost(function: str, overloads: tuple[str, ...]) -> CallCost:
    """How to reckon the cost of a call. Of several possible overloads, none decides the cost."""
    overload = overloads[0] if len(overloads) == 1 else ""
    by_overload = _LIST_COSTS.get(overload)
    if by_overload is not None:
        return by_overload
    if function in _KUBERNETES_COSTS:
        return _KUBERNETES_COSTS[function](overload)
    return _STANDARD_COSTS.get(overload, _one)


def _one(_arguments: Sequence[Value], _result: Value) -> int:
    return 1


def _first_argument(arguments: Sequence[Value], _: Value) -> int:
    return traversal(size(arguments[0]))


def _smaller_argument(arguments: Sequence[Value], _: Value) -> int:
    return traversal(min(size(arguments[0]), size(arguments[1])))


def _equality(arguments: Sequence[Value], result: Value) -> int:
    if isinstance(arguments[0], QuantityValue | Ip | Cidr | NamedFormat | Url | Semver):
        return 1
    return _smaller_argument(arguments, result)


def _both_arguments(arguments: Sequence[Value], _: Value) -> int:
    return traversal(size(arguments[0]) + size(arguments[1]))


def _searched_list(arguments: Sequence[Value], _: Value) -> int:
    return size(arguments[1])


def _searched_text(arguments: Sequence[Value], _: Value) -> int:
    return traversal(size(arguments[0])) * traversal(size(arguments[1]))


def _regex(arguments: Sequence[Value], _: Value) -> int:
    return traversal(1.0 + size(arguments[0])) * traversal(size(arguments[1]), PER_REGEX_CHARACTER)


_STANDARD_COSTS: Mapping[str, CallCost] = (
    {
        "equals": _equality,
        "not_equals": _smaller_argument,
        "in_list": _searched_list,
        "add_string": _both_arguments,
        "add_bytes": _both_arguments,
        "matches_string": _regex,
        "contains_string": _searched_text,
    }
    | dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "string_to_bytes",
            "bytes_to_string",
            "strings_quote",
            "string_format",
        ),
        _first_argument,
    )
    | {
        f"{operator}_{kind}": _smaller_argument
        for operator in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    }
)


# Functions that Kubernetes prices itself, by name.


def _walk(value: Value) -> int:
    """The cost of going through a value with all its parts."""
    match value:
        case str():
            return int(len(value.encode(errors="surrogatepass")) * PER_CHARACTER)
        case bytes():
            return int(len(value) * PER_CHARACTER)
        case list():
            return sum(map(_walk, value))
        case CelMap():
            return sum(_walk(key) + _walk(each) for key, each in value.items())
    return 1


def _walked(arguments: Sequence[Value], _: Value) -> int:
    return _walk(bounded(arguments[0])) if arguments else 0


def _read(factor: int = 1) -> CallCost:
    """Reading the first argument, `factor` times."""
    return lambda arguments, _: traversal(_own_size(arguments[0]) * factor)


def _joined(_: Sequence[Value], result: Value) -> int:
    return traversal(_own_size(result) * 2)


def _find(arguments: Sequence[Value], _: Value) -> int:
    return traversal(1.0 + _own_size(arguments[0])) * traversal(_own_size(arguments[1]), PER_REGEX_CHARACTER)


def _validate(arguments: Sequence[Value], _: Value) -> int:
    expected, text = arguments
    if not isinstance(expected, NamedFormat):
        return 1
    return traversal(1.0 + _own_size(text)) * traversal(expected.regex_size, PER_REGEX_CHARACTER)


def _containment(parsed: str, with_mask: bool) -> Callable[[str], CallCost]:
    """Comparing the bits of two addresses; reading the other one first if it is a text."""

    def priced(overload: str) -> CallCost:
        def cost(arguments: Sequence[Value], _: Value) -> int:
            own, other = map(_own_size, arguments)
            total = traversal(own + own)
            if with_mask:
                total += traversal(own) + 1
            return total + (traversal(other) if overload == parsed else 0)

        return cost

    return priced


def _always(cost: CallCost) -> Callable[[str], CallCost]:
    return lambda _: cost


_KUBERNETES_COSTS: dict[str, Callable[[str], CallCost]] = (
    dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _always(_walked))
    | dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _always(_read()))
    | dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _always(_read()))
    | dict.fromkeys(("replace", "split", "ip.isCanonical"), _always(_read(2)))
    | dict.fromkeys(("find", "findAll"), _always(_find))
    | {
        "join": _always(_joined),
        "ip": lambda overload: _one if overload == "cidr_ip" else _read(),
        "validate": _always(_validate),
        "containsIP": _containment("cidr_contains_ip_string", with_mask=False),
        "containsCIDR": _containment("cidr_contains_cidr_string", with_mask=True),
    }
)


# List functions with prices of their own, by overload.


def _allocated(length: float) -> int:
    return int(length) + 1 + LIST


def _output(_: Sequence[Value], result: Value) -> int:
    return _allocated(_own_size(result))


def _range(arguments: Sequence[Value], _: Value) -> int:
    count = arguments[0]
    return _allocated(max(count, 0) if isinstance(count, int) else 1)


def _flattened(arguments: Sequence[Value], _: Value) -> int:
    depth = arguments[1] if len(arguments) == 2 else 1
    levels = max(depth, 0) if isinstance(depth, int) else 1
    return _allocated(_own_size(arguments[0]) * levels)


def _compared(index: int) -> CallCost:
    """Comparing the elements of a list with each other."""

    def cost(arguments: Sequence[Value], _: Value) -> int:
        values = arguments[index]
        count = _own_size(values)
        factor = 2.0
        if isinstance(values, list) and values and isinstance(values[0], str | bytes):
            factor += PER_CHARACTER
        return _allocated(count * count * factor)

    return cost


def _sets(factor: int) -> CallCost:
    return lambda arguments, _: 1 + _own_size(arguments[0]) * _own_size(arguments[1]) * factor


COMPARABLE_NAMES = (
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "string",
    "bytes",
)
_LIST_COSTS: dict[str, CallCost] = (
    {
        "list_slice": _output,
        "list_flatten": _flattened,
        "list_flatten_int": _flattened,
        "lists_range": _range,
        "list_reverse": _output,
        "list_distinct": _compared(0),
        "list_sets_contains_list": _sets(1),
        "list_sets_intersects_list": _sets(1),
        "list_sets_equivalent_list": _sets(2),
    }
    | {f"list_{name}_sort": _compared(0) for name in COMPARABLE_NAMES}
    | {f"list_{name}_sortByAssociatedKeys": _compared(1) for name in COMPARABLE_NAMES}
)
