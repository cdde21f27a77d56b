"""Pods make way for another: in which order, what when something goes wrong, and how much at a time."""

import pytest
from msgspec.structs import replace

from services.binder.events import Leave, Problem
from services.binder.eviction_core import (
    CANCEL_SECONDS,
    FIRST_LOOK_UP,
    FIRST_RETRY,
    MAX_CALLS,
    MAX_LOOK_UPS,
    MAX_RETRY,
    MAX_RUNNING,
    MAX_WINDOW,
    NEXT_LOOK_UP,
    REPEAT_SECONDS,
    REPORT_SECONDS,
)
from services.binder.eviction_intake import MAX_WAITING
from services.binder.eviction_state import (
    Answered,
    ClearNomination,
    Done,
    EvictedAcknowledged,
    EvictionBegan,
    EvictionEnded,
    Failed,
    Found,
    Gone,
    RecordPreempted,
    RecordPreemption,
    Reply,
    Step,
)
from shared.kube.events_and_conditions import DisruptionTarget, ObservedCondition
from shared.messages.binding import Displaced, Evicted, EvictedPod, Preemption, Withdraw
from tests.binder.evictions import Script, evict, standing, victim

A, B, C = victim("a"), victim("b"), victim("c")
MESSAGE = "my-scheduler: preempting to accommodate a higher priority pod"
FORBIDDEN = Failed("no rights", final=True)
BUSY = Failed("come again")
DONE = Evicted("high", 7)


def begun(*victims: Displaced) -> Script:
    script = Script()
    script.handle(evict(*victims))
    return script


def marked(reason: str = "PreemptionByScheduler", message: str = MESSAGE) -> ObservedCondition:
    return ObservedCondition("DisruptionTarget", "True", reason, message)


def test_a_victim_is_looked_at_marked_and_deleted() -> None:
    script = begun(A)
    assert script.asked() == {"a": Step.LOOK_UP}
    script.answer("a", standing(A))
    (ask,) = script.asks
    assert (ask.step, ask.condition) == (Step.MARK, DisruptionTarget(MESSAGE, 1000.0, 3))
    script.answer("a", Done())
    assert script.asked() == {"a": Step.DELETE}
    script.now += 1.5
    script.answer("a", Done())
    assert script.all(RecordPreempted) == [RecordPreempted(evict(A), A)]
    assert script.told() == [DONE]
    assert (script.all(EvictionBegan), script.all(EvictionEnded)) == ([EvictionBegan(1)], [EvictionEnded(1.5, False)])
    assert script.machine.held == 0


def test_a_condition_that_stands_there_is_not_written_again() -> None:
    script = begun(A)
    script.answer("a", standing(A, conditions=(marked(),)))
    assert script.asked() == {"a": Step.DELETE}


def test_a_condition_for_another_reason_keeps_its_time() -> None:
    script = begun(A)
    script.answer("a", standing(A, conditions=(marked("EvictionByEvictionAPI", "drain"),)))
    assert script.asks[0].condition == DisruptionTarget(MESSAGE, None, 3)


def test_the_last_victim_goes_last_and_the_others_together() -> None:
    script = begun(A, B, C)
    assert script.asked() == {"a": Step.LOOK_UP, "b": Step.LOOK_UP}
    script.carry_out("b")
    assert script.asked() == {"a": Step.LOOK_UP}
    script.carry_out("a")
    assert script.asked() == {"c": Step.LOOK_UP}
    assert script.told() == []
    script.carry_out("c")
    assert script.told() == [DONE]
    assert [preempted.victim.name for preempted in script.all(RecordPreempted)] == ["b", "a", "c"]


def test_the_report_and_the_event_name_the_victims_with_their_owners() -> None:
    script = begun(A, B)
    found = standing(A).pod
    script.answer("a", Found(replace(found, owner="ReplicaSet/web", priority=5)))
    script.carry_out("a")
    script.carry_out("b")
    victims = [
        EvictedPod(A.uid, "default", "a", "ReplicaSet/web", 5),
        EvictedPod(B.uid, "default", "b"),
    ]
    (evicted,) = script.all(Evicted)
    assert evicted.preemption == Preemption("default", "high", "n1", tuple(victims))
    assert script.all(RecordPreemption) == [RecordPreemption(evict(A, B), victims)]


def test_a_victim_on_another_node_than_the_preemptors_is_told_with_its_own() -> None:
    script = begun(A, B)
    script.answer("a", standing(A, node="n7"))
    script.carry_out("a")
    script.carry_out("b")
    assert [preempted.node for preempted in script.all(RecordPreempted)] == ["n7", ""]
    (evicted,) = script.all(Evicted)
    assert evicted.preemption is not None
    assert [victim.node for victim in evicted.preemption.victims] == ["n7", ""]


