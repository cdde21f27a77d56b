"""Snapshot: events in, effects out."""

from collections import deque
from collections.abc import Callable

import msgspec
import pytest

from services.snapshot.commit import CommitHandler
from services.snapshot.events import Beat, DispatchOrders, NodeGone, NodeSeen, PodDeleted, PodSeen, Reply
from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.ledger import BINDING_WINDOW, FENCE_GRACE
from shared.cluster.nodetable import shard_of
from shared.messages.state import Committed, Delta, Heartbeat, Outdated, PodPlaced
from shared.store.schema import Persist
from testing.inprocess.pipeline import bound
from tests.rounds.support import (
    SnapshotLog,
    changes,
    commit,
    decision,
    held,
    kinds,
    refusals,
    relabelled,
    reply,
    small_node,
    small_pod,
)

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")


def test_an_accepted_commit_is_persisted_published_replied_dispatched_in_this_order() -> None:
    log = SnapshotLog(A, B)
    effects = log.handle(commit(1, (P, "a", 2), (Q, "b", 2)), now=10.0)
    assert kinds(effects) == ["Persist", "Delta", "Reply", "DispatchOrders"]
    persist, publish, answer, dispatch = effects
    assert isinstance(persist, Persist) and isinstance(publish, Delta) and isinstance(dispatch, DispatchOrders)
    assert isinstance(answer, Reply)
    assert persist.delta == publish
    assert persist.answer == answer.message == Committed(1, 1, 3, [], others=2, relabelled=0)
    assert [(e.uid, e.attempt, e.node, e.deadline, e.bound) for e in persist.ledger] == [
        (P.uid, 3, "a", 10.0 + BINDING_WINDOW, False),
        (Q.uid, 3, "b", 10.0 + BINDING_WINDOW, False),
    ]
    assert dispatch.attempts == ((P.uid, 3), (Q.uid, 3))
    orders = [log.core.order(attempt, 15.0) for attempt in dispatch.attempts]
    assert [o and (o.uid, o.attempt, o.node, o.window, o.epoch) for o in orders] == [
        (P.uid, 3, "a", BINDING_WINDOW - 5.0, 0),
        (Q.uid, 3, "b", BINDING_WINDOW - 5.0, 0),
    ]
    assert set(log.core.ledger) == {P.uid, Q.uid}
    assert log.core.next_deadline() == 10.0 + BINDING_WINDOW + FENCE_GRACE


def after_change(log: SnapshotLog) -> None:
    log.handle(NodeSeen(relabelled(A, zone="z")))


def after_removal(log: SnapshotLog) -> None:
    log.handle(NodeGone("a"))


def after_return(log: SnapshotLog) -> None:
    log.handle(NodeGone("a"))
    log.handle(NodeSeen(A))


def after_foreign_pod(log: SnapshotLog) -> None:
    log.handle(PodSeen(bound(Q, "a")))


def after_foreign_resize(log: SnapshotLog) -> None:
    log.handle(PodSeen(bound(Q, "b")))
    log.handle(PodSeen(bound(Q, "a")))


def after_own_placement(log: SnapshotLog) -> None:
    log.handle(commit(1, (Q, "a", 2)))


def after_binding_elsewhere(log: SnapshotLog) -> None:
    log.handle(PodSeen(bound(P, "b")))


def after_binding_on_unknown_node(log: SnapshotLog) -> None:
    log.handle(PodSeen(bound(P, "nowhere")))


@pytest.mark.parametrize(
    ("happens", "reason", "placed"),
    [
        (after_change, "node a has changed since the evaluation", False),
        (after_removal, "node a is gone", False),
        (after_return, "node a has changed since the evaluation", False),
        (after_foreign_pod, "node a has changed since the evaluation", False),
        (after_foreign_resize, "node a has changed since the evaluation", False),
        (after_own_placement, "node a has changed since the evaluation", False),
        (after_binding_elsewhere, "the pod is on node b already", True),
        (after_binding_on_unknown_node, "the pod is on node nowhere already", True),
    ],
)
def test_a_decision_that_rests_on_what_is_no_more_is_a_conflict(
    happens: Callable[[SnapshotLog], None], reason: str, placed: bool
) -> None:
    log = SnapshotLog(A, B)
    happens(log)
    before, seq = held(log.core.state()), log.core.seq
    effects = log.handle(commit(2, (P, "a", 2)))
    assert kinds(effects) == ["Persist", "Reply"]
    assert refusals(effects) == {P.uid: (reason, placed)}
    assert held(log.core.state()) == before
    assert log.core.seq == seq
    assert P.uid not in log.core.ledger


