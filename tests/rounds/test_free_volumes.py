"""Pods that compete for free volumes in one round: each gets what it would get if they were decided one by one."""

import random

import msgspec
import pytest

from services.cycle.round.ladder_merge import Placement
from services.cycle.round.volumes import RoundVolumes
from shared.cluster.objects import ClusterObjects
from shared.cluster.volumes import VolumeDecision, changes_of
from shared.messages.state import Commit, Committed, Decision
from shared.model.objects import ClusterObject, Node, Pod
from testing.builders import node, pod
from testing.inprocess.batches import pod_info
from testing.inprocess.pipeline import Pipeline, reliable
from tests.plugins.volumes.scalar import find
from tests.plugins.volumes.storage import HOSTNAME, ZONE, claim, storage_class, volume
from tests.rounds.support import QUIET

STATIC = storage_class("static", provisioner="kubernetes.io/no-provisioner")


def a_node(number: int) -> Node:
    labels = {HOSTNAME: f"n{number}", ZONE: f"z{number % 3}"}
    return node(f"n{number}").capacity(cpu=4, memory="8Gi").label(labels).build()


class Decided:
    """Pods scheduled on these nodes: the decisions in their order, and the conflicts."""

    def __init__(
        self, nodes: list[Node], objects: list[ClusterObject], pods: list[Pod], *, shards: int, round_size: int
    ) -> None:
        self.decisions: list[Decision] = []
        self.conflicts = 0
        pipeline = Pipeline(QUIET, shards=shards, round_size=round_size, fate=self._note, binds=False)
        pipeline.add_nodes(nodes)
        pipeline.add_objects(objects)
        pipeline.settle()
        pipeline.submit(pods)
        pipeline.settle()
        self.rounds = pipeline.cycle.rounds.begun

    def _note(self, message: object) -> tuple[float, ...]:
        if isinstance(message, Commit):
            self.decisions += message.decisions
        elif isinstance(message, Committed):
            self.conflicts += len(message.conflicts)
        return tuple(reliable(message))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("pods", [8, 40])
def test_pods_with_equal_claims_share_a_round(shards: int, pods: int) -> None:
    objects = [
        STATIC,
        *(volume(f"v{i:02}", "static") for i in range(pods)),
        *(claim(f"c{i}", "static") for i in range(pods)),
    ]
    wanted = [pod(f"p{i}").request(cpu="100m").claim(f"c{i}").build() for i in range(pods)]
    found = Decided([a_node(i) for i in range(150)], objects, wanted, shards=shards, round_size=256)
    volumes = [each.assignment.volumes for each in found.decisions]
    assert [each and [name for _, name in each.bindings] for each in volumes] == [[f"v{i:02}"] for i in range(pods)]
    assert found.conflicts == 0
    assert found.rounds <= pods // 4


def some_objects(dice: random.Random, pods: int) -> tuple[list[ClusterObject], list[Pod]]:
    """Volumes of several sizes that all nodes, a zone or some nodes reach, some kept for a claim; maybe too few."""
    objects: list[ClusterObject] = [STATIC, storage_class("made")]
    made: list[Pod] = []
    names: list[str] = []
    for i in range(pods):
        own = [f"c{i}-{k}" for k in range(dice.choice([1, 1, 2]))]
        of_class = dice.choice(["static", "static", "made"])
        objects += [claim(name, of_class, dice.choice(["1Gi", "3Gi"])) for name in own]
        spec = pod(f"p{i:02}").request(cpu=dice.choice(["100m", "1"]))
        for name in own:
            spec = spec.claim(name)
        made.append(spec.build())
        names += own
    for i in range(int(len(names) * dice.uniform(0.5, 1.5))):
        reached = dice.choice(
            [None, {ZONE: [f"z{dice.randrange(3)}"]}, {HOSTNAME: [f"n{dice.randrange(8)}" for _ in "ab"]}]
        )
        kept_for = dice.choice(names) if dice.random() < 0.1 else ""
        size, of_class = dice.choice(["1Gi", "2Gi", "5Gi"]), dice.choice(["static", "static", "made"])
        objects.append(volume(f"v{i:02}", of_class, size, nodes=reached, kept_for=kept_for))
    return objects, made


