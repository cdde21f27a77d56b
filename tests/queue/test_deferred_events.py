"""What happens in the cluster wakes pods once the snapshot has absorbed it, and not before."""

import pytest

from services.queue.events import ListingComplete, PodGone, PodPending, WatchEvents
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.in_flight_events import MAX_DEFERRED, DeferredEvents
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import EVERYTHING, Action, ClusterEvent, Resource
from shared.messages.queue import Absorbed
from testing.builders import pod
from tests.queue.support import NODE_ADDED, NODE_LABELS, Queue, uid

SEEN = [ClusterChange(NODE_ADDED)]


def absorbed(watch_seq: int, *, epoch: int = 1, seq: int = 70, watch_epoch: int = 3) -> Absorbed:
    return Absorbed(epoch, seq, watch_epoch, watch_seq)


@pytest.fixture
def queue() -> Queue:
    """With a pod that was rejected long enough ago to be tried at once."""
    queue = Queue()
    queue.add("p")
    queue.take()
    queue.reject("p")
    queue.at(110.0)
    return queue


def test_a_pod_is_tried_on_the_state_that_woke_it(queue: Queue) -> None:
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(4))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5, seq=71))
    batch = queue.ask()
    assert batch is not None
    assert [queued.pod.name for queued in batch.pods] == ["p"]
    assert batch.seq == 71


def test_who_is_rejected_before_the_snapshot_knows_the_listing_is_tried_again(queue: Queue) -> None:
    """A queue that starts while the snapshot stands still: workers judge its pods by a state of before the listing."""
    queue.tell(ListingComplete((3, 5)))
    queue.tell(absorbed(4))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.ACTIVE


def test_what_the_snapshot_knows_already_wakes_at_once(queue: Queue) -> None:
    queue.tell(absorbed(5))
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    assert queue.state("p") is PodState.ACTIVE


def test_a_new_watcher_is_further_than_any_before(queue: Queue) -> None:
    queue.tell(WatchEvents(SEEN, at=(3, 500)))
    queue.tell(absorbed(1, watch_epoch=4))
    assert queue.state("p") is PodState.ACTIVE


def test_a_pod_that_was_taken_before_is_tried_again(queue: Queue) -> None:
    """1. it is taken, 2. a node comes, 3. it is rejected by workers without that node, 4. which they know of by now."""
    queue.change()
    queue.take()
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    queue.reject("p")
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.BACKOFF


def test_the_room_of_a_pod_that_is_deleted_while_it_is_bound_waits_as_well(queue: Queue) -> None:
    queue.add("q")
    queue.take()
    queue.decide("q")
    queue.tell(WatchEvents([PodGone(uid("q"))], at=(3, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.ACTIVE


def test_the_room_of_a_lost_nomination_waits_as_well(queue: Queue) -> None:
    queue.add(pod("q").nominated("n"))
    queue.tell(WatchEvents([PodPending(pod("q").build(), 110.0)], at=(3, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.ACTIVE


def test_an_older_snapshot_is_not_believed(queue: Queue) -> None:
    queue.tell(absorbed(1, epoch=2))
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    queue.tell(absorbed(5, epoch=1))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    assert len(queue.core.refused) == 1


def test_what_waits_is_bounded_and_nothing_is_forgotten() -> None:
    deferred = DeferredEvents()
    for i in range(MAX_DEFERRED):
        deferred.add(ClusterChange(NODE_LABELS), (1, i + 1))
    deferred.add(ClusterChange(NODE_ADDED), (1, 2 * MAX_DEFERRED))
    deferred.add(ClusterChange(NODE_ADDED), (1, 3 * MAX_DEFERRED))
    assert len(list(deferred.absorb((1, 3 * MAX_DEFERRED - 1)))) == MAX_DEFERRED - 1
    assert [happening.event for happening in deferred.absorb((1, 3 * MAX_DEFERRED))] == [EVERYTHING]


def test_what_nobody_waits_for_does_not_wait(queue: Queue) -> None:
    queue.tell(WatchEvents([ClusterChange(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ANNOTATION))], at=(3, 5)))
    assert list(queue.core._handlers._deferred.absorb((3, 5))) == []
