"""The queue's metrics have kube-scheduler's names and labels, and the right values."""

from services.queue.core import QueueCore
from services.queue.events import PodBound, PodEnded, PodGone, PodPending, WatchEvent
from services.queue.metrics import QueueMetrics
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.scheduling_queue import Timeouts
from shared.telemetry import Telemetry
from testing.builders import node, pod
from tests.bus.support import a_telemetry, sample
from tests.queue.support import FRAMEWORKS, NODE_ADDED, POD_DELETED, Queue, uid

PROFILE = "default-scheduler"


class Shown:
    """A queue whose metrics are shown whenever one is asked for."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.telemetry: Telemetry = a_telemetry()
        self.metrics = QueueMetrics(self.telemetry.metrics)

    def __call__(self, name: str, **labels: str) -> float:
        self.metrics.show(self.queue.core, self.queue.now)
        return sample(self.telemetry, name, **labels)

    def end(self) -> None:
        for effect in self.queue.effects:
            if isinstance(effect, PodEnded):
                self.metrics.ended(effect)


def test_pending_pods_by_queue() -> None:
    queue = Queue()
    shown = Shown(queue)
    queue.add("a", "b", "c", "d", pod("g").gate("x"))
    queue.take(3)
    queue.reject("a")
    queue.fail("b")
    waiting = {place: shown("scheduler_pending_pods", queue=place) for place in QUEUES}
    assert waiting == {"active": 1.0, "backoff": 1.0, "unschedulable": 1.0, "gated": 1.0}
    assert shown("flotilla_queue_pods", place="in-flight") == 1.0
    assert shown("scheduler_unschedulable_pods", plugin="NodeResourcesFit", profile=PROFILE) == 1.0
    assert shown("scheduler_unschedulable_pods", plugin="SchedulingGates", profile=PROFILE) == 1.0
    queue.gone("a")
    assert shown("scheduler_unschedulable_pods", plugin="NodeResourcesFit", profile=PROFILE) == 0.0


QUEUES = ("active", "backoff", "unschedulable", "gated")


def test_incoming_pods_by_event() -> None:
    queue = Queue()
    shown = Shown(queue)

    def came(place: str, event: str) -> float:
        return shown("scheduler_queue_incoming_pods_total", queue=place, event=event)

    queue.add("a", "b", pod("g").gate("x"))
    assert came("active", "UnschedulablePodAdd") == 2.0
    assert came("unschedulable", "UnschedulablePodAdd") == 1.0
    queue.take()
    queue.reject("a")
    queue.fail("b")
    assert came("unschedulable", "ScheduleAttemptFailure") == 1.0
    assert came("backoff", "ScheduleAttemptFailure") == 1.0
    queue.at(queue.now + 30.0)
    assert came("active", "BackoffComplete") == 1.0
    queue.tell(ClusterChange(NODE_ADDED, None, node("n").capacity(cpu=4, pods=10).build()))
    assert came("active", "NodeAdd") == 1.0


def test_scheduled_pods() -> None:
    queue = Queue()
    shown = Shown(queue)
    queue.add("a", "b", "elsewhere")
    queue.take(2)
    queue.fail("a")
    queue.decide("b")
    queue.at(queue.now + 1.5).bound("b")
    shown.end()
    queue.bound("elsewhere")
    shown.end()
    queue.at(queue.now + 5.0).take()
    queue.decide("a")
    queue.at(queue.now + 0.5).bound("a")
    shown.end()
    assert shown("scheduler_pod_scheduling_attempts_count") == 2.0
    assert shown("scheduler_pod_scheduling_attempts_sum") == 3.0
    sli = "scheduler_pod_scheduling_sli_duration_seconds"
    assert shown(f"{sli}_sum", attempts="1") == 1.5
    assert shown(f"{sli}_sum", attempts="2") == 7.0
    attempts = "scheduler_schedule_attempts_total"
    assert shown(attempts, result="scheduled", profile=PROFILE) == 2.0
    assert shown(attempts, result="error", profile=PROFILE) == 1.0
    assert shown("scheduler_pod_scheduled_after_flush_total") == 0.0


def test_pods_scheduled_after_a_flush() -> None:
    queue = Queue(timeouts=Timeouts(unschedulable=60.0))
    shown = Shown(queue)
    queue.add("a")
    queue.take()
    queue.reject("a")
    queue.at(queue.now + 120.0).take()
    queue.decide("a")
    queue.bound("a")
    assert shown("scheduler_pod_scheduled_after_flush_total") == 1.0


def test_plugins_at_pre_enqueue_are_timed_for_every_tenth_pod() -> None:
    queue = Queue()
    queue.core = QueueCore(FRAMEWORKS, stopwatch=iter(map(float, range(100))).__next__)
    shown = Shown(queue)
    queue.add(pod("gated").gate("x"), *(f"p{i}" for i in range(10)))
    name = "scheduler_plugin_execution_duration_seconds_count"
    asked = {"plugin": "SchedulingGates", "extension_point": "PreEnqueue"}
    assert shown(name, status="UnschedulableAndUnresolvable", **asked) == 1.0
    assert shown(name, status="Success", **asked) == 1.0


def test_hint_durations_and_in_flight_events() -> None:
    queue = Queue()
    queue.core = QueueCore(FRAMEWORKS, stopwatch=iter(map(float, range(100))).__next__)
    shown = Shown(queue)
    queue.add(pod("a").request(cpu=4), "b")
    queue.take()
    queue.reject("a")
    queue.change(NODE_ADDED, None, node("small").capacity(cpu=1, pods=10).build())
    assert shown("scheduler_inflight_events", event="PodPopped") == 1.0
    assert shown("scheduler_inflight_events", event="NodeAdd") == 1.0
    queue.change(NODE_ADDED, None, node("large").capacity(cpu=8, pods=10).build())
    hints = "scheduler_queueing_hint_execution_duration_seconds"
    asked = {"plugin": "NodeResourcesFit", "event": "NodeAdd"}
    assert shown(f"{hints}_count", hint="QueueSkip", **asked) == 1.0
    assert shown(f"{hints}_sum", hint="Queue", **asked) == 1.0
    queue.decide("b")
    queue.bound("b")
    assert shown("scheduler_inflight_events", event="PodPopped") == 0.0
    assert shown("scheduler_inflight_events", event="NodeAdd") == 0.0


def test_event_handling_durations() -> None:
    telemetry = a_telemetry()
    metrics = QueueMetrics(telemetry.metrics)
    queue = Queue()
    queue.add("a")
    core: QueueCore = queue.core
    seen: list[WatchEvent] = [
        PodPending(pod("a").build(), 1.0),
        PodPending(pod("b").build(), 1.0),
        PodGone(uid("a")),
        ClusterChange(POD_DELETED, pod("v").on("n").build(), None),
        PodGone(uid("v")),
        PodBound(uid("a")),
    ]
    labels = metrics.labels(seen, core)
    assert labels == [
        "UnschedulablePodUpdate",
        "UnschedulablePodAdd",
        "UnschedulablePodDelete",
        "AssignedPodDelete",
    ]
    metrics.handled(labels, 0.2)
    metrics.handled([], 1.0)
    name = "scheduler_event_handling_duration_seconds"
    assert [sample(telemetry, f"{name}_sum", event=each) for each in labels] == [0.05] * 4
