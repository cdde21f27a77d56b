"""Which changes of nodes, placed pods and other objects are published to the workers, and which are ignored."""

import msgspec
import pytest

from services.snapshot.events import (
    Beat,
    Effect,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodDeleted,
    PodSeen,
    Tick,
    WatchEvents,
)
from services.snapshot.quiet_deltas import LONGEST_QUIET, MAX_QUIET
from services.snapshot.watch_decoder import WatchDecoder
from shared.messages.state import (
    Commit,
    Delta,
    Heartbeat,
    NeedDeltas,
    NodeUpserted,
    ObjectRemoved,
    ObjectUpserted,
    OthersChanged,
    PodGone,
    PodPlaced,
    SharedHostnames,
)
from shared.messages.watch import Kind, ObjectChange, Unreadable
from shared.model.kinds import STILL_COUNTED, UNPUBLISHED_KINDS
from shared.model.objects import Node, NodeStatus, ObjectKind, Pod, encode_msgpack, key_of, object_from
from shared.model.wellknown import HOSTNAME, PREFER_AVOID_PODS
from shared.store.schema import Persist
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import (
    SnapshotLog,
    changes,
    commit,
    failed,
    kinds,
    refusals,
    relabelled,
    reply,
    small_node,
    small_pod,
)
from tests.samples import an_object, raw_object

A = small_node("a")
P, Q = small_pod("p"), small_pod("q")


def named(name: str, hostname: str | None) -> Node:
    built = node(name).capacity(cpu=4)
    return (built if hostname is None else built.label({HOSTNAME: hostname})).build()


def since(pod: Pod, text: str | None) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, start_time=text))


# Hostnames


def shared(log: SnapshotLog, event: object) -> list[list[str]]:
    """Problems reported of shared hostnames after an event."""
    return [change.values for change in changes(log.handle(event)) if isinstance(change, SharedHostnames)]


def test_shared_hostnames_are_published_when_they_change() -> None:
    log = SnapshotLog()
    assert shared(log, NodeSeen(named("a", "x"))) == []
    assert shared(log, NodeSeen(named("b", "x"))) == [["x"]]
    assert shared(log, NodeSeen(named("c", "x"))) == []
    assert shared(log, NodeSeen(named("d", "y"))) == []
    assert shared(log, NodeSeen(named("e", "y"))) == [["x", "y"]]
    assert log.core.state().shared_hostnames == ["x", "y"]
    assert shared(log, NodeSeen(named("e", None))) == [["x"]]
    assert shared(log, NodeGone("a")) == []
    assert shared(log, NodeSeen(named("b", "z"))) == [[]]
    assert log.core.state().shared_hostnames == []


def test_a_node_without_room_counts_like_any_other() -> None:
    log = SnapshotLog(named("a", "x"), named("b", "x"))
    assert shared(log, NodeSeen(msgspec.structs.replace(named("a", "x"), status=NodeStatus()))) == []
    assert log.core.state().shared_hostnames == ["x"]


# Nodes


def test_the_one_annotation_of_nodes_that_is_read_is_kept() -> None:
    log = SnapshotLog()
    noted = node("a").capacity(cpu=4).build()
    annotations = {PREFER_AVOID_PODS: "{}", "example.com/other": "o"}
    metadata = msgspec.structs.replace(noted.metadata, annotations=annotations)
    (told,) = changes(log.handle(NodeSeen(msgspec.structs.replace(noted, metadata=metadata))))
    assert isinstance(told, NodeUpserted)
    assert told.node.metadata.annotations == {PREFER_AVOID_PODS: "{}"}
    other = msgspec.structs.replace(metadata, annotations={**annotations, "example.com/other": "p"})
    assert changes(log.handle(NodeSeen(msgspec.structs.replace(noted, metadata=other)))) == []


# Pods that hold places


def test_placed_pods_are_published_with_name_and_start_time() -> None:
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    assert changes(log.handle(PodSeen(bound(P, "a")))) == [], "nothing new"
    running = bound(since(P, "1970-01-01T00:01:00Z"), "a")
    assert changes(log.handle(PodSeen(running))) == [], "nobody decides by it at once"
    assert changes(log.handle(Beat())) == [PodPlaced(P.uid, "a", 0, P.key, 60.0)]
    assert changes(log.handle(Beat())) == []
    (held,) = log.core.state().nodes
    assert (held.pods[P.uid].key, held.pods[P.uid].started) == (P.key, 60.0)
    log.handle(NodeGone("a"))
    assert PodPlaced(P.uid, "a", 0, P.key, 60.0) in changes(log.handle(NodeSeen(A)))


