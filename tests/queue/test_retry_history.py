"""What the queue has remembered for it, and goes on with when it is started again."""

from collections.abc import Callable

import pytest

from services.queue.events import ListingComplete, StoreRetry
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState, RetryRecord
from testing.builders import pod
from tests.queue.support import Queue, uid


def again(queue: Queue, *names: str, now: float) -> Queue:
    """Started again, with what was remembered and these pods."""
    new = Queue(records=queue.stored)
    new.stored = dict(queue.stored)
    new.now = now
    new.add(*names)
    new.tell(ListingComplete((1, 1)))
    return new


def test_of_a_pod_that_is_bound_at_once_nothing_need_be_remembered() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    queue.bound("a")
    assert [effect for effect in queue.effects if isinstance(effect, StoreRetry)] == []


def test_every_failure_is_remembered_until_the_pod_leaves() -> None:
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
    ("end", "place"),
    [(Queue.reject, PodState.BACKOFF), (Queue.fail, PodState.ERROR_BACKOFF)],
    ids=["rejected", "failed"],
)
def test_a_pod_rests_on_and_counts_on(end: Callable[..., object], place: PodState) -> None:
    queue = Queue()
    queue.add("a")
    for at in (100.0, 110.0, 120.0):
        queue.at(at).change()
        queue.take()
        end(queue, "a")
    new = again(queue, "a", "b", now=121.0)
    assert (new.state("a"), new.state("b")) == (place, PodState.ACTIVE)
    assert new.core.next_deadline() == 125.0
    assert new.take(1) == ["b"]
    new.at(125.0)
    batch = new.ask()
    assert batch is not None and batch.pods[0].attempt == 4
    end(new, "a")
    assert new.stored[uid("a")].backoff_until == 133


def test_when_its_rest_is_over_it_is_tried_at_once_and_where_it_was_in_the_order() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a")
    new = again(queue, "b", "a", now=150.0)
    assert new.take() == ["a", "b"]


def test_gates_are_asked_all_the_same() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.fail("a")
    new = Queue(records=queue.stored)
    new.add(pod("a").gate("x"))
    assert new.state("a") is PodState.GATED


def test_what_is_gone_meanwhile_is_forgotten_once_all_is_told() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.reject("a", "b")
    new = again(queue, "a", now=101.0)
    assert set(new.stored) == {uid("a")}


def test_what_is_seen_to_be_gone_or_bound_is_forgotten_at_once() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.reject("a", "b")
    new = Queue(records=queue.stored)
    new.stored = dict(queue.stored)
    new.gone("a")
    new.bound("b")
    assert new.stored == {}


def test_a_clock_that_was_wrong_keeps_nobody_from_being_tried() -> None:
    new = Queue(BackoffPolicy(initial=1.0, maximum=10.0), records={uid("a"): RetryRecord(1, 1, 0, 9000.0, 9001)})
    new.add("a")
    assert new.core.next_deadline() == 111.0
