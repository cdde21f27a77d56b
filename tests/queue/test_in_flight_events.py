"""What happens while pods are away is remembered for them, within bounds."""

import pytest

from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.in_flight_events import MAX_EVENTS, MAX_HINTS
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import Action, ClusterEvent, Resource
from shared.messages.queue import Activate
from testing.builders import node, pod
from tests.queue.support import FIT, NODE_ADDED, NODE_LABELS, POD_ADDED, POD_DELETED, Queue, uid

SMALL = node("small").capacity(cpu="1", memory="1Gi", pods=10).build()
ANNOTATED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ANNOTATION)


def remembered(queue: Queue) -> int:
    events = queue.core.in_flight_events()
    return events.total() - events["PodPopped"]


@pytest.fixture
def queue() -> Queue:
    """With two pods in flight."""
    queue = Queue()
    queue.add(pod("a").request(cpu="8"), pod("b").request(cpu="8"))
    queue.take()
    return queue


def test_nothing_is_remembered_that_is_of_no_interest_to_anybody(queue: Queue) -> None:
    queue.change(ANNOTATED)
    assert remembered(queue) == 0
    queue.change(POD_DELETED)
    assert remembered(queue) == 1


def test_nothing_is_remembered_for_longer_than_the_oldest_is_away(queue: Queue) -> None:
    for _ in range(3):
        queue.change(POD_DELETED)
    queue.add("c")
    queue.take()
    queue.change(POD_DELETED)
    assert remembered(queue) == 4
    queue.decide("a")
    queue.bound("a")
    assert remembered(queue) == 4
    queue.fail("b")
    assert remembered(queue) == 1
    queue.gone("c")
    assert remembered(queue) == 0
    queue.change(POD_DELETED)
    assert remembered(queue) == 0


def test_a_pod_that_is_bound_is_still_away(queue: Queue) -> None:
    queue.decide("a")
    queue.change(POD_DELETED)
    queue.forget("a", plugin="NodePorts")
    assert queue.state("a") is PodState.BACKOFF


def test_objects_are_looked_at_when_the_pod_comes_back(queue: Queue) -> None:
    queue.change(NODE_ADDED, None, SMALL)
    queue.reject("a", plugins=FIT)
    assert queue.state("a") is PodState.UNSCHEDULABLE


def test_who_was_away_for_too_much_is_taken_to_be_helped(queue: Queue) -> None:
    for _ in range(MAX_EVENTS + 1):
        queue.core.handle(ClusterChange(NODE_LABELS), queue.now)
    queue.add("c")
    queue.take()
    queue.reject("a", "c", plugins=FIT)
    assert (queue.state("a"), queue.state("c")) == (PodState.BACKOFF, PodState.UNSCHEDULABLE)
    assert remembered(queue) == MAX_EVENTS


def test_so_much_that_does_not_help_is_looked_at_and_no_more(queue: Queue) -> None:
    for _ in range(MAX_HINTS):
        queue.core.handle(ClusterChange(NODE_ADDED, None, SMALL), queue.now)
    queue.reject("a", plugins=FIT)
    assert queue.state("a") is PodState.BACKOFF


def test_what_is_not_asked_about_does_not_count_as_much(queue: Queue) -> None:
    for _ in range(2 * MAX_HINTS):
        queue.core.handle(ClusterChange(POD_ADDED, None, pod("other").on("n").build()), queue.now)
    queue.reject("a", plugins=FIT)
    assert queue.state("a") is PodState.UNSCHEDULABLE


# Activation


def test_activated_in_flight_it_rests_when_it_comes_back_and_nobody_else_does(queue: Queue) -> None:
    queue.tell(Activate([uid("a"), uid("unknown")]))
    assert queue.state("a") is PodState.IN_FLIGHT
    queue.reject("a", "b")
    assert (queue.state("a"), queue.state("b")) == (PodState.BACKOFF, PodState.UNSCHEDULABLE)


def test_activated_it_need_not_rest_wherever_it_is(queue: Queue) -> None:
    queue.reject("a")
    queue.fail("b")
    queue.add(pod("gated").gate("x"))
    queue.tell(Activate([uid("a"), uid("b"), uid("gated")]))
    assert [queue.state(name) for name in ("a", "b", "gated")] == [PodState.ACTIVE, PodState.ACTIVE, PodState.GATED]
    assert queue.core.counters.incoming[PodState.ACTIVE, "ForceActivate"] == 2


def test_activated_from_back_off_its_gates_are_not_asked_again(queue: Queue) -> None:
    queue.change(POD_DELETED)
    queue.reject("a")
    assert queue.state("a") is PodState.BACKOFF
    queue.tell(Activate([uid("a")]))
    assert queue.take() == ["a"]