def running_pod() -> tuple[SnapshotLog, Pod]:
    """P is bound to node a, and has started since."""
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    return log, bound(since(P, "1970-01-01T00:01:00Z"), "a")


def test_a_start_time_goes_with_the_next_decisions_and_before_them() -> None:
    log, running = running_pod()
    assert log.handle(WatchEvents([PodSeen(running)])) == []
    before, large = log.core.seq, small_pod("q", cpu="2")
    effects = log.handle(commit(1, (large, "a", before)))
    assert changes(effects) == [PodPlaced(P.uid, "a", 0, P.key, 60.0), PodPlaced(large.uid, "a", 1, large.key)]
    (delta,) = [effect for effect in effects if isinstance(effect, Delta)]
    assert (delta.seq, [load.requests["cpu"] for load in delta.loads]) == (before + 1, [1000, 2000])
    assert [each.delta for each in effects if isinstance(each, Persist)] == [delta]
    assert changes(log.handle(Beat())) == []


def test_a_start_time_is_not_published_before_what_was_seen_before_it() -> None:
    log, running = running_pod()
    labelled = relabelled(A, zone="b")
    seen = changes(log.handle(WatchEvents([NodeSeen(labelled), PodSeen(running)])))
    assert seen == [NodeUpserted(labelled), PodPlaced(P.uid, "a", 0, P.key, 60.0)]


def test_labels_that_a_pod_gets_when_it_is_bound_count_as_of_the_next_delta() -> None:
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    metadata = msgspec.structs.replace(P.metadata, labels={"zone": "b"})
    before = log.core.seq
    assert log.handle(PodSeen(bound(msgspec.structs.replace(P, metadata=metadata), "a"))) == []
    assert log.core.cluster.has_postponed
    decided = log.handle(commit(1, (small_pod("q"), "a", before)))
    assert refusals(decided) == {}, "as if they were seen only now"
    (delta,) = [effect for effect in decided if isinstance(effect, Delta)]
    first, _ = delta.changes
    assert isinstance(first, PodPlaced)
    assert (first.uid, delta.loads[first.load].labels) == (P.uid, {"zone": "b"})
    assert not log.core.cluster.has_postponed
    assert set(refusals(log.handle(commit(2, (small_pod("r"), "a", before))))) == {small_pod("r").uid}


def test_a_pod_that_goes_before_its_start_time_was_published_is_gone() -> None:
    log, running = running_pod()
    log.handle(PodSeen(running))
    assert changes(log.handle(PodDeleted(P.uid))) == [PodPlaced(P.uid, "a", 0, P.key, 60.0), PodGone(P.uid)]
    assert changes(log.handle(Beat())) == []


def test_the_start_of_a_pod_does_not_invalidate_evaluations() -> None:
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    seen = log.core.seq
    log.handle(PodSeen(bound(since(P, "1970-01-01T00:01:00Z"), "a")))
    assert refusals(log.handle(commit(1, (Q, "a", seen)))) == {}


def test_a_pod_that_is_decided_again_has_not_started() -> None:
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    log.handle(failed(P.uid, log.attempt(P), "no"))
    log.handle(commit(2, (P, "a", log.core.seq)))
    (held,) = log.core.state().nodes
    assert held.pods[P.uid].started is None


# Other objects


@pytest.mark.parametrize("kind", [kind for kind in ObjectKind if kind is not ObjectKind.COMPOSITE_POD_GROUP])
def test_objects_are_published_when_added_changed_and_removed(kind: ObjectKind) -> None:
    log, obj = SnapshotLog(), an_object(kind)
    assert changes(log.handle(ObjectSeen(obj))) == [ObjectUpserted(obj)]
    assert log.handle(ObjectSeen(an_object(kind, resourceVersion="9"))) == []
    other = an_object(kind, deletionTimestamp="2024-01-01T00:00:00Z")
    assert changes(log.handle(ObjectSeen(other))) == [ObjectUpserted(other)]
    assert log.core.state().objects == [other]
    assert changes(log.handle(ObjectGone(kind, key_of(obj)))) == [ObjectRemoved(kind, key_of(obj))]
    assert log.handle(ObjectGone(kind, key_of(obj))) == []
    assert log.core.state().objects == []


