from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.cluster.nodetable import NodeTable
from shared.framework.pod_class import BLOCK, ClassRows
from testing.builders import node

Keys = NDArray[np.int64]
SIZES = (3, BLOCK, BLOCK + 1, 3 * BLOCK + 17)
LINES = 6


def a_table(size: int) -> NodeTable:
    table = NodeTable(capacity=size + size % 5)
    for i in range(size):
        table.add_node(node(f"n{i}").build())
    return table


TABLES = {size: a_table(size) for size in SIZES}


@dataclass(frozen=True)
class Write:
    lines: list[int]
    part: float | None
    """The share of rows that is written, None for all at once."""
    highest: int


WRITES = st.builds(
    Write,
    st.lists(st.integers(0, LINES - 1), min_size=1, max_size=LINES, unique=True),
    st.none() | st.sampled_from([0.002, 0.01, 0.3, 1.0]),
    st.sampled_from([0, 3, 10**12]),
)


def check(matrix: ClassRows, slot: int, line: Keys, wanted: int, among: NDArray[np.bool_] | None) -> None:
    rows, keys = matrix.best(slot, wanted, among)
    allowed = line if among is None else np.where(among, line, -1)
    expected = np.sort(allowed[allowed >= 0])[::-1][:wanted]
    assert np.sort(keys)[::-1].tolist() == expected.tolist()
    assert allowed[rows].tolist() == keys.tolist()
    assert len(set(rows.tolist())) == len(rows)


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(SIZES), st.lists(WRITES, min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_the_best_rows_are_the_best_of_all(size: int, writes: list[Write], seed: int) -> None:
    table, random = TABLES[size], np.random.default_rng(seed)
    matrix = ClassRows(table)
    slots = [matrix.acquire() for _ in range(LINES)]
    lines = np.full((LINES, size), -1, dtype=np.int64)
    for write in writes:
        count = size if write.part is None else max(1, int(size * write.part))
        rows = np.sort(random.choice(size, count, replace=False)).astype(np.intp)
        keys = random.integers(-1, write.highest + 1, (len(write.lines), count))
        keys[random.random(keys.shape) < 0.3] = -1
        matrix.write([slots[i] for i in write.lines], None if write.part is None else rows, keys)
        lines[np.array(write.lines)[:, None], rows] = keys
        for i in range(LINES):
            for wanted in (1, 2, 7, size, size + 5):
                check(matrix, slots[i], lines[i], wanted, None)
            check(matrix, slots[i], lines[i], 2, random.random(size) < 0.1)
            check(matrix, slots[i], lines[i], 1, random.random(size) < 0.5)


def test_falling_keys_are_noticed_in_every_block() -> None:
    size = SIZES[-1]
    matrix = ClassRows(TABLES[size])
    slot = matrix.acquire()
    line = np.arange(size, dtype=np.int64)
    matrix.write([slot], None, line[None, :])
    for _ in range(3):
        for row in range(0, size, BLOCK // 2):
            top = int(line.argmax())
            for changed, key in ((top, -1), (row, int(line[row]) - 1000)):
                line[changed] = max(key, -1)
                matrix.write([slot], np.array([changed], dtype=np.intp), line[None, [changed]])
            check(matrix, slot, line, 1, None)


def test_a_slot_is_used_again_with_nothing_in_it() -> None:
    table = TABLES[3]
    matrix = ClassRows(table)
    used = [matrix.acquire() for _ in range(20)]
    assert len(set(used)) == 20
    matrix.write([used[4]], None, np.array([[1, 2, 3]]))
    matrix.feasible[used[4]] = True
    matrix.release(used[4])
    assert matrix.acquire() == used[4]
    assert matrix.best(used[4], 1)[0].size == 0
    assert not matrix.feasible[used[4]].any()


def test_lines_keep_apart_when_more_come() -> None:
    matrix = ClassRows(TABLES[3])
    first = matrix.acquire()
    matrix.write([first], None, np.array([[5, 9, 7]]))
    for _ in range(30):
        matrix.acquire()
    rows, keys = matrix.best(first, 1)
    assert (rows.tolist(), keys.tolist()) == ([1], [9])


def test_a_line_starts_over_when_the_table_has_grown() -> None:
    table = NodeTable(capacity=2)
    table.add_node(node("a").build())
    matrix = ClassRows(table)
    slot = matrix.acquire()
    matrix.write([slot], None, np.array([[5]]))
    matrix.fit(table.capacity)
    assert matrix.best(slot, 1)[1].tolist() == [5]
    table.add_node(node("b").build())
    table.add_node(node("c").build())
    matrix.fit(table.capacity)
    assert matrix.best(slot, 3)[0].size == 0
    matrix.write([slot], None, np.array([[1, 6, 3]]))
    assert sorted(matrix.best(slot, 2)[1].tolist()) == [3, 6]
