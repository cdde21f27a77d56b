"""Snapshot: what becomes of what was decided."""

import pytest

from services.inprocess.pipeline import bound
from services.snapshot.core import (
    BINDING_DEADLINE,
    BindingFailed,
    BindingFinished,
    LookedUp,
    LookUp,
    Persist,
    PodSeen,
    Tick,
)
from shared.messages.state import PodGone, PodPlaced
from tests.rounds.support import (
    SnapshotLog,
    changes,
    commit,
    held,
    kinds,
    refusals,
    replayed,
    small_node,
    small_pod,
)

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")


def assumed() -> SnapshotLog:
    """Nodes a and b; p assumed on a."""
    log = SnapshotLog(A, B)
    log.handle(commit(1, (P, "a", 2)))
    return log


def test_a_finished_binding_stays_assumed_until_it_is_seen() -> None:
    log = assumed()
    (persist,) = log.handle(BindingFinished(P.uid))
    assert isinstance(persist, Persist)
    assert [entry.bound for entry in persist.ledger] == [True]
    assert log.handle(BindingFinished(P.uid)) == []
    assert log.handle(PodSeen(bound(P, "a"))) == [Persist(settled=(P.uid,))]
    assert log.core.ledger == {}
    assert log.pods() == {P.uid: "a"}
    assert log.handle(PodSeen(bound(P, "a"))) == []


def test_a_failed_binding_is_forgotten() -> None:
    log = assumed()
    effects = log.handle(BindingFailed(P.uid))
    assert kinds(effects) == ["Persist", "Publish"]
    assert changes(effects) == [PodGone(P.uid)]
    assert isinstance(effects[0], Persist) and effects[0].settled == (P.uid,)
    assert log.core.ledger == {}
    assert log.pods() == {}
    assert log.handle(BindingFailed(P.uid)) == []


def test_a_bound_pod_does_not_fail_any_more() -> None:
    log = assumed()
    log.handle(BindingFinished(P.uid))
    assert log.handle(BindingFailed(P.uid)) == []
    assert log.pods() == {P.uid: "a"}


def test_the_watch_may_be_faster_than_the_binder() -> None:
    log = assumed()
    log.handle(PodSeen(bound(P, "a")))
    assert log.handle(BindingFinished(P.uid)) == []
    assert log.handle(BindingFailed(P.uid)) == []
    assert log.pods() == {P.uid: "a"}


def test_a_pod_that_is_seen_on_another_node_moves_there() -> None:
    log = assumed()
    effects = log.handle(PodSeen(bound(P, "b")))
    assert kinds(effects) == ["Persist", "Publish"]
    assert changes(effects) == [PodPlaced(P.uid, "b", 0)]
    assert log.core.ledger == {}
    assert log.pods() == {P.uid: "b"}
    assert refusals(log.handle(commit(2, (Q, "b", 3)))) == {
        Q.uid: ("node b has changed since it was judged", False),
    }


def test_a_late_confirmation_after_forgetting_brings_the_pod_back() -> None:
    log = assumed()
    log.handle(BindingFailed(P.uid))
    assert changes(log.handle(PodSeen(bound(P, "a")))) == [PodPlaced(P.uid, "a", 0)]
    assert log.pods() == {P.uid: "a"}
    assert log.core.ledger == {}


def test_a_late_confirmation_beats_the_decision_that_came_after_forgetting() -> None:
    log = assumed()
    log.handle(BindingFailed(P.uid))
    log.handle(commit(2, (P, "b", 4)))
    log.handle(PodSeen(bound(P, "a")))
    assert log.pods() == {P.uid: "a"}
    assert log.core.ledger == {}


def test_what_is_overdue_is_looked_up_and_not_forgotten_by_time() -> None:
    log = assumed()
    assert log.handle(Tick(), now=BINDING_DEADLINE - 0.001) == []
    assert log.handle(Tick(), now=BINDING_DEADLINE) == [LookUp(P.uid, "default", "p")]
    assert log.pods() == {P.uid: "a"}
    assert log.core.next_deadline() == 2 * BINDING_DEADLINE
    assert log.handle(Tick(), now=2 * BINDING_DEADLINE) == [LookUp(P.uid, "default", "p")]


def test_looked_up_and_there_is_bound() -> None:
    log = assumed()
    (persist,) = log.handle(LookedUp(P.uid, "a"))
    assert isinstance(persist, Persist)
    assert [entry.bound for entry in persist.ledger] == [True]
    assert set(log.core.ledger) == {P.uid}


def test_looked_up_and_nowhere_is_forgotten() -> None:
    log = assumed()
    assert changes(log.handle(LookedUp(P.uid, None))) == [PodGone(P.uid)]
    assert log.core.ledger == {}


@pytest.mark.parametrize(("where", "pods"), [("b", {P.uid: "b"}), ("nowhere", {})])
def test_looked_up_and_elsewhere_is_there(where: str, pods: dict[str, str]) -> None:
    log = assumed()
    log.handle(LookedUp(P.uid, where))
    assert log.core.ledger == {}
    assert log.pods() == pods
    assert replayed(log.deltas) == held(log.core.state())


def test_the_answer_to_an_old_look_up_is_passed_over() -> None:
    log = assumed()
    log.handle(PodSeen(bound(P, "a")))
    assert log.handle(LookedUp(P.uid, None)) == []
    assert log.pods() == {P.uid: "a"}
