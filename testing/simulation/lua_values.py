"""Lua's values in Python, and the functions of its library that scripts for Redis use."""

import operator
from collections.abc import Callable, Sequence
from typing import Any


class Table:
    def __init__(self, items: Sequence[Any] = ()) -> None:
        self.items = dict(enumerate(items, 1))

    def length(self) -> int:
        size = 0
        while self.items.get(size + 1) is not None:
            size += 1
        return size


def truthy(value: Any) -> bool:
    return value is not None and value is not False


def text_of(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value)).encode()
    return str(value).encode()


def tonumber(value: Any = None) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return int(found) if found.is_integer() else found


def _arithmetic(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: work(tonumber(left), tonumber(right))


BINARY: list[dict[str, Callable[[Any, Any], Any]]] = [
    {"==": operator.eq, "~=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"..": lambda left, right: text_of(left) + text_of(right)},
    {"+": _arithmetic(operator.add), "-": _arithmetic(operator.sub)},
    {"*": _arithmetic(operator.mul), "/": _arithmetic(operator.truediv), "%": _arithmetic(operator.mod)},
]


def unpack(table: Table, first: int = 1, last: int | None = None) -> tuple[Any, ...]:
    end = table.length() if last is None else last
    return tuple(table.items.get(number) for number in range(first, end + 1))


def from_redis(value: Any) -> Any:
    if value is None:
        return False
    if isinstance(value, dict):
        return Table([from_redis(each) for pair in value.items() for each in pair])
    return Table([from_redis(each) for each in value]) if isinstance(value, list) else value


def to_redis(value: Any) -> Any:
    if isinstance(value, Table):
        return [to_redis(value.items[number]) for number in range(1, value.length() + 1)]
    if value is None or value is False:
        return None
    if value is True:
        return 1
    return int(value) if isinstance(value, int | float) else value


def length_of(value: Any) -> int:
    return value.length() if isinstance(value, Table) else len(value)


def ipairs(table: Table) -> Any:
    return [(number, table.items[number]) for number in range(1, table.length() + 1)]


def pairs(table: Table) -> Any:
    return list(table.items.items())


def sub(text: bytes, first: int, last: int = -1) -> bytes:
    start = first - 1 if first > 0 else max(len(text) + first, 0)
    end = last if last >= 0 else len(text) + last + 1
    return text[start:end]


def find(text: bytes, part: bytes, first: int = 1, plain: bool = False) -> Any:
    at = text.find(part, first - 1)
    return None if at < 0 else at + 1
