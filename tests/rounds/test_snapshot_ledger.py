"""Snapshot: what becomes of what was decided."""

import pytest
from msgspec.structs import replace

from services.snapshot.events import BindingReports, DispatchOrders, Event, Fence, LookedUp, PodSeen, Tick
from services.snapshot.state.ledger import BINDING_WINDOW, FENCE_GRACE
from shared.messages.binding import LONGEST_WAIT
from shared.messages.queue import ForgottenPod
from shared.messages.state import Delta, OthersChanged, PodGone, PodPlaced
from shared.store.schema import Persist
from testing.inprocess.pipeline import bound
from tests.rounds.support import (
    SnapshotLog,
    changes,
    commit,
    failed,
    finished,
    held,
    kinds,
    reassigned,
    refusals,
    replayed,
    small_node,
    small_pod,
    stale,
    waits,
)

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")
DUE = BINDING_WINDOW + FENCE_GRACE
"""Seconds after which an assumption without an outcome is looked up."""
FIRST = 3
"""The attempt that `assumed` begins with."""


def assumed() -> SnapshotLog:
    """Nodes a and b; p assumed on a."""
    log = SnapshotLog(A, B)
    log.handle(commit(1, (P, "a", 2)))
    return log


def test_a_finished_binding_stays_assumed_until_it_is_seen() -> None:
    log = assumed()
    assert log.handle(finished(P.uid, FIRST)) == []
    assert log.core.ledger[P.uid].bound
    assert log.handle(finished(P.uid, FIRST)) == []
    assert log.handle(PodSeen(bound(P, "a"))) == [Persist(settled=(P.uid,))]
    assert log.core.ledger == {}
    assert log.pods() == {P.uid: "a"}
    assert log.handle(PodSeen(bound(P, "a"))) == []


def test_that_pods_are_bound_is_written_when_the_term_ends() -> None:
    log = assumed()
    log.handle(commit(2, (Q, "b", 3)))
    assert list(log.core.end()) == []
    assert log.handle(BindingReports([finished(P.uid, FIRST), finished(Q.uid, log.attempt(Q))])) == []
    assert list(log.core.end()) == [Persist(ledger=tuple(log.core.ledger.values()))]
    assert [entry.bound for entry in log.core.ledger.values()] == [True, True]
    log.handle(PodSeen(bound(P, "a")))
    assert list(log.core.end()) == [Persist(ledger=(log.core.ledger[Q.uid],))]


def test_the_outcomes_of_one_message_count_as_one_by_one() -> None:
    together, alone = assumed(), assumed()
    for log in (together, alone):
        log.handle(commit(2, (Q, "b", 3)))
    second = alone.attempt(Q)
    reports = [waits(P.uid, FIRST, 60.0), finished(P.uid, FIRST), failed(Q.uid, second, "no"), failed(P.uid, FIRST)]
    effects = [effect for report in reports for effect in alone.handle(report)]
    assert [each for each in together.handle(BindingReports(reports)) if not isinstance(each, OthersChanged)] == [
        each for each in effects if not isinstance(each, OthersChanged)
    ]
    assert together.core.ledger == alone.core.ledger
    assert [entry.bound for entry in together.core.ledger.values()] == [True]


def test_a_failed_binding_is_forgotten() -> None:
    log = assumed()
    effects = log.handle(failed(P.uid, FIRST, "no such node"))
    assert kinds(effects) == ["OthersChanged", "Persist", "Delta", "ForgottenPod"]
    assert changes(effects) == [PodGone(P.uid)]
    assert effects[-1] == ForgottenPod(P.uid, "no such node")
    assert isinstance(effects[1], Persist) and effects[1].settled == (P.uid,)
    assert log.core.ledger == {}
    assert log.pods() == {}
    assert log.handle(failed(P.uid, FIRST)) == []


def test_a_bound_pod_does_not_fail_any_more() -> None:
    log = assumed()
    log.handle(finished(P.uid, FIRST))
    assert log.handle(failed(P.uid, FIRST)) == []
    assert log.pods() == {P.uid: "a"}


