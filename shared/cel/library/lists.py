"""Functions of lists and of lists as sets, and what macros over maps call."""

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise

from shared.cel import types
from shared.cel.declarations import MAP_OF_A_B, A, B, FunctionDeclaration, function, member, overload
from shared.cel.library.operators import FUNCTIONS as OPERATORS
from shared.cel.library.operators import contains
from shared.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, UINT
from shared.cel.values import (
    NO_SUCH_OVERLOAD,
    CelError,
    CelMap,
    DurationValue,
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
_add = next(each for each in OPERATORS if each.name == "_+_").bound(())


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
            result = _add(result, each)
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


def _flatten(values: Value, depth: Value = 1) -> Value:
    if not isinstance(values, list) or type(depth) is not int:
        form = f"{type_of(values)}.flatten({type_of(depth)})"
        return CelError(f"no such overload: {form}")
    if depth < 0:
        return CelError("level must be non-negative")
    result = values
    bounded(values)
    while depth and any(isinstance(each, list) for each in result):
        flatter: list[Value] = []
        for each in result:
            if isinstance(each, list):
                flatter += each
            else:
                flatter.append(each)
        result = flatter
        depth -= 1
    return list(result)


def _sort(values: Value) -> Value:
    return _unsupported("sort", values) if not isinstance(values, list) else _sorted_by(values, values)


def _sort_by_keys(values: Value, keys: Value) -> Value:
    if not isinstance(values, list):
        return _unsupported("@sortByAssociatedKeys", values)
    return _sorted_by(values, keys) if isinstance(keys, list) else NO_SUCH_OVERLOAD


def _unsupported(function_name: str, value: Value) -> CelError:
    receives = isinstance(value, str | TimestampValue | DurationValue)
    return NO_SUCH_OVERLOAD if receives else CelError(f"no such overload: {function_name}")


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


MOST_RANGE = 1_000_001
"""Longer ranges cost more than any limit, so that their elements are never seen."""


def _range(count: int) -> Value:
    return list(range(min(count, MOST_RANGE)))


def _reverse(values: list[Value]) -> Value:
    return values[::-1]


MOST_DISTINCT = 2000
"""Longer lists cost more than any limit."""


def _distinct(values: list[Value]) -> Value:
    if len(values) > MOST_DISTINCT:
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


MOST_INCLUDED = 48
"""Elements of a list attribute: `includes` refuses longer lists."""


def _includes(target: Value, item: Value) -> Value:
    if not isinstance(target, list):
        return equal(target, item) is True
    for index, each in enumerate(target):
        if index >= MOST_INCLUDED:
            return CelError(f"'includes' function cannot be applied to lists longer than {MOST_INCLUDED} values")
        if equal(each, item) is True:
            return True
    return False


INCLUDES = function("includes", member("dra_includes_dyn_dyn", [DYN, DYN], BOOL, _includes))

KUBERNETES_FUNCTIONS: list[FunctionDeclaration] = [
    function(
        "isSorted",
        *(
            member(f"list_{name}_is_sorted_bool", [types.list_of(each)], BOOL, _is_sorted)
            for name, each in COMPARABLE.items()
        ),
    ),
    function(
        "sum",
        *(
            member(f"list_{name}_sum_{name}", [types.list_of(COMPARABLE[name])], COMPARABLE[name], _sum_from(zero))
            for name, zero in _ZEROS.items()
        ),
    ),
    function(
        "max",
        *(
            member(f"list_{name}_max_{name}", [types.list_of(each)], each, _extreme("max", -1))
            for name, each in COMPARABLE.items()
        ),
    ),
    function(
        "min",
        *(
            member(f"list_{name}_min_{name}", [types.list_of(each)], each, _extreme("min", 1))
            for name, each in COMPARABLE.items()
        ),
    ),
    function("indexOf", member("list_a_index_of_int", [types.list_of(A), A], INT, _index_of)),
    function("lastIndexOf", member("list_a_last_index_of_int", [types.list_of(A), A], INT, _last_index_of)),
]
SET_FUNCTIONS: list[FunctionDeclaration] = [
    function("sets.contains", overload("list_sets_contains_list", [_LIST, _LIST], BOOL, _set_contains)),
    function("sets.equivalent", overload("list_sets_equivalent_list", [_LIST, _LIST], BOOL, _set_equivalent)),
    function("sets.intersects", overload("list_sets_intersects_list", [_LIST, _LIST], BOOL, _set_intersects)),
]
FUNCTIONS: list[FunctionDeclaration] = [
    function("slice", member("list_slice", [_LIST, INT, INT], _LIST, _slice)),
    function(
        "flatten",
        member("list_flatten", [types.list_of(_LIST)], _LIST, _flatten),
        member("list_flatten_int", [types.list_of(DYN), INT], types.list_of(DYN), _flatten),
        guarded=False,
    ),
    function(
        "sort",
        *(member(f"list_{each.name}_sort", [types.list_of(each)], types.list_of(each)) for each in COMPARABLE.values()),
        implementation=_sort,
    ),
    function(
        "@sortByAssociatedKeys",
        *(
            member(f"list_{each.name}_sortByAssociatedKeys", [_LIST, types.list_of(each)], _LIST)
            for each in COMPARABLE.values()
        ),
        implementation=_sort_by_keys,
    ),
    function("lists.range", overload("lists_range", [INT], types.list_of(INT), _range)),
    function("reverse", member("list_reverse", [_LIST], _LIST, _reverse)),
    function("distinct", member("list_distinct", [_LIST], _LIST, _distinct)),
]
MAP_FUNCTIONS: list[FunctionDeclaration] = [
    function(
        "cel.@mapInsert",
        overload("@mapInsert_map_key_value", [MAP_OF_A_B, A, B], MAP_OF_A_B, _insert),
        overload("@mapInsert_map_map", [MAP_OF_A_B, MAP_OF_A_B], MAP_OF_A_B, _insert_all),
    )
]
