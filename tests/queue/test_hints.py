"""Which queueing hints are called for which pods, and how often."""

from collections.abc import Sequence

import pytest

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from flotilla.plugin import PreEnqueuePlugin
from flotilla.results import SUCCESS, Status, unresolvable
from services.queue.core import QueueCore
from services.queue.events import PodPending, Problem, WatchEvents
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.queued_pod_info import PodState
from shared.config.reading import load_config
from shared.framework.clusterevents import ClusterEvent
from shared.framework.profile import Framework
from shared.messages.queue import Outcome, Outcomes, Take, Verdict
from shared.model.objects import DEFAULT_SCHEDULER, Node, Pod
from shared.plugins.registry import in_tree
from testing.builders import node, pod
from tests.queue.support import FIT, FRAMEWORKS, NODE_ADDED, NODE_LABELS, NODE_TAINTS, POD_DELETED, Queue, uid

SMALL = node("small").capacity(cpu="1", memory="1Gi", pods=10).build()
LARGE = node("large").capacity(cpu="64", memory="64Gi", pods=10).build()


class Curious:
    """A hint that records its calls."""

    def __init__(self, answer: bool = False) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, pod: Pod, before: Node | None, now: Node | None, objects: ClusterObjects) -> bool:
        self.asked.append(pod.name)
        return self.answer


def with_hints(**registered: Sequence[Registration]) -> dict[str, Framework]:
    (profile,) = load_config(None).profiles
    framework = Framework(profile, in_tree())
    framework.registrations = {**framework.registrations, **{name: tuple(made) for name, made in registered.items()}}
    return {DEFAULT_SCHEDULER: framework}


def curious(answer: bool = False) -> tuple[Curious, Queue]:
    hint = Curious(answer)
    made = [Registration(Resource.NODE, Action.ADD, hint)]
    return hint, Queue(frameworks=with_hints(Curious=made))


def test_a_node_requeues_only_the_pods_that_fit_on_it() -> None:
    queue = Queue()
    queue.add(pod("a").request(cpu="8"), pod("b").request(cpu="80"))
    queue.take()
    queue.reject("a", "b", plugins=FIT)
    queue.at(110.0).change(NODE_ADDED, None, SMALL)
    assert (queue.state("a"), queue.state("b")) == (PodState.UNSCHEDULABLE, PodState.UNSCHEDULABLE)
    queue.change(NODE_ADDED, None, LARGE)
    assert (queue.state("a"), queue.state("b")) == (PodState.ACTIVE, PodState.UNSCHEDULABLE)


def test_equivalent_pods_share_one_hint_call() -> None:
    """Ten thousand pods that a thousand events do not help: no retry, and few hint calls."""
    hint, queue = curious()
    core, now = queue.core, queue.now
    pods = [pod(f"p{i}").label(half=str(i % 2)).build() for i in range(10_000)]
    core.handle(WatchEvents([PodPending(one, now) for one in pods]), now)
    assert len(queue.take(20_000)) == 10_000
    core.handle(Outcomes(1, 1, [Outcome(one.uid, Verdict.UNSCHEDULABLE, plugins=("Curious",)) for one in pods]), now)
    for i in range(500):
        core.handle(ClusterChange(NODE_LABELS, SMALL, SMALL), now)
        core.handle(ClusterChange(POD_DELETED, pod(f"gone-{i}").on("n").build()), now)
    assert hint.asked == []
    for _ in range(10):
        core.handle(ClusterChange(NODE_ADDED, None, SMALL), now)
    assert len(hint.asked) == 2 * 10
    assert core.counts()[PodState.UNSCHEDULABLE] == 10_000
    core.validate()


def test_equivalent_pods_rejected_together_share_one_hint_call() -> None:
    hint, queue = curious()
    queue.add(*(f"p{i}" for i in range(50)))
    taken = queue.take()
    queue.change(NODE_ADDED, None, SMALL)
    assert hint.asked == []
    queue.reject(*taken, plugins=("Curious",))
    assert len(hint.asked) == 1
    assert queue.core.counts()[PodState.UNSCHEDULABLE] == 50


def test_updates_of_in_flight_pods_are_events_for_in_flight_pods_only() -> None:
    queue = Queue(frameworks=with_hints(Curious=[Registration(Resource.POD, Action.UPDATE_POD_LABEL)]))
    queue.add("waits")
    queue.take()
    queue.reject("waits", plugins=("Curious",))
    queue.add("a", "b", "c")
    assert queue.take(2) == ["a", "b"]
    queue.add(pod("a").label(v="2"), pod("waits").tolerate("k"))
    queue.take()
    queue.reject("a", "b", "c", plugins=("Curious",))
    states = [queue.state(name) for name in ("waits", "a", "b", "c")]
    assert states == [PodState.UNSCHEDULABLE, PodState.BACKOFF, PodState.BACKOFF, PodState.UNSCHEDULABLE]


