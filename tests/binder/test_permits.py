"""Waiting for permits."""

import pytest

from flotilla.results import Code
from services.binder.attempts import MAX_EARLY_PERMITS
from services.binder.core import BinderCore
from services.binder.events import Call, Effect, Leave, PermitWaitEnded, TellOwner
from services.binder.extension_points import duration
from shared.messages.binding import LONGEST_WAIT, MAX_LISTED, BindingOutcomes, PermitHeard, PermitPending
from shared.messages.queue import Received
from tests.binder.support import TIME, Script, binding_framework, one, only, told, wait
from tests.framework.plugins import scripted


def waiting(journal: list[str] | None = None, **seconds: float) -> Script:
    """A pod waits for these plugins. What is reported of it is not acknowledged yet."""
    journal = [] if journal is None else journal
    plugins = [scripted(name, journal, permit=wait(patience)) for name, patience in seconds.items()]
    script = Script(binding_framework(*plugins))
    assert only(Call, script.order()) == []
    return script


def test_an_allowed_pod_goes_on() -> None:
    script = waiting(A=10)
    script.now += 2
    effects = script.permit("A")
    assert one(PermitWaitEnded, effects) == PermitWaitEnded(Code.SUCCESS, 2.0)
    assert one(Call, effects).binds


def test_all_must_allow() -> None:
    script = waiting(A=10, B=10)
    assert script.permit("A") == []
    assert script.permit("A") == []
    assert script.permit("Stranger") == []
    assert one(Call, script.permit("B")).binds


def test_the_first_rejection_ends_it() -> None:
    journal: list[str] = []
    script = waiting(journal, A=10, B=10)
    script.permit("A")
    script.reports()
    effects = script.permit("B", allow=False, reason="quorum is lost")
    message = "0/1 nodes are available: 1 quorum is lost."
    owner = one(TellOwner, effects)
    assert (owner.order.uid, owner.failure, owner.message) == ("p", "Unschedulable", message)
    assert one(PermitWaitEnded, effects).code is Code.UNSCHEDULABLE
    assert script.outcomes() == [told("p", 1, message, plugin="B", rejected=True)]
    assert journal[-2:] == ["B.unreserve(n1)", "A.unreserve(n1)"]
    assert script.permit("A") == []


def test_the_shortest_time_out_ends_it() -> None:
    script = waiting(A=10, B=2.5)
    script.reports()
    assert only(TellOwner, script.pass_time(2.4)) == []
    effects = script.pass_time(0.1)
    message = "0/1 nodes are available: 1 rejected due to timeout after waiting 2.5s at plugin B."
    assert one(TellOwner, effects).message == message
    assert script.outcomes() == [told("p", 1, message, plugin="B", rejected=True)]


def test_the_time_out_of_a_plugin_that_has_allowed_does_not_count() -> None:
    script = waiting(A=10, B=2)
    script.permit("B")
    assert only(TellOwner, script.pass_time(3)) == []
    assert "at plugin A" in one(TellOwner, script.pass_time(7)).message


def test_no_plugin_has_a_pod_wait_for_ever() -> None:
    script = waiting(A=1e9)
    (report,) = script.reports()
    assert report.outcomes[0].wait == LONGEST_WAIT
    effects = script.pass_time(LONGEST_WAIT)
    assert "after waiting 15m0s at plugin A" in one(TellOwner, effects).message


def test_the_snapshot_is_asked_for_more_time_and_it_is_taken_once_acknowledged() -> None:
    script = waiting(A=100)
    (report,) = script.reports(acknowledge=False)
    assert report.outcomes == [told("p", 1, wait=100.0)]
    script.handle(Received(0, report.number))
    script.pass_time(TIME + 50)
    call = one(Call, script.permit("A"))
    assert call.deadline == 1000.0 + 100 + TIME
    script.answer(call)
    assert script.outcomes() == [told("p", 1)]


def test_without_an_acknowledgement_the_pod_is_left_at_its_first_deadline() -> None:
    journal: list[str] = []
    script = waiting(journal, A=100)
    script.pass_time(TIME)
    assert script.core.held == 0
    assert journal[-1] == "A.unreserve(n1)"
    assert script.permit("A") == []
    assert [outcome.reason for outcome in script.outcomes()] == []


def test_a_time_out_of_nothing_ends_at_once() -> None:
    script = waiting(A=0)
    assert "after waiting 0s at plugin A" in one(TellOwner, script.pass_time(0)).message


def test_a_leaving_binder_hands_back_waiting_pods() -> None:
    journal: list[str] = []
    script = waiting(journal, A=10)
    script.reports()
    effects = script.handle(Leave())
    assert not only(TellOwner, effects)
    script.order("q")
    assert script.outcomes() == [
        told("p", 1, "the binder is leaving", handed_back=True),
        told("q", 1, "the binder is leaving", handed_back=True),
    ]
    assert journal == ["A.reserve(n1)", "A.permit", "A.unreserve(n1)"]


def test_a_leaving_binder_finishes_its_bindings() -> None:
    script = Script()
    call = one(Call, script.order())
    script.handle(Leave())
    script.answer(call)
    assert script.outcomes() == [told("p", 1)]


def test_the_next_deadline_is_that_of_the_permit() -> None:
    script = waiting(A=0.2)
    core: BinderCore = script.core
    report = one(BindingOutcomes, script.pass_time(0.01))
    script.handle(Received(0, report.number))
    assert core.next_deadline() == 1000.0 + 0.2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (5, "5s"),
        (0.1, "100ms"),
        (0.0015, "1.5ms"),
        (0.000002, "2µs"),
        (5e-9, "5ns"),
        (2.5, "2.5s"),
        (90, "1m30s"),
        (900, "15m0s"),
        (3600, "1h0m0s"),
        (3661.25, "1h1m1.25s"),
    ],
)
def test_durations_are_written_as_kube_scheduler_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Permits from outside


