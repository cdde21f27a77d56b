"""Pods that are updated, gated, unreadable or deleted, in every state."""

from typing import Any

import pytest
from msgspec.structs import replace

from flotilla.plugin import PreEnqueuePlugin, QueueSortPlugin
from flotilla.results import SUCCESS, Status, unresolvable
from services.queue.core import QueueCore
from services.queue.events import PodEnded, PodPending, PodUnreadable, Problem, Tick, WatchEvents
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.queued_gang import AttemptResult
from services.queue.scheduling.queued_pod_info import TRANSITIONS, PodState
from shared.config.reading import load_config
from shared.errors import InvariantBroken
from shared.framework.profile import Framework
from shared.messages.queue import Outcome, Outcomes, Take, Verdict
from shared.model.objects import Pod, PodCondition, PodStatus
from shared.plugins.registry import in_tree
from testing.builders import pod
from testing.inprocess.batches import pods_in
from tests.queue.support import (
    FIT,
    FRAMEWORKS,
    NODE_ADDED,
    NODE_DELETED,
    Queue,
    batch_in,
    names,
    notices,
    state_of,
    uid,
)

UNREADABLE = PodUnreadable(uid("a"), "default", "a", "default-scheduler", "Pod default/a: spec.x: is wrong")


TAINTS = ("TaintToleration",)


def versioned(text: str, version: str) -> Pod:
    """Tolerates something if its text says so."""
    built = (pod("a").tolerate(text) if text else pod("a")).build()
    return replace(built, metadata=replace(built.metadata, resource_version=version))


# Updates


def test_an_update_that_helps_requeues_a_rejected_pod() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", plugins=TAINTS)
    queue.add(pod("a").tolerate("k"))
    assert queue.state("a") is PodState.BACKOFF
    queue.take()
    queue.reject("a", plugins=TAINTS)
    queue.at(110.0).add(pod("a").tolerate("k").tolerate("l"))
    assert queue.state("a") is PodState.ACTIVE


def test_an_update_that_no_rejecting_plugin_awaits_does_not() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", plugins=FIT)
    queue.add(pod("a").tolerate("k").label(app="x"))
    assert queue.state("a") is PodState.UNSCHEDULABLE


def test_a_status_update_does_not() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a")
    queue.add(pod("a").condition("PodScheduled", "False", "Unschedulable"))
    assert queue.state("a") is PodState.UNSCHEDULABLE


def test_the_newest_version_is_handed_out() -> None:
    queue = Queue()
    queue.add("a")
    queue.add(pod("a").label(v="2"))
    batch = queue.ask()
    assert batch is not None and pods_in(batch)[0].metadata.labels == {"v": "2"}


def test_an_update_in_flight_counts_when_the_attempt_ends() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.add(pod("a").tolerate("k").label(v="2"))
    assert queue.state("a") is PodState.IN_FLIGHT
    queue.reject("a", "b", plugins=TAINTS)
    assert (queue.state("a"), queue.state("b")) == (PodState.BACKOFF, PodState.UNSCHEDULABLE)
    batch = queue.ask()
    assert batch is not None and pods_in(batch)[0].metadata.labels == {"v": "2"}


def test_an_update_does_not_end_the_backoff() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.change()
    queue.reject("a", "b")
    queue.add(pod("b").priority(9))
    assert queue.state("b") is PodState.BACKOFF
    assert queue.take() == ["b", "a"]


def test_a_repeated_version_is_no_update() -> None:
    queue = Queue()
    queue.add(versioned("", "7"))
    queue.take()
    queue.reject("a", plugins=TAINTS)
    queue.add(versioned("k", "7"))
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.add(versioned("k", "8"))
    assert queue.state("a") is PodState.BACKOFF


# Gates


def test_a_gated_pod_is_queued_when_its_gates_are_eliminated() -> None:
    queue = Queue()
    queue.add(pod("a").gate("x").gate("y"))
    assert queue.state("a") is PodState.GATED
    queue.add(pod("a").gate("y"))
    queue.change()
    assert queue.state("a") is PodState.GATED
    assert +queue.core.counters.rejecting == {("SchedulingGates", "default-scheduler"): 1}
    queue.at(105.0).add("a")
    assert queue.take() == ["a"]
    (ended,) = queue.bound("a")
    assert isinstance(ended, PodEnded) and (ended.seen_at, ended.active_at) == (100.0, 105.0)


def test_gated_pods_have_no_notices() -> None:
    queue = Queue()
    queue.add(pod("a").gate("x"))
    assert queue.effects == []


def test_a_gated_pod_is_never_flushed() -> None:
    queue = Queue()
    queue.add(pod("a").gate("x"))
    assert queue.core.next_deadline() is None
    queue.at(1000.0)
    assert queue.state("a") is PodState.GATED


