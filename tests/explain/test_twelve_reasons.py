"""Pods pending for different reasons: each is explained in a sentence that names cause and change, which then helps."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from services.snapshot.events import PodDeleted
from shared.explain.advice import Help
from shared.model.objects import Node, Pod
from shared.model.quantity import parse_quantity
from shared.model.wellknown import HOSTNAME, ZONE
from testing.builders import NodeBuilder, PodBuilder, expr, node, pod, resource_list, selector, term
from testing.inprocess.pipeline import Pipeline
from tests.explain.support import explained, placed_on
from tests.samples import a_claim, a_volume


class World:
    """Four nodes in two zones, each with a pod, all changed by `make`."""

    def __init__(self, make: Callable[[NodeBuilder], NodeBuilder], load: PodBuilder | None) -> None:
        self.pipeline = Pipeline(shards=2)
        self.nodes: dict[str, Node] = {}
        for i in range(4):
            name = f"node-{i}"
            labels = {HOSTNAME: name, ZONE: f"zone-{'ab'[i % 2]}"}
            self.show(make(node(name).capacity(cpu=4, memory="16Gi").label(labels, disk="hdd")).build())
            if load is not None:
                there = load.uid(f"load-{i}").on(name).build()
                self.pipeline.add_pods([replace(there, metadata=replace(there.metadata, name=f"load-{i}"))])
        self.pipeline.settle()

    def show(self, shown: Node) -> None:
        self.nodes[shown.name] = shown
        self.pipeline.add_nodes([shown])


def plain(made: NodeBuilder) -> NodeBuilder:
    return made


class Reason(NamedTuple):
    """`cause`, `change`: words that the sentence must have. `kind`: of the change that is made."""

    given: PodBuilder
    cause: str
    change: str
    kind: str
    nodes: Callable[[NodeBuilder], NodeBuilder] = plain
    load: PodBuilder | None = pod("load").request(cpu="2500m", memory="14Gi").label(app="load").host_port(80)


GPU = "nvidia.com/gpu"
REASONS = {
    "cpu": Reason(pod("p").request(cpu=2), "4 lack cpu (it asks for 2, at most 1.5 is free)", "1.5 cpu", "requests"),
    "memory": Reason(pod("p").request(memory="3Gi"), "memory (it asks for 3Gi", "2Gi memory (1Gi less)", "requests"),
    "too large": Reason(pod("p").request(cpu=16), "16, the largest has 4 in all", "with 16 cpu", "add-node"),
    "no such resource": Reason(pod("p").request({GPU: 1}), f"lack {GPU}", f"with 1 {GPU}", "add-node"),
    "no slot": Reason(pod("p"), "a slot for a pod", "left node", "remove-pod", lambda made: made.capacity(pods=1)),
    "taint": Reason(
        pod("p"), "have the taint gpu=yes:NoSchedule", "tolerated the taint gpu=yes", "tolerate",
        lambda made: made.taint("gpu", "yes"),
    ),
    "cordoned": Reason(pod("p"), "are cordoned", "uncordoned", "uncordon", lambda made: made.unschedulable()),
    "selector": Reason(
        pod("p").node_selector(disk="ssd"), "selector disk=ssd (they have disk=hdd)", "label disk=ssd", "label-node"
    ),
    "affinity to nodes": Reason(
        pod("p").require_node(term(expr("disk", "In", "nvme", "ssd"), expr("fast", "Exists"))),
        "affinity disk in (nvme, ssd) and a label fast", "labels disk=nvme, fast=true", "label-node",
    ),
    "host port": Reason(pod("p").host_port(80), "host port 80/TCP taken by default/load", "such as 81", "host-port"),
    "anti-affinity": Reason(
        pod("p").require_no_pods(HOSTNAME, selector(app="load")), "pods near that it avoids", "app=load", "remove-pod"
    ),
    "anti-affinity of others": Reason(
        pod("p").label(app="p"), "have pods near that avoid it", "left node", "remove-pod",
        load=pod("load").require_no_pods(HOSTNAME, selector(app="p")),
    ),
    "affinity": Reason(
        pod("p").require_pods(ZONE, selector(app="db")), "no pod near that it wants", "with app=db ran on", "add-pod"
    ),
    "spread label": Reason(
        pod("p").label(app="load").spread_hard("rack", selector(app="load")), "lack a label", "rack", "label-node"
    ),
    "anti-affinity in zones": Reason(
        pod("p").require_no_pods(ZONE, selector(app="load")), "pods near that it avoids", "app=load", "add-node"
    ),
    "node by name": Reason(
        pod("p").request(cpu=1).require_node(term(name="gone")), "not among the nodes", "require its node affinity",
        "node-affinity",
    ),
    "emptiest zone cordoned": Reason(
        pod("p").label(app="load").spread_hard(ZONE, selector(app="load")), "too uneven", "one more node", "add-node",
        lambda made: made.label({ZONE: "zone-c"}).unschedulable() if made.metadata.name == "node-3" else
        made.label({ZONE: "zone-a"}),
    ),
    "claim": Reason(pod("p").claim("data"), '"data" not found', "claim default/data existed", "create-volume"),
    "volume elsewhere": Reason(
        pod("p").claim("far"), "far-volume", "topology.kubernetes.io/zone=zone-z", "add-node"
    ),
}  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("name", REASONS)
async def test_the_sentence_names_cause_and_change_and_the_change_helps(name: str) -> None:
    reason = REASONS[name]
    world = World(reason.nodes, reason.load)
    if name == "volume elsewhere":
        add_claim(world, "far", "zone-z")
    told = await explained(world.pipeline, reason.given)
    assert told.sentence.startswith("default/p fits none of 4 nodes: ")
    assert reason.cause in told.sentence
    assert reason.change in told.sentence
    change = next(each for each in told.help if each.kind == reason.kind)
    assert placed_on(world.pipeline, reason.given) == ""
    changed = with_change(world, reason.given.uid("changed").build(), change)
    assert placed_on(world.pipeline, changed)


def with_change(world: World, given: Pod, helped: Help) -> Pod:
    """The pod after the change, which is made in the cluster if it is one of the cluster."""
    change = helped.change
    match helped.kind:
        case "requests":
            given = with_requests(given, change["requests"])
        case "tolerate":
            (each,) = change["tolerations"]
            made = PodBuilder(given.metadata, given.spec, given.status)
            given = made.tolerate(each["key"], each["value"], each["effect"]).build()
        case "host-port":
            (container,) = given.spec.containers
            ports = [replace(port, host_port=change["to"]) for port in container.ports]
            given = replace(given, spec=replace(given.spec, containers=[replace(container, ports=ports)]))
        case "node-affinity":
            given = replace(given, spec=replace(given.spec, affinity=None))
        case "add-pod":
            world.pipeline.add_pods([pod("db", change["namespace"]).label(change["labels"]).on(change["node"]).build()])
        case "remove-pod":
            world.pipeline.observe(PodDeleted(change["pod"].removeprefix("default/")))
        case "uncordon":
            shown = world.nodes[change["node"]]
            world.show(replace(shown, spec=replace(shown.spec, unschedulable=False)))
        case "label-node":
            shown = world.nodes[change["node"]]
            labels = {**shown.metadata.labels, **change["labels"]}
            world.show(replace(shown, metadata=replace(shown.metadata, labels=labels)))
        case "add-node":
            like = world.nodes[change["like"]]
            labels = {**like.metadata.labels, HOSTNAME: "new", **change.get("labels", {})}
            amounts = {**like.status.allocatable, **resource_list(change.get("amounts", {}))}
            metadata = replace(like.metadata, name="new", labels=labels)
            world.show(replace(like, metadata=metadata, status=replace(like.status, allocatable=amounts)))
        case "create-volume":
            add_claim(world, change["claim"], "zone-a")
    world.pipeline.settle()
    return given


def with_requests(given: Pod, amounts: dict[str, str]) -> Pod:
    (container,) = given.spec.containers
    requests = {name: parse_quantity(text) for name, text in amounts.items()}
    resources = replace(container.resources, requests=requests)
    return replace(given, spec=replace(given.spec, containers=[replace(container, resources=resources)]))


def add_claim(world: World, name: str, zone: str) -> None:
    """A claim that is bound to a volume of this zone."""
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    volume = a_volume(f"{name}-volume", claim=f"default/{name}", uid=name, nodeAffinity=affinity)
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = a_claim(name, uid=name, annotations=annotations, volumeName=f"{name}-volume")
    world.pipeline.add_objects([volume, claim])
    world.pipeline.settle()
