"""Events are collected for in-flight pods, within bounds."""

import pytest

from flotilla.events import Action, Resource
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.gang_events import GangEvents
from services.queue.scheduling.in_flight_events import MAX_EVENTS, MAX_HINTS
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import ClusterEvent
from shared.messages.queue import Activate
from shared.model.objects import GroupRef
from testing.builders import node, pod
from tests.queue.support import FIT, NODE_ADDED, NODE_LABELS, POD_ADDED, POD_DELETED, Queue, uid
from tests.queue.test_group_trees import group, member, see

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


def test_events_that_no_plugin_awaits_are_not_logged(queue: Queue) -> None:
    queue.change(ANNOTATED)
    assert remembered(queue) == 0
    queue.change(POD_DELETED)
    assert remembered(queue) == 1


def test_events_are_dropped_when_no_in_flight_pod_needs_them(queue: Queue) -> None:
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


def test_a_binding_pod_still_collects_events(queue: Queue) -> None:
    queue.decide("a")
    queue.change(POD_DELETED)
    queue.forget("a", plugin="NodePorts")
    assert queue.state("a") is PodState.BACKOFF


def test_hints_are_called_when_the_attempt_ends(queue: Queue) -> None:
    queue.change(NODE_ADDED, None, SMALL)
    queue.reject("a", plugins=FIT)
    assert queue.state("a") is PodState.UNSCHEDULABLE


def test_a_pod_whose_events_were_dropped_counts_as_helped(queue: Queue) -> None:
    for _ in range(MAX_EVENTS + 1):
        queue.core.handle(ClusterChange(NODE_LABELS), queue.now)
    queue.add("c")
    queue.take()
    queue.reject("a", "c", plugins=FIT)
    assert (queue.state("a"), queue.state("c")) == (PodState.BACKOFF, PodState.UNSCHEDULABLE)
    assert remembered(queue) == MAX_EVENTS


def test_hint_calls_for_one_pod_are_bounded(queue: Queue) -> None:
    for _ in range(MAX_HINTS):
        queue.core.handle(ClusterChange(NODE_ADDED, None, SMALL), queue.now)
    queue.reject("a", plugins=FIT)
    assert queue.state("a") is PodState.BACKOFF


def test_irrelevant_events_do_not_count_towards_the_bound(queue: Queue) -> None:
    for _ in range(2 * MAX_HINTS):
        queue.core.handle(ClusterChange(POD_ADDED, None, pod("other").on("n").build()), queue.now)
    queue.reject("a", plugins=FIT)
    assert queue.state("a") is PodState.UNSCHEDULABLE


# Activation


def test_a_pod_activated_in_flight_backs_off_and_no_other_pod_does(queue: Queue) -> None:
    queue.tell(Activate([uid("a"), uid("unknown")]))
    assert queue.state("a") is PodState.IN_FLIGHT
    queue.reject("a", "b")
    assert (queue.state("a"), queue.state("b")) == (PodState.BACKOFF, PodState.UNSCHEDULABLE)


def test_activation_skips_the_backoff_in_every_state(queue: Queue) -> None:
    queue.reject("a")
    queue.fail("b")
    queue.add(pod("gated").gate("x"))
    queue.tell(Activate([uid("a"), uid("b"), uid("gated")]))
    assert [queue.state(name) for name in ("a", "b", "gated")] == [PodState.ACTIVE, PodState.ACTIVE, PodState.GATED]
    assert queue.core.counters.incoming[PodState.ACTIVE, "ForceActivate"] == 2


def test_activation_from_backoff_does_not_run_the_gates(queue: Queue) -> None:
    queue.change(POD_DELETED)
    queue.reject("a")
    assert queue.state("a") is PodState.BACKOFF
    queue.tell(Activate([uid("a")]))
    assert queue.take() == ["a"]


def test_members_with_labels_of_their_own_are_judged_by_a_logged_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    see(queue, group("a", 8))
    queue.add(*(member(f"a-{i}").label({"index": str(i)}) for i in range(8)))
    taken = queue.take(8)
    for i in range(20):
        queue.change(POD_DELETED, pod(f"other-{i}").on("n").build())
    judged: list[ClusterChange] = []
    helps = GangEvents.helps_members_of

    def counted(gangs: GangEvents, ref: GroupRef | None, change: ClusterChange) -> bool:
        judged.append(change)
        return helps(gangs, ref, change)

    monkeypatch.setattr(GangEvents, "helps_members_of", counted)
    queue.reject(*taken, plugins=("GangScheduling", "NodeAffinity"))
    assert queue.state("a-0") is PodState.UNSCHEDULABLE
    assert len(judged) == 20
