"""Bad input: a typed error that names object and field, and nothing else is touched."""

import contextlib
from typing import Any

import msgspec
import pytest

from services.cycle.events import Failed
from services.snapshot.events import NodeGone, NodeSeen, PodSeen, Problem
from shared.cluster.nodetable import NodeTable
from shared.errors import ClusterError, FlotillaError, InvalidObject, ProtocolError
from shared.messages.codec import copy, decode, encode
from shared.messages.state import Committed, NodeUpserted, PodPlaced
from shared.model.objects import Node, encode_msgpack, node_from, pod_from
from shared.model.quantity import parse_quantity
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline, bound
from tests.rounds.support import (
    SnapshotLog,
    changes,
    commit,
    delta,
    held,
    plain_table,
    refusals,
    small_node,
    small_pod,
    state,
    uid,
    worker,
)

A = small_node("a")
TERM = "requiredDuringSchedulingIgnoredDuringExecution"


def raw_pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def raw_node(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"allocatable": {"cpu": "4"}}}


def affinity(*expressions: Any) -> dict[str, Any]:
    return {"nodeAffinity": {TERM: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}


WHERE = f"spec.affinity.nodeAffinity.{TERM}.nodeSelectorTerms[0].matchExpressions[0]"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [{"resources": {"requests": {"cpu": "1x"}}}]}, "spec.containers[0].resources.requests.cpu"),
        ({"containers": [{"resources": {"requests": {"cpu": "-1"}}}]}, "spec.containers[0].resources.requests.cpu"),
        ({"overhead": {"memory": []}}, "spec.overhead.memory"),
        ({"nodeSelector": {"disk": 3}}, "spec.nodeSelector.disk"),
        ({"affinity": affinity({"key": "disk", "operator": "Is", "values": ["x"]})}, f"{WHERE}.operator"),
        ({"affinity": affinity({"key": "disk", "operator": "In"})}, f"{WHERE}.values"),
        ({"affinity": affinity({"operator": "Exists"})}, f"{WHERE}.key"),
        ({"tolerations": [{"operator": "Equal"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "spec.tolerations[0].value"),
    ],
)
def test_a_pod_that_cannot_be_read(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        pod_from(raw_pod(**spec))
    assert (caught.value.kind, caught.value.key, caught.value.field) == ("Pod", "default/p", field)
    assert str(caught.value).startswith(f"Pod default/p: {field}: ")


@pytest.mark.parametrize(
    ("taint", "field"),
    [
        ({"key": "a", "effect": []}, "spec.taints[0].effect"),
        ({"key": 5, "effect": "NoSchedule"}, "spec.taints[0].key"),
    ],
)
def test_a_node_that_cannot_be_read(taint: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        node_from(raw_node(taints=[taint]))
    assert (caught.value.kind, caught.value.key, caught.value.field) == ("Node", "n", field)


def bare(name: str) -> Node:
    made = node(name).build()
    return type(made)(metadata=made.metadata)


def negative(name: str) -> Node:
    made = node(name).build()
    return type(made)(metadata=made.metadata, status=type(made.status)(allocatable={"cpu": parse_quantity("-1")}))


@pytest.mark.parametrize("make", [bare, negative])
def test_a_node_without_room_keeps_its_pods_and_gets_no_further_one(make: Any) -> None:
    log = SnapshotLog(A, small_node("b"))
    log.handle(PodSeen(bound(small_pod("p"), "a")))
    assert changes(log.handle(NodeSeen(make("a")))) == [NodeUpserted(make("a"))]
    assert set(log.pods()) == {uid("p")}
    assert list(refusals(log.handle(commit(1, (small_pod("q"), "a", log.core.seq))))) == [uid("q")]
    assert changes(log.handle(NodeSeen(A))) == [NodeUpserted(A)]
    assert set(log.pods()) == {uid("p")}


@pytest.mark.parametrize("make", [bare, negative])
def test_a_node_without_room_has_none_in_a_table(make: Any) -> None:
    table = NodeTable()
    table.add_node(make("a"))
    assert not table.allocatable[:, 0].any()


def test_a_node_without_a_name_is_refused_by_a_table() -> None:
    table = NodeTable()
    table.add_node(A)
    before = plain_table(table)
    with pytest.raises(InvalidObject, match=r"Node \(unnamed\): metadata\.name: must not be empty"):
        table.upsert_node(bare(""))
    assert plain_table(table) == before


def test_a_node_twice_is_refused_by_a_table() -> None:
    table = NodeTable()
    table.add_node(A)
    before = plain_table(table)
    with pytest.raises(ClusterError, match=r"Node a: metadata\.name: a node of this name is already known"):
        table.add_node(small_node("a", cpu=64))
    assert plain_table(table) == before


def test_a_node_that_was_never_there_does_not_go() -> None:
    log = SnapshotLog(A)
    (effect,) = log.handle(NodeGone("b"))
    assert isinstance(effect, Problem)
    assert isinstance(effect.error, ClusterError)
    assert str(effect.error) == "Node b: metadata.name: no such node is known"
    assert set(held(log.core.state())[0]) == {"a"}


def test_a_pod_on_an_unknown_node_is_a_problem_and_the_rest_goes_on() -> None:
    run = Pipeline(shards=2)
    run.add_nodes([A])
    run.add_pods([bound(small_pod("lost"), "nowhere")])
    run.submit([small_pod("p")])
    run.settle()
    assert [str(problem) for problem in run.problems] == ["Pod default/lost: spec.nodeName: no node 'nowhere' is known"]
    assert type(run.outcomes["default/p"]).__name__ == "Decided"


def test_a_pod_on_an_unknown_node_is_refused_by_a_table() -> None:
    table = NodeTable()
    table.add_node(A)
    with pytest.raises(ClusterError, match=r"Pod default/p: spec\.nodeName: no node 'b' is known"):
        table.add_pod("default/p", "b", held(state(1, A, pods=[(small_pod("p"), "a")]))[1]["default/p"][1])
    assert table.pod_count == 0


def test_a_pod_of_an_unknown_profile_fails_alone() -> None:
    run = Pipeline(shards=2)
    run.add_nodes([A])
    run.submit([pod("stray").scheduler("nobody").build(), small_pod("p")])
    run.settle()
    stray = run.outcomes["default/stray"]
    assert isinstance(stray, Failed)
    assert stray.status.message == "Pod default/stray: spec.schedulerName: there is no profile 'nobody'"
    assert type(run.outcomes["default/p"]).__name__ == "Decided"


def test_a_pod_whose_plugin_state_cannot_be_computed_fails_alone() -> None:
    greedy = pod("greedy").request({f"example.com/r{i}": 1 for i in range(200)}).build()
    run = Pipeline(shards=3)
    run.add_nodes([A])
    run.submit([small_pod("p"), greedy, small_pod("q")])
    run.settle()
    failed = run.outcomes["default/greedy"]
    assert isinstance(failed, Failed)
    assert failed.status.message.startswith("Pod default/greedy: spec.containers: asks for 200 extended resources")
    assert {type(run.outcomes[uid]).__name__ for uid in ("default/p", "default/q")} == {"Decided"}
    run.cycle.validate()


# Messages


def test_a_delta_with_a_gap_touches_nothing_until_it_is_closed() -> None:
    core = worker()
    core.handle(state(1, A), 0.0)
    before = plain_table(core.table)
    core.handle(delta(3, NodeUpserted(small_node("b"))), 0.0)
    assert plain_table(core.table) == before
    core.handle(delta(2), 0.0)
    assert set(plain_table(core.table)) == {"a", "b"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"garbage",
        b"\xc1",
        b"\xff" * 40,
        encode_msgpack({"type": "nobody"}),
        encode_msgpack({"type": "delta"}),
        encode_msgpack({"type": "delta", "epoch": "one", "seq": 1, "changes": []}),
        encode_msgpack({"type": "delta", "epoch": 1, "seq": 1, "changes": [{"type": "pod", "uid": 1}]}),
        encode_msgpack([1, 2, 3]),
        encode(delta(1, NodeUpserted(A)))[:-3],
    ],
)
def test_bytes_that_are_no_message(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message: "):
        decode(raw)


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_message_that_was_cut_or_torn_is_an_error_of_ours(cut: int) -> None:
    whole = encode(delta(1, NodeUpserted(A), PodPlaced("u", "a", 0)))
    with pytest.raises(FlotillaError):
        decode(whole[:cut])


def test_a_quantity_in_a_message_is_read_as_strictly_as_in_an_object() -> None:
    plain = msgspec.msgpack.decode(encode(delta(1, NodeUpserted(A))))
    allocatable = plain["changes"][0]["node"]["status"]["allocatable"]
    assert decode(msgspec.msgpack.encode(plain))
    allocatable["cpu"] = "4 apples"
    with pytest.raises(ProtocolError, match="not a message: "):
        decode(msgspec.msgpack.encode(plain))


def test_what_is_no_message_cannot_be_sent() -> None:
    with pytest.raises(ProtocolError):
        copy(small_pod("p"))  # type: ignore[type-var]


@pytest.mark.parametrize("event", [Committed(1, 1, 1, []), small_pod("p"), None])
def test_what_is_no_event_of_a_worker_touches_nothing(event: Any) -> None:
    """It is passed over, or an error of ours."""
    core = worker()
    core.handle(state(1, A), 0.0)
    before = plain_table(core.table)
    with contextlib.suppress(FlotillaError):
        assert not core.handle(event, 0.0)
    assert plain_table(core.table) == before