def test_a_failed_eviction_names_those_that_were_evicted() -> None:
    script = begun(A, B)
    script.carry_out("a")
    script.answer("b", FORBIDDEN)
    (evicted,) = script.all(Evicted)
    assert evicted.preemption is not None
    assert [each.name for each in evicted.preemption.victims] == ["a"]
    assert len(script.all(RecordPreemption)) == 1


def test_nominations_of_lower_pods_are_cleared_first() -> None:
    low = victim("low")
    script = Script()
    effects = script.handle(replace(evict(A), denominated=[low]))
    assert [type(effect).__name__ for effect in effects] == ["EvictionBegan", "ClearNomination", "EvictionCall"]
    assert script.all(ClearNomination) == [ClearNomination(low, "n1")]


def test_without_victims_it_is_over_at_once() -> None:
    assert begun().told() == [DONE]


NOTHING_TO_DO = {
    "gone": Gone(),
    "another pod has its name": standing(victim("other")),
    "it goes already": standing(A, terminating=True),
}


@pytest.mark.parametrize("reply", NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
def test_a_victim_that_goes_anyway_is_left_alone(reply: Reply) -> None:
    script = begun(A)
    script.answer("a", reply)
    assert script.told() == [DONE]
    assert script.all(RecordPreempted) == []


@pytest.mark.parametrize("before", [[], [Done()]], ids=["marked", "deleted"])
def test_a_victim_that_goes_in_between_is_a_success(before: list[Reply]) -> None:
    script = begun(A)
    for reply in (standing(A), *before, Gone()):
        script.answer("a", reply)
    assert script.told() == [DONE]
    assert script.all(RecordPreempted) == []


# What goes wrong


@pytest.mark.parametrize("step", [Step.LOOK_UP, Step.MARK, Step.DELETE])
def test_what_may_succeed_later_is_tried_again_from_the_look_on(step: Step) -> None:
    script = begun(A)
    while script.asked()["a"] is not step:
        script.answer("a", standing(A) if script.asked()["a"] is Step.LOOK_UP else Done())
    script.answer("a", BUSY)
    assert script.asked() == {}
    script.pass_time(FIRST_RETRY)
    assert script.asked() == {"a": Step.LOOK_UP}
    script.carry_out("a")
    assert script.told() == [DONE]
    assert len(script.all(RecordPreempted)) == 1


def test_tries_come_less_and_less_often() -> None:
    script = begun(A)
    pauses = []
    for _ in range(5):
        script.answer("a", BUSY)
        pauses.append(script.machine.next_deadline() - script.now)
        script.pass_time(pauses[-1])
    assert pauses == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY, MAX_RETRY, MAX_RETRY]


def test_a_deletion_without_an_answer_that_was_carried_out_is_told_of() -> None:
    script = begun(A)
    script.answer("a", standing(A, conditions=(marked(),)))
    script.answer("a", Failed("silence", maybe_done=True))
    script.pass_time(FIRST_RETRY)
    script.answer("a", Gone())
    assert len(script.all(RecordPreempted)) == 1
    assert script.told() == [DONE]


def test_what_cannot_succeed_is_a_failure() -> None:
    script = begun(A)
    script.answer("a", FORBIDDEN)
    assert script.told() == [Evicted("high", 7, "victim default/a: no rights")]
    assert script.all(EvictionEnded) == [EvictionEnded(0.0, True)]


def test_after_a_failure_the_last_victim_is_spared_and_what_was_marked_is_cancelled() -> None:
    script = begun(A, B, C)
    script.answer("b", standing(B))
    script.answer("a", FORBIDDEN)
    assert script.told() == []
    script.answer("b", Done("17"))
    assert script.asked() == {"b": Step.CANCEL}
    condition = script.asks[0].condition
    assert condition is not None and condition.fields()["status"] == "False"
    script.answer("b", BUSY)
    script.pass_time(FIRST_RETRY)
    script.answer("b", standing(B))
    assert script.asked() == {"b": Step.CANCEL}
    script.answer("b", Done("18"))
    assert script.told() == [Evicted("high", 7, "victim default/a: no rights")]
    assert script.all(RecordPreempted) == []
    assert script.asks == []


def test_a_victim_is_deleted_at_the_version_at_which_it_was_marked() -> None:
    script = begun(A)
    script.answer("a", standing(A))
    script.answer("a", Done("17"))
    assert [(ask.step, ask.version) for ask in script.asks] == [(Step.DELETE, "17")]