def test_an_answer_without_a_plugin_allows_for_all() -> None:
    script = waiting(A=10, B=20)
    assert one(Call, script.permit("")).binds


def test_a_rejection_without_a_plugin_is_the_first_plugins() -> None:
    script = waiting(A=10, B=20)
    script.permit("A")
    script.reports()
    script.permit("", allow=False, reason="not today")
    message = "0/1 nodes are available: 1 not today."
    assert script.outcomes() == [told("p", 1, message, plugin="B", rejected=True)]


def test_of_several_plugins_each_allows_and_the_last_sets_the_pod_free() -> None:
    script = waiting(A=10, B=5, C=20)
    assert script.permit("B") == []
    assert script.permit("C") == []
    script.now += 8  # longer than B would have waited
    assert one(Call, script.permit("A")).binds


def test_waiting_pods_are_listed_with_the_time_left() -> None:
    script = waiting(A=10, B=20)
    script.now += 3
    script.order("q", node="n2")
    script.permit("B")
    assert script.core.waiting(script.now + 1) == (
        [
            PermitPending("p", "default", "p", "n1", 1000.0, {"A": 6.0}, 4.0, attempt=1),
            PermitPending("q", "default", "q", "n2", 1003.0, {"A": 9.0, "B": 19.0}, 1.0, attempt=1),
        ],
        0,
    )
    script.permit("A")
    assert [pending.uid for pending in script.core.waiting(script.now)[0]] == ["q"]


def test_a_long_list_is_cut() -> None:
    script = waiting(A=10)
    for i in range(MAX_LISTED + 5):
        script.order(f"q{i}")
    named, more = script.core.waiting(script.now)
    assert (len(named), more) == (MAX_LISTED, 6)
    assert named[0].uid == "p"


def test_what_happened_in_the_last_attempt_is_remembered() -> None:
    script = waiting(A=10)
    waits = script.core.last_attempt("p")
    assert waits is not None and waits.outcome is None and list(waits.transitions) == [(1000.0, "waiting")]
    script.now += 2
    script.answer(one(Call, script.permit("A")))
    found = script.core.last_attempt("p")
    assert found is not None and found.outcome is not None and found.outcome.bound
    assert list(found.transitions) == [(1000.0, "waiting"), (1002.0, "binding"), (1002.0, "bound")]
    assert script.core.last_attempt("another") is None


# Answers that come before the attempt waits


def one_after_another(*, window: float = TIME, **seconds: float) -> tuple[Script, Call]:
    """Attempt 1 has its permits and may be bound any moment; attempt 2 comes after it."""
    script = waiting(None, **seconds)
    call = one(Call, script.permit(""))
    assert only(Call, script.order(attempt=2, node="n2", window=window)) == []
    return script, call


def heard(effects: list[Effect]) -> str:
    """What is said of an answer."""
    said = one(PermitHeard, effects)
    assert (said.id, said.binder, said.uid) == ("x", "b", "p")
    return said.result


def test_an_answer_that_comes_before_the_attempt_waits_counts_when_it_begins_to() -> None:
    script, call = one_after_another(A=10, B=10)
    assert heard(script.permit("A", id="x")) == "kept"
    assert only(Call, script.answer(call)) == []
    (pending,), _ = script.core.waiting(script.now)
    assert (pending.attempt, list(pending.plugins)) == (2, ["B"])
    assert one(Call, script.permit("B")).attempt == 2


def test_permits_of_all_that_are_kept_let_it_go_on_at_once() -> None:
    script, call = one_after_another(A=10)
    script.permit("", attempt=2)
    assert one(Call, script.answer(call)).attempt == 2


def test_a_rejection_that_is_kept_ends_the_wait_as_it_begins() -> None:
    script, call = one_after_another(A=10, B=10)
    script.permit("A", allow=False, reason="not today", attempt=2)
    script.permit("")
    script.answer(call)
    assert [(told.attempt, told.reason) for told in script.outcomes() if told.rejected] == [
        (2, "0/1 nodes are available: 1 not today.")
    ]


def test_an_answer_that_names_an_attempt_counts_for_no_other() -> None:
    script, call = one_after_another(A=10)
    assert heard(script.permit("A", attempt=1, id="x")) == "late"
    script.answer(call)
    assert heard(script.permit("A", attempt=1, id="x")) == "unknown"
    assert heard(script.permit("A", attempt=2, id="x")) == "counted"


def test_what_is_kept_goes_with_its_attempt() -> None:
    script, call = one_after_another(A=10, window=TIME / 2)
    script.permit("A")
    script.pass_time(TIME / 2)
    script.order(attempt=3)
    script.answer(call)
    (pending,), _ = script.core.waiting(script.now)
    assert (pending.attempt, list(pending.plugins)) == (3, ["A"])


def test_a_bounded_number_of_answers_is_kept() -> None:
    script, _ = one_after_another(A=10)
    assert {heard(script.permit(f"p{i}", id="x")) for i in range(MAX_EARLY_PERMITS)} == {"kept"}
    assert heard(script.permit("A", id="x")) == "late"


def test_an_answer_about_an_unknown_attempt_is_told_so() -> None:
    script = Script()
    assert heard(script.permit("A", id="x")) == "unknown"
    assert script.permit("A") == []
    call = one(Call, script.order())
    assert heard(script.permit("A", id="x")) == "late"
    script.answer(call)
    assert heard(script.permit("A", id="x")) == "unknown"
