"""A preemptor is gated until its victims have been evicted."""

import pytest

from services.queue.scheduling.nominator import MAX_EARLY_REPORTS
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.limits import PREEMPTION_TIMEOUT
from testing.builders import pod
from tests.queue.support import POD_DELETED, Queue

VICTIM = pod("victim").on("n").request(cpu="8").build()


@pytest.fixture
def queue() -> Queue:
    """With a preemptor whose back-off is complete."""
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n", preemption=7)
    return queue.at(110.0)


def test_an_event_during_the_preemption_helps_once_victims_are_evicted(queue: Queue) -> None:
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.GATED
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.GATED
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.ACTIVE


def test_an_event_after_the_preemption_helps_at_once(queue: Queue) -> None:
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.ACTIVE


def test_an_in_flight_event_waits_for_the_preemption_as_well() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.change(POD_DELETED, VICTIM)
    queue.reject("a", nominated="n", preemption=7)
    assert queue.state("a") is PodState.GATED
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.BACKOFF


@pytest.mark.parametrize("helped", [True, False])
def test_a_failed_preemption_activates_the_pod(queue: Queue, helped: bool) -> None:
    if helped:
        queue.change(POD_DELETED, VICTIM)
    queue.evicted("a", 7, failure="the API server is away")
    assert queue.state("a") is PodState.ACTIVE


@pytest.mark.parametrize(("failure", "state"), [("", PodState.UNSCHEDULABLE), ("refused", PodState.ACTIVE)])
def test_evicted_may_precede_the_outcome(failure: str, state: PodState) -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.evicted("a", 7, failure)
    queue.reject("a", nominated="n", preemption=7)
    assert queue.state("a") is state


def test_evicted_of_an_earlier_preemption_changes_nothing(queue: Queue) -> None:
    queue.evicted("a", 6)
    queue.change(POD_DELETED, VICTIM)
    assert queue.state("a") is PodState.GATED


def test_early_reports_are_bounded() -> None:
    queue = Queue()
    for i in range(2 * MAX_EARLY_REPORTS):
        queue.evicted(f"unknown-{i}", 1)
    assert len(queue.core._queue.preemptions._early) == MAX_EARLY_REPORTS


def test_the_wait_for_evicted_times_out(queue: Queue) -> None:
    queue.change(POD_DELETED, VICTIM)
    queue.at(100.0 + PREEMPTION_TIMEOUT - 0.1)
    assert queue.state("a") is PodState.GATED
    queue.at(100.0 + PREEMPTION_TIMEOUT)
    assert queue.state("a") is PodState.ACTIVE


def test_a_preemption_without_evictions_times_out_and_activates_the_pod(queue: Queue) -> None:
    queue.at(100.0 + PREEMPTION_TIMEOUT - 0.1)
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.at(100.0 + PREEMPTION_TIMEOUT)
    assert queue.state("a") is PodState.ACTIVE


def test_the_pods_own_gates_are_run_as_well(queue: Queue) -> None:
    queue.change(POD_DELETED, VICTIM)
    queue.add(pod("a").gate("x"))
    queue.evicted("a", 7)
    assert queue.state("a") is PodState.GATED
    queue.add("a")
    assert queue.state("a") is PodState.ACTIVE


def test_a_preemption_ends_when_the_pod_is_bound_or_deleted(queue: Queue) -> None:
    queue.gone("a")
    assert queue.core.next_deadline() is None
    queue.evicted("a", 7)
    queue.add("a")
    assert queue.state("a") is PodState.ACTIVE
