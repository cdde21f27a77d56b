"""Pods on nodes, which are decoded once for all that count alike."""

from random import Random

import msgspec

from services.snapshot.events import AssignedPodSeen, PodUnreadable
from services.snapshot.watch_decoder import WatchDecoder
from shared.messages.watch import PodChange
from shared.model.load import load_of
from shared.model.objects import Pod, encode_msgpack
from testing.builders import pod
from tests.assigned import change_of, variants

P = pod("p").on("n").request(cpu=1).started("2026-01-01T00:00:00Z").build()


def decoder() -> WatchDecoder:
    return WatchDecoder(frozenset(), lambda uid: False)


def test_each_counts_as_if_it_were_decoded_alone() -> None:
    decode, seed = decoder().decode, 7
    pods: list[Pod] = [each for number in range(4) for each in variants(f"p{number}", f"n{number % 3}")]
    Random(seed).shuffle(pods)
    for each in pods:
        found = AssignedPodSeen(each.uid, each.key, each.spec.node_name, load_of(each), each.started)
        assert decode(change_of(each)) == found, f"seed {seed}"


def test_loads_of_pods_that_are_alike_are_one_object() -> None:
    decode = decoder().decode
    seen = [decode(change_of(pod(name).on("n").label(app="web").request(cpu=1).build())) for name in ("a", "b")]
    assert len({id(each.load) for each in seen if isinstance(each, AssignedPodSeen)}) == 1


def test_what_cannot_be_read_closes_the_node() -> None:
    """Also where a readable pod differs from it in nothing else."""
    decode = decoder().decode
    plain = msgspec.msgpack.decode(encode_msgpack(P))
    assert isinstance(decode(change_of(P)), AssignedPodSeen)
    for part, value in (("labels", 1), ("labels", {"app": 1})):
        broken = plain | {"metadata": plain["metadata"] | {part: value}}
        change = PodChange(P.uid, P.namespace, P.name, node="n", body=msgspec.Raw(msgspec.msgpack.encode(broken)))
        told = decode(change)
        assert isinstance(told, PodUnreadable)
        assert (told.uid, told.key, told.node, told.pod) == (P.uid, P.key, "n", None)
