"""Gangs whose members share a claim that has no devices yet: one of them gets it some, and all go where these are."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.cycle.events import Decided, Unschedulable
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Ties
from shared.messages.queue import Gang
from shared.messages.state import Commit, Decision
from shared.model.objects import ClusterObject, ObjectKind, Pod, object_from
from shared.model.pod import PodResourceClaim, PodResourceClaimStatus
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline
from tests.rounds.gangs import members

GANG = "default/train"
CLASS = object_from(ObjectKind.DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
MEMBER = pod("m").request(cpu=1).group("train").resource_claim("gpu", "shared")
everywhere = pytest.mark.parametrize("shards", [1, 3])


def a_claim(name: str = "shared", **metadata: Any) -> ClusterObject:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    metadata = {"name": name, "namespace": "default", "uid": f"{name}-uid", **metadata}
    return object_from(ObjectKind.RESOURCE_CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})


def devices_of(name: str, *names: str, **where: Any) -> ClusterObject:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, **(where or {"nodeName": name}), "devices": [{"name": each} for each in names]}
    return object_from(ObjectKind.RESOURCE_SLICE, {"metadata": {"name": name}, "spec": spec})


class Run(Pipeline):
    """Four nodes, each with room for three members, and devices."""

    def __init__(self, *objects: ClusterObject, shards: int = 1, cpus: Sequence[int] = (3, 3, 3, 3)) -> None:
        self.decisions: list[Decision] = []
        super().__init__(load_frameworks(None), shards=shards, ties=Ties(mode="name"), fate=self._note)
        self.add_nodes(node(f"n{i}").capacity(cpu=cpu, memory="8Gi").build() for i, cpu in enumerate(cpus))
        self.add_objects([CLASS, *objects])
        self.settle()

    def _note(self, message: object) -> Sequence[float]:
        if isinstance(message, Commit):
            self.decisions = message.decisions
        return (0.0,)

    def decide(self, pods: Sequence[Pod], least: int) -> dict[str, str]:
        """Where they go; nowhere if they do not fit."""
        self.submit(pods, gang=Gang(GANG, least))
        self.settle()
        self.snapshot.validate()
        told = {each.name: self.outcomes[each.uid] for each in pods}
        assert all(isinstance(each, Decided | Unschedulable) for each in told.values()), told
        return {name: each.node for name, each in told.items() if isinstance(each, Decided)}

    def given(self) -> list[Any]:
        """The allocation in each decision."""
        decided = [each.assignment.devices for each in self.decisions]
        return [msgspec.to_builtins(claim.allocation) for each in decided if each is not None for claim in each.claims]


@everywhere
def test_all_go_to_the_node_of_the_device_that_one_of_them_is_given(shards: int) -> None:
    run = Run(a_claim(), devices_of("n2", "g0", "g1"), shards=shards)
    assert run.decide(members(MEMBER, 3), 3) == {"m0": "n2", "m1": "n2", "m2": "n2"}
    first, *others = run.given()
    assert [each["device"] for each in first["devices"]["results"]] == ["g0"]
    assert others == [first, first]


@everywhere
def test_members_of_several_classes_share_it(shards: int) -> None:
    run = Run(a_claim(), devices_of("n1", "g0"), shards=shards)
    pods = [*members(MEMBER, 2, "a"), *members(MEMBER.label({"role": "b"}).request(memory="1Gi"), 1, "b")]
    assert run.decide(pods, 3) == dict.fromkeys(("a0", "a1", "b0"), "n1")


@everywhere
def test_a_claim_that_was_made_for_the_group_is_shared(shards: int) -> None:
    """Each pod names the template, and has the claim's name in its status."""
    owner = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "train", "uid": "g"}
    claim = a_claim("train-gpu", ownerReferences=[{**owner, "controller": True}])
    run = Run(claim, devices_of("n2", "g0", "g1", "g2"), shards=shards)
    pods = [_from_template(each) for each in members(pod("m").request(cpu=1).group("train"), 3)]
    assert run.decide(pods, 3) == dict.fromkeys(("m0", "m1", "m2"), "n2")
    assert len(run.given()) == 3
    assert run.given()[0] == run.given()[1] == run.given()[2]


@everywhere
def test_a_device_that_every_node_reaches_is_shared_by_members_on_different_nodes(shards: int) -> None:
    run = Run(a_claim(), devices_of("net", "g0", allNodes=True), shards=shards, cpus=(1, 1, 1))
    assert sorted(run.decide(members(MEMBER, 3), 3).values()) == ["n0", "n1", "n2"]


