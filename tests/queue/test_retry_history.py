"""Retry records, and a queue that is restarted with them."""

from collections.abc import Callable

import pytest

from services.queue.events import ListingComplete, StoreRetry
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState, RetryRecord
from testing.builders import pod
from tests.queue.support import Queue, uid


def again(queue: Queue, *names: str, now: float) -> Queue:
    """A restarted queue, with the stored records and these pods."""
    new = Queue(records=queue.stored)
    new.stored = dict(queue.stored)
    new.now = now
    new.add(*names)
    new.tell(ListingComplete((1, 1)))
    return new


def test_a_pod_bound_at_its_first_attempt_has_no_record() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    queue.bound("a")
    assert [effect for effect in queue.effects if isinstance(effect, StoreRetry)] == []


def test_every_failure_is_recorded_until_the_pod_leaves() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a")
    assert queue.stored == {uid("a"): RetryRecord(1, 1, 0, 100.0, 101)}
    queue.at(110.0).change()
    queue.take()
    queue.fail("a")
    assert queue.stored == {uid("a"): RetryRecord(2, 1, 1, 110.0, 111)}
    queue.at(115.0)
    queue.take()
    queue.decide("a")
    assert queue.stored
    queue.bound("a")
    assert queue.stored == {}


@pytest.mark.parametrize(
    ("end", "state"),
    [(Queue.reject, PodState.BACKOFF), (Queue.fail, PodState.ERROR_BACKOFF)],
    ids=["rejected", "failed"],
)
def test_after_a_restart_backoff_and_counts_continue(end: Callable[..., object], state: PodState) -> None:
    queue = Queue()
    queue.add("a")
    for at in (100.0, 110.0, 120.0):
        queue.at(at).change()
        queue.take()
        end(queue, "a")
    new = again(queue, "a", "b", now=121.0)
    assert (new.state("a"), new.state("b")) == (state, PodState.ACTIVE)
    assert new.core.next_deadline() == 125.0
    assert new.take(1) == ["b"]
    new.at(125.0)
    batch = new.ask()
    assert batch is not None and batch.pods[0].attempt == 4
    end(new, "a")
    assert new.stored[uid("a")].backoff_until == 133


def test_after_its_backoff_a_pod_is_active_in_its_old_position() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a")
    new = again(queue, "b", "a", now=150.0)
    assert new.take() == ["a", "b"]


def test_gates_are_run_after_a_restart() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.fail("a")
    new = Queue(records=queue.stored)
    new.add(pod("a").gate("x"))
    assert new.state("a") is PodState.GATED


def test_records_of_pods_gone_meanwhile_are_deleted_after_the_listing() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.reject("a", "b")
    new = again(queue, "a", now=101.0)
    assert set(new.stored) == {uid("a")}


def test_records_of_pods_seen_gone_or_bound_are_deleted_at_once() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.reject("a", "b")
    new = Queue(records=queue.stored)
    new.stored = dict(queue.stored)
    new.gone("a")
    new.bound("b")
    assert new.stored == {}


def test_a_wrong_clock_delays_no_pod_beyond_the_maximum() -> None:
    new = Queue(BackoffPolicy(initial=1.0, maximum=10.0), records={uid("a"): RetryRecord(1, 1, 0, 9000.0, 9001)})
    new.add("a")
    assert new.core.next_deadline() == 111.0


def test_a_standby_queues_the_pods_that_it_knows_by_their_records() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.fail("a")
    queue.reject("b")
    restarted = again(queue, "a", "b", "c", now=101.5)
    standby = Queue()
    standby.at(101.5).add("a", "b", "c")
    assert standby.state("a") is PodState.ACTIVE
    standby.core.take_over(7, queue.stored, standby.now)
    standby.core.validate()
    standby.tell(ListingComplete((1, 1)))
    assert standby.core.epoch == 7
    for name in "abc":
        assert standby.state(name) == restarted.state(name)
    for new in (standby, restarted):
        new.at(110.0)
    assert standby.take() == restarted.take()


def test_a_standby_counts_the_pods_that_it_queues_again_once() -> None:
    """A pod whose claim is missing is counted for the plugin that gates it."""
    queue = Queue()
    queue.add(pod("a").resource_claim("c", "missing"))
    assert queue.state("a") is PodState.GATED
    queue.core.take_over(7, {uid("a"): RetryRecord(1, 1, 0, 90.0, 91)}, queue.now)
    queue.core.validate()
    assert queue.state("a") is PodState.GATED
