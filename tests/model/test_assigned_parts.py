"""Which pods on nodes are alike, by their encoded parts."""

from itertools import combinations

import msgspec
import pytest
from msgspec.structs import replace

from shared.model.assigned_parts import AlikeKey, AssignedBody, decode_assigned
from shared.model.objects import GcePersistentDisk, Pod, PodSpec, Volume, dec_hook, encode_msgpack
from testing.builders import pod
from tests.assigned import LONG, variants

_SPEC = msgspec.msgpack.Decoder(PodSpec, dec_hook=dec_hook)


def body_of(of: Pod) -> AssignedBody:
    return decode_assigned(encode_msgpack(of))


def key_of(of: Pod) -> AlikeKey:
    return body_of(of).key(of.namespace, of.spec.node_name)


@pytest.mark.parametrize("node", ["n", "n" * 40, LONG])
def test_pods_are_alike_on_any_node_under_any_name(node: str) -> None:
    for one, other in zip(variants("p", "there"), variants("another", node), strict=True):
        are_alike = replace(one.spec, node_name="") == replace(other.spec, node_name="")
        assert (key_of(one) == key_of(other)) == are_alike


def test_pods_that_differ_in_what_counts_are_not_alike() -> None:
    for one, other in combinations(variants("p", "n"), 2):
        assert key_of(one) != key_of(other)


def test_times_owners_and_other_conditions_do_not_count() -> None:
    one = pod("p").on("n").started("2026-01-01T00:00:00Z")
    other = pod("p").on("n").started("2027-01-01T00:00:00Z").condition("Ready").owner("ReplicaSet", "r").created("now")
    assert key_of(one.build()) == key_of(other.build())
    assert body_of(one.build()).status.start_time == "2026-01-01T00:00:00Z"
    assert body_of(Pod()).status.start_time is None


def test_a_specification_is_split() -> None:
    disk = Volume(name="disk", gce_persistent_disk=GcePersistentDisk(pd_name="one"))
    for each in (*variants("p", "n"), pod("p").on("n").volume(Volume(name="token")).volume(disk).build()):
        spec, volumes = body_of(each).split_spec()
        assert _SPEC.decode(spec) == replace(each.spec, node_name="", volumes=[])
        assert volumes == [volume for volume in each.spec.volumes if volume.name != "token"]
    assert decode_assigned(b"\x80").split_spec() == (b"", [])
