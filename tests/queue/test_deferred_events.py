"""Events requeue pods only once the snapshot has absorbed the change."""

import pytest

from flotilla.events import Action, Resource
from services.queue.events import ListingComplete, PodGone, PodPending, WatchEvents
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.in_flight_events import MAX_DEFERRED, DeferredEvents
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import EVERYTHING, ClusterEvent
from shared.messages.queue import Absorbed
from testing.builders import pod
from testing.inprocess.batches import pods_in
from tests.queue.support import NODE_ADDED, NODE_LABELS, Queue, uid

SEEN = [ClusterChange(NODE_ADDED)]


def absorbed(watch_seq: int, *, epoch: int = 1, seq: int = 70, watch_epoch: int = 3) -> Absorbed:
    return Absorbed(epoch, seq, watch_epoch, watch_seq)


@pytest.fixture
def queue() -> Queue:
    """With an unschedulable pod whose back-off is complete."""
    queue = Queue()
    queue.add("p")
    queue.take()
    queue.reject("p")
    queue.at(110.0)
    return queue


def test_a_pod_is_handed_out_with_the_state_that_requeued_it(queue: Queue) -> None:
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(4))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5, seq=71))
    batch = queue.ask()
    assert batch is not None
    assert [each.name for each in pods_in(batch)] == ["p"]
    assert batch.seq == 71


def test_pods_rejected_before_the_snapshot_has_the_listing_are_requeued(queue: Queue) -> None:
    """A queue starts while the snapshot lags: workers judge its pods by a state from before the listing."""
    queue.tell(ListingComplete((3, 5)))
    queue.tell(absorbed(4))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.ACTIVE


def test_an_absorbed_event_is_not_deferred(queue: Queue) -> None:
    queue.tell(absorbed(5))
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    assert queue.state("p") is PodState.ACTIVE


def test_a_new_watchers_positions_follow_all_earlier_ones(queue: Queue) -> None:
    queue.tell(WatchEvents(SEEN, at=(3, 500)))
    queue.tell(absorbed(1, watch_epoch=4))
    assert queue.state("p") is PodState.ACTIVE


def test_a_pod_popped_before_a_deferred_event_is_requeued(queue: Queue) -> None:
    """1. The pod is popped, 2. a node is added, 3. workers without that node reject the pod, 4. they learn of it."""
    queue.change()
    queue.take()
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    queue.reject("p")
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.BACKOFF


def test_room_freed_by_deleting_a_binding_pod_is_deferred(queue: Queue) -> None:
    queue.add("q")
    queue.take()
    queue.decide("q")
    queue.tell(WatchEvents([PodGone(uid("q"))], at=(3, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.ACTIVE


def test_room_freed_by_a_lost_nomination_is_deferred(queue: Queue) -> None:
    queue.add(pod("q").nominated("n"))
    queue.tell(WatchEvents([PodPending(pod("q").build(), 110.0)], at=(3, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(5))
    assert queue.state("p") is PodState.ACTIVE


def test_absorbed_of_an_older_snapshot_is_refused(queue: Queue) -> None:
    queue.tell(absorbed(1, epoch=2))
    queue.tell(WatchEvents(SEEN, at=(3, 5)))
    queue.tell(absorbed(5, epoch=1))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    assert len(queue.core.refused) == 1


def test_deferred_events_are_bounded_and_none_is_lost() -> None:
    deferred = DeferredEvents()
    for i in range(MAX_DEFERRED):
        deferred.add(ClusterChange(NODE_LABELS), (1, i + 1))
    deferred.add(ClusterChange(NODE_ADDED), (1, 2 * MAX_DEFERRED))
    deferred.add(ClusterChange(NODE_ADDED), (1, 3 * MAX_DEFERRED))
    assert len(list(deferred.absorb((1, 3 * MAX_DEFERRED - 1)))) == MAX_DEFERRED - 1
    assert [happening.event for happening in deferred.absorb((1, 3 * MAX_DEFERRED))] == [EVERYTHING]


def test_if_a_watcher_of_an_earlier_term_leads_again_anything_may_have_changed(queue: Queue) -> None:
    """Its Lease was deleted, so terms begin again: nobody applies what the later watcher told last."""
    queue.tell(absorbed(4, watch_epoch=102))
    queue.tell(WatchEvents(SEEN, at=(102, 5)))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(absorbed(50, watch_epoch=100))
    assert queue.state("p") is PodState.ACTIVE


def test_events_that_no_plugin_awaits_are_not_deferred(queue: Queue) -> None:
    queue.tell(WatchEvents([ClusterChange(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ANNOTATION))], at=(3, 5)))
    assert list(queue.core._handlers._deferred.absorb((3, 5))) == []
