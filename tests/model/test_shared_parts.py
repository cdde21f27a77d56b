"""PodDecoder and NodeDecoder decode like the plain decoders; pods and nodes share the parts that are equal."""

from typing import Any

import msgspec
import pytest

from shared.model import shared_parts
from shared.model.objects import Node, Pod, Volume, dec_hook, encode_msgpack, pod_from_msgpack
from shared.model.shared_parts import NodeDecoder, NodeParts, PodDecoder
from testing.builders import PodBuilder, node, pod, selector
from testing.inprocess.workloads import WORKLOADS

REPLICA = pod("r").label(app="web").owner("ReplicaSet", "web", "u").request(cpu="100m").tolerate("a", "b", "NoSchedule")
VARIED: tuple[PodBuilder, ...] = (
    pod("bare"),
    pod("other", "elsewhere").uid("7").created("2026-01-01T00:00:00Z").terminating(),
    REPLICA,
    REPLICA.volume(Volume(name="token-x")),
    REPLICA.volume(Volume(name="token-y")).claim("data"),
    REPLICA.on("a-node").volume(Volume(name="token-x")),
    REPLICA.on("nodeName"),
    REPLICA.volume(Volume(name="volumes")).scheduler("volumes"),
    pod("volumes").label(volumes="volumes").container("volumes", image="volumes:1"),
    REPLICA.require_no_pods("zone", selector(app="web")).spread_soft("zone", selector(app="web")),
    REPLICA.nominated("n").condition("PodScheduled", "False", "Unschedulable").phase("Pending"),
    REPLICA.priority(5).never_preempting().gate("g").resource_claim("c", "c").host_port(80).overhead(cpu=1),
)


def test_pods_are_decoded_as_without_sharing() -> None:
    decoder = PodDecoder()
    for _ in range(2):
        for built in VARIED:
            raw = encode_msgpack(built.build())
            assert decoder.decode(raw) == pod_from_msgpack(raw)
            assert decoder.decode(msgspec.Raw(raw)) == pod_from_msgpack(raw)
    for workload in WORKLOADS.values():
        for number in range(6):
            raw = msgspec.msgpack.encode(workload.pod(number, 3))
            assert decoder.decode(raw) == pod_from_msgpack(raw)


def test_pods_of_one_template_share_its_parts() -> None:
    decoder = PodDecoder()
    one, other = (decoder.decode(encode_msgpack(REPLICA.uid(uid).build())) for uid in "12")
    assert one.uid != other.uid
    assert one.spec is other.spec
    assert one.status is other.status
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references


def test_pods_whose_volumes_differ_share_the_rest() -> None:
    decoder = PodDecoder()
    one, other = (decoder.decode(encode_msgpack(REPLICA.volume(Volume(name=name)).build())) for name in ("x", "y"))
    assert [each.spec.volumes for each in (one, other)] == [[Volume(name="x")], [Volume(name="y")]]
    assert one.spec.containers is other.spec.containers
    there = decoder.decode(encode_msgpack(REPLICA.volume(Volume(name="x")).on("n").build()))
    assert (there.spec.node_name, one.spec.node_name) == ("n", "")
    assert there.spec.containers is one.spec.containers
    assert one.spec.tolerations is other.spec.tolerations


def test_the_number_of_remembered_parts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_parts, "MAX_PARTS", 2)
    decoder = PodDecoder()
    raws = [encode_msgpack(pod("p").label(app=str(number)).build()) for number in range(3)]
    first, *_ = [decoder.decode(raw) for raw in raws]
    again = decoder.decode(raws[0])
    assert again == first
    assert again.metadata.labels is not first.metadata.labels


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": 1}},
        {"metadata": {"labels": {"a": 1}}},
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}},
        {"spec": {"volumes": [{"name": 1}], "containers": []}},
        {"spec": {"volumes": [], "containers": [{"name": 1}]}},
        {"spec": {"nodeName": 1, "containers": []}},
        {"spec": []},
        {"status": {"phase": 1}},
    ],
)
def test_an_error_names_the_field_of_the_whole_pod(broken: dict[str, Any]) -> None:
    raw = msgspec.msgpack.encode(broken)
    with pytest.raises(msgspec.DecodeError) as expected:
        pod_from_msgpack(raw)
    with pytest.raises(msgspec.DecodeError) as found:
        PodDecoder().decode(raw)
    assert str(found.value) == str(expected.value)


def test_what_is_no_pod_is_refused() -> None:
    for raw in (b"", b"\xc1", encode_msgpack(3), encode_msgpack(Pod())[:-1] + b"\xc1"):
        with pytest.raises(msgspec.DecodeError):
            PodDecoder().decode(raw)


# Nodes

WORKER = node("w").capacity(cpu=4).label(zone="a", arch="x").taint("t").image("app:1", 100, "app@x").condition("Ready")
NODES = (
    node("bare"),
    WORKER,
    WORKER.image("app:2", 200).unschedulable(),
    WORKER.annotate("a", "b").capacity({"example.com/gpu": 2}),
    node("w2").capacity(cpu=4).label(zone="a", arch="x").taint("t").image("app:2", 1).image("app:1", 100, "app@x"),
)


def test_nodes_are_decoded_as_without_sharing() -> None:
    decoder, plain = NodeDecoder(), msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)
    for _ in range(2):
        for built in NODES:
            raw = encode_msgpack(built.build())
            assert decoder.decode(raw) == built.build() == plain.decode(raw)


def test_nodes_of_one_kind_share_what_is_equal() -> None:
    decoder = NodeDecoder()
    one, other = (decoder.decode(encode_msgpack(each.build())) for each in (WORKER, NODES[-1]))
    assert one.metadata.labels["zone"] is other.metadata.labels["zone"]
    assert one.spec is other.spec
    assert one.status.allocatable is other.status.allocatable
    assert one.status.images[0] is other.status.images[1]


def test_decoded_nodes_share_what_is_equal() -> None:
    parts, plain = NodeParts(), msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)
    nodes = [plain.decode(encode_msgpack(each.build())) for each in NODES]
    shared = [parts.shared(each) for each in nodes]
    assert shared == nodes
    one, other = shared[1], shared[-1]
    assert one.metadata.labels["zone"] is other.metadata.labels["zone"]
    assert one.spec is other.spec
    assert one.status.allocatable is other.status.allocatable
    assert one.status.images[0] is other.status.images[1]


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"labels": {"a": 1}}},
        {"spec": {"taints": [{"key": 1}]}},
        {"status": {"allocatable": {"cpu": "much"}}},
        {"status": {"images": [{"names": 1}]}},
        {"status": {"images": 1}},
    ],
)
def test_an_error_names_the_field_of_the_whole_node(broken: dict[str, Any]) -> None:
    raw = msgspec.msgpack.encode(broken)
    with pytest.raises(msgspec.DecodeError) as expected:
        msgspec.msgpack.decode(raw, type=Node, dec_hook=dec_hook)
    with pytest.raises(msgspec.DecodeError) as found:
        NodeDecoder().decode(raw)
    assert str(found.value) == str(expected.value)
