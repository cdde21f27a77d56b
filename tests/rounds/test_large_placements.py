"""Pods whose devices come with large parameters for drivers: no message outgrows NATS, and every pod is decided."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.cycle import events as cycle
from services.cycle.round.assign import MAX_DECIDED_BYTES
from shared.framework.loading import load_frameworks
from shared.messages.codec import encode
from shared.messages.limits import MAX_BODY, MAX_PLACEMENT_BYTES
from shared.messages.queue import Gang
from shared.messages.recording import RecordDecisions, RoundDecided
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Commit, State
from shared.model.objects import ObjectKind, Pod, decode_node, decode_pod, object_from
from testing.inprocess.device_workloads import DEVICES_OF_NODE, Object, claim_of, claiming, device_objects
from testing.inprocess.pipeline import Pipeline
from testing.inprocess.workloads import NAMESPACE, Workload, node

CONFIGURATIONS = 4
ENOUGH_ROUNDS = 64
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"large": "yes"}},
}


class World:
    """A cluster of nodes with devices, whose class has parameters of about `size` bytes for its driver.

    A message that NATS would refuse is lost; workers load the state from Redis.
    """

    def __init__(self, nodes: int, size: int, *, shards: int = 1, zones: int = 3) -> None:
        self.lost: Counter[str] = Counter()
        self.rounds = 0
        self.sizes: dict[type[object], int] = {}
        self.rungs: list[int] = []
        """Of each ladder."""
        self.pipeline = Pipeline(load_frameworks(None), shards=shards, fate=self._fate, binds=False)
        names = [f"n{i}" for i in range(nodes)]
        made = [node(i) for i in range(nodes)]
        for i, each in enumerate(made):
            each["metadata"]["name"] = names[i]
            each["metadata"]["labels"] = {
                "kubernetes.io/hostname": names[i],
                "topology.kubernetes.io/zone": f"z{i % zones}",
            }
        self.pipeline.add_nodes(decode_node(msgspec.json.encode(each)) for each in made)
        for kind, obj in device_objects("extended", names):
            if kind == "deviceclass":
                part = {"text": "x" * (size // CONFIGURATIONS)}
                opaque = {"opaque": {"driver": "gpu.example.com", "parameters": part}}
                obj["spec"]["config"] = [opaque] * CONFIGURATIONS
            self._add(kind, obj)
        self.pipeline.settle()

    def _add(self, kind: str, obj: Object) -> None:
        self.pipeline.add_objects([object_from(ObjectKind(kind), obj)])

    def _fate(self, message: Any) -> Sequence[float]:
        if isinstance(message, State):
            return (0.0,)
        size = len(encode(message))
        self.sizes[type(message)] = max(size, self.sizes.get(type(message), 0))
        if isinstance(message, Propose):
            self.rounds = max(self.rounds, message.round)
            assert self.rounds < ENOUGH_ROUNDS, f"nothing is decided any more; lost: {self.lost}"
        if isinstance(message, Proposals):
            self.rungs += [len(answer.ladder.nodes) for answer in message.answers if not answer.unknown]
        if size > MAX_BODY:
            self.lost[type(message).__name__] += 1
            assert self.lost.total() < ENOUGH_ROUNDS, f"the same message is sent for ever: {self.lost}"
            return ()
        return (0.0,)

    def pods(self, count: int, prefix: str = "large-", classes: int = 1, unused: int = 0, **spec: Any) -> list[Pod]:
        """`unused`: bytes of parameters in each claim that no allocation has."""
        made: list[Pod] = []
        for number in range(count):
            body = Workload("plain").pod(number, classes)
            body["metadata"] |= {"name": f"{prefix}{number}", "uid": f"{prefix}{number}", "labels": {"large": "yes"}}
            body["spec"] |= spec
            claim = claim_of("template", NAMESPACE, f"{prefix}{number}", f"{prefix}{number}")
            if unused:
                opaque = {"driver": "gpu.example.com", "parameters": {"text": "x" * unused}}
                claim["spec"]["devices"]["config"] = [{"requests": ["another"], "opaque": opaque}]
            self._add("resourceclaim", claim)
            made.append(decode_pod(msgspec.json.encode(claiming("template", body))))
        return made

    def decide(self, pods: list[Pod], **submit: Any) -> Counter[str]:
        """How many of them got each node."""
        self.pipeline.submit(pods, **submit)
        self.pipeline.settle()
        self.pipeline.snapshot.validate()
        outcomes = [self.pipeline.outcomes[each.uid] for each in pods]
        assert all(isinstance(each, cycle.Decided) for each in outcomes), outcomes[0]
        return Counter(each.node for each in outcomes if isinstance(each, cycle.Decided))

    def largest(self, *types: type[object]) -> int:
        return max(self.sizes.get(each, 0) for each in types)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_ladder_that_does_not_fit_in_a_message_is_cut_and_all_pods_are_decided(shards: int) -> None:
    world = World(80, 60_000, shards=shards)
    placed = world.decide(world.pods(256))
    assert not world.lost
    assert 0 < world.rungs[0] < 150
    assert placed.total() == 256
    assert max(placed.values()) <= DEVICES_OF_NODE
    assert world.largest(Commit) <= MAX_DECIDED_BYTES + (1 << 20)


def test_the_first_placements_are_those_of_the_whole_ladder() -> None:
    """What is cut off is decided in the rounds that follow, as it would have been in the first one."""
    small, large = World(40, 400), World(40, 120_000)
    assert small.decide(small.pods(120)) == large.decide(large.pods(120))
    assert small.rungs[0] == 120
    assert 0 < large.rungs[0] < 120
    assert not large.lost


@pytest.mark.parametrize("size", [40_000, 1_000_000])
def test_ladders_by_domains_are_cut_in_each_and_hard_constraints_hold(size: int) -> None:
    """With the larger size not even one placement of each domain fits."""
    world = World(24, size, zones=12)
    count = 120 if size < 1_000_000 else 12
    placed = world.decide(world.pods(count, topologySpreadConstraints=[SPREAD]))
    by_zone = Counter[int]()
    for name, pods in placed.items():
        by_zone[int(name[1:]) % 12] += pods
    assert set(by_zone.values()) == {count // 12}
    assert not world.lost


def test_several_classes_that_do_not_fit_together_are_all_decided() -> None:
    world = World(40, 100_000)
    assert world.decide(world.pods(120, classes=3)).total() == 120
    assert not world.lost


def test_a_pod_whose_placement_fits_in_no_message_fails_and_others_are_decided() -> None:
    world = World(4, MAX_PLACEMENT_BYTES + 1)
    large = world.pods(2)
    plain = [decode_pod(msgspec.json.encode(Workload("plain").pod(number, 1))) for number in range(8)]
    world.pipeline.submit([*large, *plain])
    world.pipeline.settle()
    for each in large:
        outcome = world.pipeline.outcomes[each.uid]
        assert isinstance(outcome, cycle.Failed), outcome
        assert "what is decided about its volumes and devices" in outcome.status.message
        assert "bytes" in outcome.status.message
    assert all(isinstance(world.pipeline.outcomes[each.uid], cycle.Decided) for each in plain)
    assert not world.lost


def test_what_is_recorded_of_large_placements_fits() -> None:
    world = World(80, 40_000)
    list(world.pipeline.cycle.handle(RecordDecisions("r", 1e6), world.pipeline.now))
    world.decide(world.pods(256))
    assert not world.lost
    told = [each.pods for each in world.pipeline.recorded if isinstance(each, RoundDecided)]
    assert sum(pod.verdict == "placed" for pods in told for pod in pods) == 256


def test_a_gang_that_fits_in_a_commit_is_placed_in_steps_and_a_larger_one_fails() -> None:
    world = World(80, 40_000)
    small, large = world.pods(60, "small-"), world.pods(200, "other-")
    assert world.decide(small, gang=Gang("ns/small", 60)).total() == 60
    world.pipeline.submit(large, gang=Gang("ns/large", 200))
    world.pipeline.settle()
    outcomes = [world.pipeline.outcomes[each.uid] for each in large]
    assert all(isinstance(each, cycle.Failed) for each in outcomes)
    assert "what is decided about its volumes and devices" in str(outcomes[0])
    assert not world.lost


def test_workers_load_the_state_again_if_a_delta_fits_in_no_message() -> None:
    """It has whole claims, and decisions have allocations only."""
    world = World(12, 400, shards=2)
    assert world.decide(world.pods(48, unused=400_000)).total() == 48
    assert world.lost.keys() == {"Delta"}
    assert world.decide(world.pods(24, prefix="small-")).total() == 24
