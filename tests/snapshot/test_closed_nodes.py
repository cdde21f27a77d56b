"""A pod that was seen on a node counts there or closes the node; a node that cannot be read keeps its pods."""

from collections.abc import Iterable
from itertools import count
from typing import Any

import msgspec
import pytest

from services.cycle.events import Decided, Unschedulable
from services.snapshot.events import (
    Effect,
    NodeGone,
    NodeOpened,
    NodeSeen,
    NodeUnreadable,
    PodDeleted,
    PodSeen,
    PodStale,
    PodUnreadable,
    Problem,
)
from services.snapshot.watch_decoder import WatchDecoder
from services.watcher.core import WatcherCore
from services.watcher.events import Publish, Received
from shared.errors import UnreadableObject
from shared.kube.listwatch import ObjectEvents
from shared.kube.wire import WatchEvent
from shared.messages.queue import POD_GONE, ForgottenPod
from shared.messages.state import NodeUpserted
from shared.messages.watch import Kind, NodeChange, ObjectChange, PodChange, Unreadable, Watched
from shared.model.objects import Node, Pod, encode_msgpack
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline, bound
from tests.kube.support import raw_node, raw_pod
from tests.rounds.support import SnapshotLog, changes, commit, held, refusals, small_node, small_pod, uid

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")
NUMBERS = count(100)
UNREADABLE = PodUnreadable(P.uid, P.key, "a", "spec.containers: what is that?")


def problems(effects: list[Effect]) -> list[str]:
    return [str(effect.error) for effect in effects if isinstance(effect, Problem)]


def shown(log: SnapshotLog, name: str = "a") -> Node:
    return next(held.node for held in log.core.state().nodes if held.node.name == name)


def is_closed(log: SnapshotLog, name: str = "a") -> bool:
    log.core.validate()
    listed = shown(log, name)
    closed = listed.spec.unschedulable
    assert closed == (listed.status.allocatable["pods"] == 0)
    refused = uid("q") in refusals(log.handle(commit(next(NUMBERS), (Q, name, log.core.seq))))
    log.handle(PodDeleted(Q.uid))
    assert refused == closed
    return closed


def opened(effects: Iterable[Effect]) -> list[str]:
    return [effect.node for effect in effects if isinstance(effect, NodeOpened)]


# Pods


def test_a_pod_that_is_unreadable_closes_its_node_until_it_is_gone() -> None:
    log = SnapshotLog(A, B)
    effects = log.handle(UNREADABLE)
    (told,) = problems(effects)
    assert told.startswith("Node a gets no further pod, as what is on it is unknown: pod default/p: spec.containers")
    assert [type(change) for change in changes(effects)] == [NodeUpserted]
    assert (is_closed(log), is_closed(log, "b"), len(log.core.cluster.nodes.closed)) == (True, False, 1)
    assert problems(log.handle(UNREADABLE)) == [], "told once"
    assert opened(log.handle(PodDeleted(P.uid))) == ["a"]
    assert (is_closed(log), len(log.core.cluster.nodes.closed)) == (False, 0)
    assert shown(log) == A


def test_a_pod_that_is_read_again_opens_its_node() -> None:
    log = SnapshotLog(A)
    log.handle(UNREADABLE)
    log.handle(PodSeen(bound(P, "a")))
    assert not is_closed(log)
    assert set(log.pods()) == {P.uid}


def test_the_readable_part_of_a_pod_counts_now_or_as_last_read() -> None:
    log = SnapshotLog(A)
    log.handle(but(UNREADABLE, pod=bound(P, "a")))
    assert set(log.pods()) == {P.uid}
    assert is_closed(log)
    log.handle(UNREADABLE)
    assert set(log.pods()) == {P.uid}
    assert is_closed(log)


def test_a_pod_that_was_assumed_and_comes_back_unreadable_keeps_its_place() -> None:
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    log.handle(UNREADABLE)
    assert set(log.pods()) == {P.uid}
    assert is_closed(log)


def test_a_node_that_comes_after_its_unreadable_pod_is_closed() -> None:
    log = SnapshotLog()
    log.handle(UNREADABLE)
    log.core.validate()
    log.handle(NodeSeen(A))
    assert is_closed(log)
    log.handle(NodeGone("a"))
    log.handle(NodeSeen(A))
    assert is_closed(log)