def test_the_watch_may_be_faster_than_the_binder() -> None:
    log = assumed()
    log.handle(PodSeen(bound(P, "a")))
    assert log.handle(finished(P.uid, FIRST)) == []
    assert log.handle(failed(P.uid, FIRST)) == []
    assert log.pods() == {P.uid: "a"}


def test_a_pod_that_is_seen_on_another_node_moves_there() -> None:
    log = assumed()
    effects = log.handle(PodSeen(bound(P, "b")))
    assert kinds(effects) == ["OthersChanged", "Persist", "Delta"]
    assert changes(effects) == [PodPlaced(P.uid, "b", 0, P.key)]
    assert log.core.ledger == {}
    assert log.pods() == {P.uid: "b"}
    assert refusals(log.handle(commit(2, (Q, "b", 3)))) == {
        Q.uid: ("node b has changed since the evaluation", False),
    }


def test_a_late_confirmation_after_forgetting_brings_the_pod_back() -> None:
    log = assumed()
    log.handle(failed(P.uid, FIRST))
    assert changes(log.handle(PodSeen(bound(P, "a")))) == [PodPlaced(P.uid, "a", 0, P.key)]
    assert log.pods() == {P.uid: "a"}
    assert log.core.ledger == {}


def test_a_late_confirmation_beats_the_decision_that_came_after_forgetting() -> None:
    log = assumed()
    log.handle(failed(P.uid, FIRST))
    log.handle(commit(2, (P, "b", 4)))
    log.handle(PodSeen(bound(P, "a")))
    assert log.pods() == {P.uid: "a"}
    assert log.core.ledger == {}


def test_what_is_overdue_is_looked_up_and_not_forgotten_by_time() -> None:
    log = assumed()
    assert log.handle(Tick(), now=DUE - 0.001) == []
    assert log.handle(Tick(), now=DUE) == [Fence(P.uid, FIRST, "default", "p", "")]
    assert log.pods() == {P.uid: "a"}
    assert log.core.next_deadline() == 2 * DUE
    assert log.handle(Tick(), now=2 * DUE) == [Fence(P.uid, FIRST, "default", "p", "")]


def test_looked_up_and_there_is_bound() -> None:
    log = assumed()
    assert log.handle(LookedUp(P.uid, FIRST, "a")) == []
    assert [entry.bound for entry in log.core.ledger.values()] == [True]


def test_looked_up_and_nowhere_is_forgotten() -> None:
    log = assumed()
    assert changes(log.handle(LookedUp(P.uid, FIRST, None))) == [PodGone(P.uid)]
    assert log.core.ledger == {}


@pytest.mark.parametrize(("where", "pods"), [("b", {P.uid: "b"}), ("nowhere", {})])
def test_looked_up_and_elsewhere_is_there(where: str, pods: dict[str, str]) -> None:
    log = assumed()
    log.handle(LookedUp(P.uid, FIRST, where))
    assert log.core.ledger == {}
    assert log.pods() == pods
    assert replayed(log.deltas) == held(log.core.state())


# Attempts


def second_attempt() -> tuple[SnapshotLog, int]:
    """The first one failed; p is assumed on b now."""
    log = assumed()
    log.handle(failed(P.uid, FIRST))
    log.handle(commit(2, (P, "b", 4)))
    return log, log.attempt(P)


def test_an_attempt_is_named_by_the_delta_of_its_commit() -> None:
    log = assumed()
    assert log.attempt(P) == log.core.seq == FIRST
    persist, publish, _, dispatch = log.handle(commit(2, (Q, "b", 3), (small_pod("r"), "b", 3)))
    assert isinstance(persist, Persist) and isinstance(publish, Delta) and isinstance(dispatch, DispatchOrders)
    assert {entry.attempt for entry in persist.ledger} == {publish.seq} == {FIRST + 1}
    assert {number for _, number in dispatch.attempts} == {FIRST + 1}
    assert log.attempt(P) == FIRST


