"""NarrowLines holds any integers of 64 bits, in as few bytes as they need."""

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.framework.narrow import NarrowLines

LINES, WIDTH = 4, 7
HIGHEST = (127, (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1)
NUMBERS = st.sampled_from([n for high in HIGHEST for n in (high, -high - 1)]) | st.integers(-300, 300)


@st.composite
def writes(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]]]:
    lines = draw(st.lists(st.integers(0, LINES - 1), min_size=1, unique=True))
    rows = draw(st.lists(st.integers(0, WIDTH - 1), unique=True))
    row = st.lists(NUMBERS, min_size=len(rows), max_size=len(rows))
    return lines, rows, draw(st.lists(row, min_size=len(lines), max_size=len(lines)))


@given(st.lists(writes(), max_size=5))
def test_what_is_read_is_what_was_written(written: list[tuple[list[int], list[int], list[list[int]]]]) -> None:
    narrow, expected = NarrowLines(LINES, WIDTH), np.zeros((LINES, WIDTH), dtype=np.int64)
    for lines, rows, numbers in written:
        index = np.array(rows, dtype=np.intp)
        block = np.array(numbers, dtype=np.int64).reshape(len(lines), len(rows))
        if len(lines) == 1:
            narrow.write(lines[0], index, block[0])
        else:
            narrow.write(lines, index, block)
        expected[np.array(lines)[:, None], index] = block
        every = list(range(LINES))
        assert narrow.read(every, slice(None)).tolist() == expected.tolist()
        assert narrow.zeros(every, slice(None)).tolist() == (expected == 0).tolist()
        assert narrow.read(lines, index).tolist() == block.tolist()
        assert narrow.pairs(np.array([3, 0]), np.array([1, 6])).tolist() == [expected[3, 1], expected[0, 6]]


def limits() -> Iterator[tuple[int, int]]:
    for size, high in zip((1, 2, 4, 8), HIGHEST, strict=True):
        yield high, size
        yield -high - 1, size


def test_a_number_takes_the_bytes_that_it_needs() -> None:
    for number, size in limits():
        narrow = NarrowLines(1, WIDTH)
        narrow.write(0, np.array([2]), np.array([number]))
        assert narrow.bytes_per_number == size, number
        narrow.write(0, np.array([2]), np.array([1]))
        assert narrow.bytes_per_number == size, "it never becomes narrower"


def test_lines_come_behind_those_that_are_there() -> None:
    narrow = NarrowLines(1, WIDTH)
    narrow.write(0, slice(None), np.arange(WIDTH) * 100)
    narrow.add_lines(2)
    assert narrow.lines == 3
    assert narrow.read([0, 2], slice(None)).tolist() == [[n * 100 for n in range(WIDTH)], [0] * WIDTH]


def test_what_is_above_zero_is_replaced() -> None:
    narrow = NarrowLines(1, 4)
    narrow.write(0, slice(None), np.array([0, 3, -2, 900]))
    narrow.replace_positive(-1)
    assert narrow.read(0, slice(None)).tolist() == [0, -1, -2, -1]
