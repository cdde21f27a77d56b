"""Orders that come twice, too late, from the past, or too many; reports, and room."""

from itertools import product

import pytest

from services.binder.attempts import FINAL, TRANSITIONS, Attempt, AttemptState
from services.binder.core import MAX_HELD, ROOM
from services.binder.events import (
    AttemptEnded,
    Call,
    Done,
    Effect,
    Leave,
    LookUp,
    Problem,
    SendBeat,
    TellOwner,
    Unknown,
    Where,
)
from services.binder.outcome_reports import REPEAT_SECONDS
from shared.errors import InvariantBroken
from shared.messages.binding import BindingOrders
from shared.messages.identity import NameTaken
from shared.messages.limits import BEAT_INTERVAL
from shared.messages.queue import Received
from tests.binder.support import TIME, Script, binding_framework, one, only, overdue, told, wait
from tests.framework.plugins import scripted


def test_an_order_that_comes_again_does_nothing() -> None:
    journal: list[str] = []
    script = Script(binding_framework(scripted("A", journal)))
    script.order()
    before = list(journal)
    assert script.order() == []
    assert journal == before


def test_an_order_that_comes_again_after_its_end_is_answered_again() -> None:
    script = Script()
    script.answer(one(Call, script.order()))
    script.outcomes()
    script.epoch = 2
    assert script.order() == []
    assert script.outcomes() == [told("p", 1)]


def test_a_failure_is_reported_again_and_recorded_once() -> None:
    script = Script()
    script.order(profile="other")
    script.order(profile="other")
    assert len(script.outcomes()) == 2
    assert len(only(TellOwner, script.effects)) == 1


def test_an_older_attempt_is_not_listened_to() -> None:
    script = Script()
    script.order(attempt=5)
    assert script.order(attempt=4) == []
    assert script.core.held == 1


def test_orders_of_an_older_epoch_are_refused() -> None:
    script = Script()
    script.order(epoch=3)
    effects = script.order("q", epoch=2)
    assert str(one(Problem, effects).error) == "orders of epoch 2, number 0: the epoch is 3 now"
    assert script.core.held == 1


def orders_numbered(script: Script, number: int, uid: str = "p", incarnation: str = "") -> list[Effect]:
    return script.handle(BindingOrders(script.epoch, [script.an_order(uid)], incarnation, number))


@pytest.mark.parametrize("number", [4, 5])
def test_orders_that_come_late_or_twice_are_refused(number: int) -> None:
    """Their attempts may have ended and been forgotten."""
    script = Script()
    orders_numbered(script, 5)
    assert "number 5 came before" in str(one(Problem, orders_numbered(script, number, "q")).error)
    assert only(Call, orders_numbered(script, 6, "q")) != []
    script.epoch = 2
    assert only(Call, orders_numbered(script, 1, "r")) != [], "another term counts from the start"


def test_orders_for_another_process_of_the_same_name_are_refused() -> None:
    script = Script()
    script.core.incarnation = "second"
    assert "for process first" in str(one(Problem, orders_numbered(script, 1, incarnation="first")).error)
    assert only(Call, orders_numbered(script, 2, incarnation="second")) != []


def test_an_order_past_its_deadline_is_not_begun_and_nothing_is_claimed() -> None:
    script = Script()
    effects = script.order(window=0.0)
    assert "deadline passed" in str(one(Problem, effects).error)
    assert script.outcomes() == []


def test_a_newer_attempt_takes_the_place_of_one_that_has_not_called_bind() -> None:
    journal: list[str] = []
    script = Script(binding_framework(scripted("A", journal, permit=wait(10))))
    script.order(attempt=1, node="n1")
    effects = script.order(attempt=2, node="n2")
    assert one(AttemptEnded, effects) == AttemptEnded(
        script.an_order(attempt=1), script.now, "there is a newer attempt"
    )
    assert journal == ["A.reserve(n1)", "A.permit", "A.unreserve(n1)", "A.reserve(n2)", "A.permit"]
    script.answer(one(Call, script.permit("A")))
    assert [(o.attempt, o.wait is None) for o in script.outcomes()] == [(1, False), (2, False), (2, True)]


def test_a_newer_attempt_comes_after_one_that_may_be_bound_any_moment() -> None:
    journal: list[str] = []
    script = Script(binding_framework(scripted("A", journal)))
    first = one(Call, script.order(attempt=1, node="n1"))
    assert script.order(attempt=2, node="n2") == []
    assert "A.reserve(n2)" not in journal
    second = one(Call, script.answer(first))
    assert second.attempt == 2
    assert journal.index("A.post_bind(n1)") < journal.index("A.reserve(n2)")
    assert script.outcomes() == [told("p", 1)]


def test_of_several_that_come_after_it_the_newest_counts() -> None:
    script = Script()
    first = one(Call, script.order(attempt=1))
    script.order(attempt=2)
    assert one(AttemptEnded, script.order(attempt=3)).order.attempt == 2
    assert one(Call, script.answer(first)).attempt == 3


def test_an_attempt_that_is_handed_back_before_an_earlier_one_ends_is_remembered() -> None:
    script = Script()
    first = one(Call, script.order(attempt=1))
    script.order(attempt=2)
    script.handle(Leave())
    script.answer(first)
    assert script.order(attempt=2) == []
    assert [(o.attempt, o.reason) for o in script.outcomes()] == [
        (2, "the binder is leaving"),
        (1, ""),
        (2, "the binder is leaving"),
    ]