def test_each_attempt_has_a_number_of_its_own() -> None:
    log, second = second_attempt()
    assert second > FIRST
    log.handle(failed(P.uid, second))
    log.handle(commit(3, (P, "a", 6)))
    assert log.attempt(P) > second


@pytest.mark.parametrize(
    "late",
    [
        failed(P.uid, FIRST),
        finished(P.uid, FIRST),
        LookedUp(P.uid, FIRST, None),
        LookedUp(P.uid, FIRST, "a"),
        LookedUp(P.uid, FIRST, "b"),
        failed(P.uid, 99),
        finished(P.uid, 99),
        LookedUp(P.uid, 99, None),
        failed(Q.uid, FIRST),
    ],
)
def test_a_word_on_another_attempt_is_passed_over(late: Event) -> None:
    log, _ = second_attempt()
    ledger, seq = log.core.ledger, log.core.seq
    assert log.handle(late) == []
    assert (log.core.ledger, log.core.seq) == (ledger, seq)
    assert log.pods() == {P.uid: "b"}


def test_the_failure_of_an_earlier_attempt_does_not_undo_a_later_one() -> None:
    log, second = second_attempt()
    log.handle(failed(P.uid, FIRST))  # doubled, or late
    assert log.pods() == {P.uid: "b"}
    log.handle(failed(P.uid, second))
    assert log.pods() == {}


def test_a_later_attempt_has_outcomes_of_its_own() -> None:
    log, second = second_attempt()
    log.handle(finished(P.uid, second))
    assert log.core.ledger[P.uid].bound
    assert log.handle(PodSeen(bound(P, "b"))) == [Persist(settled=(P.uid,))]


# Deadlines


def test_who_is_due_first_is_looked_up_first() -> None:
    log = assumed()
    log.handle(commit(2, (Q, "b", 3)), now=5.0)
    log.handle(finished(P.uid, FIRST), now=7.0)
    assert log.core.next_deadline() == DUE
    assert log.handle(Tick(), now=DUE) == [Fence(P.uid, FIRST, "default", "p", "")]
    assert log.core.ledger[P.uid].bound
    assert log.core.next_deadline() == DUE + 5.0
    log.handle(PodSeen(bound(Q, "b")))
    assert log.core.next_deadline() == 2 * DUE


@pytest.mark.parametrize("wait", [1e12, -1.0, float("nan"), float("inf")])
def test_no_reported_wait_counts_for_longer_than_the_longest_permit(wait: float) -> None:
    log = assumed()
    log.handle(waits(P.uid, FIRST, wait))
    assert log.core.next_deadline() == LONGEST_WAIT + DUE


def test_a_pod_that_waits_for_a_permit_is_not_looked_up_before_it_is_over() -> None:
    log = assumed()
    effects = log.handle(waits(P.uid, FIRST, 100.0))
    assert kinds(effects) == ["Persist"]
    assert log.core.next_deadline() == 100.0 + DUE
    order = log.core.order((P.uid, FIRST), 50.0)
    assert order is not None and order.window == 50.0 + BINDING_WINDOW, "the next binder has as long"
    assert log.handle(waits(P.uid, FIRST - 1, 900.0)) == []
    assert log.handle(Tick(), now=DUE) == []
    assert kinds(log.handle(failed(P.uid, FIRST, "rejected"))) == ["OthersChanged", "Persist", "Delta", "ForgottenPod"]
    assert log.core.next_deadline() is None


def test_a_pod_that_is_bound_is_looked_up_soon_though_its_binder_was_to_wait_for_minutes() -> None:
    """It may have finished before anybody watched, and then the watch never shows it."""
    log = assumed()
    log.handle(waits(P.uid, FIRST, 600.0))
    log.handle(finished(P.uid, FIRST), now=1.0)
    assert log.handle(Tick(), now=1.0 + DUE - 0.1) == []
    assert log.handle(Tick(), now=1.0 + DUE) == [Fence(P.uid, FIRST, "default", "p", "")]
    log.handle(LookedUp(P.uid, FIRST, None, gone=True), now=1.0 + DUE)
    assert not log.core.ledger


