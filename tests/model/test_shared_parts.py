"""PodDecoder decodes pods as always, and pods alike share what is equal in them."""

from typing import Any

import msgspec
import pytest

from shared.model import shared_parts
from shared.model.objects import Pod, Volume, encode_msgpack, pod_from_msgpack
from shared.model.shared_parts import PodDecoder
from testing.builders import PodBuilder, pod, selector
from testing.inprocess.workloads import WORKLOADS

REPLICA = pod("r").label(app="web").owner("ReplicaSet", "web", "u").request(cpu="100m").tolerate("a", "b", "NoSchedule")
VARIED: tuple[PodBuilder, ...] = (
    pod("bare"),
    pod("other", "elsewhere").uid("7").created("2026-01-01T00:00:00Z").terminating(),
    REPLICA,
    REPLICA.volume(Volume(name="token-x")),
    REPLICA.volume(Volume(name="token-y")).claim("data"),
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
    assert one.spec.tolerations is other.spec.tolerations


def test_only_so_many_parts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
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
