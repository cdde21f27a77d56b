"""Decisions of one gang stand or fall together; and what the queue hears of a failed binding."""

import msgspec
import pytest

from services.snapshot.events import NodeGone, NodeSeen, ObjectSeen, PodSeen
from shared.cluster.volumes import VolumeDecision
from shared.messages.queue import ForgottenPod
from shared.messages.state import Commit
from testing.builders import pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, commit, failed, reassigned, refusals, small_node, small_pod
from tests.samples import a_claim, a_volume

A, B = small_node("a"), small_node("b")
P, Q, R, S = (small_pod(name) for name in "pqrs")


def of_gangs(message: Commit, **gangs: str) -> Commit:
    decisions = [msgspec.structs.replace(each, gang=gangs.get(each.assignment.name, "")) for each in message.decisions]
    return msgspec.structs.replace(message, decisions=decisions)


def test_a_gang_is_taken_whole() -> None:
    log = SnapshotLog(A, B)
    seen = log.core.seq
    log.handle(of_gangs(commit(1, (P, "a", seen), (R, "b", seen), (Q, "b", seen)), p="g", q="g"))
    assert log.pods() == {P.uid: "a", Q.uid: "b", R.uid: "b"}


def test_one_conflict_rejects_the_whole_gang_and_no_other_pod() -> None:
    log = SnapshotLog(A, B)
    seen = log.core.seq
    log.handle(PodSeen(bound(small_pod("other"), "b")))
    placements = (P, "a", seen), (R, "a", seen), (Q, "b", seen), (S, "a", seen)
    effects = log.handle(of_gangs(commit(1, *placements), p="g", q="g", s="h"))
    changed = "node b has changed since the evaluation"
    assert refusals(effects) == {Q.uid: (changed, False), P.uid: (f"gang g: pod {Q.uid}: {changed}", False)}
    assert {P.uid, Q.uid} & log.pods().keys() == set()
    assert {R.uid, S.uid} <= log.pods().keys()
    assert set(log.core.ledger) == {R.uid, S.uid}


def test_a_member_that_is_placed_already_is_marked() -> None:
    log = SnapshotLog(A, B)
    log.handle(PodSeen(bound(P, "a")))
    effects = log.handle(of_gangs(commit(1, (P, "a", log.core.seq), (Q, "b", log.core.seq)), p="g", q="g"))
    reasons = refusals(effects)
    assert reasons[P.uid] == ("the pod is on node a already", True)
    assert reasons[Q.uid] == (f"gang g: pod {P.uid}: the pod is on node a already", False)


@pytest.mark.parametrize("members", [{}, {"p": "g", "q": "g"}])
@pytest.mark.parametrize("other", ["v", "w"])
def test_only_members_of_a_gang_may_share_a_claim_and_not_give_it_two_volumes(
    members: dict[str, str], other: str
) -> None:
    log = SnapshotLog(A, B)
    for obj in (a_claim("c"), a_volume("v"), a_volume("w")):
        log.handle(ObjectSeen(obj))
    sharing = (pod(name).claim("c").build() for name in "pq")
    plain = of_gangs(commit(1, *((each, "a", log.core.seq) for each in sharing)), **members)
    decisions = [
        reassigned(each, volumes=VolumeDecision(bindings=[("default/c", name)]))
        for each, name in zip(plain.decisions, ("v", other), strict=True)
    ]
    conflicts = refusals(log.handle(msgspec.structs.replace(plain, decisions=decisions)))
    if not members:
        assert set(conflicts) == {Q.uid}
    elif other == "v":
        assert conflicts == {}
        assert set(log.core.ledger) == {P.uid, Q.uid}
    else:
        reason = "claim default/c is assigned differently to another member of this gang"
        assert conflicts == {Q.uid: (reason, False), P.uid: (f"gang g: pod {Q.uid}: {reason}", False)}
        assert log.core.ledger == {}


# Bindings that fail


@pytest.mark.parametrize(("plugin", "rejected"), [("VolumeBinding", True), ("", False)])
def test_the_queue_is_told_which_plugin_failed_a_binding(plugin: str, rejected: bool) -> None:
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    effects = log.handle(failed(P.uid, log.attempt(P), "no", plugin, rejected))
    assert [effect for effect in effects if isinstance(effect, ForgottenPod)] == [
        ForgottenPod(P.uid, "no", plugin, rejected)
    ]


def test_a_node_that_goes_before_the_binding_takes_the_decision_with_it() -> None:
    log = SnapshotLog(A, B)
    log.handle(commit(1, (P, "a", log.core.seq)))
    log.handle(NodeGone("a"))
    effects = log.handle(failed(P.uid, log.attempt(P), "node a is gone"))
    assert ForgottenPod(P.uid, "node a is gone") in effects
    assert refusals(log.handle(commit(2, (P, "b", log.core.seq)))) == {}
    log.handle(NodeSeen(A))
    assert log.pods() == {P.uid: "b"}


def test_a_binding_to_a_node_that_is_gone_holds_once_it_is_seen() -> None:
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    log.handle(NodeGone("a"))
    log.handle(PodSeen(bound(P, "a")))
    assert log.core.ledger == {}
    log.handle(NodeSeen(A))
    assert log.pods() == {P.uid: "a"}
