"""What happens to a pod after an attempt: back-off, events, time limit, binding, new snapshots."""

import pytest

from services.queue.events import PodEnded, PodPending
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_gang import AttemptResult
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.scheduling.scheduling_queue import Timeouts
from shared.framework.clusterevents import ClusterEvent
from shared.messages.queue import Absorbed, Assumed, Verdict
from testing.builders import pod
from tests.queue.support import (
    FIT,
    NODE_ADDED,
    NODE_ALLOCATABLE,
    NODE_DELETED,
    NODE_LABELS,
    NODE_TAINTS,
    POD_ADDED,
    POD_DELETED,
    Queue,
    telling,
    uid,
)


def rejected(*names: str, plugins: tuple[str, ...] = FIT) -> Queue:
    queue = Queue()
    queue.add(*names)
    queue.take()
    queue.reject(*names, plugins=plugins)
    return queue


def attempt(queue: Queue, name: str) -> None:
    assert queue.take() == [name]


# Rejections


def test_a_rejected_pod_waits_for_an_event_and_backs_off() -> None:
    queue = rejected("a")
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.at(101.9).change()
    assert queue.state("a") is PodState.BACKOFF  # until 101, so through all of that second
    queue.at(102.0)
    assert queue.state("a") is PodState.ACTIVE


def test_after_the_backoff_an_event_makes_a_pod_active() -> None:
    queue = rejected("a")
    queue.at(102.0).change()
    assert queue.state("a") is PodState.ACTIVE


def test_backoffs_double_up_to_ten_seconds() -> None:
    queue = Queue()
    queue.add(telling("a"))
    rests = []
    for _ in range(6):
        attempt(queue, "a")
        queue.reject("a")
        queue.change()
        due = queue.core.next_deadline()
        assert due is not None and queue.state("a") is PodState.BACKOFF
        rests.append(due - 1 - queue.now)
        queue.at(due)
    assert rests == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_errors_are_counted_separately_and_a_rejection_resets_them() -> None:
    queue = Queue()
    queue.add("a")
    rests = []
    for fails in (True, True, False, True, True, False):
        attempt(queue, "a")
        if fails:
            queue.fail("a")
        else:
            queue.reject("a")
            queue.change()
        due = queue.core.next_deadline()
        assert due is not None
        rests.append(due - 1 - queue.now)
        queue.at(due)
    assert rests == [1.0, 2.0, 1.0, 1.0, 2.0, 2.0]


def test_backoffs_are_configurable() -> None:
    queue = Queue(BackoffPolicy(initial=2.0, maximum=3.0))
    queue.add("a")
    attempt(queue, "a")
    queue.fail("a")
    assert queue.core.next_deadline() == 103.0
    queue.at(103.0)
    attempt(queue, "a")
    queue.fail("a")
    assert queue.at(106.9).state("a") is PodState.ERROR_BACKOFF
    assert queue.at(107.0).state("a") is PodState.ACTIVE


def test_a_backoff_after_many_attempts_is_the_maximum() -> None:
    queue = Queue()
    queue.add("a")
    for _ in range(80):
        attempt(queue, "a")
        queue.fail("a")
        queue.at(queue.now + 12.0)
    attempt(queue, "a")


def test_a_backoff_is_rounded_down_to_a_second() -> None:
    queue = Queue()
    queue.at(100.7).add("a")
    attempt(queue, "a")
    queue.fail("a")
    assert queue.core.next_deadline() == 102.0


def test_a_pod_that_no_plugin_rejected_backs_off_as_after_an_error() -> None:
    queue = rejected("a", plugins=())
    assert queue.state("a") is PodState.ERROR_BACKOFF
    assert queue.core.counters.attempts == {(AttemptResult.UNSCHEDULABLE, "default-scheduler"): 1}


# Events


@pytest.mark.parametrize(
    ("plugin", "kind", "woken"),
    [
        ("NodeResourcesFit", NODE_ADDED, True),
        ("NodeResourcesFit", NODE_ALLOCATABLE, True),
        ("NodeResourcesFit", POD_DELETED, True),
        ("NodeResourcesFit", NODE_TAINTS, True),
        ("NodeResourcesFit", NODE_LABELS, False),
        ("NodeResourcesFit", POD_ADDED, False),
        ("NodeAffinity", NODE_LABELS, True),
        ("NodeAffinity", POD_DELETED, False),
        ("InterPodAffinity", POD_ADDED, True),
        ("PodTopologySpread", NODE_DELETED, True),
        ("TaintToleration", NODE_TAINTS, True),
        ("SomebodysOwn", NODE_DELETED, True),
    ],
)
def test_an_event_requeues_the_pods_it_may_help(plugin: str, kind: ClusterEvent, woken: bool) -> None:
    queue = rejected("a", plugins=(plugin,))
    queue.at(102.0).change(kind)
    assert (queue.state("a") is PodState.ACTIVE) is woken


def test_one_helped_plugin_is_enough() -> None:
    queue = rejected("a", plugins=("NodeName", "NodePorts"))
    queue.at(102.0).change(POD_DELETED)
    assert queue.state("a") is PodState.ACTIVE


