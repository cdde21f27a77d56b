"""A pod for which others are told to go is not tried before all of them have been told."""

import pytest

from services.queue.scheduling.nominator import MAX_EARLY_REPORTS, PREEMPTION_TIMEOUT
from services.queue.scheduling.queued_pod_info import PodState
from testing.builders import pod
from tests.queue.support import POD_DELETED, Queue

VICTIM = pod("victim").on("n").request(cpu="8").build()


@pytest.fixture
def queue() -> Queue:
    """With a pod that preempts, and that has rested."""
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n", preemption=7)
    return queue.at(110.0)


def test_what_helps_meanwhile_helps_when_all_have_been_told(queue: Queue) -> None:
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.GATED
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.GATED
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.ACTIVE


def test_what_helps_afterwards_helps_at_once(queue: Queue) -> None:
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.ACTIVE


def test_what_helped_while_it_was_in_flight_waits_as_well() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.change(POD_DELETED, VICTIM)
    queue.reject("a", nominated="n", preemption=7)
    assert queue.state("a") is PodState.GATED
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.BACKOFF


@pytest.mark.parametrize("helped", [True, False])
def test_if_not_all_could_be_told_it_is_tried_again(queue: Queue, helped: bool) -> None:
    if helped:
        queue.change(POD_DELETED, VICTIM)
    queue.evicted("a", 7, failure="the API server is away")
    assert queue.state("a") is PodState.ACTIVE


@pytest.mark.parametrize(("failure", "place"), [("", PodState.UNSCHEDULABLE), ("refused", PodState.ACTIVE)])
def test_the_report_may_come_first(failure: str, place: PodState) -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.evicted("a", 7, failure)
    queue.reject("a", nominated="n", preemption=7)
    assert queue.state("a") is place


def test_the_report_on_an_earlier_preemption_changes_nothing(queue: Queue) -> None:
    queue.evicted("a", 6)
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.GATED


def test_early_reports_on_others_are_remembered_within_bounds() -> None:
    queue = Queue()
    for i in range(2 * MAX_EARLY_REPORTS):
        queue.evicted(f"unknown-{i}", 1)
    assert len(queue.core._queue.preemptions._early) == MAX_EARLY_REPORTS


def test_nobody_waits_for_a_report_for_ever(queue: Queue) -> None:
    queue.change(POD_DELETED, VICTIM)
    queue.at(100.0 + PREEMPTION_TIMEOUT - 0.1)
    assert queue.state("a") is PodState.GATED
    queue.at(100.0 + PREEMPTION_TIMEOUT)
    assert queue.state("a") is PodState.ACTIVE


def test_if_nobody_was_told_it_is_tried_again_after_a_while(queue: Queue) -> None:
    queue.at(100.0 + PREEMPTION_TIMEOUT - 0.1)
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.at(100.0 + PREEMPTION_TIMEOUT)
    assert queue.state("a") is PodState.ACTIVE


def test_its_own_gates_are_asked_as_well(queue: Queue) -> None:
    queue.change(POD_DELETED, VICTIM)
    queue.add(pod("a").gate("x"))
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.GATED
    queue.add("a")
    assert queue.state("a") is PodState.ACTIVE


def test_bound_or_deleted_there_is_nothing_to_wait_for(queue: Queue) -> None:
    queue.gone("a")
    assert queue.core.next_deadline() is None
    queue.evicted("a", 7)
    queue.add("a")
    assert queue.state("a") is PodState.ACTIVE