class Door(PreEnqueuePlugin):
    """A PreEnqueue plugin that passes, rejects or raises."""

    name = "Door"

    def __init__(self) -> None:
        self.state = "open"

    def pre_enqueue(self, pod: Pod) -> Status:
        if self.state == "broken":
            raise ZeroDivisionError("hinge")
        return SUCCESS if self.state == "open" else unresolvable("shut")


def behind_a_door() -> tuple[QueueCore, Door]:
    (profile,) = load_config(None).profiles
    framework = Framework(profile, in_tree())
    door = Door()
    framework.pre_enqueue = [*framework.pre_enqueue, door]
    return QueueCore({"default-scheduler": framework}), door


def test_a_gate_may_close_after_an_attempt_and_open_at_an_awaited_event() -> None:
    core, door = behind_a_door()
    core.handle(PodPending(pod("a").build(), 100.0), 100.0)
    core.handle(Take(1, 1, 5), 100.0)
    door.state = "shut"
    core.handle(Tick(), 160.0)
    assert state_of(core, uid("a")) is PodState.GATED
    core.handle(ClusterChange(NODE_DELETED), 161.0)
    assert state_of(core, uid("a")) is PodState.GATED
    door.state = "open"
    core.handle(ClusterChange(NODE_DELETED), 162.0)
    assert state_of(core, uid("a")) is PodState.ACTIVE
    core.validate()


def test_a_gate_that_raises_is_logged_and_gates_only_its_pod() -> None:
    core, door = behind_a_door()
    door.state = "broken"
    (problem,) = core.handle(PodPending(pod("a").build(), 100.0), 100.0)
    assert isinstance(problem, Problem)
    why = """running "Door" plugin: pre_enqueue: ZeroDivisionError('hinge')"""
    assert str(problem.error) == f"Pod default/a: {why}"
    info = core.pod(uid("a"))
    assert info is not None
    assert (info.gating_plugin, info.gate_reason) == ("Door", why)
    assert state_of(core, uid("a")) is PodState.GATED
    door.state = "shut"
    core.handle(ClusterChange(NODE_ADDED), 101.0)
    core.validate()
    door.state = "open"
    core.handle(ClusterChange(NODE_ADDED), 101.0)
    assert names(batch_in(core.handle(Take(1, 1, 5), 101.0))) == ["a"]


def test_a_gate_that_raised_counts_as_one_that_rejected_the_pod() -> None:
    """As in kube-scheduler: so after an error it does not lead to the error back-off."""
    core, door = behind_a_door()
    core.handle(PodPending(pod("a").build(), 100.0), 100.0)
    core.handle(Take(1, 1, 5), 100.0)
    door.state = "broken"
    core.handle(Outcomes(1, 1, [Outcome(uid("a"), Verdict.FAILED)]), 100.0)
    assert state_of(core, uid("a")) is PodState.GATED
    door.state = "open"
    core.handle(ClusterChange(NODE_ADDED), 100.5)
    assert state_of(core, uid("a")) is PodState.BACKOFF
    core.validate()


def test_a_queue_sort_that_raises_affects_only_its_pod() -> None:
    core, _ = behind_a_door()

    keys: dict[str, Any] = {"a": 1, "c": 0, "d": "text"}

    class Picky(QueueSortPlugin):
        name = "Picky"

        def sort_key(self, pod: Pod, queued_at: float) -> Any:
            return keys[pod.name]

    core._handlers._frameworks["default-scheduler"].queue_sort = Picky()
    seen = [PodPending(pod(name).build(), 100.0) for name in "abcd"]
    one, other = [each for each in core.handle(WatchEvents(seen), 100.0) if isinstance(each, Problem)]
    assert str(one.error) == """Pod default/b: running "Picky" plugin: sort_key: KeyError('b')"""
    assert str(other.error).startswith("""Pod default/d: running "Picky" plugin: sort_key: TypeError("'<' not""")
    core.validate()
    assert names(batch_in(core.handle(Take(1, 1, 5), 100.0))) == ["c", "a"]
    assert [state_of(core, uid(name)) for name in "bd"] == [PodState.GATED] * 2
    keys |= {"b": 5, "d": 4}
    del keys["a"]  # a pod that has a key keeps it
    failed = core.handle(Outcomes(1, 1, [Outcome(uid("a"), Verdict.FAILED)]), 100.0)
    assert [str(each.error) for each in failed if isinstance(each, Problem)] == [
        """Pod default/a: running "Picky" plugin: sort_key: KeyError('a')"""
    ]
    core.handle(ClusterChange(NODE_ADDED), 101.0)
    core.validate()
    assert names(batch_in(core.handle(Take(1, 2, 5), 110.0))) == ["a", "d", "b"]


# Deletion