@pytest.mark.parametrize("seed", range(12))
def test_every_pod_gets_the_volumes_that_it_would_get_after_those_before_it(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [a_node(i) for i in range(8)]
    objects, pods = some_objects(dice, 14)
    found = Decided(nodes, objects, pods, shards=dice.choice([1, 2, 3]), round_size=dice.choice([5, 256]))
    assert found.conflicts == 0
    known, by_name, by_uid = ClusterObjects(), {each.name: each for each in nodes}, {each.uid: each for each in pods}
    for obj in objects:
        known.upsert(obj)
    for decision in found.decisions:
        of = decision.assignment
        expected = find(by_uid[of.uid], known, by_name[of.node])
        assert not expected.faults, of
        assert of.volumes == VolumeDecision(expected.bindings, expected.provisions), of
        uids = {key: known.claims[key].uid for key in (*dict(expected.bindings), *expected.provisions)}
        for (kind, key), change in changes_of(of.node, msgspec.structs.replace(of.volumes, uids=uids)):
            known.upsert(change.over(known.of(kind)[key]))
    assert len(found.decisions) == len({each.uid for each in found.decisions})


@pytest.mark.parametrize("seed", range(3))
def test_as_many_pods_are_placed_as_one_by_one_if_all_nodes_reach_all_volumes(seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice(["1Gi", "2Gi", "3Gi"]) for _ in range(20)]
    objects = [STATIC, *(volume(f"v{i}", "static", sizes[i]) for i in range(10))]
    objects += [claim(f"c{i}", "static", sizes[10]) for i in range(12)]
    pods = [pod(f"p{i}").claim(f"c{i}").build() for i in range(12)]
    nodes = [a_node(i) for i in range(5)]
    strict, rounds = (
        {each.uid for each in Decided(nodes, objects, pods, shards=2, round_size=size).decisions} for size in (1, 256)
    )
    assert len(rounds) == len(strict)


# By itself


def offered(node_name: str, *bindings: tuple[str, str], choices: list[list[str]] | None = None) -> Placement:
    return Placement(node_name, 9, 7, volumes=VolumeDecision(list(bindings)), choices=choices)


def taken(found: Placement | None) -> list[str] | None:
    return None if found is None or found.volumes is None else [name for _, name in found.volumes.bindings]


def test_claims_take_the_first_volumes_that_are_left_one_after_the_other() -> None:
    volumes = RoundVolumes()
    a, b, c = (pod_info(pod(name).build(), name) for name in "abc")
    choices = [["v1", "v2", "v3"], ["v1", "v2", "v3", "v4"]]
    assert taken(volumes.take(a, offered("n", ("a1", "v1")))) == ["v1"]
    assert taken(volumes.take(b, offered("n", ("b1", "v1"), ("b2", "v2"), choices=choices))) == ["v2", "v3"]
    assert volumes.take(c, offered("n", ("c1", "v1"), choices=[["v1", "v2", "v3"]])) is None, "all are taken"
    assert volumes.take(c, offered("m", ("c1", "v9"))) is None, "and the class waits"


def test_a_pod_waits_if_another_one_has_decided_about_its_claim() -> None:
    volumes = RoundVolumes()
    a, b = (pod_info(pod(name).build(), name) for name in "ab")
    assert volumes.take(a, Placement("n", 9, 7, volumes=VolumeDecision([], ["shared"]))) is not None
    assert volumes.take(b, Placement("n", 9, 7, volumes=VolumeDecision([("shared", "v")]))) is None


def test_without_choices_a_pod_waits_whose_volume_is_taken() -> None:
    """Of a worker of the last release, or of a volume that is reserved for the claim."""
    volumes = RoundVolumes()
    a, b, c = (pod_info(pod(name).build(), name) for name in "abc")
    assert taken(volumes.take(a, offered("n", ("a1", "v1")))) == ["v1"]
    assert volumes.take(b, offered("n", ("b1", "v1"))) is None
    assert volumes.take(c, offered("n", ("c1", "v1"), choices=[[]])) is None
