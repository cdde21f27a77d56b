"""What decisions do to claims and volumes: laid over what the watch shows, until that shows it or it is taken back."""

from collections.abc import Sequence

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import (
    DispatchOrders,
    Effect,
    LookedUp,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodDeleted,
    PodSeen,
    Tick,
    WatchEvents,
)
from services.snapshot.state.object_overlay import LINGER_SECONDS
from shared.cluster.volumes import VolumeDecision
from shared.messages.queue import ForgottenPod
from shared.messages.state import Change, Commit, Decision, ObjectRemoved, ObjectUpserted, PodGone, PodPlaced
from shared.model.objects import ClusterObject, ObjectKind, PersistentVolume, PersistentVolumeClaim, Pod
from shared.model.storage import BOUND_BY_CONTROLLER, SELECTED_NODE
from testing.builders import pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, changes, commit, decision, failed, reassigned, refusals, small_node
from tests.samples import a_claim, a_volume

A, B = small_node("a"), small_node("b")
P, Q = (pod(name).request(cpu="1", memory="1Gi").claim("c").claim("d").build() for name in "pq")
FREE, CLAIM = a_volume("v"), a_claim("c")
TAKEN = a_volume("v", claim="default/c", uid="c-uid")
STATIC, DYNAMIC = VolumeDecision(bindings=[("default/c", "v")]), VolumeDecision(provisions=["default/c"])
VOLUME, VOLUME_CLAIM = ObjectKind.PERSISTENT_VOLUME, ObjectKind.PERSISTENT_VOLUME_CLAIM


def decided(
    log: SnapshotLog, number: int, *decisions: tuple[Pod, str, VolumeDecision], seen: int | None = None
) -> list[Effect]:
    """A round that was judged on the newest state, if nothing else is said."""
    seen = log.core.seq if seen is None else seen
    plain = commit(number, *((pod, where, seen) for pod, where, _ in decisions))
    with_volumes = [
        reassigned(each, volumes=volumes) for each, (_, _, volumes) in zip(plain.decisions, decisions, strict=True)
    ]
    return log.handle(msgspec.structs.replace(plain, decisions=with_volumes))


def a_log(*objects: ClusterObject) -> SnapshotLog:
    log = SnapshotLog(A, B)
    for obj in objects or (FREE, CLAIM):
        log.handle(ObjectSeen(obj))
    return log


def objects_of(log: SnapshotLog) -> dict[str, ClusterObject]:
    return {obj.key: obj for obj in log.core.state().objects}


def volume(log: SnapshotLog, name: str = "v") -> PersistentVolume:
    found = objects_of(log)[name]
    assert isinstance(found, PersistentVolume)
    return found


def claim(log: SnapshotLog) -> PersistentVolumeClaim:
    found = objects_of(log)["default/c"]
    assert isinstance(found, PersistentVolumeClaim)
    return found


def claimed(log: SnapshotLog, name: str = "v") -> str:
    reference = volume(log, name).spec.claim_ref
    return "" if reference is None else f"{reference.key} {reference.uid}"


def object_changes(effects: Sequence[Effect]) -> list[Change]:
    return [change for change in changes(effects) if isinstance(change, ObjectUpserted | ObjectRemoved)]


def fail(log: SnapshotLog, pod: Pod) -> list[Effect]:
    return log.handle(failed(pod.uid, log.attempt(pod), "no"))


def forget(log: SnapshotLog, how: str) -> None:
    {
        "the binding fails": lambda: fail(log, P),
        "it is deleted": lambda: log.handle(PodDeleted(P.uid)),
        "it has finished": lambda: log.handle(PodSeen(finished(P))),
        "it is not there": lambda: log.handle(LookedUp(P.uid, log.attempt(P), None, gone=True)),
        "it is elsewhere": lambda: log.handle(LookedUp(P.uid, log.attempt(P), "b")),
        "it is seen elsewhere": lambda: log.handle(PodSeen(bound(P, "b"))),
    }[how]()


ENDS = (
    "the binding fails",
    "it is deleted",
    "it has finished",
    "it is not there",
    "it is elsewhere",
    "it is seen elsewhere",
)


