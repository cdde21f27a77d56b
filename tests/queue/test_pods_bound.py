"""Pods on nodes that are shown together, where pods wait for events and where none does."""

from collections.abc import Callable

import pytest

from services.queue.events import Event, ListingComplete, PodsBound, PodUnreadable, WatchEvents
from services.queue.metrics import QueueMetrics
from services.queue.scheduling.queued_pod_info import PodState, RetryRecord
from services.queue.watch_decoder import WatchDecoder
from shared.messages.queue import Absorbed
from shared.model.objects import Pod
from testing.builders import pod, selector
from tests.assigned import alike, change_of
from tests.bus.support import a_telemetry, sample
from tests.queue.support import Queue, uid

WEB = [pod(name).on("n").label(app="web").request(cpu=1).build() for name in ("a", "b", "c")]
MEMBERS = [pod(name).on("n").group("gang").build() for name in ("a", "b")]


def shown(*pods: Pod) -> WatchEvents:
    return WatchEvents(WatchDecoder().decode(alike(*pods), 0.0))


def shown_singly(*pods: Pod) -> WatchEvents:
    decoder = WatchDecoder()
    return WatchEvents([event for each in pods for event in decoder.decode(change_of(each), 0.0)])


def waiting_for_web() -> Queue:
    queue = Queue()
    queue.add(pod("p").require_pods("zone", selector(app="web")))
    queue.take()
    queue.reject("p", plugins=("InterPodAffinity",))
    return queue.at(110.0)


def test_they_are_one_event_of_the_decoder() -> None:
    (event,) = shown(*WEB).events
    assert isinstance(event, PodsBound)
    assert [each.pod().key for each in event.pods] == [each.key for each in WEB]


@pytest.mark.parametrize("events", [shown(*WEB), shown_singly(*WEB), shown(*WEB).events[0]])
def test_they_help_a_pod_that_waits_for_one_of_them(events: Event) -> None:
    queue = waiting_for_web()
    queue.tell(shown(pod("d").on("n").label(app="db").build()))
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(events)
    assert queue.state("p") is PodState.ACTIVE


def test_they_help_one_that_comes_while_the_snapshot_has_not_applied_them() -> None:
    """It may be judged by the state before."""
    queue = Queue()
    queue.tell(ListingComplete((3, 1)))
    queue.tell(Absorbed(1, 70, 3, 1))
    queue.tell(WatchEvents(shown(*WEB).events, at=(3, 2)))
    queue.add(pod("p").require_pods("zone", selector(app="web")))
    queue.take()
    queue.reject("p", plugins=("InterPodAffinity",))
    queue.at(110.0)
    assert queue.state("p") is PodState.UNSCHEDULABLE
    queue.tell(Absorbed(1, 71, 3, 2))
    assert queue.state("p") is PodState.ACTIVE


def test_one_that_waited_is_done() -> None:
    queue = waiting_for_web()
    queue.tell(shown(pod("p").on("n").build(), pod("q").on("n").build()))
    assert queue.state("p") is None


Tell = Callable[..., WatchEvents]


@pytest.mark.parametrize("tell", [shown, shown_singly])
def test_where_none_waits_what_is_known_of_them_is_forgotten(tell: Tell) -> None:
    records = {uid(name): RetryRecord(1, 1, 0, 90.0, 120) for name in ("a", "other")}
    queue = Queue(records=records)
    queue.stored = dict(records)
    queue.tell(PodUnreadable(uid("b"), "default", "b", "default-scheduler", "an odd field"))
    queue.tell(tell(*WEB))
    assert (set(queue.stored), dict(queue.core.unreadable)) == ({uid("other")}, {})


@pytest.mark.parametrize("tell", [shown, shown_singly])
def test_members_of_a_group_count_where_none_waits(tell: Tell) -> None:
    queue = Queue()
    queue.tell(tell(*MEMBERS))
    (group,) = queue.core.groups.groups()
    assert sorted(member.name for member in group.on_nodes.values()) == ["a", "b"]


def test_each_counts_as_an_event_in_metrics() -> None:
    telemetry = a_telemetry()
    metrics, queue = QueueMetrics(telemetry.metrics), Queue()
    metrics.handled(metrics.labels(shown(*WEB).events, queue.core), 0.6)
    name = "scheduler_event_handling_duration_seconds"
    assert sample(telemetry, f"{name}_count", event="AssignedPodAdd") == len(WEB)
    assert sample(telemetry, f"{name}_sum", event="AssignedPodAdd") == pytest.approx(0.6)