def test_a_node_with_several_unreadable_pods_opens_with_the_last() -> None:
    log = SnapshotLog(A)
    others = [but(UNREADABLE, uid=f"u{i}", key=f"default/u{i}") for i in range(5)]
    for other in others:
        log.handle(other)
    for other in others:
        assert is_closed(log)
        log.handle(PodDeleted(other.uid))
    assert not is_closed(log)


def test_a_pod_whose_load_cannot_be_computed_closes_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(pod: Pod) -> Any:
        raise ValueError("no sum can be made of it")

    log = SnapshotLog(A)
    with monkeypatch.context() as patch:
        patch.setattr("services.snapshot.event_handlers.load_of", broken)
        log.handle(PodSeen(bound(P, "a")))
    assert is_closed(log)


# A binding is for life


def test_a_bound_pod_that_is_shown_without_its_node_is_refused() -> None:
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    assert log.handle(PodSeen(P)) == [PodStale(P.uid, P.key)]
    terminating = msgspec.structs.replace(
        P, metadata=msgspec.structs.replace(P.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert log.handle(PodSeen(terminating)) == [PodStale(P.uid, P.key)]
    assert set(log.pods()) == {P.uid}
    log.handle(PodDeleted(P.uid))
    assert log.handle(PodSeen(P)) == [], "it is gone, so nothing is known against it"


def test_the_decoder_passes_on_events_that_contradict_a_binding() -> None:
    log = SnapshotLog(A)
    decoder = WatchDecoder(frozenset(), log.core.is_bound)
    unbound = PodChange(P.uid, "default", "p", body=msgspec.Raw(encode_msgpack(P)))
    assert decoder.decode(unbound) is None
    log.handle(PodSeen(bound(P, "a")))
    assert decoder.decode(unbound) == PodSeen(P)


# Nodes


def test_a_node_of_which_a_part_is_unreadable_is_closed_and_keeps_its_pods() -> None:
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    effects = log.handle(NodeSeen(A, "spec.taints: what is that?"))
    assert problems(effects) == ["Node a: spec.taints: what is that?; it gets no further pod until it can be read"]
    assert is_closed(log)
    assert set(log.pods()) == {P.uid}
    log.handle(NodeSeen(A))
    assert not is_closed(log)


def test_a_node_of_which_nothing_can_be_read_is_closed_as_it_was_last_read() -> None:
    log = SnapshotLog(A)
    log.handle(PodSeen(bound(P, "a")))
    log.handle(NodeUnreadable("a", "not JSON"))
    assert is_closed(log)
    assert shown(log).metadata == A.metadata
    assert set(log.pods()) == {P.uid}


def test_a_node_that_was_never_read_is_there_and_closed() -> None:
    log = SnapshotLog()
    log.handle(PodSeen(bound(P, "a")))
    log.handle(NodeUnreadable("a", "not JSON"))
    assert is_closed(log)
    assert set(log.pods()) == {P.uid}
    log.handle(NodeGone("a"))
    log.handle(NodeSeen(A))
    assert not is_closed(log)


def test_a_closed_node_rejects_pods_that_tolerate_everything() -> None:
    """With any filters there is no room for a pod, and the snapshot says why."""
    log = SnapshotLog(A)
    log.handle(UNREADABLE)
    ((why, _),) = refusals(log.handle(commit(1, (Q, "a", log.core.seq)))).values()
    assert why.startswith("node a is closed: pod default/p: spec.containers")


# From the API server to the snapshot


def seen_by_snapshot(log: SnapshotLog, kind: Kind, *objects: Any) -> list[Effect]:
    watcher, decoder, effects = WatcherCore(1), WatchDecoder(frozenset(), log.core.is_bound), list[Effect]()
    for obj in objects:
        heard = Received(kind, ObjectEvents([WatchEvent("ADDED", msgspec.Raw(msgspec.json.encode(obj)))]))
        for effect in watcher.handle(heard, 1.0):
            if isinstance(effect, Publish) and isinstance(effect.message, Watched):
                for change in effect.message.changes:
                    assert isinstance(change, PodChange | NodeChange | ObjectChange | Unreadable)
                    event = decoder.decode(change)
                    effects += log.handle(event) if event is not None else []
    return effects


def big_pod(name: str) -> dict[str, Any]:
    """Larger than a message may be, counting only what followers read."""
    env = [{"name": f"E{i}", "value": "x" * 60} for i in range(4000)]
    expressions = [{"key": f"k{i}" * 20, "operator": "Exists"} for i in range(9000)]
    terms = [{"weight": 1, "preference": {"matchExpressions": [expression]}} for expression in expressions]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = raw_pod(name, node="a", cpu="3", affinity=affinity)
    pod["spec"]["containers"][0]["env"] = env
    pod["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{i}": {} for i in range(20_000)}}]
    return pod


