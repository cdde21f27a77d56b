import numpy as np
import pytest

from flotilla.plugin import ClassState, unschedulable
from shared.cluster.columns import NOTHING_SEEN, ChangeLog
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Statuses, TableView
from shared.framework import answers as result_pool
from shared.framework.answers import UNKNOWN, ResultPool
from testing.builders import class_state, node, pod


def state(name: str = "p") -> ClassState:
    return class_state(pod(name).build())


@pytest.fixture
def pool() -> ResultPool:
    return ResultPool(ChangeLog(), 8)


def test_equal_signatures_share_a_slot_and_the_first_state(pool: ResultPool) -> None:
    first = state("first")
    slot = pool.acquire(("sig",), first)
    assert pool.acquire(("sig",), state("second")) == slot
    assert pool.acquire("other", state()) != slot
    assert pool.state(slot) is first
    assert len(pool) == 2


def test_slot_zero_is_never_handed_out_and_answers_zero(pool: ResultPool) -> None:
    slots = {pool.acquire(i, state()) for i in range(50)}
    assert len(slots) == 50
    assert 0 not in slots
    pool.values.write(list(slots), slice(None), np.full((50, 8), 7))
    assert pool.values.zeros(0, slice(None)).all()
    pool.release(0)
    assert 0 not in {pool.acquire(i, state()) for i in range(50, 60)}


def test_a_slot_is_given_up_with_its_last_user(pool: ResultPool) -> None:
    slot = pool.acquire("a", state())
    pool.acquire("a", state())
    pool.release(slot)
    assert len(pool) == 1
    pool.state(slot)
    pool.release(slot)
    assert len(pool) == 0
    with pytest.raises(LookupError):
        pool.state(slot)


def test_a_slot_that_is_used_again_knows_nothing(pool: ResultPool) -> None:
    slot = pool.acquire("a", state())
    pool.seen[slot] = pool.log.position
    pool.release(slot)
    again = pool.acquire("b", state())
    assert pool.seen[again] == NOTHING_SEEN
    assert pool.stale({again}) == {NOTHING_SEEN: [again]}


def test_stale_slots_come_by_how_far_they_are(pool: ResultPool) -> None:
    one, two, fresh = (pool.acquire(name, state()) for name in "abc")
    pool.seen[one] = pool.seen[two] = pool.log.position
    pool.log.append(3)
    pool.seen[two] = pool.log.position
    assert pool.stale({0, one, two, fresh}) == {0: [one], NOTHING_SEEN: [fresh]}
    pool.seen[one] = pool.seen[fresh] = pool.log.position
    assert pool.stale({0, one, two, fresh}) == {}


def test_lines_are_read_and_stored_together(pool: ResultPool) -> None:
    one, two = pool.acquire("a", state()), pool.acquire("b", state())
    rows = np.array([5, 2], dtype=np.intp)
    pool.store([one, two], rows, np.array([[1, 2], [3, 4]]))
    pool.store([two], rows[:1], np.array([[9]]))
    assert pool.read([two, one], rows).tolist() == [[9, 4], [1, 2]]
    assert pool.read([two, 0, one], slice(0, 3)).tolist() == [[0, 0, 4], [0, 0, 0], [0, 0, 2]]
    alike = np.broadcast_to(pool.read([one, one], rows), (2, 2))
    assert alike.tolist() == [[1, 2], [1, 2]]
    assert pool.passes([two, 0, one], rows).tolist() == [[False, False], [True, True], [False, False]]
    assert pool.passes([0, 0], rows).tolist() == [[True, True]]


def test_values_survive_more_slots(pool: ResultPool) -> None:
    slot = pool.acquire("a", state())
    pool.values.write(slot, slice(None), np.full(8, 5))
    for i in range(40):
        pool.acquire(i, state())
    assert pool.values.read(slot, slice(None)).tolist() == [5] * 8


def test_too_many_statuses_are_forgotten_and_their_rows_asked_about_again(
    pool: ResultPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_pool, "MAX_STATUSES", 2)
    slot = pool.acquire("a", state())
    numbers = [0, *(pool.statuses.number(unschedulable(reason)) for reason in "xyz")]
    pool.values.write(slot, slice(0, 4), np.array(numbers))
    pool.acquire("b", state())
    assert len(pool.statuses) == 0
    assert (pool.values.read(slot, slice(0, 4)) == UNKNOWN).tolist() == [False, True, True, True]


def test_the_first_status_of_a_node_stands() -> None:
    table = NodeTable()
    for name in "abc":
        table.add_node(node(name).build())
    view, verdicts, statuses = TableView(table), np.zeros(3, dtype=np.int64), Statuses()
    view.record(verdicts, statuses)
    view.reject(np.array([True, False, False]), unschedulable("first"))
    view.reject(np.array([0, 1]), unschedulable("second"))
    view.reject(np.zeros(3, dtype=np.bool_), unschedulable("nobody"))
    assert [statuses[number].message if number else "" for number in verdicts.tolist()] == ["first", "second", ""]
    assert len(statuses) == 2
