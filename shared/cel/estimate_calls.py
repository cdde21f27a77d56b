"""What a call costs at most, from the sizes of its arguments, and the size of its result."""

import math
from collections.abc import Callable, Mapping

from shared.cel import types
from shared.cel.costs import COMPARABLE_NAMES, LIST, PER_CHARACTER, PER_REGEX_CHARACTER
from shared.cel.library.lists import MOST_INCLUDED
from shared.cel.sizes import ONE, UNBOUNDED, UNKNOWN, Argument, CallEstimate, Range, declared_size, exactly
from shared.cel.syntax import LiteralNode
from shared.cel.types import TypeKind

ADDRESS = Range(4, 16)
"""Bytes of an IP address."""
LONGEST_REGEX_OF_FORMAT = 128
"""Characters, taken as the worst case of all named formats."""
LONGEST_FORMAT_NAME = 64

Estimate = Callable[[Argument | None, list[Argument]], CallEstimate | None]
"""From the receiver and the arguments; None if the estimate does not apply to them."""


def estimate_call(function: str, overload: str, target: Argument | None, arguments: list[Argument]) -> CallEstimate:
    """The cost of one overload without that of its arguments."""
    for estimate in (_LIST_ESTIMATES.get(overload), _kubernetes(function, overload), _STANDARD.get(overload)):
        found = None if estimate is None else estimate(target, arguments)
        if found is not None:
            return found
    return CallEstimate(ONE)


def _known(argument: Argument) -> Range:
    """The size of an argument as computed."""
    return UNKNOWN if argument.size is None else argument.size


def _size(argument: Argument) -> Range:
    """The size of an argument as computed or declared."""
    if argument.size is not None:
        return argument.size
    return declared_size(argument.path) or UNKNOWN


def _read(size: Range) -> Range:
    return size.scaled(PER_CHARACTER)


def _nominal(_: Argument | None, __: list[Argument]) -> CallEstimate:
    return CallEstimate(ONE)


# CEL's own functions.