def test_pending_plugins_skip_the_backoff() -> None:
    queue = Queue()
    queue.add("a", "b", "c")
    queue.take()
    queue.reject("a", plugins=(), pending=("NodeName",))
    queue.reject("b", plugins=("NodeName",), pending=("NodePorts",))
    queue.reject("c", plugins=("NodeAffinity",), pending=("NodeName",))
    queue.change(NODE_LABELS)
    assert [queue.state(name) for name in "abc"] == [PodState.UNSCHEDULABLE, PodState.UNSCHEDULABLE, PodState.BACKOFF]
    queue.change(POD_DELETED)
    assert queue.state("b") is PodState.ACTIVE
    queue.change(NODE_ADDED)
    assert queue.state("a") is PodState.ACTIVE


def test_a_pending_plugin_may_be_helped_while_the_pod_is_in_flight() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.change(POD_DELETED)
    queue.change(NODE_ADDED)
    queue.reject("a", plugins=("NodePorts",), pending=("NodeName",))
    assert queue.state("a") is PodState.ACTIVE


def test_a_hint_that_raises_counts_as_queue_and_is_logged() -> None:
    def broken(pod: Pod, before: object, now: object, objects: ClusterObjects) -> bool:
        raise ZeroDivisionError("of what?")

    queue = Queue(frameworks=with_hints(Broken=[Registration(Resource.NODE, Action.ADD, broken)]))
    queue.add("a")
    queue.take()
    queue.reject("a", plugins=("Broken",))
    queue.at(110.0).change(NODE_ADDED, None, SMALL)
    assert queue.state("a") is PodState.ACTIVE
    (problem,) = (effect for effect in queue.effects if isinstance(effect, Problem))
    assert str(problem.error) == (
        "Pod default/a: queueing hint of Broken raised on NodeAdd: ZeroDivisionError: of what?"
    )


def test_hint_calls_are_timed_on_request() -> None:
    ticks = iter(range(100))
    core = QueueCore(FRAMEWORKS, stopwatch=lambda: float(next(ticks)))
    core.handle(PodPending(pod("a").request(cpu="8").build(), 100.0), 100.0)
    core.handle(Take(1, 1, 1), 100.0)
    core.handle(Outcomes(1, 1, [Outcome(uid("a"), Verdict.UNSCHEDULABLE, plugins=FIT)]), 100.0)
    core.handle(ClusterChange(NODE_ADDED, None, SMALL), 110.0)
    core.handle(ClusterChange(NODE_ADDED, None, LARGE), 110.0)
    assert list(core.hint_calls) == [
        ("NodeResourcesFit", "NodeAdd", "QueueSkip", 1.0),
        ("NodeResourcesFit", "NodeAdd", "Queue", 1.0),
    ]


def test_a_general_update_is_no_specific_event() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", plugins=("NodeAffinity",))
    queue.at(110.0).change(ClusterEvent(Resource.NODE, Action.UPDATE))
    assert queue.state("a") is PodState.UNSCHEDULABLE


def test_plugins_that_wait_for_new_nodes_are_helped_by_removed_taints() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", plugins=("NodeName",))
    queue.at(110.0).change(NODE_TAINTS, SMALL, LARGE)
    assert queue.state("a") is PodState.ACTIVE


def test_a_gated_pod_waits_only_for_events_of_its_gating_plugin() -> None:
    class Door(PreEnqueuePlugin):
        name = "Door"
        shut = True

        def pre_enqueue(self, pod: Pod) -> Status:
            return unresolvable("shut") if self.shut else SUCCESS

    frameworks = with_hints(Door=[Registration(Resource.NODE, Action.UPDATE_NODE_LABEL)])
    door = Door()
    (framework,) = frameworks.values()
    queue = Queue(frameworks=frameworks)
    queue.add("a")
    queue.take()
    queue.reject("a", plugins=("NodeName",))
    framework.pre_enqueue = [*framework.pre_enqueue, door]
    queue.at(110.0).change(NODE_ADDED)
    assert queue.state("a") is PodState.GATED
    door.shut = False
    queue.change(NODE_ADDED)
    assert queue.state("a") is PodState.GATED, "NodeName waits for it, but it is Door that keeps the pod out"
    queue.change(NODE_LABELS)
    assert queue.state("a") is PodState.ACTIVE


@pytest.mark.parametrize("same_name", [True, False])
def test_a_lost_nomination_requeues_pods_of_its_priority_or_less(same_name: bool) -> None:
    queue = Queue()
    queue.add(pod("high").priority(9), pod("low").priority(1), pod("nominated").priority(5).nominated("n"))
    queue.take()
    queue.reject("high", "low", "nominated")
    queue.at(110.0)
    if same_name:
        queue.add(pod("nominated").priority(5))
    else:
        queue.gone("nominated")
    assert (queue.state("high"), queue.state("low")) == (PodState.UNSCHEDULABLE, PodState.ACTIVE)


def test_a_rejected_binding_helps_only_other_pods_and_a_failed_one_helps_them_first() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.decide("a")
    queue.reject("b", plugins=("NodePorts",))
    queue.at(110.0).forget("a", plugin="NodeResourcesFit")
    assert (queue.state("a"), queue.state("b")) == (PodState.UNSCHEDULABLE, PodState.UNSCHEDULABLE)
    queue.core.handle(ClusterChange(POD_DELETED), queue.now)
    assert (queue.state("a"), queue.state("b")) == (PodState.BACKOFF, PodState.ACTIVE)
    assert queue.history("a").count("forgotten") == 1
