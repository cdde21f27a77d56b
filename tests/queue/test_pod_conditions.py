"""What owners are told is said again until their pods show it."""

import pytest
from msgspec.structs import replace

from services.queue.events import PodUnreadable, Tick
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.status.pod_conditions import (
    MAX_CHARACTERS,
    MAX_NOTICES,
    RETRY_DELAYS,
    UnconfirmedConditions,
    count_for_one_message,
)
from shared.messages.binding import Notice
from tests.queue.support import Queue, built, notices, telling

NOTICE = Notice("u", "default", "p", "default-scheduler", "Unschedulable", "no room")


def said_again(queue: Queue, seconds: float) -> list[tuple[float, Notice]]:
    """With the time at which each was said."""
    found: list[tuple[float, Notice]] = []
    end = queue.now + seconds
    while queue.now < end:
        due = queue.core.next_deadline()
        queue.now = end if due is None else min(max(due, queue.now), end)
        found += [(queue.now, notice) for notice in notices(queue.tell(Tick()))]
    return found


@pytest.fixture
def queue() -> Queue:
    """With a pod that was rejected at 100."""
    queue = Queue()
    queue.add(replace(built("a"), metadata=replace(built("a").metadata, resource_version="5")))
    queue.take()
    (said,) = notices(queue.reject("a"))
    assert (said.version, said.event, said.patch) == ("5", True, True)
    return queue


def test_it_is_said_again_ever_more_seldom_and_without_its_event(queue: Queue) -> None:
    again = said_again(queue, 240.0)
    assert [at for at, _ in again] == [110.0, 130.0, 170.0, 250.0, 330.0]
    assert {(notice.message, notice.event, notice.patch) for _, notice in again} == {("no room", False, True)}


def test_what_the_pod_shows_is_not_said_again(queue: Queue) -> None:
    queue.add(telling("a", version="6"))
    assert said_again(queue, 200.0) == []


def test_it_is_said_of_the_version_that_is_there_by_then(queue: Queue) -> None:
    queue.add(telling("a", "another reason", version="9"))
    assert [notice.version for _, notice in said_again(queue, 10.0)] == ["9"]


def test_only_what_is_missing_is_said_again() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n1")
    queue.add(telling("a", version="6"))
    assert [(notice.patch, notice.nominated) for _, notice in said_again(queue, 15.0)] == [(False, "n1")]
    queue.add(telling("a", version="7", nominated="n1"))
    assert said_again(queue, 200.0) == []


@pytest.mark.parametrize("how", ["taken", "decided", "bound", "gone"])
def test_what_is_not_so_any_more_is_not_said_again(queue: Queue, how: str) -> None:
    queue.at(105.0).change()
    assert queue.take() == ["a"]
    match how:
        case "decided":
            queue.decide("a")
        case "bound":
            queue.bound("a")
        case "gone":
            queue.gone("a")
    assert said_again(queue, 50.0) == []


def test_the_last_word_counts(queue: Queue) -> None:
    queue.at(105.0).change()
    queue.take()
    queue.reject("a", message="no room at all")
    assert [(at, notice.message) for at, notice in said_again(queue, 15.0)] == [(115.0, "no room at all")]


def test_a_word_that_was_lost_and_one_that_was_not_needed() -> None:
    """What the pod shows is what its new attempt comes to: nothing is said, now or later, but the Event."""
    queue = Queue()
    queue.add(telling("a"))
    queue.take()
    (said,) = notices(queue.reject("a"))
    assert (said.event, said.patch) == (True, False)
    assert said_again(queue, 200.0) == []


def test_what_a_binder_should_have_said_of_a_rejected_binding_is_said_for_it() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    assert notices(queue.tell(Tick())) == []
    queue.forget("a", reason="0/1 nodes are available: 1 full.", plugin="NodeResourcesFit")
    assert queue.state("a") is PodState.UNSCHEDULABLE
    ((at, notice),) = said_again(queue, 15.0)
    assert (at, notice.reason, notice.message) == (110.0, "Unschedulable", "0/1 nodes are available: 1 full.")
    assert not notice.event


def test_of_a_pod_that_cannot_be_read_it_is_said_some_times() -> None:
    queue = Queue()
    unreadable = PodUnreadable("default/a", "default", "a", "default-scheduler", "spec: is nonsense")
    (said,) = notices(queue.tell(unreadable))
    assert (said.version, said.event) == ("", True)
    assert [at for at, _ in said_again(queue, 1000.0)] == [110.0, 130.0, 170.0]
    queue.tell(replace(unreadable, problem="spec: is still nonsense"))
    queue.add("a")
    assert said_again(queue, 100.0) == []


def test_a_pod_has_one_word_however_many_are_said() -> None:
    conditions = UnconfirmedConditions()
    for i in range(5):
        conditions.sent(replace(NOTICE, message=f"{i}"), float(i))
        conditions.sent(replace(NOTICE, uid="v"), float(i))
    conditions.validate()
    assert len(conditions) == 2
    assert [(notice.uid, notice.message) for notice, _ in conditions.due(100.0)] == [("u", "4"), ("v", "no room")]
    assert conditions.next_deadline() == 100.0 + RETRY_DELAYS[1]
    conditions.sent(replace(NOTICE, patch=False), 200.0)
    conditions.delete("v")
    assert (len(conditions), conditions.next_deadline()) == (0, None)


def test_so_many_words_go_together_as_fit_into_a_message() -> None:
    assert count_for_one_message([]) == 0
    assert count_for_one_message([NOTICE] * 1000) == MAX_NOTICES
    long = replace(NOTICE, message="x" * (MAX_CHARACTERS // 2))
    assert count_for_one_message([long, long, NOTICE]) == 2
    assert count_for_one_message([replace(NOTICE, message="x" * 2 * MAX_CHARACTERS), NOTICE]) == 1
