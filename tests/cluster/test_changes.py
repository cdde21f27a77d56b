import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.columns import ChangeLog, Interner


def since(log: ChangeLog, position: int) -> list[int] | None:
    rows = log.since(position)
    if rows is None:
        return None
    assert rows.dtype == np.intp
    return [int(row) for row in rows]


def test_a_reader_gets_the_changes_after_its_position() -> None:
    log = ChangeLog()
    start = log.position
    log.append(7)
    between = log.position
    log.append(3)
    assert since(log, start) == [3, 7]
    assert since(log, between) == [3]
    assert since(log, log.position) == []


def test_a_row_that_changed_often_is_named_once() -> None:
    log = ChangeLog()
    start = log.position
    for row in (5, 1, 5, 5, 1):
        log.append(row)
    assert since(log, start) == [1, 5]


def test_every_change_moves_the_position() -> None:
    log = ChangeLog()
    positions = [log.position]
    for row in (2, 2):
        log.append(row)
        positions.append(log.position)
    log.invalidate()
    positions.append(log.position)
    assert positions == sorted(set(positions))


def test_invalidation_affects_only_earlier_positions() -> None:
    log = ChangeLog()
    up_to_date_when_empty = log.position
    log.append(1)
    up_to_date = log.position
    log.invalidate()
    assert since(log, up_to_date_when_empty) is None
    assert since(log, up_to_date) is None
    after = log.position
    assert since(log, after) == []
    log.append(4)
    assert since(log, after) == [4]


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 8), st.lists(st.integers(0, 5) | st.none(), max_size=60))
def test_a_bounded_log_never_forgets_silently(capacity: int, changes: list[int | None]) -> None:
    """A reader within `capacity` changes is served; any other is served in full or told that it cannot be."""
    log = ChangeLog(capacity)
    history: list[tuple[int, list[int]]] = []
    for change in changes:
        history.append((log.position, []))
        if change is None:
            log.invalidate()
            history.clear()
        else:
            log.append(change)
            for _, missed in history:
                missed.append(change)
        for position, missed in history:
            answer = since(log, position)
            assert answer == sorted(set(missed)) or (answer is None and len(missed) > capacity)


def test_a_reader_far_behind_is_told_so() -> None:
    log = ChangeLog(capacity=4)
    start = log.position
    for row in range(100):
        log.append(row)
    assert since(log, start) is None
    assert since(log, log.position - 4) == [96, 97, 98, 99]


def test_interner_numbers_in_the_order_of_first_sight() -> None:
    interner: Interner[str] = Interner()
    assert [interner.id(word) for word in ("b", "a", "b", "c", "a")] == [0, 1, 0, 2, 1]
    assert interner.items == ["b", "a", "c"]
    assert len(interner) == 3


def test_interner_knows_without_learning() -> None:
    interner: Interner[str] = Interner()
    assert interner.known("a") is None
    assert len(interner) == 0
    interner.id("a")
    assert interner.known("a") == 0
