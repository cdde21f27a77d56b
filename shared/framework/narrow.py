"""NarrowLines: a matrix of integers that takes as few bytes a number as its numbers allow.

What is known of every class about every node is most of a worker's memory, and nearly all of it is scores up to 100 and
numbers of a few statuses: a byte each. A number that needs more widens the whole matrix, so nothing is ever rounded.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import Ints, Mask
from shared.cluster.columns import Rows

Index = Rows | slice
Lines = int | list[int]
"""One line, or several."""
Item = TypeVar("Item", bound=np.generic)
_TYPES = (np.int8, np.int16, np.int32, np.int64)


class NarrowLines:
    """Zero until written."""

    def __init__(self, lines: int, width: int) -> None:
        self._numbers: NDArray[np.signedinteger] = np.zeros((lines, width), dtype=np.int8)
        self._highest = int(np.iinfo(np.int8).max)

    @property
    def lines(self) -> int:
        return int(self._numbers.shape[0])

    @property
    def width(self) -> int:
        return int(self._numbers.shape[1])

    @property
    def bytes_per_number(self) -> int:
        return int(self._numbers.itemsize)

    def add_lines(self, count: int) -> None:
        self._numbers = more_lines(self._numbers, count)

    def read(self, lines: Lines, index: Index) -> Ints:
        """A copy, in 64 bits; with an axis of lines if there are several."""
        numbers: Ints = self._numbers[_cells(lines, index)].astype(np.int64)
        return numbers

    def pairs(self, lines: Rows, rows: Rows) -> Ints:
        """The number of each line at the row in the same place."""
        numbers: Ints = self._numbers[lines, rows].astype(np.int64)
        return numbers

    def zeros(self, lines: Lines, index: Index) -> Mask:
        """Which numbers are zero."""
        zeros: Mask = self._numbers[_cells(lines, index)] == 0
        return zeros

    def write(self, lines: Lines, index: Index, numbers: Ints) -> None:
        self._widen(numbers)
        self._numbers[_cells(lines, index)] = numbers

    def replace_positive(self, number: int) -> None:
        """Put `number`, which fits in a byte, in place of all that are above zero."""
        self._numbers[self._numbers > 0] = number

    def _widen(self, numbers: Ints) -> None:
        """The bits of all numbers together tell most often, in one pass, that none is too wide."""
        if not numbers.size or 0 <= int(np.bitwise_or.reduce(numbers, axis=None)) <= self._highest:
            return
        low, high = int(numbers.min()), int(numbers.max())
        for type_ in _TYPES:
            if np.iinfo(type_).min <= low and high <= np.iinfo(type_).max:
                if np.dtype(type_).itemsize > self._numbers.itemsize:
                    self._numbers, self._highest = self._numbers.astype(type_), int(np.iinfo(type_).max)
                return


def more_lines(matrix: NDArray[Item], count: int) -> NDArray[Item]:
    """A copy with lines of zeros behind it, which take no memory until they are written."""
    grown = np.zeros((matrix.shape[0] + count, *matrix.shape[1:]), dtype=matrix.dtype)
    grown[: matrix.shape[0]] = matrix
    return grown


def _cells(lines: Lines, index: Index) -> tuple[int | NDArray[np.intp], Index]:
    if isinstance(lines, int):
        return lines, index
    several = np.array(lines, dtype=np.intp)
    return several if isinstance(index, slice) else several[:, None], index