def test_a_queued_attempt_expires_at_its_deadline() -> None:
    script = Script()
    script.order(attempt=1)
    script.order(attempt=2, window=TIME / 2)
    assert one(AttemptEnded, script.pass_time(TIME / 2)).order.attempt == 2
    assert script.outcomes() == [overdue(attempt=2)]
    assert one(AttemptEnded, script.pass_time(TIME / 2)).order.attempt == 1
    assert script.outcomes() == [overdue(attempt=1)]


def test_both_are_left_if_both_deadlines_have_passed() -> None:
    script = Script()
    script.order(attempt=1)
    script.order(attempt=2)
    script.pass_time(TIME)
    assert script.core.held == 0
    assert script.outcomes() == [overdue(attempt=1), overdue(attempt=2)]


def test_an_expired_attempt_that_is_ordered_again_is_reported_again() -> None:
    """The snapshot has granted more time, at the wish of another binder that had the order in between."""
    script = Script()
    script.order()
    script.pass_time(TIME)
    script.outcomes()
    assert script.order() == []
    assert script.outcomes() == [overdue()]


def test_a_call_that_waits_is_not_made_any_more_once_it_is_of_no_use() -> None:
    script = Script()
    call = one(Call, script.order())
    assert script.core.awaits(call)
    script.pass_time(TIME)
    assert not script.core.awaits(call)
    assert script.answer(call, Done()) == []


def test_a_report_is_repeated_until_it_is_acknowledged() -> None:
    script = Script()
    script.answer(one(Call, script.order()))
    (first,) = script.reports(acknowledge=False)
    assert script.reports() == []
    script.now += REPEAT_SECONDS
    script.epoch = 2
    script.handle(BindingOrders(2, []))
    (second,) = script.reports()
    assert (second.number, second.outcomes) == (first.number, first.outcomes)
    assert (first.epoch, second.epoch) == (1, 2)
    script.now += REPEAT_SECONDS
    assert script.reports() == []
    assert script.handle(Received(0, first.number)) == []


def test_outcomes_of_one_moment_go_in_one_report() -> None:
    script = Script()
    for call in [one(Call, script.order(uid)) for uid in "abc"]:
        script.answer(call)
    (report,) = script.reports()
    assert [outcome.uid for outcome in report.outcomes] == ["a", "b", "c"]


def test_beats_tell_the_snapshot_how_many_orders_the_binder_takes() -> None:
    script = Script()
    assert one(SendBeat, script.pass_time(0)).room == ROOM
    script.order()
    assert only(SendBeat, script.pass_time(BEAT_INTERVAL / 2)) == []
    assert one(SendBeat, script.pass_time(BEAT_INTERVAL / 2)).room == ROOM
    script.handle(Leave())
    assert one(SendBeat, script.pass_time(0)).room == 0


def test_more_orders_than_there_is_room_for_are_left_to_their_deadline() -> None:
    script = Script()
    orders = [script.an_order(f"p{i}") for i in range(MAX_HELD + 1)]
    effects = script.handle(BindingOrders(1, orders))
    assert len(only(Call, effects)) == script.core.held == MAX_HELD
    assert f"default/p{MAX_HELD}: {MAX_HELD} orders are held" in str(one(Problem, effects).error)


@pytest.mark.parametrize(("before", "after"), list(product(AttemptState, AttemptState)))
def test_a_transition_that_cannot_be_tells_the_story(before: AttemptState, after: AttemptState) -> None:
    script = Script()
    attempt = Attempt.of(script.an_order(), binding_framework(), script.now)
    attempt.state = before
    if after in TRANSITIONS[before]:
        attempt.move(after, 1001.0)
        assert attempt.state is after
        return
    attempt.transitions.append((1000.5, before))
    with pytest.raises(InvariantBroken, match=rf"from {before} to {after} .*default/p .*{before} after 0.500 s"):
        attempt.move(after, 1001.0)


def test_every_state_can_be_reached_and_every_attempt_can_end() -> None:
    assert {after for following in TRANSITIONS.values() for after in following} == set(AttemptState) - {
        AttemptState.NEW
    }
    assert {AttemptState.BOUND, AttemptState.FAILED, AttemptState.EXPIRED, AttemptState.SUPERSEDED} == FINAL
    assert all(AttemptState.EXPIRED in TRANSITIONS[state] for state in set(AttemptState) - FINAL - {AttemptState.NEW})


def test_answers_to_other_steps_and_attempts_change_nothing() -> None:
    script = Script()
    call = one(Call, script.order(attempt=2))
    for uid, attempt, step in [("x", 2, 1), ("p", 1, 1), ("p", 2, 0), ("p", 2, 2)]:
        assert script.answer(Call(uid, attempt, step, call.api, call.deadline, True)) == []
    assert script.found(LookUp("p", 2, "default", "p"), Where.GONE) == []
    assert one(LookUp, script.answer(call, Unknown("?"))).attempt == 2


def test_a_binder_ends_if_another_process_has_its_name() -> None:
    script = Script()
    script.core.incarnation = "second"
    orders_numbered(script, 1, incarnation="second")
    assert script.handle(NameTaken(script.epoch - 1, "b", "second", "first", 1.0)) == []
    assert script.handle(NameTaken(script.epoch, "b", "third", "first", 1.0)) == []
    taken = NameTaken(script.epoch, "b", "second", "first", 1.0)
    assert script.handle(taken) == [taken]