def test_events_of_one_message_make_one_delta() -> None:
    log = SnapshotLog()
    kinds = [kind for kind in ObjectKind if kind is not ObjectKind.COMPOSITE_POD_GROUP]
    log.handle(WatchEvents([ObjectSeen(an_object(kind)) for kind in kinds]))
    assert [len(delta.changes) for delta in log.deltas] == [len(kinds)]
    assert log.core.cluster.counts()["objects"] == len(kinds)


# What the cycle is told of


def told(effects: list[Effect]) -> list[int]:
    return [effect.seq for effect in effects if isinstance(effect, OthersChanged)]


def test_the_answer_to_a_commit_names_the_last_change_that_was_no_decision() -> None:
    log = SnapshotLog(A)
    assert reply(log.handle(commit(1, (P, "a", 1)))).others == 1
    log.handle(PodSeen(bound(small_pod("p", zone="x"), "a")))  # goes with the next decisions
    assert reply(log.handle(commit(2, (Q, "a", 2)))).others == 1
    log.handle(NodeSeen(small_node("b")))
    assert reply(log.handle(commit(3, (small_pod("r"), "a", 4)))).others == 4


def test_the_answer_to_a_commit_names_the_last_labels_that_were_published_with_decisions() -> None:
    log, started = SnapshotLog(A), "2024-01-01T00:00:00Z"
    assert reply(log.handle(commit(1, (P, "a", 1)))).relabelled == 0
    log.handle(PodSeen(bound(small_pod("p", zone="x"), "a")))
    assert reply(log.handle(commit(2, (Q, "a", 2)))).relabelled == 3
    log.handle(PodSeen(bound(pod("q").request(cpu="1", memory="1Gi").started(started).build(), "a")))
    assert reply(log.handle(commit(3, (small_pod("r"), "a", 3)))).relabelled == 3


def test_labels_that_were_published_by_themselves_count_as_a_change() -> None:
    """A decision about their node that rests on an earlier state would be refused."""
    log = SnapshotLog(A, small_node("b"))
    log.handle(commit(1, (P, "a", 2)))
    log.handle(PodSeen(bound(small_pod("p", zone="x"), "a")))
    log.handle(Beat())
    assert reply(log.handle(commit(2, (Q, "b", 3)))).others == 4


def test_after_a_commit_the_cycle_is_told_once_that_something_else_has_changed() -> None:
    log = SnapshotLog(A)
    assert told(log.handle(NodeSeen(small_node("b")))) == [], "it has committed nothing yet"
    log.handle(commit(1, (P, "a", 2)))
    assert told(log.handle(PodSeen(bound(P, "a")))) == [], "as it was decided"
    assert told(log.handle(NodeSeen(small_node("c")))) == [log.core.seq]
    assert told(log.handle(NodeSeen(small_node("d")))) == []


# Deltas that nobody waits for


def quiet(number: int, where: str, name: str) -> Commit:
    return msgspec.structs.replace(commit(number, (small_pod(name), where, number)), quiet=True)


def sent(effects: list[Effect]) -> list[int]:
    """The numbers of deltas and heartbeats, in the order in which they go to workers."""
    return [effect.seq for effect in effects if isinstance(effect, Delta | Heartbeat)]


def test_the_delta_of_a_quiet_commit_is_written_at_once_and_sent_with_the_next_heartbeat() -> None:
    log = SnapshotLog(A)
    effects = log.handle(quiet(1, "a", "p"))
    assert kinds(effects) == ["Persist", "Reply", "DispatchOrders"]
    assert isinstance(effects[0], Persist) and effects[0].delta is not None and effects[0].delta.seq == 2
    assert sent(log.handle(quiet(2, "a", "q"))) == []
    assert sent(log.handle(Beat())) == [2, 3, 3]
    assert sent(log.handle(Beat())) == [3]