def test_what_happens_on_another_node_is_no_conflict() -> None:
    log = SnapshotLog(A, B)
    log.handle(PodSeen(bound(Q, "b")))
    log.handle(NodeSeen(relabelled(B, zone="z")))
    assert refusals(log.handle(commit(1, (P, "a", 2)))) == {}


def test_room_that_became_free_is_no_conflict() -> None:
    log = SnapshotLog(A, B)
    log.handle(PodSeen(bound(Q, "a")))
    log.handle(PodDeleted(Q.uid))
    assert refusals(log.handle(commit(1, (P, "a", 3)))) == {}


def test_a_conflict_takes_nothing_away_from_the_other_decisions() -> None:
    log = SnapshotLog(A, B)
    log.handle(NodeSeen(relabelled(A, zone="z")))
    effects = log.handle(commit(1, (P, "a", 2), (Q, "b", 2)))
    assert set(refusals(effects)) == {P.uid}
    assert log.pods() == {Q.uid: "b"}
    assert changes(effects) == [PodPlaced(Q.uid, "b", 1, Q.key)]


def test_several_pods_of_one_commit_may_share_a_node() -> None:
    log = SnapshotLog(A)
    assert refusals(log.handle(commit(1, (P, "a", 1), (Q, "a", 1)))) == {}
    assert log.pods() == {P.uid: "a", Q.uid: "a"}


def test_one_pod_twice_in_a_commit_is_taken_once() -> None:
    log = SnapshotLog(A, B)
    effects = log.handle(commit(1, (P, "a", 2), (P, "b", 2)))
    assert refusals(effects) == {P.uid: ("the pod is on node a already", True)}
    assert log.pods() == {P.uid: "a"}


def test_a_doubled_commit_gets_the_same_answer_and_does_nothing() -> None:
    log = SnapshotLog(A, B)
    first = log.handle(commit(1, (P, "a", 2)))
    seq = log.core.seq
    assert log.handle(commit(1, (P, "a", 2))) == [Reply(reply(first))]
    assert log.core.seq == seq


def test_a_doubled_commit_keeps_its_conflicts() -> None:
    log = SnapshotLog(A, B)
    log.handle(NodeGone("a"))
    first = log.handle(commit(1, (P, "a", 2)))
    log.handle(NodeSeen(A))
    assert log.handle(commit(1, (P, "a", 4))) == [Reply(reply(first))]


def test_a_commit_of_an_earlier_round_changes_nothing() -> None:
    """Its cycle ends its term if it still waits for the answer: then another process has committed in its name."""
    log = SnapshotLog(A, B)
    log.handle(commit(2, (P, "a", 2)))
    assert log.handle(commit(1, (Q, "b", 2))) == [Outdated(1, "", 1, number=1)]
    assert log.pods() == {P.uid: "a"}


def test_an_older_epoch_is_refused_and_a_newer_one_counts_its_rounds_again_from_one() -> None:
    log = SnapshotLog(A, B)
    log.handle(commit(7, (P, "a", 2), epoch=2))
    assert log.handle(commit(8, (Q, "b", 2), epoch=1)) == [Outdated(1, "", 2)]
    assert [str(refusal) for refusal in log.core.refused] == ["commit of epoch 1, now 2"]
    assert reply(log.handle(commit(1, (Q, "b", 3), epoch=3))) == Committed(3, 1, 4, [], others=2, relabelled=0)
    assert log.pods() == {P.uid: "a", Q.uid: "b"}