def finished(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Succeeded"))


# Decided


def test_a_volume_that_is_decided_on_counts_as_claimed() -> None:
    log = a_log()
    effects = decided(log, 1, (P, "a", STATIC))
    assert claimed(log) == "default/c c-uid"
    assert volume(log).metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
    assert [type(change) for change in changes(effects)] == [PodPlaced, ObjectUpserted, ObjectUpserted]
    promised = msgspec.structs.replace(CLAIM, promised="v")  # its spec is the volume controller's to change
    assert claim(log) == promised, "no other volume is to be made for it"


def test_a_claim_that_a_volume_is_made_for_shows_the_node() -> None:
    log = a_log()
    decided(log, 1, (P, "a", DYNAMIC))
    assert claim(log).selected_node == "a"
    assert volume(log) == FREE


def test_ledger_and_order_carry_the_decision_with_the_claims_uids() -> None:
    log = a_log()
    effects = decided(log, 1, (P, "a", STATIC))
    remembered = msgspec.structs.replace(STATIC, uids={"default/c": "c-uid"})
    assert log.core.ledger[P.uid].assignment.volumes == remembered
    ((attempt,),) = [effect.attempts for effect in effects if isinstance(effect, DispatchOrders)]
    order = log.core.order(attempt, 1.0)
    assert order is not None and order.assignment.volumes == remembered


def test_a_doubled_commit_changes_nothing() -> None:
    log = a_log()
    seen = log.core.seq
    first = decided(log, 1, (P, "a", STATIC), seen=seen)
    before = log.core.state()
    again = decided(log, 1, (P, "a", STATIC), seen=seen)
    assert (refusals(first), refusals(again), log.core.state()) == ({}, {}, before)


# Refused


def selected(where: str) -> ClusterObject:
    return a_claim("c", annotations={SELECTED_NODE: where})


@pytest.mark.parametrize(
    ("seen", "wanted", "why"),
    [
        ([FREE], STATIC, "claim default/c is gone"),
        ([CLAIM], STATIC, "volume v is gone"),
        ([CLAIM], VolumeDecision(provisions=["default/d"]), "claim default/d is gone"),
        ([a_volume("v", claim="default/d"), CLAIM], STATIC, "volume v is claimed by default/d"),
        ([a_volume("v", claim="default/c", uid="old"), CLAIM], STATIC, "volume v is claimed by default/c"),
        ([FREE, a_claim("c", volumeName="w")], STATIC, "claim default/c has volume w already"),
        ([FREE, a_claim("c", volumeName="w")], DYNAMIC, "claim default/c has volume w already"),
        (
            [FREE, a_claim("c", annotations={SELECTED_NODE: "b"})],
            DYNAMIC,
            "claim default/c will get a volume at node b",
        ),
        (
            [FREE, a_claim("c", annotations={SELECTED_NODE: "a"})],
            STATIC,
            "claim default/c will get a volume at node a",
        ),
    ],
)
def test_an_impossible_volume_decision_is_rejected(seen: list[ClusterObject], wanted: VolumeDecision, why: str) -> None:
    log = a_log(*seen)
    before = objects_of(log)
    assert refusals(decided(log, 1, (P, "a", wanted))) == {P.uid: (why, False)}
    assert (objects_of(log), log.pods()) == (before, {})


@pytest.mark.parametrize(
    ("change", "what"),
    [(a_claim("c", volumeMode="Filesystem"), "claim default/c"), (a_volume("v", volumeMode="Filesystem"), "volume v")],
)
def test_a_decision_on_changed_volumes_is_rejected(change: ClusterObject, what: str) -> None:
    log = a_log()
    seen = log.core.seq
    log.handle(ObjectSeen(change))
    reason = f"{what} has changed since the evaluation"
    assert refusals(decided(log, 1, (P, "a", STATIC), seen=seen)) == {P.uid: (reason, False)}
    assert refusals(decided(log, 2, (P, "a", STATIC))) == {}


def test_two_pods_of_a_round_do_not_get_one_volume() -> None:
    log = a_log(FREE, CLAIM, a_claim("d"))
    effects = decided(log, 1, (P, "a", STATIC), (Q, "b", VolumeDecision(bindings=[("default/d", "v")])))
    assert refusals(effects) == {Q.uid: ("volume v has changed since the evaluation", False)}
    assert (log.pods(), claimed(log)) == ({P.uid: "a"}, "default/c c-uid")


def test_a_claim_does_not_get_two_volumes() -> None:
    log = a_log(FREE, a_volume("w"), CLAIM)
    decided(log, 1, (P, "a", STATIC))
    other = decided(log, 2, (Q, "a", VolumeDecision(bindings=[("default/c", "w")])))
    made = decided(log, 3, (Q, "a", DYNAMIC))
    assert refusals(other) == refusals(made) == {Q.uid: ("claim default/c will get volume v", False)}


# Over


@pytest.mark.parametrize("wanted", [STATIC, DYNAMIC])
@pytest.mark.parametrize("how", ENDS)
def test_it_is_taken_back_with_the_pod(how: str, wanted: VolumeDecision) -> None:
    log = a_log()
    decided(log, 1, (P, "a", wanted))
    forget(log, how)
    assert (volume(log), claim(log)) == (FREE, CLAIM)
    assert refusals(decided(log, 2, (Q, "b", wanted))) == {}


def test_it_is_over_with_the_last_pod_that_rests_on_it() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    assert refusals(decided(log, 2, (Q, "a", STATIC))) == {}
    fail(log, P)
    assert claimed(log) == "default/c c-uid"
    fail(log, Q)
    assert volume(log) == FREE


def test_what_the_watch_shows_under_an_overlay_counts_after_it() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    larger = a_volume("v", capacity={"storage": "5Gi"})
    assert len(object_changes(log.handle(ObjectSeen(larger)))) == 1
    assert (claimed(log), volume(log).spec.capacity["storage"].value) == ("default/c c-uid", 5 << 30)
    fail(log, P)
    assert volume(log) == larger


def test_the_watch_showing_the_same_says_nothing_new() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    shown = volume(log)
    assert changes(log.handle(ObjectSeen(shown))) == []
    fail(log, P)
    assert volume(log) == shown, "it was done, though the pod is gone"


@pytest.mark.parametrize(
    "shown", [a_volume("v", claim="other/x", uid="x"), a_volume("v", claim="default/c", uid="another")]
)
def test_the_watch_showing_another_claim_wins(shown: ClusterObject) -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    assert object_changes(log.handle(ObjectSeen(shown))) == [ObjectUpserted(shown)]
    fail(log, P)
    assert volume(log) == shown


def test_provisioning_that_failed_is_seen_as_such() -> None:
    """The provisioner takes the node away again, so that the scheduler decides again."""
    log = a_log()
    decided(log, 1, (P, "a", DYNAMIC))
    log.handle(ObjectSeen(claim(log)))
    log.handle(ObjectSeen(CLAIM))
    assert claim(log) == CLAIM


def test_a_claim_that_is_another_one_is_not_changed() -> None:
    log = a_log()
    decided(log, 1, (P, "a", DYNAMIC))
    log.handle(ObjectGone(VOLUME_CLAIM, "default/c"))
    assert "default/c" not in objects_of(log)
    another = a_claim("c", uid="another")
    log.handle(ObjectSeen(another))
    assert claim(log) == another
    fail(log, P)
    assert claim(log) == another


def test_a_volume_that_goes_and_comes_is_still_decided_on() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    log.handle(ObjectGone(VOLUME, "v"))
    log.handle(ObjectSeen(FREE))
    assert claimed(log) == "default/c c-uid"
    log.handle(ObjectGone(VOLUME, "v"))
    fail(log, P)
    assert "v" not in objects_of(log)


# Confirmed


def test_it_outlasts_the_sight_of_the_pod_for_volumes_may_be_seen_later() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    log.handle(PodSeen(bound(P, "a")), 10.0)
    assert claimed(log) == "default/c c-uid"
    assert log.core.next_deadline() == 10.0 + LINGER_SECONDS
    shown = volume(log)
    log.handle(ObjectSeen(shown), 11.0)
    log.handle(Tick(), 10.0 + LINGER_SECONDS)
    assert (volume(log), log.core.next_deadline()) == (shown, None)


def test_an_overlay_that_the_watch_never_shows_ends_in_time() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    log.handle(PodSeen(bound(P, "a")), 10.0)
    assert changes(log.handle(Tick(), 9.0 + LINGER_SECONDS)) == []
    assert changes(log.handle(Tick(), 10.0 + LINGER_SECONDS)) == [ObjectUpserted(FREE), ObjectUpserted(CLAIM)]
    assert log.core.next_deadline() is None


def test_a_pod_and_its_volume_seen_at_once_make_one_delta() -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    before = log.core.seq
    log.handle(WatchEvents([PodSeen(bound(P, "a")), ObjectSeen(a_volume("v", claim="default/c", uid="c-uid"))]), 10.0)
    assert (log.core.seq, claimed(log)) == (before + 1, "default/c c-uid")


# A restart


@pytest.mark.parametrize("claim_first", [False, True])
def test_a_new_term_overlays_the_decisions_of_the_ledger(claim_first: bool) -> None:
    log = a_log()
    decided(log, 1, (P, "a", STATIC))
    core = SnapshotCore(2, log.core.ledger.values(), log.core.answer)
    core.handle(NodeSeen(A), 1.0)
    for obj in (CLAIM, FREE) if claim_first else (FREE, CLAIM):
        core.handle(ObjectSeen(obj), 1.0)
        core.validate()
    assert {obj.key: obj for obj in core.state().objects} == objects_of(log)
    core.handle(failed(P.uid, core.ledger[P.uid].attempt), 2.0)
    core.validate()
    assert FREE in core.state().objects


def test_a_new_leader_that_is_shown_the_volume_claimed_leaves_it_so() -> None:
    log = a_log()
    decided(log, 1, (P, "a", DYNAMIC))
    shown = claim(log)
    core = SnapshotCore(2, log.core.ledger.values(), log.core.answer)
    core.handle(ObjectSeen(shown), 1.0)
    effects = core.handle(failed(P.uid, core.ledger[P.uid].attempt), 2.0)
    core.validate()
    assert core.state().objects == [shown]
    assert [type(change) for change in changes(effects)] == [PodGone]
    assert any(isinstance(effect, ForgottenPod) for effect in effects)


def test_a_commit_without_volumes_is_as_before() -> None:
    log = a_log()
    plain = Commit(1, 1, commit(1, (P, "a", log.core.seq)).loads, [decision(P, "a", log.core.seq)])
    assert isinstance(plain.decisions[0], Decision) and plain.decisions[0].assignment.volumes is None
    assert object_changes(log.handle(plain)) == []
