"""Functions of lists, of lists as sets, and of optional values, and what macros over maps call."""

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise

from shared.cel import types
from shared.cel.declarations import MAP_OF_A_B, A, B, Implementation, Overload, member, unguarded
from shared.cel.library.operators import add, contains, unsupported
from shared.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, UINT, CelType
from shared.cel.values import (
    NO_SUCH_OVERLOAD,
    NONE,
    CelError,
    CelMap,
    DurationValue,
    OptionalValue,
    TimestampValue,
    Uint,
    Value,
    bounded,
    compare,
    equal,
    go_text,
    type_of,
)

T = types.parameter("T")
_LIST = types.list_of(T)
_OPTIONAL = types.optional_of(T)
_NO_VALUE = CelError("optional.none() dereference")
COMPARABLE = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "bool": BOOL,
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "string": STRING,
    "bytes": BYTES,
}
_ZEROS: dict[str, Value] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": DurationValue(0)}


def _comparable(value: Value) -> bool:
    return isinstance(value, bool | int | float | str | bytes | TimestampValue | DurationValue)


def _is_sorted(values: list[Value]) -> Value:
    if not all(map(_comparable, values)):
        return NO_SUCH_OVERLOAD
    return all(compare(one, other) != 1 for one, other in pairwise(values))


def _sum_from(zero: Value) -> Callable[[list[Value]], Value]:
    def total(values: list[Value]) -> Value:
        result = zero
        for each in values:
            result = add(result, each)
            if isinstance(result, CelError):
                return result
        return result

    return total


def _extreme(name: str, replaced_if: int) -> Callable[[list[Value]], Value]:
    """The largest or smallest value: the first one that no later one replaces."""

    def extreme(values: list[Value]) -> Value:
        if not values:
            return CelError(f"{name} called on empty list")
        if not all(map(_comparable, values)):
            return NO_SUCH_OVERLOAD
        result = values[0]
        for each in values[1:]:
            if compare(result, each) == replaced_if:
                result = each
        return result

    return extreme


def _index_of(values: list[Value], item: Value) -> Value:
    return next((index for index, each in enumerate(values) if equal(each, item) is True), -1)


def _last_index_of(values: list[Value], item: Value) -> Value:
    return next((index for index in reversed(range(len(values))) if equal(values[index], item) is True), -1)


def _slice(values: list[Value], start: int, end: int) -> Value:
    wrong = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        return CelError(f"{wrong}negative indexes not supported")
    if start > end:
        return CelError(f"{wrong}start index must be less than or equal to end index")
    if len(values) < end:
        return CelError(f"{wrong}list is length {len(values)}")
    return values[start:end]


def _flatten(values: Value, *depths: Value) -> Value:
    depth = depths[0] if depths else 1
    if not isinstance(values, list) or type(depth) is not int:
        given = ", ".join(type_of(each).name for each in depths)
        return CelError(f"no such overload: {type_of(values)}.flatten({given})")
    if depth < 0:
        return CelError("level must be non-negative")
    bounded(values)
    while depth and any(isinstance(each, list) for each in values):
        values = [part for each in values for part in (each if isinstance(each, list) else [each])]
        depth -= 1
    return list(values)


def _sort(values: Value) -> Value:
    return unsupported("sort", values) if not isinstance(values, list) else _sorted_by(values, values)


def _sort_by_keys(values: Value, keys: Value) -> Value:
    if not isinstance(values, list):
        return unsupported("@sortByAssociatedKeys", values)
    return _sorted_by(values, keys) if isinstance(keys, list) else NO_SUCH_OVERLOAD


def _sorted_by(values: list[Value], keys: list[Value]) -> Value:
    if len(values) != len(keys):
        sizes = f"got {len(values)} and {len(keys)} elements respectively"
        expected = "expected a list of the same size as the associated keys list"
        return CelError(f"@sortByAssociatedKeys() {expected}, but {sizes}")
    if not values:
        return values
    if not _comparable(keys[0]):
        return CelError("list elements must be comparable")
    if len(keys) > 1 and any(type(each) is not type(keys[0]) for each in keys):
        return CelError("list elements must have the same type")

    def order(one: int, other: int) -> int:
        result = compare(keys[one], keys[other])
        return 0 if isinstance(result, CelError) else result

    return [values[index] for index in sorted(range(len(values)), key=cmp_to_key(order))]


MAX_RANGE = 1_000_001
"""Longer ranges cost more than any limit, so that their elements are never seen."""


MAX_DISTINCT = 2000
"""Longer lists cost more than any limit."""


def _distinct(values: list[Value]) -> Value:
    if len(values) > MAX_DISTINCT:
        return values
    result: list[Value] = []
    for each in values:
        if not any(equal(each, other) is True for other in result):
            result.append(each)
    return result


def _set_contains(values: list[Value], part: list[Value]) -> Value:
    return all(contains(values, each) is True for each in part)


def _set_equivalent(one: list[Value], other: list[Value]) -> Value:
    return _set_contains(one, other) is True and _set_contains(other, one) is True


def _set_intersects(one: list[Value], other: list[Value]) -> Value:
    return any(contains(other, each) is True for each in one)


def _insert(target: CelMap, key: Value, value: Value) -> Value:
    if target.find(key)[1]:
        return CelError(f"insert failed: key {go_text(key)} already exists")
    target.insert(key, value)
    return target


def _insert_all(target: CelMap, entries: CelMap) -> Value:
    for key, value in entries.items():
        result = _insert(target, key, value)
        if isinstance(result, CelError):
            return result
    return target