@everywhere
def test_the_device_is_where_all_have_room(shards: int) -> None:
    """The first member would go to the node of the first device, which has no room for the others."""
    run = Run(a_claim(), devices_of("n0", "g0"), devices_of("n3", "g0"), shards=shards, cpus=(1, 1, 1, 3))
    assert run.decide(members(MEMBER, 3), 3) == dict.fromkeys(("m0", "m1", "m2"), "n3")


def test_without_room_for_all_of_them_none_is_placed_and_no_device_is_taken() -> None:
    run = Run(a_claim(), devices_of("n0", "g0"), shards=2)
    assert run.decide(members(MEMBER, 4), 4) == {}
    assert run.decide(members(MEMBER, 1, "single"), 1) == {"single0": "n0"}


@everywhere
def test_each_has_a_claim_of_its_own_beside_the_shared_one(shards: int) -> None:
    names = [f"own{i}" for i in range(2)]
    run = Run(a_claim(), *map(a_claim, names), devices_of("n2", "g0", "g1", "g2"), shards=shards)
    pods = [MEMBER.resource_claim("own", name).build() for name in names]
    pods = [replace(each, metadata=replace(each.metadata, name=f"p{i}", uid=f"p{i}")) for i, each in enumerate(pods)]
    assert run.decide(pods, 2) == {"p0": "n2", "p1": "n2"}
    taken = [result["device"] for each in run.given() for result in each["devices"]["results"]]
    assert sorted(taken) == ["g0", "g0", "g1", "g2"]


def test_the_member_that_gets_the_claim_its_device_may_be_any() -> None:
    """Only a small one that goes first to a node without a device of its own gets the device that reaches all nodes."""
    slices = [devices_of(name, f"{name}-g") for name in ("n0", "n2")]
    run = Run(a_claim(), *slices, devices_of("net", "far", allNodes=True), cpus=(2, 0, 3, 1, 1))
    pods = [pod("m").request(cpu=size).group("train").resource_claim("gpu", "shared").build() for size in (1, 2, 1, 1)]
    pods = [replace(each, metadata=replace(each.metadata, name=f"m{i}", uid=f"m{i}")) for i, each in enumerate(pods)]
    assert len(run.decide(pods, 4)) == 4
    assert {str(each["devices"]["results"][0]["device"]) for each in run.given()} == {"far"}


@pytest.mark.parametrize("seed", range(24))
def test_a_gang_is_placed_if_and_only_if_devices_for_its_claims_reach_room_for_all_members(seed: int) -> None:
    """Compared with all choices of a device for each claim. Members of the second class are larger."""
    dice = random.Random(seed)
    cpus = [dice.randint(0, 5) for _ in range(dice.randint(2, 5))]
    names = [f"n{i}" for i in range(len(cpus))]
    # Not both kinds: on a node the device that is found first counts, though one that reaches further may be needed.
    is_local = dice.random() < 0.8
    devices = [(name if is_local else "", f"{name}-g{k}") for name in names for k in range(dice.choice((0, 0, 1, 2)))]
    claims = ["shared", "more"][: dice.randint(1, 2)]
    sizes = [dice.choice((1, 1, 1, 2)) for _ in range(dice.randint(2, 4))]
    slices = [devices_of(name, *(each for at, each in devices if at == name)) for name in names]
    slices.append(devices_of("net", *(each for at, each in devices if not at), allNodes=True))
    run = Run(*map(a_claim, claims), *slices, shards=dice.choice((1, 2, 3)), cpus=cpus)
    pods = []
    for i, size in enumerate(sizes):
        built = pod(f"m{i}").request(cpu=size).group("train")
        for name in claims:
            built = built.resource_claim(name, name)
        pods.append(built.build())
    places = run.decide(pods, len(pods))
    room = dict(zip(names, cpus, strict=True))
    expected = any(
        _fit(sizes, [room[name] for name in names if all(at in ("", name) for at, _ in chosen)])
        for chosen in itertools.permutations(devices, len(claims))
    )
    assert bool(places) is expected, f"seed {seed}"
    if places:
        assert len(places) == len(pods)
        assert len({str(each) for each in run.given()}) <= len(claims)


def _fit(sizes: Sequence[int], room: Sequence[int]) -> bool:
    """Whether items of these sizes fit into these bins."""
    if not sizes:
        return True
    return any(
        _fit(sizes[1:], [*room[:i], room[i] - sizes[0], *room[i + 1 :]])
        for i in range(len(room))
        if room[i] >= sizes[0]
    )


def _from_template(of: Pod) -> Pod:
    use = PodResourceClaim(name="gpu", resource_claim_template_name="one")
    made = PodResourceClaimStatus(name="gpu", resource_claim_name="train-gpu")
    spec = replace(of.spec, resource_claims=[use])
    return replace(of, spec=spec, status=replace(of.status, resource_claim_statuses=[made]))
