"""Notices are sent again until the pods show their conditions."""

import pytest
from msgspec.structs import replace

from services.queue.events import PodUnreadable, Tick
from services.queue.pod_conditions import (
    MAX_CHARACTERS,
    MAX_NOTICES,
    RETRY_DELAYS,
    UnconfirmedConditions,
    count_for_one_message,
)
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.binding import Notice
from shared.messages.queue import Hint, Outcomes
from tests.queue.support import Queue, built, notices, telling

NOTICE = Notice("u", "default", "p", "default-scheduler", "Unschedulable", "no room")


def said_again(queue: Queue, seconds: float) -> list[tuple[float, Notice]]:
    """The notices sent within `seconds`, with their times."""
    found: list[tuple[float, Notice]] = []
    end = queue.now + seconds
    while queue.now < end:
        due = queue.core.next_deadline()
        queue.now = end if due is None else min(max(due, queue.now), end)
        found += [(queue.now, notice) for notice in notices(queue.tell(Tick()))]
    return found


@pytest.fixture
def queue() -> Queue:
    """With a pod rejected at 100."""
    queue = Queue()
    queue.add(replace(built("a"), metadata=replace(built("a").metadata, resource_version="5")))
    queue.take()
    (said,) = notices(queue.reject("a"))
    assert (said.version, said.event, said.patch) == ("5", True, True)
    return queue


def test_notices_are_resent_at_growing_delays_without_events(queue: Queue) -> None:
    again = said_again(queue, 240.0)
    assert [at for at, _ in again] == [110.0, 130.0, 170.0, 250.0, 330.0]
    assert {(notice.message, notice.event, notice.patch) for _, notice in again} == {("no room", False, True)}


def test_a_condition_that_the_pod_shows_is_not_resent(queue: Queue) -> None:
    queue.add(telling("a", version="6"))
    assert said_again(queue, 200.0) == []


def test_a_resent_notice_has_the_current_version(queue: Queue) -> None:
    queue.add(telling("a", "another reason", version="9"))
    assert [notice.version for _, notice in said_again(queue, 10.0)] == ["9"]


def test_only_the_missing_part_is_resent() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n1")
    queue.add(telling("a", version="6"))
    assert [(notice.patch, notice.nominated) for _, notice in said_again(queue, 15.0)] == [(False, "n1")]
    queue.add(telling("a", version="7", nominated="n1"))
    assert said_again(queue, 200.0) == []


def test_a_hint_is_an_event_only_and_not_resent(queue: Queue) -> None:
    hints = (Hint("default/a", "It would fit if a."), Hint("default/b", "It would fit if b."))
    (said,) = notices(queue.tell(Outcomes(1, 9, [], hints)))
    assert (said.name, said.message, said.told_as) == ("a", "It would fit if a.", "SchedulingHint")
    assert (said.event, said.patch, said.nominated, said.releases) == (True, False, None, [])
    assert {notice.message for _, notice in said_again(queue, 100.0)} == {"no room"}
    assert notices(queue.tell(Outcomes(1, 9, [], hints))) == []


def test_a_hint_for_a_pod_that_is_tried_again_is_dropped(queue: Queue) -> None:
    queue.at(105.0).change()
    assert queue.take() == ["a"]
    assert notices(queue.tell(Outcomes(1, 9, [], (Hint("default/a", "It would fit if a."),)))) == []


@pytest.mark.parametrize("how", ["taken", "decided", "bound", "gone"])
def test_outdated_notices_are_not_resent(queue: Queue, how: str) -> None:
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


def test_the_last_notice_counts(queue: Queue) -> None:
    queue.at(105.0).change()
    queue.take()
    queue.reject("a", message="no room at all")
    assert [(at, notice.message) for at, notice in said_again(queue, 15.0)] == [(115.0, "no room at all")]


def test_a_lost_notice_and_one_that_was_not_needed() -> None:
    """The pod shows the result of its new attempt already: only the Event is sent."""
    queue = Queue()
    queue.add(telling("a"))
    queue.take()
    (said,) = notices(queue.reject("a"))
    assert (said.event, said.patch) == (True, False)
    assert said_again(queue, 200.0) == []


def test_the_condition_of_a_rejected_binding_is_resent_for_the_binder() -> None:
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


def test_a_nomination_that_outlives_a_failed_binding_is_cleared() -> None:
    """The binder that failed could not clear it, or another one has written it."""
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a", node="n1")
    queue.add(telling("a", version="6", nominated="n1"))
    queue.forget("a")
    ((at, notice),) = said_again(queue, 15.0)
    assert (at, notice.nominated, notice.version) == (110.0, "", "6")
    assert not notice.event
    assert not notice.patch
    queue.add(telling("a", version="7"))
    assert said_again(queue, 200.0) == []


def test_the_notice_of_an_unreadable_pod_is_resent_three_times() -> None:
    queue = Queue()
    unreadable = PodUnreadable("default/a", "default", "a", "default-scheduler", "spec: is nonsense")
    (said,) = notices(queue.tell(unreadable))
    assert (said.version, said.event) == ("", True)
    assert [at for at, _ in said_again(queue, 1000.0)] == [110.0, 130.0, 170.0]
    queue.tell(replace(unreadable, problem="spec: is still nonsense"))
    queue.add("a")
    assert said_again(queue, 100.0) == []


def test_a_pod_has_one_unconfirmed_notice() -> None:
    conditions = UnconfirmedConditions()
    for i in range(5):
        conditions.send(replace(NOTICE, message=f"{i}"), float(i))
        conditions.send(replace(NOTICE, uid="v"), float(i))
    conditions.validate()
    assert len(conditions) == 2
    assert [(notice.uid, notice.message) for notice in conditions.due_delayed(5.0)] == [("u", "4"), ("v", "no room")]
    assert [(notice.uid, notice.message) for notice, _ in conditions.due_again(100.0)] == [("u", "4"), ("v", "no room")]
    assert conditions.next_deadline() == 100.0 + RETRY_DELAYS[1]
    conditions.send(replace(NOTICE, patch=False), 200.0)
    conditions.delete("v")
    assert (len(conditions), conditions.next_deadline()) == (0, None)


def test_a_message_holds_as_many_notices_as_fit() -> None:
    assert count_for_one_message([]) == 0
    assert count_for_one_message([NOTICE] * 1000) == MAX_NOTICES
    long = replace(NOTICE, message="x" * (MAX_CHARACTERS // 2))
    assert count_for_one_message([long, long, NOTICE]) == 2
    assert count_for_one_message([replace(NOTICE, message="x" * 2 * MAX_CHARACTERS), NOTICE]) == 1