@pytest.mark.parametrize(
    "pod",
    [
        big_pod("p"),
        raw_pod("p", node="a", cpu="3", restartPolicy="Sometimes"),
        raw_pod("p", node="a", cpu="3", tolerations=[{"key": "k", "operator": "Near", "effect": "Never"}]),
        raw_pod("p", node="a", cpu="3", tolerations=[{"operator": "Equal"}]),
        raw_pod("p", node="a", cpu="3", nodeSelector={"a": 5}),
    ],
    ids=["large", "restart policy", "toleration", "bad toleration", "bad selector"],
)
def test_a_bound_pod_counts_with_any_other_fields(pod: dict[str, Any]) -> None:
    """Its three CPUs are taken: a pod that needs two does not fit beside it on a node of four."""
    log = SnapshotLog(A)
    seen_by_snapshot(log, Kind.POD, pod)
    log.core.validate()
    ((_, load),) = held(log.core.state())[1].values()
    assert load.requests["cpu"] == 3000
    assert not shown(log).spec.unschedulable


@pytest.mark.parametrize("cpu", ["much", "-1"])
def test_a_bound_pod_whose_requests_are_unreadable_closes_its_node(cpu: str) -> None:
    log = SnapshotLog(A)
    effects = seen_by_snapshot(log, Kind.POD, raw_pod("p", node="a", cpu=cpu))
    (problem,) = [effect.error for effect in effects if isinstance(effect, Problem)]
    assert isinstance(problem, UnreadableObject)
    assert "Node a" in str(problem)
    assert "default/p" in str(problem)
    assert is_closed(log)


@pytest.mark.parametrize("taint", [{"key": "k", "effect": "Never"}, {"key": "", "effect": "NoSchedule"}])
def test_a_node_with_an_unknown_taint_is_there(taint: dict[str, Any]) -> None:
    log = SnapshotLog()
    seen_by_snapshot(log, Kind.NODE, raw_node("a") | {"spec": {"taints": [taint]}})
    assert not is_closed(log)


def test_a_node_with_an_unreadable_amount_is_closed() -> None:
    log = SnapshotLog(node("a").capacity(cpu=4).build())
    log.handle(PodSeen(bound(P, "a")))
    bad = raw_node("a")
    bad["status"]["allocatable"]["cpu"] = "much"
    seen_by_snapshot(log, Kind.NODE, bad)
    assert is_closed(log)
    assert set(log.pods()) == {P.uid}


def but(event: PodUnreadable, **fields: Any) -> PodUnreadable:
    known = {name: getattr(event, name) for name in ("uid", "key", "node", "problem", "pod")}
    return PodUnreadable(**{**known, **fields})


# The whole pipeline


def test_no_toleration_or_preemption_brings_a_pod_to_a_closed_node() -> None:
    run = Pipeline(shards=2)
    run.add_nodes([A])
    run.add_pods([bound(small_pod("weak"), "a")])
    run.observe(UNREADABLE)
    strong = pod("strong").request(cpu="4", memory="1Gi").priority(1000).tolerate().build()
    run.submit([strong, pod("daemon").tolerate().build()])
    run.settle()
    assert {type(run.outcomes[uid(name)]) for name in ("strong", "daemon")} == {Unschedulable}
    run.observe(PodDeleted(P.uid))
    run.submit([pod("later").build()])
    run.settle()
    assert isinstance(run.outcomes[uid("later")], Decided)


def test_pods_that_wait_hear_that_a_node_is_open_again() -> None:
    log = SnapshotLog(A)
    log.handle(UNREADABLE)
    (free,) = [effect for effect in log.handle(PodDeleted(P.uid)) if isinstance(effect, ForgottenPod)]
    assert free.reason.startswith(POD_GONE)