@pytest.mark.parametrize("state", ["gated", "active", "backoff", "error", "unschedulable", "flight", "binding"])
@pytest.mark.parametrize("how", ["gone", "terminating", "finished"])
def test_a_deleted_pod_leaves_from_every_state(state: str, how: str) -> None:
    queue = Queue()
    queue.add(pod("a").gate("x") if state == "gated" else "a")
    if state not in ("gated", "active"):
        queue.take()
    if state == "backoff":
        queue.change()
    if state in ("backoff", "unschedulable"):
        queue.reject("a")
    if state == "error":
        queue.fail("a")
    if state == "binding":
        queue.decide("a")
    if how == "gone":
        queue.gone("a")
    else:
        queue.add(pod("a").terminating() if how == "terminating" else pod("a").phase("Failed"))
    assert queue.state("a") is None
    assert any(isinstance(effect, PodEnded) and not effect.bound for effect in queue.effects)
    queue.gone("a")
    assert queue.effects == []
    queue.reject("a")
    queue.forget("a")
    queue.add("b")
    assert queue.take() == ["b"]


def test_deleting_a_binding_pod_frees_room() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.decide("a")
    queue.reject("b")
    queue.at(110.0).gone("a")
    assert queue.state("b") is PodState.ACTIVE


def test_a_pod_bound_by_another_scheduler_is_no_attempt() -> None:
    queue = Queue()
    queue.add("a")
    queue.bound("a")
    assert queue.state("a") is None
    assert not queue.core.counters.attempts


# Unreadable pods


def test_the_owner_of_an_unreadable_pod_is_told_once() -> None:
    queue = Queue()
    queue.add("a")
    effects = queue.tell(UNREADABLE)
    (notice,) = notices(effects)
    assert (notice.reason, notice.message) == ("SchedulerError", UNREADABLE.problem)
    assert (notice.namespace, notice.name, notice.patch, notice.event) == ("default", "a", True, True)
    assert queue.state("a") is None
    assert notices(queue.tell(UNREADABLE)) == []
    queue.add("a")
    assert queue.state("a") is PodState.ACTIVE
    assert len(notices(queue.tell(UNREADABLE))) == 1


def test_unreadable_pods_of_other_schedulers_are_ignored() -> None:
    queue = Queue()
    assert queue.tell(PodUnreadable("u", "default", "a", "another-scheduler", "wrong")) == []


# Notices


def test_a_rejection_notifies_the_owner() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    (notice,) = notices(queue.reject("a", message="0/3 nodes are available"))
    assert (notice.reason, notice.message, notice.patch) == ("Unschedulable", "0/3 nodes are available", True)
    assert (notice.uid, notice.namespace, notice.name, notice.scheduler) == (
        uid("a"),
        "default",
        "a",
        "default-scheduler",
    )
    (notice,) = notices(queue.fail("b"))
    assert (notice.reason, notice.message) == ("SchedulerError", "a plugin broke down")
    assert queue.core.counters.attempts[AttemptResult.ERROR, "default-scheduler"] == 1


@pytest.mark.parametrize(
    ("status", "reason", "message", "patch"),
    [
        ("False", "Unschedulable", "no room", False),
        ("True", "Unschedulable", "no room", True),
        ("False", "SchedulerError", "no room", True),
        ("False", "Unschedulable", "less room", True),
    ],
)
def test_the_condition_is_written_only_if_it_differs(status: str, reason: str, message: str, patch: bool) -> None:
    condition = PodCondition(type="PodScheduled", status=status, reason=reason, message=message)
    queue = Queue()
    queue.add(replace(pod("a").build(), status=PodStatus(conditions=[condition])))
    queue.take()
    (notice,) = notices(queue.reject("a", message="no room"))
    assert (notice.patch, notice.event) == (patch, True)


# The table


def test_the_table_has_every_state_and_every_state_leads_to_done() -> None:
    assert set(TRANSITIONS) == set(PodState)
    for state, ways in TRANSITIONS.items():
        assert PodState.NEW not in ways
        if state not in (PodState.NEW, PodState.DONE):
            assert {PodState.DONE} | ({PodState.BINDING} - {state}) <= ways
    assert TRANSITIONS[PodState.DONE] == frozenset()


@pytest.mark.parametrize("state", [state for state in PodState if state not in (PodState.NEW, PodState.DONE)])
def test_an_impossible_transition_raises_with_the_pods_history(state: PodState) -> None:
    queue = Queue()
    queue.add("a")
    scheduling_queue = queue.core._queue
    info = scheduling_queue.pods[uid("a")]
    if state in TRANSITIONS[PodState.ACTIVE]:
        scheduling_queue.states.move(info, state, 101.0, "test")
        state = PodState.UNSCHEDULABLE if state is PodState.BINDING else state
        if state in TRANSITIONS[info.state]:
            return
    with pytest.raises(InvariantBroken, match=r"pod default/a: .* before: 100.000 active \(UnschedulablePodAdd\)"):
        scheduling_queue.states.move(info, state, 102.0, "test")


def test_each_profile_has_its_pods() -> None:
    other = {"default-scheduler": FRAMEWORKS["default-scheduler"], "second": FRAMEWORKS["default-scheduler"]}
    core = QueueCore(other)
    core.handle(PodPending(pod("a").scheduler("second").build(), 1.0), 1.0)
    assert state_of(core, uid("a")) is PodState.ACTIVE