def test_an_event_while_in_flight_counts_when_the_attempt_ends() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.change(NODE_ADDED)
    queue.reject("a")
    assert queue.state("a") is PodState.BACKOFF


def test_events_that_do_not_help_or_came_before_do_not_count() -> None:
    queue = Queue()
    queue.add("a")
    queue.change(NODE_ADDED)
    queue.take()
    queue.change(NODE_LABELS)
    queue.reject("a")
    assert queue.state("a") is PodState.UNSCHEDULABLE


def test_events_do_not_move_active_and_backing_off_pods() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take(1)
    queue.fail("a")
    queue.change()
    assert (queue.state("a"), queue.state("b")) == (PodState.ERROR_BACKOFF, PodState.ACTIVE)


def test_after_five_minutes_the_next_flush_requeues_a_pod() -> None:
    queue = rejected("a")  # at 100, so it has been there for long enough after 400
    queue.add(telling("a"))
    queue.at(110.0)
    assert queue.core.next_deadline() == 420.0
    queue.at(419.0)
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.at(420.0)
    assert queue.state("a") is PodState.ACTIVE


def test_the_time_limit_is_configurable_and_pods_scheduled_after_a_flush_are_counted() -> None:
    queue = Queue(timeouts=Timeouts(unschedulable=60.0))
    queue.add("a", "b")
    queue.take()
    queue.reject("a", "b")
    queue.at(179.0)
    assert queue.state("a") is PodState.UNSCHEDULABLE
    queue.at(180.0)
    assert queue.take() == ["a", "b"]
    queue.decide("a")
    queue.bound("a")
    queue.reject("b")
    queue.at(190.0).change()
    queue.take()
    queue.decide("b")
    queue.bound("b")
    assert queue.core.counters.scheduled_after_flush == 1


def test_a_gated_pod_past_the_time_limit_stays_gated_and_is_an_event_for_in_flight_pods() -> None:
    queue = Queue()
    queue.add(pod("gated").gate("x"))
    queue.at(419.0).add("a")
    attempt(queue, "a")
    queue.at(420.0)
    queue.reject("a")
    assert (queue.state("gated"), queue.state("a")) == (PodState.GATED, PodState.BACKOFF)


def test_a_flushed_pod_is_an_event_for_in_flight_pods() -> None:
    queue = rejected("a")
    queue.at(410.0).add("b")
    attempt(queue, "b")
    queue.at(420.0)
    queue.reject("b", plugins=("SchedulingGates",))
    assert queue.state("b") is PodState.BACKOFF


# Decided


def test_decided_then_bound_is_done() -> None:
    queue = Queue()
    queue.add("a")
    attempt(queue, "a")
    queue.decide("a")
    assert queue.state("a") is PodState.BINDING
    queue.at(101.5)
    assert queue.bound("a") == [PodEnded(uid("a"), "default/a", "default-scheduler", True, 1, 100.0, 100.0, 101.5)]
    assert queue.state("a") is None
    assert queue.core.counters.attempts == {(AttemptResult.SCHEDULED, "default-scheduler"): 1}
    assert queue.bound("a") == []


def test_a_superseded_pod_is_binding_and_the_attempt_does_not_count() -> None:
    queue = Queue()
    queue.add("a")
    attempt(queue, "a")
    queue.decide("a")
    queue.at(160.0)
    attempt(queue, "a")
    queue.report(Verdict.SUPERSEDED, "a")
    assert queue.state("a") is PodState.BINDING
    (ended,) = queue.bound("a")
    assert isinstance(ended, PodEnded) and ended.attempts == 1


def test_without_an_outcome_a_pod_is_handed_out_again_after_a_minute() -> None:
    queue = Queue()
    queue.add("a")
    attempt(queue, "a")
    queue.at(159.9)
    assert queue.state("a") is PodState.IN_FLIGHT
    queue.at(160.0).add("b")
    assert queue.take() == ["a", "b"]


def test_a_decided_pod_not_seen_bound_is_handed_out_again_after_a_minute() -> None:
    queue = Queue()
    queue.add("a")
    attempt(queue, "a")
    queue.at(110.0).decide("a")
    queue.at(169.9)
    assert queue.state("a") is PodState.BINDING
    queue.at(170.0)
    assert queue.state("a") is PodState.ACTIVE


def test_a_forgotten_pod_backs_off_as_after_an_error_and_frees_its_room() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.decide("a")
    queue.reject("b")
    queue.at(105.0).forget("a")
    assert (queue.state("a"), queue.state("b")) == (PodState.ERROR_BACKOFF, PodState.ACTIVE)
    assert queue.core.next_deadline() == 107.0


def test_a_pod_may_be_forgotten_before_the_queue_learns_of_its_decision() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.forget("a")
    assert queue.state("a") is PodState.IN_FLIGHT
    queue.decide("a")
    assert queue.state("a") is PodState.ERROR_BACKOFF


def test_a_pod_forgotten_as_gone_waits_for_the_watch_or_its_deadline() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    queue.forget("a", reason="the pod is gone: not found")
    assert queue.state("a") is PodState.BINDING
    queue.at(160.0)
    assert queue.state("a") is PodState.ACTIVE


