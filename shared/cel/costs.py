"""What calls cost, in cel-go's units: at run time, and at most as far as sizes are known before.

Functions are priced by overload or by name. Where cost and estimate follow one formula, it is applied to sizes in the
one case and to ranges of sizes in the other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from shared.cel import types
from shared.cel.library.lists import MAX_INCLUDED
from shared.cel.library.operators import size_of
from shared.cel.quantity import QuantityValue
from shared.cel.syntax import LiteralNode, SyntaxNode
from shared.cel.types import CelType, TypeKind
from shared.cel.values import (
    CelError,
    CelMap,
    Cidr,
    DurationValue,
    Ip,
    NamedFormat,
    OptionalValue,
    PanickedError,
    Semver,
    TimestampValue,
    Url,
    Value,
    bounded,
    go_type_name,
)

LIMIT = 1_000_000
"""Of one evaluation of a selector."""
LIST, MAP, STRUCT = 10, 30, 40
"""What it costs to create one."""
PER_CHARACTER = 0.1
PER_REGEX_CHARACTER = 0.25
UNBOUNDED = 2**64 - 1


class Range(NamedTuple):
    """A size or a cost: the least and the most. Nothing exceeds UNBOUNDED."""

    least: int
    most: int

    def __add__(self, other: "Range | int") -> "Range":  # type: ignore[override]
        least, most = other if isinstance(other, Range) else (other, other)
        return Range(min(self.least + least, UNBOUNDED), min(self.most + most, UNBOUNDED))

    def __mul__(self, other: "Range") -> "Range":  # type: ignore[override]
        return Range(min(self.least * other.least, UNBOUNDED), min(self.most * other.most, UNBOUNDED))

    def union(self, other: "Range") -> "Range":
        return Range(min(self.least, other.least), max(self.most, other.most))


ZERO, ONE = Range(0, 0), Range(1, 1)
UNKNOWN = Range(0, UNBOUNDED)
ADDRESS = Range(4, 16)
"""Bytes of an IP address."""
LONGEST_REGEX_OF_FORMAT = 128
"""Characters, taken as the worst case of all named formats."""
LONGEST_FORMAT_NAME = 64


class Argument(NamedTuple):
    """An argument of a call as far as it is known before: its type, its size and that of its elements."""

    node: SyntaxNode
    type: CelType
    known: Range | None
    element: Range

    @property
    def size(self) -> Range:
        return UNKNOWN if self.known is None else self.known

    def integer(self, default: int) -> int:
        """The value of an integer literal."""
        value = self.node.value if isinstance(self.node, LiteralNode) else None
        return value if type(value) is int else default


class CallEstimate(NamedTuple):
    """What a call costs at most, without its arguments, and the size of its result."""

    cost: Range
    result: Range | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a call from its arguments, the receiver first; `by_result` ones are charged after the call."""

    cost: Callable[[Sequence[Value]], int]
    estimate: Callable[[Sequence[Argument]], CallEstimate]
    by_result: bool = False


def price(function: str, overload: str) -> Price:
    return _PRICES.get(overload) or _PRICES.get(function) or _NOMINAL


def call_price(function: str, overloads: tuple[str, ...]) -> Price:
    """The price of a call; of several possible overloads, none decides it."""
    return price(function, overloads[0] if len(overloads) == 1 else "")


def size(value: Value) -> int:
    """The length of what has one; 1 for other values."""
    if isinstance(value, OptionalValue) and value.present:
        return size(value.value)
    return _own_size(value)


def _own_size(value: Value) -> int:
    """`size`, for Kubernetes' functions, to which an optional is no container."""
    length = size_of(value)
    return 1 if length is None else length


Size = TypeVar("Size", int, Range)


def scaled(length: Size, factor: float) -> Size:
    if isinstance(length, Range):
        return Range(scaled(length.least, factor), scaled(length.most, factor))
    return min(math.ceil(float(length) * factor), UNBOUNDED)


def _read(length: Size) -> Size:
    return scaled(length, PER_CHARACTER)


# Formulas.