def test_a_deletion_without_an_answer_is_cancelled_once_the_preemptor_is_gone() -> None:
    """Seen: a deletion carried out ten seconds later, for a preemptor that was bound by then."""
    script = begun(A)
    script.answer("a", standing(A))
    script.answer("a", Done("17"))
    script.answer("a", Failed("no answer", maybe_done=True))
    script.pass_time(FIRST_RETRY)
    script.answer("a", standing(A, conditions=(marked(),)))
    assert script.asked() == {"a": Step.DELETE}
    script.answer("a", Failed("the preemptor is gone", final=True))
    assert script.asked() == {"a": Step.CANCEL}
    script.answer("a", Failed("no rights", final=True))
    why = "victim default/a: the preemptor is gone; victim default/a: no rights; it may still be deleted"
    assert script.told() == [Evicted("high", 7, why)]


def test_a_mark_of_an_earlier_binder_is_cancelled_as_well() -> None:
    script = begun(A)
    script.answer("a", standing(A, conditions=(marked(),)))
    script.answer("a", Failed("the preemptor is gone", final=True))
    script.answer("a", Done("19"))
    assert script.told() == [Evicted("high", 7, "victim default/a: the preemptor is gone")]


def test_at_the_deadline_marked_victims_are_cancelled_before_the_end_is_reported() -> None:
    script = begun(A, B)
    script.answer("a", standing(A))
    script.answer("a", Done("17"))
    script.pass_time(MAX_WINDOW)
    assert script.told() == []
    script.answer("a", Failed("there was no time left for it", maybe_done=True))
    assert script.asked() == {"a": Step.CANCEL}
    script.answer("a", Done("18"))
    (told,) = script.told()
    assert told.failure.startswith("not all victims were told to go")
    assert "may still" not in told.failure


def test_a_cancellation_that_is_not_answered_in_time_is_told() -> None:
    script = begun(A)
    script.answer("a", standing(A))
    script.answer("a", Done("17"))
    script.pass_time(MAX_WINDOW)
    script.pass_time(CANCEL_SECONDS)
    (told,) = script.told()
    assert told.failure.endswith("1 victims may still be deleted")


def test_after_a_failure_nothing_is_tried_again() -> None:
    script = begun(A, B, C)
    script.answer("b", BUSY)
    script.answer("a", FORBIDDEN)
    assert len(script.told()) == 1
    script.pass_time(FIRST_RETRY)
    assert script.asks == []


def test_an_eviction_has_its_deadline() -> None:
    script = begun(A, B)
    assert script.asks[0].deadline == 1000.0 + MAX_WINDOW
    script.pass_time(MAX_WINDOW)
    (told,) = script.told()
    assert told.failure == "not all victims were told to go within 20 s"
    ask = script.asks[0]
    assert script.handle(Answered(ask, Done())) == []
    script.handle(EvictedAcknowledged("high", 7))
    assert script.machine.next_deadline() > 1e9


# Victims that are only assumed


def test_a_pod_that_is_not_bound_yet_is_withdrawn() -> None:
    script = begun(victim("a", attempt=4))
    assert script.asks == []
    for look in range(MAX_LOOK_UPS):
        assert len(script.told()) == 0
        script.pass_time(FIRST_LOOK_UP if look == 0 else NEXT_LOOK_UP)
        script.answer("a", standing(A, node=""))
    assert script.all(Withdraw) == [Withdraw("uid-a", 4, "DefaultPreemption", "preempted", epoch=1)] * MAX_LOOK_UPS
    (preempted,) = script.all(RecordPreempted)
    assert preempted.in_memory
    assert script.told() == [DONE]


def test_a_pod_that_was_bound_in_the_meantime_is_deleted() -> None:
    script = begun(victim("a", attempt=4))
    script.pass_time(FIRST_LOOK_UP)
    script.answer("a", standing(A, node=""))
    script.pass_time(NEXT_LOOK_UP)
    script.answer("a", standing(A, node="n1"))
    assert script.asked() == {"a": Step.MARK}
    script.carry_out("a")
    (preempted,) = script.all(RecordPreempted)
    assert not preempted.in_memory
    assert script.told() == [DONE]


# What comes twice, too late, or too often


def test_an_eviction_that_comes_twice_is_carried_out_once() -> None:
    script = begun(A)
    assert script.handle(evict(A)) == []
    script.carry_out("a")
    again = script.handle(evict(A))
    assert (script.told(), again) == ([DONE, DONE], script.all(Evicted)[1:])
    assert len(script.all(EvictionBegan)) == 1


