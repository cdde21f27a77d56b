"""A standby follows the watch, and leads with the ledger that it finds: it knows what a leader knows that lists all."""

from collections.abc import Iterable, Sequence

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeGone, NodeSeen, ObjectSeen, PodSeen, WatchEvent
from shared.messages.state import EPOCH_SHIFT
from shared.model.objects import ClusterObject, Node, Pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, commit, refusals, small_node, small_pod
from tests.snapshot.test_volumes import CLAIM, FREE, STATIC, P, claimed, decided

A, B = small_node("a"), small_node("b")
W, X = small_pod("w"), small_pod("x")
LATER = 7


def before(*placements: tuple[Pod, str], nodes: Sequence[Node] = (A, B)) -> SnapshotLog:
    """The leader of the term before, which has assumed these pods."""
    log = SnapshotLog(*nodes, epoch=1)
    seen = log.core.seq
    log.handle(commit(1, *((pod, where, seen) for pod, where in placements)))
    return log


def standby(shown: Iterable[WatchEvent], log: SnapshotLog) -> SnapshotLog:
    """It has followed this much of the watch, and takes over from the leader."""
    new = SnapshotLog()
    for event in shown:
        new.handle(event)
    new.core.take_over(LATER, log.core.stored_ledger, log.core.answer, 0.0)
    new.core.validate()
    return new


def lister(shown: Iterable[WatchEvent], log: SnapshotLog) -> SnapshotLog:
    """It has the ledger first, and lists the cluster after that."""
    new = SnapshotLog()
    new.core = SnapshotCore(LATER, log.core.stored_ledger, log.core.answer)
    for event in shown:
        new.handle(event)
    return new


NODES: list[WatchEvent] = [NodeSeen(A), NodeSeen(B)]


@pytest.mark.parametrize(
    "shown",
    [
        NODES,
        [NodeSeen(A)],
        [*NODES, PodSeen(bound(W, "a"))],
        [*NODES, PodSeen(bound(W, "b"))],
        [*NODES, PodSeen(bound(W, "a")), PodSeen(bound(X, "b"))],
        [*NODES, PodSeen(bound(W, "gone"))],
        [*NODES, PodSeen(bound(small_pod("other"), "a")), NodeGone("b")],
    ],
    ids=["none is seen", "a node is missing", "one", "one elsewhere", "both", "nowhere", "others"],
)
def test_it_knows_what_a_leader_knows_that_lists_the_cluster(shown: list[WatchEvent]) -> None:
    log = before((W, "a"), (X, "b"))
    warm, cold = standby(shown, log), lister(shown, log)
    assert warm.pods() == cold.pods()
    assert warm.core.ledger == cold.core.ledger
    assert warm.core.epoch == cold.core.epoch == LATER
    assert warm.core.begin(0.0) == cold.core.begin(0.0)


def test_evaluations_of_earlier_terms_do_not_count() -> None:
    log = before((W, "a"))
    seen = log.core.seq
    new = standby(NODES, log)
    assert seen < new.core.seq == LATER << EPOCH_SHIFT
    late = commit(2, (X, "b", seen), epoch=1)
    assert refusals(new.handle(late)).keys() == {X.uid}
    assert X.uid not in new.core.ledger
    again = commit(3, (X, "b", new.core.seq), epoch=1)
    assert refusals(new.handle(again)) == {}


def test_the_last_answer_is_repeated() -> None:
    log = before((W, "a"))
    new = standby(NODES, log)
    assert log.core.answer is not None and new.core.answer is not None
    assert new.core.answer.number == log.core.answer.number
    assert new.core.answer.seq == new.core.seq


@pytest.mark.parametrize("sees_pod", [False, True], ids=["the pod is not seen", "the pod is seen"])
@pytest.mark.parametrize("sees_volume", [False, True], ids=["nor its volume", "and its volume"])
def test_volumes_that_were_decided_on_are_claimed(sees_pod: bool, sees_volume: bool) -> None:
    log = SnapshotLog(A, B, epoch=1)
    for obj in (FREE, CLAIM):
        log.handle(ObjectSeen(obj))
    decided(log, 1, (P, "a", STATIC))
    objects: list[ClusterObject] = [FREE, CLAIM]
    if sees_volume:
        objects += log.core.state().objects
    shown: list[WatchEvent] = [*NODES, *map(ObjectSeen, objects)]
    if sees_pod:
        shown.append(PodSeen(bound(P, "a")))
    new = standby(shown, log)
    assert claimed(new) == "default/c c-uid"
    assert new.pods() == {P.uid: "a"}