def _first(first: Size, *_: Size) -> Size:
    return _read(first)


def _first_twice(first: Size, *_: Size) -> Size:
    return scaled(first, 2 * PER_CHARACTER)


def _both(one: Size, other: Size) -> Size:
    return _read(one + other)


def _second(_: Size, length: Size) -> Size:
    return scaled(length, 1)


def _product(one: Size, other: Size) -> Size:
    return _read(one) * _read(other)


def _regex(text: Size, pattern: Size, *_: Size) -> Size:
    return _read(text + 1) * scaled(pattern, PER_REGEX_CHARACTER)


def _sets(one: Size, other: Size) -> Size:
    return scaled(one * other, 1) + 1


def _equivalent_sets(one: Size, other: Size) -> Size:
    return scaled(one * other, 2) + 1


def _overlap(own: Size, _: Size) -> Size:
    """Comparing the bits of two addresses."""
    return _read(own + own)


def _overlap_with_mask(own: Size, _: Size) -> Size:
    return _read(own + own) + _read(own) + 1


def _price(
    formula: Callable[..., Any],
    result: Callable[[Sequence[Range]], Range] | None = None,
    measure: Callable[[Value], int] = _own_size,
) -> Price:
    """By a formula of the sizes of all arguments."""

    def cost(arguments: Sequence[Value]) -> int:
        found: int = formula(*map(measure, arguments))
        return found

    def estimate(arguments: Sequence[Argument]) -> CallEstimate:
        sizes = [each.size for each in arguments]
        return CallEstimate(formula(*sizes), result(sizes) if result else None)

    return Price(cost, estimate)


def _containment(formula: Callable[..., Any], parsed: bool = False) -> Price:
    """Of addresses; the other one is read first if it is a text."""

    def cost(arguments: Sequence[Value]) -> int:
        own, other = map(_own_size, arguments)
        return int(formula(own, other)) + (_read(other) if parsed else 0)

    def estimate(arguments: Sequence[Argument]) -> CallEstimate:
        compared: Range = formula(ADDRESS, ADDRESS)
        return CallEstimate(compared + _read(arguments[1].size) if parsed else compared)

    return Price(cost, estimate)


_NOMINAL = Price(lambda _: 1, lambda _: CallEstimate(ONE))

# Comparisons.


def _smaller(arguments: Sequence[Value]) -> int:
    return _read(min(map(size, arguments)))


def _smaller_range(arguments: Sequence[Argument]) -> CallEstimate:
    most = min(each.size.most for each in arguments)
    return CallEstimate(_read(Range(1 if most else 0, most)))


def _equality(arguments: Sequence[Value]) -> int:
    extensions = QuantityValue | Ip | Cidr | NamedFormat | Url | Semver
    return 1 if isinstance(arguments[0], extensions) else _smaller(arguments)


def _equality_range(arguments: Sequence[Argument]) -> CallEstimate:
    one, other = arguments
    if one.type == other.type:
        if one.type in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
            return CallEstimate(ONE)
        if one.type == types.NAMED_FORMAT:
            return CallEstimate(_read(Range(1, LONGEST_FORMAT_NAME)))
        if one.type == types.URL:
            return CallEstimate(_read(Range(1, (other.known or ONE).most)))
    return _smaller_range(arguments)


# Lists and texts.


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


def _walk_range(arguments: Sequence[Argument]) -> CallEstimate:
    """Going through a list, and through the texts in it, or through a text."""
    target = arguments[0]
    if not target.type.parameters:
        return CallEstimate(_read(target.size))
    texts = target.type.parameters[0].kind in (TypeKind.STRING, TypeKind.BYTES)
    return CallEstimate(target.size * (ONE + _read(target.element) if texts else ONE))


def _joined_range(arguments: Sequence[Argument]) -> CallEstimate:
    target, *separator = arguments
    count = target.size
    length = count * target.element if target.type.parameters else ZERO
    if separator:
        length += separator[0].size * Range(max(count.least - 1, 0), max(count.most - 1, 0))
    return CallEstimate(_read(length), length)