def test_a_failure_is_told_again() -> None:
    script = begun(A)
    script.answer("a", FORBIDDEN)
    script.handle(evict(A))
    assert script.told() == [Evicted("high", 7, "victim default/a: no rights")] * 2


def test_an_answer_that_comes_twice_counts_once() -> None:
    script = begun(A)
    ask = script.asks[0]
    script.answer("a", standing(A))
    assert script.handle(Answered(ask, standing(A))) == []


def test_evictions_of_an_older_epoch_are_refused() -> None:
    script = Script()
    script.handle(evict(A, epoch=3))
    script.handle(evict(B, attempt=8, epoch=2))
    assert str(script.all(Problem)[0].error) == "eviction of epoch 2, now 3"
    assert script.machine.held == 1


def test_running_and_waiting_evictions_are_bounded() -> None:
    script = Script()
    for i in range(MAX_RUNNING + MAX_WAITING):
        script.handle(evict(victim(f"v{i}"), attempt=i + 1))
    assert len(script.all(EvictionBegan)) == MAX_RUNNING
    assert len(script.asks) == MAX_CALLS
    assert script.told() == []
    script.handle(evict(A, attempt=9999))
    assert script.told() == [Evicted("high", 9999, "1024 evictions wait already")]
    script.carry_out("v0")
    assert len(script.all(EvictionBegan)) == MAX_RUNNING + 1
    assert len(script.asks) == MAX_CALLS


def test_all_that_wait_have_their_turn() -> None:
    script = Script()
    for i in range(3 * MAX_RUNNING):
        script.handle(evict(victim(f"v{i}"), victim(f"w{i}"), attempt=i + 1))
    while script.asks:
        script.carry_out(script.asks[0].victim.name)
    assert len(script.told()) == 3 * MAX_RUNNING
    assert all(not told.failure for told in script.told())


def test_an_eviction_that_waits_is_told_as_soon_as_its_window_ends() -> None:
    script = Script()
    for i in range(MAX_RUNNING):
        script.handle(evict(victim(f"v{i}"), attempt=i + 1))
    script.handle(evict(A, attempt=100, window=3.0))
    assert script.machine.next_deadline() == script.now + 3.0
    script.pass_time(3.0)
    assert [told.attempt for told in script.told()] == [100]


def test_an_eviction_that_has_no_turn_in_time_is_a_failure() -> None:
    script = Script()
    for i in range(MAX_RUNNING + 1):
        script.handle(evict(victim(f"v{i}"), attempt=i + 1))
    script.now += 1
    script.handle(evict(A, attempt=100))
    script.pass_time(MAX_WINDOW - 1)
    failures = {told.attempt: told.failure for told in script.told()}
    assert len(failures) == MAX_RUNNING + 1
    assert failures[MAX_RUNNING + 1] == "it did not begin within 20 s"
    assert script.machine.held == 1


def test_a_leaving_binder_finishes_evictions_under_way_and_refuses_others() -> None:
    script = Script()
    for i in range(MAX_RUNNING + 1):
        script.handle(evict(victim(f"v{i}"), attempt=i + 1))
    script.handle(Leave())
    assert script.told() == [Evicted("high", MAX_RUNNING + 1, "the binder is leaving")]
    script.handle(evict(A, attempt=500))
    assert script.told()[-1] == Evicted("high", 500, "the binder is leaving")
    script.carry_out("v0")
    assert script.told()[-1] == Evicted("high", 1)


def test_an_end_is_reported_every_second_until_acknowledged() -> None:
    script = begun()
    assert (script.told(), script.machine.unacknowledged) == ([DONE], 1)
    assert script.machine.next_deadline() == script.now + REPEAT_SECONDS
    script.pass_time(REPEAT_SECONDS - 0.1)
    assert script.told() == [DONE]
    for times in (2, 3):
        script.pass_time(REPEAT_SECONDS)
        assert script.told() == [DONE] * times
    script.handle(EvictedAcknowledged("high", 7))
    script.handle(EvictedAcknowledged("high", 7))
    script.pass_time(REPEAT_SECONDS)
    assert (script.told(), script.machine.unacknowledged) == ([DONE] * 3, 0)


def test_an_end_is_not_reported_forever() -> None:
    script = begun()
    for _ in range(100):
        script.pass_time(REPEAT_SECONDS)
    assert len(script.told()) == REPORT_SECONDS / REPEAT_SECONDS
    assert (script.machine.unacknowledged, script.machine.next_deadline() > 1e9) == (0, True)
