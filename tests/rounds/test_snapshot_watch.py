"""Snapshot: pods and nodes that come and go."""

import pytest

from services.snapshot.events import NodeGone, NodeSeen, PodDeleted, PodSeen, Problem
from shared.messages.state import NodeRemoved, NodeUpserted, PodGone, PodPlaced
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import (
    SnapshotLog,
    changes,
    commit,
    failed,
    finished,
    held,
    kinds,
    refusals,
    relabelled,
    replayed,
    small_node,
    small_pod,
    uid,
)

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")


def assumed() -> SnapshotLog:
    """Nodes a and b; p assumed on a."""
    log = SnapshotLog(A, B)
    log.handle(commit(1, (P, "a", 2)))
    return log


def test_a_pod_that_is_assumed_and_deleted_leaves_the_ledger() -> None:
    log = assumed()
    effects = log.handle(PodDeleted(P.uid))
    assert changes(effects) == [PodGone(P.uid)]
    assert log.core.ledger == {}
    assert log.handle(PodDeleted(P.uid)) == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_takes_no_room(phase: str) -> None:
    log = assumed()
    over = bound(pod("p").request(cpu=1, memory="1Gi").phase(phase).build(), "a")
    assert changes(log.handle(PodSeen(over))) == [PodGone(P.uid)]
    assert log.pods() == {}
    assert log.handle(PodSeen(over)) == []


def test_a_pending_pod_is_no_affair_of_the_snapshot() -> None:
    log = assumed()
    assert log.handle(PodSeen(P)) == []
    assert log.handle(PodSeen(Q)) == []
    assert log.pods() == {P.uid: "a"}


def test_a_bound_pod_whose_load_changes_is_published_again() -> None:
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    resized = bound(small_pod("p", cpu="3"), "a")
    effects = log.handle(PodSeen(resized))
    assert changes(effects) == [PodPlaced(P.uid, "a", 0, P.key)]
    _, pods = held(log.core.state())
    assert pods[P.uid][1].requests["cpu"] == 3000
    assert refusals(log.handle(commit(1, (Q, "a", 2)))) == {Q.uid: ("node a has changed since the evaluation", False)}


def test_a_pod_on_an_unknown_node_waits_for_it() -> None:
    log = SnapshotLog(A)
    effects = log.handle(PodSeen(bound(P, "c")))
    assert kinds(effects) == ["Problem"]
    assert isinstance(effects[0], Problem)
    assert str(effects[0].error) == "Pod default/p: spec.nodeName: no node 'c' is known"
    assert log.pods() == {}
    c = small_node("c")
    assert changes(log.handle(NodeSeen(c))) == [NodeUpserted(c), PodPlaced(P.uid, "c", 0, P.key)]
    assert log.pods() == {P.uid: "c"}


def test_a_pod_that_moves_to_an_unknown_node_leaves_the_known_one() -> None:
    log = assumed()
    effects = log.handle(PodSeen(bound(P, "c")))
    assert kinds(effects) == ["OthersChanged", "Problem", "Persist", "Delta"]
    assert changes(effects) == [PodGone(P.uid)]
    assert log.core.ledger == {}


def test_the_pods_of_a_removed_node_come_back_with_it() -> None:
    log = assumed()
    log.handle(PodSeen(bound(Q, "a")))
    assert changes(log.handle(NodeGone("a"))) == [NodeRemoved("a")]
    assert log.pods() == {}
    assert set(log.core.ledger) == {P.uid}
    assert changes(log.handle(NodeSeen(A))) == [
        NodeUpserted(A),
        PodPlaced(P.uid, "a", 0, P.key),
        PodPlaced(Q.uid, "a", 0, Q.key),
    ]
    assert log.pods() == {P.uid: "a", Q.uid: "a"}


def test_a_pod_that_goes_while_its_node_is_away_does_not_come_back() -> None:
    log = assumed()
    log.handle(NodeGone("a"))
    log.handle(PodDeleted(P.uid))
    assert changes(log.handle(NodeSeen(A))) == [NodeUpserted(A)]


def test_a_node_that_looks_the_same_is_no_news() -> None:
    log = SnapshotLog(A)
    assert log.handle(NodeSeen(small_node("a"))) == []


def test_all_nodes_carry_the_size_that_an_image_was_first_seen_with() -> None:
    log = SnapshotLog(node("a").image("app:1", 100).build(), node("b").image("app:1", 140).build())
    sizes = {name: n.status.images[0].size_bytes for name, n in held(log.core.state())[0].items()}
    assert sizes == {"a": 100, "b": 100}


def test_the_state_is_all_deltas_played_one_after_another() -> None:
    log = SnapshotLog(A, B)
    events = [
        commit(1, (P, "a", 2), (Q, "b", 2)),
        PodSeen(bound(small_pod("r", cpu="2"), "a")),
        NodeGone("b"),
        finished(P.uid, 3),
        PodSeen(bound(P, "a")),
        PodSeen(bound(small_pod("s"), "b")),
        NodeSeen(B),
        failed(Q.uid, 3),
        NodeSeen(relabelled(A, zone="z")),
        PodDeleted(uid("r")),
    ]
    for event in events:
        log.handle(event)
        assert replayed(log.deltas) == held(log.core.state())
    assert [delta.seq for delta in log.deltas] == list(range(1, log.core.seq + 1))