def test_quiet_deltas_are_sent_when_they_are_needed_or_before_any_other() -> None:
    log = SnapshotLog(A)
    log.handle(quiet(1, "a", "p"))
    assert sent(log.handle(NeedDeltas(1))) == [2]
    assert sent(log.handle(NeedDeltas(1))) == []
    log.handle(quiet(2, "a", "q"))
    assert sent(log.handle(NodeSeen(small_node("b")))) == [3, 4]
    log.handle(quiet(3, "a", "r"))
    assert sent(log.handle(commit(4, (small_pod("s"), "b", 4)))) == [5, 6]


def test_quiet_deltas_wait_no_longer_than_a_lost_one_goes_unnoticed() -> None:
    log = SnapshotLog(A)
    log.handle(quiet(1, "a", "p"), now=1.0)
    assert log.core.next_deadline() == 1.0 + LONGEST_QUIET
    assert sent(log.handle(Tick(), now=1.0)) == []
    assert sent(log.handle(Tick(), now=1.0 + LONGEST_QUIET)) == [2]


def test_quiet_deltas_are_bounded() -> None:
    log = SnapshotLog(node("a").capacity(cpu=4000, memory="4000Gi", pods=4000).build())
    numbers = [sent(log.handle(quiet(i + 1, "a", f"p{i}"))) for i in range(MAX_QUIET + 1)]
    assert numbers == [[]] * MAX_QUIET + [[*range(2, MAX_QUIET + 3)]]


def test_a_new_term_sends_no_deltas_of_the_one_before() -> None:
    """Workers load its state."""
    log = SnapshotLog(A)
    log.handle(quiet(1, "a", "p"))
    log.core.restate(7)
    assert sent(log.handle(Beat())) == [log.core.seq]


@pytest.mark.parametrize("kind", [kind for kind in ObjectKind if kind not in UNPUBLISHED_KINDS])
def test_the_decoder_reads_objects_and_takes_unreadable_ones_for_gone(kind: ObjectKind) -> None:
    decoder, obj = WatchDecoder(frozenset(), lambda uid: False), an_object(kind)
    body = msgspec.Raw(encode_msgpack(obj))
    assert decoder.decode(ObjectChange(kind, key_of(obj), body=body)) == ObjectSeen(obj)
    assert decoder.decode(ObjectChange(kind, key_of(obj), gone=True)) == ObjectGone(kind, key_of(obj))
    namespace = "default" if "/" in key_of(obj) else ""
    bad = Unreadable(Kind(kind.value), "u", namespace, "x", "spec: what is that?")
    assert decoder.decode(bad) == (None if kind in STILL_COUNTED else ObjectGone(kind, key_of(obj)))


def test_objects_that_only_the_queue_reads_are_ignored() -> None:
    kind = ObjectKind.COSCHEDULING_POD_GROUP
    decoder, obj = WatchDecoder(frozenset(), lambda uid: False), an_object(kind)
    assert decoder.decode(ObjectChange(kind, key_of(obj), body=msgspec.Raw(encode_msgpack(obj)))) is None
    assert decoder.decode(ObjectChange(kind, key_of(obj), gone=True)) is None
    assert decoder.decode(Unreadable(Kind(kind.value), "u", "default", "x", "spec: what is that?")) is None


def test_a_composite_group_that_becomes_unreadable_counts_as_last_read() -> None:
    kind = ObjectKind.COMPOSITE_POD_GROUP
    decoder, obj = WatchDecoder(frozenset(), lambda uid: False), an_object(kind)
    assert decoder.decode(ObjectChange(kind, key_of(obj), body=msgspec.Raw(encode_msgpack(obj)))) == ObjectSeen(obj)
    assert decoder.decode(ObjectChange(kind, key_of(obj), gone=True)) == ObjectGone(kind, key_of(obj))
    assert decoder.decode(Unreadable(Kind(kind.value), "u", "default", "x", "spec: what is that?")) is None


def test_no_worker_hears_of_the_status_of_a_group() -> None:
    decoder, bare = WatchDecoder(frozenset(), lambda uid: False), an_object(ObjectKind.POD_GROUP)
    condition = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    raw = raw_object(ObjectKind.POD_GROUP) | {"status": {"conditions": [condition]}}
    told = object_from(ObjectKind.POD_GROUP, raw)
    assert told != bare
    body = msgspec.Raw(encode_msgpack(told))
    assert decoder.decode(ObjectChange(ObjectKind.POD_GROUP, key_of(told), body=body)) == ObjectSeen(bare)
