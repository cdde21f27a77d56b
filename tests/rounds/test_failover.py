"""A new snapshot leader: all its sequence numbers are greater than any of the one before it."""

from services.snapshot.events import LookedUp, NodeSeen
from shared.messages.state import Commit
from tests.rounds.support import (
    BASE,
    SnapshotLog,
    answers,
    ask_for,
    commit,
    failed,
    finished,
    propose,
    refusals,
    relabelled,
    small_node,
    small_pod,
    worker,
)

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")


def leaders() -> tuple[SnapshotLog, SnapshotLog]:
    """One that has seen much, and the next one, which has only seen which nodes there are."""
    old, new = SnapshotLog(A, B, epoch=1), SnapshotLog(A, B, epoch=2)
    for i in range(20):
        old.handle(NodeSeen(relabelled(A, change=str(i))))
    return old, new


def test_a_leader_begins_where_no_earlier_one_ever_comes() -> None:
    old, new = leaders()
    assert (old.core.seq, new.core.seq) == (BASE + 22, 2 * BASE + 2)


def test_a_decision_on_an_earlier_leaders_state_is_a_conflict() -> None:
    old, new = leaders()
    assert refusals(new.handle(commit(1, (P, "a", old.core.seq), (Q, "b", old.core.seq)))) == {
        P.uid: ("node a has changed since the evaluation", False),
        Q.uid: ("node b has changed since the evaluation", False),
    }
    assert refusals(new.handle(commit(2, (P, "a", new.core.seq), (Q, "b", new.core.seq)))) == {}


def test_a_new_leaders_state_is_all_that_was_to_be_seen_of_the_old_one() -> None:
    old, new = leaders()
    core = worker()
    core.handle(old.core.state(), 0.0)
    core.handle(new.core.state(), 1.0)
    assert set(answers(core.handle(propose(ask_for(P), min_seq=old.core.seq), 1.0))) == {"p"}
    assert core.next_deadline() is None


def test_a_late_report_on_an_earlier_leaders_attempt_is_ignored() -> None:
    old, new = SnapshotLog(A, B, epoch=1), SnapshotLog(A, B, epoch=2)
    for log, node in ((old, "a"), (new, "b")):
        decided: Commit = commit(1, (P, node, log.core.seq))
        assert refusals(log.handle(decided)) == {}
    earlier = old.attempt(P)
    assert new.attempt(P) > earlier
    for late in (failed(P.uid, earlier), finished(P.uid, earlier), LookedUp(P.uid, earlier, None)):
        assert new.handle(late) == []
    assert new.pods() == {P.uid: "b"}
    assert not new.core.ledger[P.uid].bound
