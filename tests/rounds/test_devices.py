"""Pods with claims: a round of many decides as rounds of one do, with the same devices, in however many shards."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.cycle import events as cycle
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Ties
from shared.messages.state import Commit
from shared.model.objects import ObjectKind, decode_node, decode_pod, object_from
from testing.inprocess.device_cases import written_devices
from testing.inprocess.device_workloads import DRIVER, RESOURCE, Object, claim_of, claiming, device_objects
from testing.inprocess.pipeline import Pipeline
from testing.inprocess.workloads import NAMESPACE, Workload, node

SEEDS = range(36)
KINDS = ("template", "first-available", "extended", "two", "capacity", "partitions", "named", "shared")
Outcomes = dict[str, tuple[str, Any]]


class World:
    """A small cluster with random devices, and pods of one kind."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.kind = self._random.choice(KINDS)
        self.nodes = [self._node(i) for i in range(self._random.randint(2, 6))]
        self.objects: list[tuple[str, Object]] = []
        self._named: list[str] = []
        for each in self.nodes:
            self._add_devices(each["metadata"]["name"])
        if self._random.random() < 0.4:
            self._add_network_devices()
        self.pods = [self._pod(i) for i in range(self._random.randint(4, 30))]

    def _node(self, number: int) -> Object:
        made = node(number)
        made["status"]["allocatable"]["cpu"] = self._random.choice(["1", "2", "4"])
        if self._random.random() < 0.2:
            made["status"]["allocatable"][RESOURCE] = str(self._random.randint(1, 3))
        return made

    def _add_devices(self, name: str) -> None:
        """Some that can be shared, some partitions of one card."""
        shape = self._random.choice(["extended", "extended", "partitions"])
        for kind, obj in device_objects(shape, [name]):
            if kind == "deviceclass":
                obj["spec"]["extendedResourceName"] = RESOURCE
            elif "devices" in obj["spec"]:
                del obj["spec"]["devices"][self._random.randint(1, 8) :]
                for device in obj["spec"]["devices"]:
                    device["allowMultipleAllocations"] = shape == "extended" and self._random.random() < 0.3
            self.objects.append((kind, obj))

    def _add_network_devices(self) -> None:
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"n{i}", "attributes": {"model": {"string": "large"}}} for i in range(3)]
        spec = {"driver": DRIVER, "pool": pool, "allNodes": True, "devices": devices}
        self.objects.append(("resourceslice", {"metadata": {"name": "net"}, "spec": spec}))

    def _pod(self, number: int) -> Object:
        made = Workload("plain").pod(number, 1)
        if self.kind == "extended":
            return claiming("extended", made)
        shape = "first-available" if self.kind == "first-available" else "template"
        claim = claim_of(shape, NAMESPACE, made["metadata"]["name"], made["metadata"]["uid"])
        request = claim["spec"]["devices"]["requests"][0]
        if self.kind == "two":
            request["exactly"]["count"] = 2
        if self.kind == "capacity":
            request["exactly"]["capacity"] = {"requests": {"memory": "10Gi"}}
        if self.kind in ("named", "shared"):
            del claim["metadata"]["ownerReferences"]
            if self.kind == "shared" and number % 2:
                made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": self._named[-1]}]
                return made
            self._named.append(claim["metadata"]["name"])
            made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": self._named[-1]}]
            self.objects.append(("resourceclaim", claim))
            return made
        self.objects.append(("resourceclaim", claim))
        return claiming("template", made)

    def outcomes(self, round_size: int, shards: int) -> Outcomes:
        devices: dict[str, Any] = {}

        def note(message: object) -> Sequence[float]:
            for each in message.decisions if isinstance(message, Commit) else ():
                devices[each.uid] = written_devices(each.assignment.devices)
            return (0.0,)

        pipeline = Pipeline(
            load_frameworks(None),
            shards=shards,
            round_size=round_size,
            ties=Ties(mode="name"),
            fate=note,
            binds=False,
        )
        pipeline.add_nodes(decode_node(msgspec.json.encode(each)) for each in self.nodes)
        pipeline.add_objects(object_from(ObjectKind(kind), obj) for kind, obj in self.objects)
        pipeline.settle()
        pods = [decode_pod(msgspec.json.encode(each)) for each in self.pods]
        for start in range(0, len(pods), round_size):
            pipeline.submit(pods[start : start + round_size])
            pipeline.settle()
        pipeline.snapshot.validate()
        found: Outcomes = {}
        for each in pods:
            outcome = pipeline.outcomes[each.uid]
            if isinstance(outcome, cycle.Decided):
                found[each.uid] = outcome.node, devices[each.uid]
            else:
                assert isinstance(outcome, cycle.Unschedulable), outcome
                found[each.uid] = "", outcome.unfit.message
        return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_of_many_gives_each_pod_the_devices_that_it_would_get_alone(seed: int) -> None:
    world = World(seed)
    alone = world.outcomes(1, 1)
    assert any(node for node, _ in alone.values())
    assert world.outcomes(32, 1) == alone
    assert world.outcomes(32, 3) == alone
