"""Ranges of sizes and costs for estimates, and what the resource API says of the sizes of devices."""

import math
from typing import NamedTuple

from shared.cel.environment import DEVICE, SIZES, SizedType
from shared.cel.syntax import SyntaxNode
from shared.cel.types import CelType

UNBOUNDED = 2**64 - 1


class Range(NamedTuple):
    """A size or a cost: the least and the most. Nothing exceeds UNBOUNDED."""

    least: int
    most: int

    def __add__(self, other: "Range") -> "Range":  # type: ignore[override]
        return Range(min(self.least + other.least, UNBOUNDED), min(self.most + other.most, UNBOUNDED))

    def __mul__(self, other: "Range") -> "Range":  # type: ignore[override]
        return Range(min(self.least * other.least, UNBOUNDED), min(self.most * other.most, UNBOUNDED))

    def scaled(self, factor: float) -> "Range":
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: "Range") -> "Range":
        return Range(min(self.least, other.least), max(self.most, other.most))


def _scaled(number: int, factor: float) -> int:
    product = math.ceil(float(number) * factor)
    return UNBOUNDED if product >= 2**64 else product


def exactly(number: int) -> Range:
    return Range(number, number)


ZERO, ONE = exactly(0), exactly(1)
UNKNOWN = Range(0, UNBOUNDED)


class SlicePath:
    """The way from a variable to a part of it, with the sharing of Go's slices.

    cel-go appends to paths that other parts use as well. Where there is room in the array behind them, the second of
    two parts overwrites the last step of the first one, so that for example the keys of a map take the size of its
    values. Estimates depend on it.
    """

    __slots__ = ("_cells", "_length", "_room")

    def __init__(self, *names: str) -> None:
        self._cells = list(names)
        self._length = len(names)
        self._room = len(names)

    def to(self, name: str) -> "SlicePath":
        """The path to a part of this one."""
        longer = SlicePath()
        longer._length = self._length + 1
        if self._length < self._room:
            self._cells[self._length :] = [name]
            longer._cells, longer._room = self._cells, self._room
        else:
            longer._cells = [*self._cells[: self._length], name]
            longer._room = max(1, 2 * self._room)
        return longer

    @property
    def names(self) -> list[str]:
        return self._cells[: self._length]


class Argument(NamedTuple):
    """An argument of a call: what is known of its size, its type, and how to reach it from `device`."""

    node: SyntaxNode | None
    type: CelType
    path: list[str]
    size: Range | None


class CallEstimate(NamedTuple):
    cost: Range
    result: Range | None = None


def declared_size(path: list[str]) -> Range | None:
    """The size of a part of the device by the limits of the resource API; None for other parts."""
    if not path or path[0] != DEVICE:
        return None
    current: SizedType | None = SIZES
    for name in path[1:]:
        if current is None:
            return None
        if name in ("@items", "@values"):
            current = current.element
        elif name == "@keys":
            current = current.key
        elif current.fields is not None and name in current.fields:
            current = current.fields[name]
        else:
            current = current.element if current.any_field else None
    return None if current is None else Range(0, current.most)