def _reads_argument(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    return CallEstimate(_read(_known(arguments[0])))


def _string_to_bytes(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    size = _known(arguments[0])
    return CallEstimate(_read(size), Range(size.least, size.most * 4 % 2**64))


def _bytes_to_string(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    size = _known(arguments[0])
    return CallEstimate(_read(size), Range(size.least // 4, size.most))


def _quote(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    size = _known(arguments[0])
    return CallEstimate(_read(size), Range(size.least + 2, (size.most * 2 + 2) % 2**64))


def _format(target: Argument | None, _: list[Argument]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_read(_known(target)))


def _in_list(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    return CallEstimate(_known(arguments[1]).scaled(1))


def _matches(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None or len(arguments) != 1:
        return None
    text = _read(_known(target) + ONE)
    return CallEstimate(text * _known(arguments[0]).scaled(PER_REGEX_CHARACTER))


def _contains(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None or len(arguments) != 1:
        return None
    return CallEstimate(_read(_known(target)) * _read(_known(arguments[0])))


def _added(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    size = _known(arguments[0]) + _known(arguments[1])
    return CallEstimate(_read(size), size)


def _added_lists(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    return CallEstimate(ONE, _known(arguments[0]) + _known(arguments[1]))


def _compared(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    most = min(_known(arguments[0]).most, _known(arguments[1]).most)
    return CallEstimate(_read(Range(1 if most else 0, most)))


_STANDARD: dict[str, Estimate] = {
    "string_format": _format,
    "string_to_bytes": _string_to_bytes,
    "bytes_to_string": _bytes_to_string,
    "strings_quote": _quote,
    "starts_with_string": _reads_argument,
    "ends_with_string": _reads_argument,
    "in_list": _in_list,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_string": _added,
    "add_bytes": _added,
    "add_list": _added_lists,
    "equals": _compared,
    "not_equals": _compared,
} | {
    f"{operator}_{kind}": _compared
    for operator in ("less", "greater", "less_equals", "greater_equals")
    for kind in ("string", "bytes")
}


# Kubernetes' functions.


def _walked(target: Argument | None, _: list[Argument]) -> CallEstimate | None:
    """Going through a list, and through the texts in it, or through a text."""
    if target is None:
        return None
    element = _element(target)
    if element is None:
        return CallEstimate(_read(_size(target)))
    cost = ONE
    if element.type.kind in (TypeKind.STRING, TypeKind.BYTES):
        cost += _read(_size(element))
    return CallEstimate(_size(target) * cost)


def _element(of: Argument) -> Argument | None:
    """What the elements of a list are."""
    if not of.type.parameters:
        return None
    path = [*of.path, "@items"] if of.path else []
    return Argument(None, of.type.parameters[0], path, None)


def _copied_argument(_: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if len(arguments) != 1:
        return None
    return CallEstimate(_read(_size(arguments[0])), _size(arguments[0]))


def _copied_target(target: Argument | None, _: list[Argument]) -> CallEstimate | None:
    return None if target is None else CallEstimate(_read(_size(target)), _size(target))


def _parsed(_: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    return CallEstimate(_read(_size(arguments[0]))) if arguments else None


def _parsed_twice(_: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    return CallEstimate(_size(arguments[0]).scaled(2 * PER_CHARACTER)) if arguments else None


def _replaced(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None or len(arguments) < 2:
        return None
    size, old, new = _size(target), _size(arguments[0]), _size(arguments[1])
    least_count, least_kept = _fewest_replacements(size, old, new)
    most_count, most_kept = _most_replacements(size, old, new)
    result = Range(least_count, most_count) * new + Range(least_kept, most_kept)
    return CallEstimate(size.scaled(2 * PER_CHARACTER), result)


def _most_replacements(size: Range, old: Range, new: Range) -> tuple[int, int]:
    """How many replacements make the longest result, and how much of the text it keeps besides."""
    if old.least == 0:
        return min(size.most + 1, UNBOUNDED), size.most
    if new.most <= old.least:
        return 0, size.most
    return math.ceil(float(size.most) / float(old.least)), 0


def _fewest_replacements(size: Range, old: Range, new: Range) -> tuple[int, int]:
    """The same for the shortest result."""
    if old.most == 0:
        return min(size.least + 1, UNBOUNDED), size.least
    if old.most <= new.least:
        return 0, size.least
    return math.ceil(float(size.least) / float(old.most)), 0


def _split(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None:
        return None
    size = _size(target)
    most = size.most
    if len(arguments) > 1:
        limit = _integer(arguments[1])
        most = most if limit is None else limit % 2**64
    return CallEstimate(size.scaled(2 * PER_CHARACTER), Range(0, most))


def _integer(argument: Argument) -> int | None:
    """The value of an integer literal."""
    node = argument.node
    value = node.value if isinstance(node, LiteralNode) else None
    return value if type(value) is int else None


def _joined(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None:
        return None
    count = _size(target)
    element = _element(target)
    size = Range(0, 0) if element is None else count * _size(element)
    if arguments:
        size += _size(arguments[0]) * Range(max(count.least - 1, 0), max(count.most - 1, 0))
    return CallEstimate(_read(size), size)


def _found(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None or not arguments:
        return None
    size = _size(target)
    cost = _read(size + ONE) * _size(arguments[0]).scaled(PER_REGEX_CHARACTER)
    return CallEstimate(cost, Range(0, size.most))


def _validated(_: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    cost = _read(_size(arguments[0])).scaled(LONGEST_REGEX_OF_FORMAT * PER_REGEX_CHARACTER)
    return CallEstimate(cost)


def _containment(parsed: bool, with_mask: bool) -> Estimate:
    def estimate(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
        cost = _read(ADDRESS + ADDRESS)
        if with_mask:
            cost += _read(ADDRESS) + ONE
        return CallEstimate(cost + _read(_size(arguments[0])) if parsed else cost)

    return estimate


def _equality(_: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    """Comparing two values of one of Kubernetes' own types."""
    one, other = arguments
    if one.type != other.type:
        return None
    if one.type in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return CallEstimate(ONE)
    if one.type == types.NAMED_FORMAT:
        return CallEstimate(_read(Range(1, LONGEST_FORMAT_NAME)))
    if one.type == types.URL:
        return CallEstimate(_read(Range(1, ONE.most if other.size is None else other.size.most)))
    return None


_NOMINAL = (
    *("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast"),
    *("isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger", "isInteger"),
    *("asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch"),
    *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
)
_BY_FUNCTION: Mapping[str, Estimate] = (
    dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _walked)
    | dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _copied_target)
    | dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _parsed)
    | dict.fromkeys(("find", "findAll"), _found)
    | dict.fromkeys(_NOMINAL, _nominal)
    | {
        "url": _copied_argument,
        "replace": _replaced,
        "split": _split,
        "join": _joined,
        "ip.isCanonical": _parsed_twice,
        "validate": _validated,
        "_==_": _equality,
    }
)
_BY_OVERLOAD: dict[str, Estimate] = {
    "dra_includes_dyn_dyn": lambda _, __: CallEstimate(Range(0, MOST_INCLUDED)),
    "cidr_ip": _nominal,
    "cidr_contains_ip_string": _containment(parsed=True, with_mask=False),
    "cidr_contains_ip_ip": _containment(parsed=False, with_mask=False),
    "cidr_contains_cidr_string": _containment(parsed=True, with_mask=True),
    "cidr_contains_cidr": _containment(parsed=False, with_mask=True),
}


def _kubernetes(function: str, overload: str) -> Estimate | None:
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function)


# List functions with estimates of their own.


def _allocated(size: Range, factor: float = 1.0, result: Range | None = None) -> CallEstimate:
    return CallEstimate(size.scaled(factor) + ONE + exactly(LIST), result or size)


def _literal_or(argument: Argument, default: int) -> int:
    number = _integer(argument)
    return default if number is None else max(number, 0)


def _sliced(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None:
        return None
    start, end = _literal_or(arguments[0], 0), _literal_or(arguments[1], _size(target).most)
    return _allocated(exactly((end - start) % 2**64))


def _range(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
    return _allocated(exactly(_literal_or(arguments[0], UNBOUNDED)))


def _reversed(target: Argument | None, _: list[Argument]) -> CallEstimate | None:
    return None if target is None else _allocated(_size(target))


def _flattened(target: Argument | None, arguments: list[Argument]) -> CallEstimate | None:
    if target is None:
        return None
    depth = _literal_or(arguments[0], UNBOUNDED) if arguments else 1
    return _allocated(_size(target), float(depth))


def _distinct(target: Argument | None, _: list[Argument]) -> CallEstimate | None:
    return None if target is None else _squared(_size(target), 2.0)


def _squared(size: Range, factor: float) -> CallEstimate:
    return _allocated(size * size, factor)


def _sorted(factor: float) -> Estimate:
    return lambda target, arguments: None if target is None else _squared(_size(target), factor)


def _sorted_by_keys(factor: float) -> Estimate:
    return lambda target, arguments: None if target is None else _squared(_size(arguments[0]), factor)


def _sets(factor: float) -> Estimate:
    def estimate(_: Argument | None, arguments: list[Argument]) -> CallEstimate:
        one, other = map(_size, arguments)
        return CallEstimate((one * other).scaled(factor) + ONE)

    return estimate


def _factor(name: str) -> float:
    return 2.0 + (PER_CHARACTER if name in ("string", "bytes") else 0)


_LIST_ESTIMATES: dict[str, Estimate] = (
    {
        "list_slice": _sliced,
        "lists_range": _range,
        "list_reverse": _reversed,
        "list_flatten": _flattened,
        "list_flatten_int": _flattened,
        "list_distinct": _distinct,
        "list_sets_contains_list": _sets(1),
        "list_sets_intersects_list": _sets(1),
        "list_sets_equivalent_list": _sets(2),
    }
    | {f"list_{name}_sort": _sorted(_factor(name)) for name in COMPARABLE_NAMES}
    | {f"list_{name}_sortByAssociatedKeys": _sorted_by_keys(_factor(name)) for name in COMPARABLE_NAMES}
)