def test_all_that_is_overdue_is_looked_up_once() -> None:
    log = assumed()
    log.handle(commit(2, (Q, "b", 3)), now=5.0)
    overdue = [Fence(P.uid, FIRST, "default", "p", ""), Fence(Q.uid, FIRST + 1, "default", "q", "")]
    assert log.handle(Tick(), now=100.0) == overdue
    assert log.handle(Tick(), now=100.0) == []
    assert log.core.next_deadline() == 100.0 + DUE


def test_the_answer_to_an_old_look_up_is_passed_over() -> None:
    log = assumed()
    log.handle(PodSeen(bound(P, "a")))
    assert log.handle(LookedUp(P.uid, FIRST, None)) == []
    assert log.pods() == {P.uid: "a"}


# Fences: a place is given away only when no call can bind its pod any more


def versioned() -> SnapshotLog:
    """As `assumed`; p was decided at version 7."""
    log = SnapshotLog(A, B)
    made = commit(1, (P, "a", 2))
    log.handle(replace(made, decisions=[reassigned(made.decisions[0], version="7")]))
    return log


def a_fence(version: str) -> Fence:
    return Fence(P.uid, FIRST, "default", "p", version)


def test_the_order_names_the_version_that_was_decided() -> None:
    log = versioned()
    order = log.core.order((P.uid, FIRST), 1.0)
    assert order is not None and order.version == log.core.ledger[P.uid].version == "7"


def test_a_failure_that_proves_nothing_has_the_pod_fenced_and_keeps_its_place() -> None:
    log = versioned()
    report = failed(P.uid, FIRST, "refused", "DefaultBinder", version="7", sure=False)
    assert log.handle(report) == [a_fence("7")]
    assert log.pods() == {P.uid: "a"}
    assert log.core.order((P.uid, FIRST), 1.0) is None, "no binder gets it while it is being fenced"
    effects = log.handle(LookedUp(P.uid, FIRST, None, version="7"))
    assert effects[-1] == ForgottenPod(P.uid, "refused", "DefaultBinder")
    assert log.pods() == {}


def test_a_failure_about_another_version_says_nothing_of_the_present_one() -> None:
    log = versioned()
    log.handle(stale(P.uid, FIRST, "7", "8"))
    assert log.handle(failed(P.uid, FIRST, "refused", version="7")) == [a_fence("8")]
    other = versioned()
    other.handle(stale(P.uid, FIRST, "7", "8"))
    assert other.handle(failed(P.uid, FIRST, "refused", version="7", sole=False)) == []


def test_a_pod_that_has_changed_is_ordered_again_once_that_is_in_the_ledger() -> None:
    log = versioned()
    persist, dispatch = log.handle(stale(P.uid, FIRST, "7", "8"))
    assert isinstance(persist, Persist)
    assert [(entry.attempt, entry.version) for entry in persist.ledger] == [(FIRST, "8")]
    assert dispatch == DispatchOrders(((P.uid, FIRST),))
    order = log.core.order((P.uid, FIRST), 1.0)
    assert order is not None and order.version == "8"
    assert log.handle(stale(P.uid, FIRST, "7", "9")) == [dispatch], "it has got an old order"
    assert log.core.ledger[P.uid].version == "8"


def test_what_was_fenced_at_another_version_is_fenced_again() -> None:
    log = versioned()
    log.handle(Tick(), now=DUE)
    log.handle(stale(P.uid, FIRST, "7", "8"), now=DUE)
    assert log.handle(LookedUp(P.uid, FIRST, None, version="7")) == [a_fence("8")]
    assert log.pods() == {P.uid: "a"}
    log.handle(LookedUp(P.uid, FIRST, None, version="8"))
    assert log.pods() == {}


def test_a_pod_that_is_bound_while_it_is_fenced_is_bound() -> None:
    log = versioned()
    log.handle(failed(P.uid, FIRST, "refused", version="7", sure=False))
    log.handle(LookedUp(P.uid, FIRST, "a", version="7"))
    assert log.core.ledger[P.uid].bound