def test_of_two_cycles_in_one_epoch_one_is_heard_and_the_other_told_the_newest() -> None:
    """As where the Lease was deleted twice within a minute. A new term of the snapshot knows which one was heard."""
    log = SnapshotLog(A, B)
    first = msgspec.structs.replace(commit(1, (P, "a", 2), epoch=5), cycle="one")
    second = msgspec.structs.replace(commit(1, (Q, "b", 3), epoch=5), cycle="two")
    assert reply(log.handle(first)).cycle == "one"
    assert log.handle(second) == [Outdated(5, "two", 5)]
    assert log.pods() == {P.uid: "a"}
    after = CommitHandler(ClusterState(9, []), log.core.answer, deque(), {})
    assert after.handle(second, 0.0) == [Outdated(5, "two", 5)]
    assert reply(after.handle(first, 0.0)).cycle == "one", "a doubled one is answered as before"
    assert reply(log.handle(msgspec.structs.replace(second, epoch=6))).cycle == "two"
    assert log.handle(msgspec.structs.replace(first, number=2)) == [Outdated(5, "one", 6)]
    assert log.pods() == {P.uid: "a", Q.uid: "b"}


def test_a_new_cycle_has_to_have_seen_what_the_one_before_decided_last() -> None:
    """On any node: the two pods might exclude each other from a zone. Its own decisions it knows."""
    log = SnapshotLog(A, B)
    log.handle(commit(7, (P, "a", 2), epoch=1))
    (conflict,) = reply(log.handle(commit(1, (Q, "b", 2), epoch=2))).conflicts
    assert (conflict.uid, conflict.placed) == (Q.uid, False)
    assert reply(log.handle(commit(2, (Q, "b", 3), epoch=2))).conflicts == []
    assert log.pods() == {P.uid: "a", Q.uid: "b"}


def test_an_empty_commit_is_answered() -> None:
    log = SnapshotLog(A)
    assert kinds(log.handle(commit(1))) == ["Persist", "Reply"]


def test_a_commit_that_names_a_load_it_does_not_have_is_refused_whole() -> None:
    log = SnapshotLog(A, B)
    good = commit(1, (P, "a", 2))
    for load in (1, -1):
        bad = type(good)(1, 1, good.loads, [*good.decisions, decision(Q, "b", 2, load)])
        before = log.core.seq
        assert log.handle(bad) == []
        assert log.core.seq == before
        assert log.pods() == {}
    assert len(log.core.refused) == 2
    assert refusals(log.handle(good)) == {}


# The state, whole and in part


def test_a_heartbeat_tells_how_far_the_state_is() -> None:
    log = SnapshotLog()
    assert log.handle(Beat()) == [Heartbeat(0, 0)]
    log.handle(NodeSeen(A))
    log.handle(commit(1, (P, "a", 1)))
    assert log.handle(Beat()) == [Heartbeat(0, 2)] == log.handle(Beat())
    assert log.core.seq == 2


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_states_of_all_shards_are_the_whole_state(count: int) -> None:
    nodes = [small_node(f"n{i}") for i in range(12)]
    log = SnapshotLog(*nodes)
    log.handle(commit(1, *((small_pod(f"p{i}", cpu=str(i % 3 + 1)), f"n{i}", 12) for i in range(6))))
    whole_nodes, whole_pods = held(log.core.state())
    parts = [log.core.state({shard}, count) for shard in range(count)]
    assert all((part.epoch, part.seq) == (0, 13) for part in parts)
    for shard, part in enumerate(parts):
        some_nodes, some_pods = held(part)
        assert {shard_of(name, count) for name in some_nodes} <= {shard}
        assert {name for name, _ in some_pods.values()} <= set(some_nodes)
        assert len(part.loads) == len({load.requests["cpu"] for _, load in some_pods.values()})
    assert sum(len(part.nodes) for part in parts) == len(whole_nodes) == 12
    assert {uid for part in parts for uid in held(part)[1]} == set(whole_pods)
    assert held(log.core.state(range(count), count)) == (whole_nodes, whole_pods)


def test_a_state_numbers_equal_loads_once() -> None:
    log = SnapshotLog(A, B)
    log.handle(commit(1, (P, "a", 2), (Q, "b", 2)))
    log.handle(PodSeen(bound(small_pod("r"), "b")))
    log.handle(PodSeen(bound(small_pod("s", cpu="2"), "b")))
    state = log.core.state()
    assert [load.requests["cpu"] for load in state.loads] == [1000, 2000]
    assert {uid: pod.load for held_by in state.nodes for uid, pod in held_by.pods.items()} == {
        P.uid: 0,
        Q.uid: 0,
        "default/r": 0,
        "default/s": 1,
    }