@pytest.mark.parametrize("times", [1, 2])
def test_a_repeated_or_late_forgotten_changes_nothing(times: int) -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take(1)
    queue.decide("a")
    for _ in range(times):
        queue.forget("a", "b", "unknown")
    assert (queue.state("a"), queue.state("b")) == (PodState.ERROR_BACKOFF, PodState.ACTIVE)
    assert queue.core.next_deadline() == 102.0


def test_messages_of_an_older_snapshot_are_refused() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    queue.snapshot_epoch = 2
    queue.forget("unknown")
    queue.snapshot_epoch = 1
    queue.forget("a")
    assert queue.state("a") is PodState.BINDING
    assert queue.core.counters.refused == 1


def test_a_late_decision_counts_in_every_state_and_a_late_rejection_does_not() -> None:
    queue = Queue()
    queue.add("active", "rejected", "failed", "late")
    queue.take()
    queue.at(160.0)
    assert queue.state("late") is PodState.ACTIVE
    assert queue.reject("late") != []  # it is acknowledged all the same
    assert queue.state("late") is PodState.ACTIVE
    assert len(queue.take()) == 4
    queue.reject("rejected")
    queue.fail("failed")
    queue.at(220.0)
    queue.report(Verdict.DECIDED, "active", "rejected", "failed", "late")
    assert {queue.state(name) for name in ("active", "rejected", "failed", "late")} == {PodState.BINDING}


def test_rejecting_plugins_are_counted_until_the_next_attempt() -> None:
    queue = rejected("a", plugins=("NodeName", "NodePorts"))
    assert +queue.core.counters.rejecting == {
        ("NodeName", "default-scheduler"): 1,
        ("NodePorts", "default-scheduler"): 1,
    }
    queue.at(102.0).change()
    attempt(queue, "a")
    assert not +queue.core.counters.rejecting


def test_the_transition_log_is_bounded_and_keeps_the_latest() -> None:
    queue = Queue()
    queue.add("a")
    for _ in range(50):
        attempt(queue, "a")
        queue.at(queue.now + 60.0)
    story = queue.history("a")
    assert story.count(";") == 15 and story.endswith("active (Overdue)")


def test_a_pod_seen_earlier_comes_first() -> None:
    queue = Queue()
    queue.tell(PodPending(pod("b").build(), 99.0))
    queue.tell(PodPending(pod("a").build(), 98.0))
    assert queue.take() == ["a", "b"]


# A new snapshot


def test_decisions_unknown_to_a_new_snapshot_are_taken_back_at_once() -> None:
    queue = Queue()
    queue.add("a", "b", "c", "d")
    assert queue.take(most=3) == ["a", "b", "c"]
    queue.decide("a", "b", "c")
    queue.tell(Assumed(queue.snapshot_epoch + 1, [uid("b")]))
    assert [queue.state(name) for name in "abcd"] == [
        PodState.ACTIVE,
        PodState.BINDING,
        PodState.ACTIVE,
        PodState.ACTIVE,
    ]
    assert queue.take() == ["a", "c", "d"], "where they were in the order"


def test_assumed_of_an_earlier_snapshot_is_refused() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    queue.tell(Assumed(5, [uid("a")]))
    queue.tell(Assumed(4, []))
    assert queue.state("a") is PodState.BINDING


def test_without_a_new_snapshots_assumed_all_decisions_are_taken_back() -> None:
    queue = Queue()
    queue.tell(Absorbed(1, 10, 1, 1))
    queue.add("a")
    queue.take()
    queue.decide("a")
    queue.tell(Absorbed(1, 11, 1, 2))
    assert queue.state("a") is PodState.BINDING
    queue.tell(Absorbed(2, 20, 1, 3))
    assert queue.take() == ["a"]
    queue.report(Verdict.SUPERSEDED, "a")
    assert queue.state("a") is PodState.BINDING


def test_a_late_decision_may_be_an_earlier_snapshots() -> None:
    """1. a pod is decided, 2. the snapshot is lost before it is safe, 3. the new one reports, 4. it arrives."""
    queue = Queue()
    queue.tell(Absorbed(1, 10, 1, 1))
    queue.add("a")
    queue.take()
    queue.tell(Assumed(2, []))
    queue.decide("a")
    assert queue.take() == ["a"]
    queue.decide("a")
    assert queue.state("a") is PodState.BINDING


def test_a_pod_that_backs_off_is_handed_out_early_only_after_a_part_of_its_backoff() -> None:
    """It failed at 100.5 and backs off until 102; a tenth of that passes before it is handed out without need."""
    queue = Queue(BackoffPolicy(early=0.1))
    queue.at(100.5).add("a")
    attempt(queue, "a")
    queue.reject("a")
    queue.change()
    assert queue.state("a") is PodState.BACKOFF
    assert queue.ask() is None
    assert queue.core.next_deadline() == pytest.approx(100.65)
    assert queue.at(100.64).state("a") is PodState.BACKOFF
    assert queue.at(100.65).state("a") is PodState.IN_FLIGHT
