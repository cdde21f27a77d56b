"""Pods that are promised room: told while they wait for a place, and only then."""

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, PodDeleted, PodSeen, WatchEvents
from services.snapshot.watch_decoder import WatchDecoder
from shared.messages.state import Delta, NominationGone, PodGone, PodNominated, PodPlaced
from shared.messages.watch import PodChange
from shared.model.load import load_of
from shared.model.objects import Pod, encode_msgpack
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, changes, commit, failed, refusals, small_node, small_pod

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")
SCHEDULERS = frozenset({"default-scheduler"})


def nominated(pod: Pod, where: str = "a") -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=where))


def promised(log: SnapshotLog) -> dict[str, tuple[str, str]]:
    return {each.uid: (each.node, each.key) for each in log.core.state().nominations}


def a_log() -> SnapshotLog:
    log = SnapshotLog(A, B)
    log.handle(PodSeen(nominated(P)))
    return log


def test_a_nomination_is_published_with_the_pods_load() -> None:
    log = SnapshotLog(A, B)
    effects = log.handle(PodSeen(nominated(P)))
    assert changes(effects) == [PodNominated(P.uid, "a", 0, P.key)]
    assert log.deltas[-1].loads == [load_of(P)]
    assert promised(log) == {P.uid: ("a", P.key)}
    assert changes(log.handle(PodSeen(nominated(P)))) == [], "once"


def test_the_promise_moves_with_the_status_and_goes_with_it() -> None:
    log = a_log()
    assert changes(log.handle(PodSeen(nominated(P, "b")))) == [PodNominated(P.uid, "b", 0, P.key)]
    assert changes(log.handle(PodSeen(P))) == [NominationGone(P.uid)]
    assert changes(log.handle(PodSeen(P))) == []
    assert promised(log) == {}


@pytest.mark.parametrize("end", ["deleted", "finished"])
def test_it_ends_with_the_pod(end: str) -> None:
    log = a_log()
    done = msgspec.structs.replace(P, status=msgspec.structs.replace(P.status, phase="Failed"))
    effects = log.handle(PodDeleted(P.uid) if end == "deleted" else PodSeen(done))
    assert changes(effects) == [NominationGone(P.uid)]
    assert promised(log) == {}


def test_it_ends_where_the_pod_gets_its_place_for_good() -> None:
    """As in kube-scheduler, a failed binding clears it; the status, which still shows it, is no news."""
    log = a_log()
    effects = log.handle(commit(1, (P, "b", log.core.seq)))
    assert [type(change) for change in changes(effects)] == [NominationGone, PodPlaced]
    assert promised(log) == {}
    assert changes(log.handle(failed(P.uid, log.attempt(P), "no"))) == [PodGone(P.uid)]
    assert changes(log.handle(PodSeen(nominated(P)))) == []
    assert promised(log) == {}
    assert changes(log.handle(PodSeen(nominated(P, "b")))) == [PodNominated(P.uid, "b", 0, P.key)]


def test_a_status_that_changes_while_the_pod_is_assumed_does_not_count() -> None:
    log = a_log()
    log.handle(commit(1, (P, "b", log.core.seq)))
    assert changes(log.handle(PodSeen(nominated(P, "b")))) == []
    log.handle(failed(P.uid, log.attempt(P), "no"))
    assert promised(log) == {}


def test_a_pod_that_is_bound_is_promised_nothing() -> None:
    log = a_log()
    effects = log.handle(PodSeen(bound(nominated(P), "b")))
    assert [type(change) for change in changes(effects)] == [NominationGone, PodPlaced]
    log.handle(PodDeleted(P.uid))
    assert promised(log) == {}


def test_an_assumed_pod_that_is_deleted_leaves_no_promise() -> None:
    log = a_log()
    log.handle(commit(1, (P, "a", log.core.seq)))
    assert changes(log.handle(PodDeleted(P.uid))) == [PodGone(P.uid)]
    assert promised(log) == {}


def test_an_evaluation_from_before_a_nomination_to_the_node_is_rejected() -> None:
    log = SnapshotLog(A, B)
    seen = log.core.seq
    log.handle(PodSeen(nominated(P)))
    assert refusals(log.handle(commit(1, (Q, "a", seen), (small_pod("r"), "b", seen)))) == {
        Q.uid: ("node a has changed since the evaluation", False)
    }


def test_a_new_leader_knows_of_it_from_the_watch_and_not_of_assumed_pods() -> None:
    log = a_log()
    log.handle(commit(1, (P, "b", log.core.seq)))
    core = SnapshotCore(2, log.core.ledger.values(), log.core.answer)
    for event in (NodeSeen(A), NodeSeen(B), PodSeen(nominated(P)), PodSeen(nominated(Q))):
        core.handle(event, 1.0)
        core.validate()
    assert [each.uid for each in core.state().nominations] == [Q.uid]


def test_a_node_that_is_not_there_is_a_promise_all_the_same() -> None:
    log = SnapshotLog(A)
    effects = log.handle(PodSeen(nominated(P, "later")))
    assert changes(effects) == [PodNominated(P.uid, "later", 0, P.key)]


def test_several_loads_of_one_delta_keep_their_numbers() -> None:
    log = SnapshotLog(A, B)
    large = small_pod("large", cpu="2")
    log.handle(WatchEvents([PodSeen(bound(large, "b")), PodSeen(nominated(P))]))
    delta = log.deltas[-1]
    assert isinstance(delta, Delta)
    (told,) = [change for change in delta.changes if isinstance(change, PodNominated)]
    assert delta.loads[told.load] == load_of(P)


# What of the stream is read for it


def change(pod: Pod, **more: object) -> PodChange:
    spec, status = pod.spec, pod.status
    told = PodChange(pod.uid, pod.namespace, pod.name, spec.scheduler_name, spec.node_name)
    body = msgspec.Raw(encode_msgpack(pod))
    return msgspec.structs.replace(told, body=body, nominated=status.nominated_node_name, **more)


def test_of_pods_without_a_place_only_those_with_a_promise_are_read() -> None:
    decoder = WatchDecoder(SCHEDULERS, lambda uid: False)
    assert decoder.decode(change(P)) is None
    assert decoder.decode(change(nominated(P))) == PodSeen(nominated(P))
    assert decoder.decode(change(P)) == PodSeen(P), "for the promise is taken back"
    assert decoder.decode(change(P)) is None


def test_nominations_of_other_schedulers_are_ignored() -> None:
    decoder = WatchDecoder(frozenset({"another"}), lambda uid: False)
    assert decoder.decode(change(nominated(P))) is None


def test_a_pod_that_is_gone_is_forgotten_by_the_decoder() -> None:
    decoder = WatchDecoder(SCHEDULERS, lambda uid: False)
    decoder.decode(change(nominated(P)))
    assert decoder.decode(change(P, gone=True)) == PodDeleted(P.uid)
    assert decoder.decode(change(P)) is None