MAX_INCLUDED = 48
"""Elements of a list attribute: `includes` refuses longer lists."""


def _includes(target: Value, item: Value) -> Value:
    if not isinstance(target, list):
        return equal(target, item) is True
    for index, each in enumerate(target):
        if index >= MAX_INCLUDED:
            return CelError(f"'includes' function cannot be applied to lists longer than {MAX_INCLUDED} values")
        if equal(each, item) is True:
            return True
    return False


# Optional values.


def _of_non_zero(value: Value) -> Value:
    match value:
        case None | DurationValue(0) | TimestampValue(-62135596800000000000):  # Go's zero time
            return NONE
        case bool() | int() | float() | str() | bytes() | list() | CelMap():
            return OptionalValue(value) if value else NONE
    return OptionalValue(value)


def _unwrap(values: list[Value]) -> Value:
    for each in values:
        if not isinstance(each, OptionalValue):
            return CelError(f"value {go_text(each)} is not optional")
    return [each.value for each in values if isinstance(each, OptionalValue) and each.present]


def _of_list(
    function: str, suffix: str, implementation: Implementation, result: CelType | None = None
) -> list[Overload]:
    """A function of lists of each comparable type; the result is an element unless given."""
    return [
        member(function, f"list_{name}_{suffix.format(name)}", [types.list_of(each)], result or each, implementation)
        for name, each in COMPARABLE.items()
    ]


INCLUDES = member("includes", "dra_includes_dyn_dyn", [DYN, DYN], BOOL, _includes)

KUBERNETES_FUNCTIONS = [
    *_of_list("isSorted", "is_sorted_bool", _is_sorted, BOOL),
    *(
        member("sum", f"list_{name}_sum_{name}", [types.list_of(COMPARABLE[name])], COMPARABLE[name], _sum_from(zero))
        for name, zero in _ZEROS.items()
    ),
    *_of_list("max", "max_{}", _extreme("max", -1)),
    *_of_list("min", "min_{}", _extreme("min", 1)),
    member("indexOf", "list_a_index_of_int", [types.list_of(A), A], INT, _index_of),
    member("lastIndexOf", "list_a_last_index_of_int", [types.list_of(A), A], INT, _last_index_of),
]
SET_FUNCTIONS = [
    Overload("sets.contains", "list_sets_contains_list", [_LIST, _LIST], BOOL, _set_contains),
    Overload("sets.equivalent", "list_sets_equivalent_list", [_LIST, _LIST], BOOL, _set_equivalent),
    Overload("sets.intersects", "list_sets_intersects_list", [_LIST, _LIST], BOOL, _set_intersects),
]
FUNCTIONS = [
    member("slice", "list_slice", [_LIST, INT, INT], _LIST, _slice),
    member("flatten", "list_flatten", [types.list_of(_LIST)], _LIST, _flatten, guarded=False),
    member("flatten", "list_flatten_int", [types.list_of(DYN), INT], types.list_of(DYN), _flatten, guarded=False),
    *(
        member("sort", f"list_{each.name}_sort", [types.list_of(each)], types.list_of(each), _sort, guarded=False)
        for each in COMPARABLE.values()
    ),
    *unguarded(
        _sort_by_keys,
        *(
            member(
                "@sortByAssociatedKeys", f"list_{each.name}_sortByAssociatedKeys", [_LIST, types.list_of(each)], _LIST
            )
            for each in COMPARABLE.values()
        ),
    ),
    Overload("lists.range", "lists_range", [INT], types.list_of(INT), lambda count: list(range(min(count, MAX_RANGE)))),
    member("reverse", "list_reverse", [_LIST], _LIST, lambda values: values[::-1]),
    member("distinct", "list_distinct", [_LIST], _LIST, _distinct),
]
MAP_FUNCTIONS = [
    Overload("cel.@mapInsert", "@mapInsert_map_key_value", [MAP_OF_A_B, A, B], MAP_OF_A_B, _insert),
    Overload("cel.@mapInsert", "@mapInsert_map_map", [MAP_OF_A_B, MAP_OF_A_B], MAP_OF_A_B, _insert_all),
]
OPTIONAL_FUNCTIONS = [
    Overload("optional.of", "optional_of", [T], _OPTIONAL, OptionalValue),
    Overload("optional.ofNonZeroValue", "optional_ofNonZeroValue", [T], _OPTIONAL, _of_non_zero),
    Overload("optional.none", "optional_none", [], _OPTIONAL, lambda: NONE),
    member(
        "value", "optional_value", [_OPTIONAL], T, lambda optional: optional.value if optional.present else _NO_VALUE
    ),
    member("hasValue", "optional_hasValue", [_OPTIONAL], BOOL, lambda optional: optional.present),
    member("or", "optional_or_optional", [_OPTIONAL, _OPTIONAL], _OPTIONAL),
    member("orValue", "optional_orValue_value", [_OPTIONAL, T], T),
    member("last", "list_last", [_LIST], _OPTIONAL, lambda values: OptionalValue(values[-1]) if values else NONE),
    member("first", "list_first", [_LIST], _OPTIONAL, lambda values: OptionalValue(values[0]) if values else NONE),
    Overload("optional.unwrap", "optional_unwrap", [types.list_of(_OPTIONAL)], _LIST, _unwrap),
    member("unwrapOpt", "optional_unwrapOpt", [types.list_of(_OPTIONAL)], _LIST, _unwrap),
]