def _replaced(sizes: Sequence[Range]) -> Range:
    text, old, new = sizes[:3]
    # How often the replacement occurs, and how much of the text is left beside it, in the shortest and longest result.
    if old.most == 0:
        fewest, least_kept = min(text.least + 1, UNBOUNDED), text.least
    elif old.most <= new.least:
        fewest, least_kept = 0, text.least
    else:
        fewest, least_kept = math.ceil(float(text.least) / float(old.most)), 0
    if old.least == 0:
        most, most_kept = min(text.most + 1, UNBOUNDED), text.most
    elif new.most <= old.least:
        most, most_kept = 0, text.most
    else:
        most, most_kept = math.ceil(float(text.most) / float(old.least)), 0
    return Range(fewest, most) * new + Range(least_kept, most_kept)


def _split_range(arguments: Sequence[Argument]) -> CallEstimate:
    text = arguments[0].size
    most = arguments[2].integer(text.most) % 2**64 if len(arguments) > 2 else text.most
    return CallEstimate(_first_twice(text), Range(0, most))


def _validation(arguments: Sequence[Value]) -> int:
    expected, text = arguments
    return _regex(_own_size(text), expected.regex_size) if isinstance(expected, NamedFormat) else 1


def _validation_range(arguments: Sequence[Argument]) -> CallEstimate:
    return CallEstimate(scaled(_read(arguments[1].size), LONGEST_REGEX_OF_FORMAT * PER_REGEX_CHARACTER))


# Functions that allocate a list.


def _allocated(length: float) -> int:
    """A length that does not fit into 64 bits counts as 2**63, as on the processors that Kubernetes mostly runs on."""
    return (int(length) if length < 2.0**64 else 2**63) + 1 + LIST


def _allocated_range(length: Range, factor: float = 1.0) -> CallEstimate:
    return CallEstimate(scaled(length, factor) + 1 + LIST, length)


def _output(result: Sequence[Value]) -> int:
    return _allocated(_own_size(result[0]))


def _slice_range(arguments: Sequence[Argument]) -> CallEstimate:
    start, end = max(arguments[1].integer(0), 0), max(arguments[2].integer(arguments[0].size.most), 0)
    length = (end - start) % 2**64
    return _allocated_range(Range(length, length))


def _range(arguments: Sequence[Value]) -> int:
    count = arguments[0]
    return _allocated(max(count, 0) if isinstance(count, int) else 1)


def _range_range(arguments: Sequence[Argument]) -> CallEstimate:
    length = max(arguments[0].integer(UNBOUNDED), 0)
    return _allocated_range(Range(length, length))


def _flattened(arguments: Sequence[Value]) -> int:
    for each in arguments[1:]:
        if type(each) is not int:
            raise PanickedError(f"interface conversion: ref.Val is {_go_name(each)}, not types.Int")
    depth = arguments[1] if len(arguments) == 2 else 1
    levels = max(depth, 0) if isinstance(depth, int) else 1
    return _allocated(_own_size(arguments[0]) * float(levels))


def _flattened_range(arguments: Sequence[Argument]) -> CallEstimate:
    depth = max(arguments[1].integer(UNBOUNDED), 0) if len(arguments) == 2 else 1
    return _allocated_range(arguments[0].size, float(depth))


_WITH_ADD = (int, float, str, bytes, DurationValue, TimestampValue)
"""Types that cel-go can add."""


def _go_name(value: Value) -> str:
    return "*types.Err" if isinstance(value, CelError) else go_type_name(value)


def _ordering(index: int, factor: float) -> Price:
    """Comparing the elements of a list with each other."""

    def cost(arguments: Sequence[Value]) -> int:
        values = arguments[index]
        if not isinstance(values, list):
            lacking = "Contains" if isinstance(values, _WITH_ADD) and not isinstance(values, bool) else "Add"
            found = f"{_go_name(values)} is not traits.Lister: missing method {lacking}"
            raise PanickedError(f"interface conversion: {found}")
        texts = isinstance(values, list) and values and isinstance(values[0], str | bytes)
        return _allocated(_own_size(values) ** 2 * (2.0 + PER_CHARACTER if texts else 2.0))

    return Price(cost, lambda arguments: _allocated_range(arguments[index].size * arguments[index].size, factor))


_COMPARABLE = {
    **dict.fromkeys(("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp"), 2.0),
    **dict.fromkeys(("string", "bytes"), 2.0 + PER_CHARACTER),
}
"""The factor of comparing elements, by their type."""
_COMPARISON = Price(_smaller, _smaller_range)
_AFFIX = Price(lambda arguments: _read(size(arguments[0])), lambda arguments: CallEstimate(_read(arguments[1].size)))
_SUM = _price(_both, lambda sizes: sizes[0] + sizes[1], size)
_WALK = Price(lambda arguments: _walk(bounded(arguments[0])), _walk_range)
_COPY = _price(_first, lambda sizes: sizes[0])
_PARSING = _price(_first)
_SEARCH = _price(_regex, lambda sizes: Range(0, sizes[0].most))
_FLATTENING = Price(_flattened, _flattened_range)

_PRICES: Mapping[str, Price] = {
    # CEL's own overloads.
    "equals": Price(_equality, _equality_range),
    "not_equals": _COMPARISON,
    **{
        f"{operator}_{kind}": _COMPARISON
        for operator in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
    "in_list": _price(_second, measure=size),
    "add_string": _SUM,
    "add_bytes": _SUM,
    "add_list": Price(_NOMINAL.cost, lambda arguments: CallEstimate(ONE, arguments[0].size + arguments[1].size)),
    "matches_string": _price(_regex, measure=size),
    "contains_string": _price(_product, measure=size),
    "starts_with_string": _AFFIX,
    "ends_with_string": _AFFIX,
    "string_format": Price(_AFFIX.cost, _PARSING.estimate),
    "string_to_bytes": _price(_first, lambda sizes: Range(sizes[0].least, sizes[0].most * 4 % 2**64), size),
    "bytes_to_string": _price(_first, lambda sizes: Range(sizes[0].least // 4, sizes[0].most), size),
    "strings_quote": _price(_first, lambda sizes: Range(sizes[0].least + 2, (sizes[0].most * 2 + 2) % 2**64), size),
    # Kubernetes' functions, some of whose overloads differ.
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _WALK),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _COPY),
    **dict.fromkeys(("ip", "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _PARSING),
    "cidr_ip": _NOMINAL,
    "ip.isCanonical": _price(_first_twice),
    "replace": _price(_first_twice, _replaced),
    "split": Price(_price(_first_twice).cost, _split_range),
    "join": Price(lambda result: _first_twice(_own_size(result[0])), _joined_range, by_result=True),
    "find": _SEARCH,
    "findAll": _SEARCH,
    "validate": Price(_validation, _validation_range),
    "containsIP": _containment(_overlap),
    "cidr_contains_ip_string": _containment(_overlap, parsed=True),
    "containsCIDR": _containment(_overlap_with_mask),
    "cidr_contains_cidr_string": _containment(_overlap_with_mask, parsed=True),
    "dra_includes_dyn_dyn": Price(_NOMINAL.cost, lambda _: CallEstimate(Range(0, MAX_INCLUDED))),
    # Functions of lists.
    "list_slice": Price(_output, _slice_range, by_result=True),
    "list_reverse": Price(_output, lambda arguments: _allocated_range(arguments[0].size), by_result=True),
    "list_flatten": _FLATTENING,
    "list_flatten_int": _FLATTENING,
    "lists_range": Price(_range, _range_range),
    "list_distinct": _ordering(0, 2.0),
    **{f"list_{name}_sort": _ordering(0, factor) for name, factor in _COMPARABLE.items()},
    **{f"list_{name}_sortByAssociatedKeys": _ordering(1, factor) for name, factor in _COMPARABLE.items()},
    "list_sets_contains_list": _price(_sets),
    "list_sets_intersects_list": _price(_sets),
    "list_sets_equivalent_list": _price(_equivalent_sets),
}
"""By overload, or by function for all its overloads. Other calls cost 1."""
