"""flotilla explain, asked of a running pipeline about pods that wait, are gated, are bound, or are not there."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.config.settings import Settings
from shared.model.wellknown import HOSTNAME
from testing.builders import PodBuilder, expr, node, selector
from tests.cli.operating import Operator, Said
from tests.pipeline.corner import Corner, a_corner, unfit
from tests.pipeline.support import a_cluster, until
from tools.explain.text import WIDTH
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

HIGH = "high"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    options = PipelineOptions(settings=Settings(hints="events"), workers=2, binders=1)
    async with Pipeline.running(options) as running, a_cluster(running) as cluster:
        await cluster.create_priorities(**{HIGH: 1000})
        yield running


@pytest.fixture
def operator(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Operator:
    monkeypatch.setenv("FLOTILLA_NATS_URL", pipeline.nats_url)
    monkeypatch.setenv("FLOTILLA_PREFIX", pipeline.options.settings.prefix)
    return Operator(monkeypatch, capsys)


async def says(operator: Operator, *arguments: str) -> Said:
    said = await operator.types("explain", *arguments)
    assert said.code == 0, said.err
    assert all(len(line) <= WIDTH and line.isprintable() for line in said.lines)
    return said


async def plain(operator: Operator, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await operator.types("explain", "-o", "json", *arguments)).out)
    return found


async def is_placed(operator: Operator, name: str) -> dict[str, Any]:
    """Its explanation, once the queue has seen that it is bound."""
    told: dict[str, Any] = {}

    async def is_seen() -> bool:
        found = await plain(operator, name)
        told.clear()
        told.update(found)
        return told["state"] == "placed" and not told.get("binding")

    await until(is_seen, f"{name} is not placed")
    return told


async def waits(operator: Operator, corner: Corner, made: PodBuilder) -> str:
    """Creates the pod and waits until it was tried; the name by which it is asked about."""
    await corner.cluster.create(made)
    name = f"{corner.namespace}/{made.metadata.name}"

    async def is_tried() -> bool:
        waiting = (await plain(operator, name)).get("waiting") or {}
        return bool(waiting.get("message") or waiting.get("gate"))

    await until(is_tried, f"{name} was not tried")
    return name


async def test_a_pod_that_fits_nowhere_is_explained_helped_and_then_scheduled(
    pipeline: Pipeline, operator: Operator
) -> None:
    async with a_corner(pipeline, "nowhere") as corner:
        await corner.has_nodes(
            node("a").capacity(cpu=2).label(disk="hdd"),
            node("b").capacity(cpu=4).taint("gpu", "yes"),
            node("c").capacity(cpu=4).unschedulable(),
        )
        name = await waits(operator, corner, corner.pod("web").request(cpu=3))
        said = await says(operator, name, "--node", "b")
        text = " ".join(" ".join(said.lines).split())
        assert "fits none of 3 nodes: 1 lacks cpu (it asks for 3, it has 2 in all)" in text
        assert "it asked for at most 2 cpu (1 less): fits 1 node" in text
        assert "it tolerated the taint gpu=yes:NoSchedule: fits 1 node" in text
        assert "node c were uncordoned: fits 1 node" in text
        assert "node b: has the taint gpu=yes:NoSchedule" in text
        assert "tried 1 time, waits for:" in text
        await corner.cluster.change_node("c", {"spec": {"unschedulable": False}})
        await corner.lands("web", "c")
        await is_placed(operator, name)


async def test_an_event_says_what_would_help_and_the_condition_what_kube_scheduler_says(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "hints") as corner:
        await corner.has_nodes(node("a").capacity(cpu=2))
        await corner.cluster.create(corner.pod("web").request(cpu=3))
        help_ = "there were a node like a with 3 cpu, or if it asked for at most 2 cpu (1 less)"
        await corner.is_said("web", "SchedulingHint", f"It would fit if {help_}.")
        await corner.is_unschedulable("web", unfit(1, "1 Insufficient cpu"))
        await corner.cluster.create(node("b").capacity(cpu=3))
        await corner.lands("web", "b")


async def test_a_gated_pod_fits_once_its_gate_is_gone(pipeline: Pipeline, operator: Operator) -> None:
    async with a_corner(pipeline, "gated") as corner:
        await corner.has_nodes(node("a").capacity(cpu=2))
        name = await waits(operator, corner, corner.pod("web").request(cpu=1).gate("example.com/wait"))
        told = await plain(operator, name)
        assert "held back by SchedulingGates: waiting for scheduling gates: [example.com/wait]" in told["sentence"]
        assert "it would fit the only node as soon as its scheduling gates are removed" in told["sentence"]
        await corner.cluster.change_pod(corner.namespace, "web", {"spec": {"schedulingGates": []}})
        await corner.lands("web", "a")


async def test_a_bound_pod_is_explained_by_its_decision_and_a_victim_by_its_preemptor(
    pipeline: Pipeline, operator: Operator
) -> None:
    async with a_corner(pipeline, "victims") as corner:
        await corner.has_nodes(node("a").capacity(cpu=2), node("b").capacity(cpu=1))
        await corner.cluster.create(corner.pod("low").request(cpu=2))
        await corner.lands("low", "a")
        told = await is_placed(operator, "victims/low")
        assert told["sentence"] == "victims/low is on node a: it was the only one of 2 nodes on which it fitted"
        await corner.cluster.create(corner.pod("high").request(cpu=2), priorityClassName=HIGH)
        await corner.lands("high", "a")
        text = " ".join(" ".join((await says(operator, "victims/low")).lines).split())
        assert "victims/low was preempted on node a by victims/high" in text
        assert "It had a lower priority than victims/high (priority 1000), which fitted nowhere" in text
        assert [each["kind"] for each in (await plain(operator, "victims/high"))["journal"]] == [
            "placed",
            "nominated",
            "failed",
        ]
        corner.left.add("low")


async def test_a_pod_that_is_not_there_and_one_of_another_scheduler(pipeline: Pipeline, operator: Operator) -> None:
    async with a_corner(pipeline, "others") as corner:
        await corner.has_nodes(node("a").capacity(cpu=2))
        gone = await operator.types("explain", "others/nobody")
        assert gone.code == 1
        assert "does not exist, has finished, or cannot be read" in " ".join(gone.out.split())
        await corner.cluster.create(corner.pod("web").scheduler("mine"))
        corner.left.add("web")

        async def is_seen() -> bool:
            return "its schedulerName is mine" in (await plain(operator, "others/web"))["sentence"]

        await until(is_seen, "nothing is said of the other scheduler")


NODES = (
    node("room").capacity(cpu=2, memory="4Gi").label(pool="room", disk="hdd"),
    node("gpu").capacity(cpu=2, memory="4Gi").label(pool="gpu").taint("gpu", "yes"),
    node("old").capacity(cpu=2, memory="4Gi").label(pool="old").unschedulable(),
    node("port").capacity(cpu=2, memory="4Gi").label({"pool": "port", HOSTNAME: "port"}),
    node("full").capacity(cpu=2, memory="4Gi", pods=1).label(pool="full"),
)
"""Only `room` takes a pod that asks for nothing."""


def pods(corner: Corner) -> dict[str, tuple[PodBuilder, str, str]]:
    """By reason: a pod, and what its sentence must say of the cause and of a change."""
    made = corner.pod
    return {
        "cpu": (made("cpu").request(cpu=3).node_selector(pool="room"), "lacks cpu (it asks for 3", "3 cpu"),
        "memory": (made("memory").request(memory="3Gi").node_selector(pool="port"), "at most 2Gi memory", "1Gi less"),
        "taint": (made("taint").node_selector(pool="gpu"), "has the taint gpu=yes", "tolerated the taint gpu=yes"),
        "cordon": (made("cordon").node_selector(pool="old"), "is cordoned", "node old were uncordoned"),
        "selector": (made("selector").node_selector(disk="nvme"), "selector disk=nvme", "the label disk=nvme"),
        "affinity": (made("affinity").require_node(expr("rack", "In", "r7")), "affinity rack=r7", "the label rack=r7"),
        "port": (made("port").host_port(80).node_selector(pool="port"), "80/TCP taken by", "such as 81"),
        "apart": (
            made("apart").require_no_pods(HOSTNAME, selector(app="web")).node_selector(pool="port"),
            "pods near that it avoids", "did not have to avoid pods with app=web",
        ),
        "near": (made("near").require_pods("pool", selector(app="db")), "no pod near that it wants", "app=db ran on"),
        "full": (made("full").node_selector(pool="full"), "a slot for a pod", "left node full"),
        "gate": (made("gate").gate("example.com/wait"), "held back by SchedulingGates", "gates are removed"),
        "resource": (made("resource").request({"example.com/fpga": 1}), "example.com/fpga", "with 1 example.com/fpga"),
    }  # fmt: skip


async def test_twelve_pods_wait_for_twelve_reasons_and_each_change_helps(
    pipeline: Pipeline, operator: Operator
) -> None:
    """The change that is made is the one that the sentence names, and nothing else."""
    async with a_corner(pipeline, "twelve") as corner:
        cluster = corner.cluster
        await corner.has_nodes(*NODES)
        there = corner.pod("there").request(memory="2Gi").label(app="web").host_port(80).on("port")
        await cluster.create(there, corner.pod("only").on("full"))
        await corner.knows(pods=2)
        named: dict[str, dict[str, Any]] = {}
        for name, (made, cause, change) in pods(corner).items():
            told = await plain(operator, await waits(operator, corner, made))
            sentence = told["sentence"]
            assert cause in sentence, (name, sentence)
            assert change in sentence, (name, sentence)
            named[name] = told["help"][0] if told.get("help") else {"kind": "ungate", "change": {}}
            assert sentence.endswith(named[name].get("text", "as soon as its scheduling gates are removed"))
        for name, helped in named.items():
            assert not await corner.node_of(name), f"another change has helped {name}"
            await make(corner, name, helped["kind"], helped["change"])
            await corner.lands(name)


async def make(corner: Corner, name: str, kind: str, change: dict[str, Any]) -> None:
    """The change of this pod, or of the cluster, as a program would read it."""
    cluster, folder = corner.cluster, f"/api/v1/namespaces/{corner.namespace}/pods"
    match kind:
        case "uncordon":
            await cluster.change_node(change["node"], {"spec": {"unschedulable": False}})
        case "label-node":
            await cluster.change_node(change["node"], {"metadata": {"labels": change["labels"]}})
        case "add-node":
            like = await cluster.get(f"/api/v1/nodes/{change['like']}")
            labels = {**like["metadata"]["labels"], **change.get("labels", {}), HOSTNAME: f"{name}-new"}
            status = {"allocatable": {**like["status"]["allocatable"], **change.get("amounts", {})}}
            metadata = {"name": f"{name}-new", "labels": labels}
            await cluster.create_at("/api/v1/nodes", "", metadata=metadata, spec=like["spec"], status=status)
        case "add-pod":
            assert change["namespace"] == corner.namespace
            await cluster.create(corner.pod("company").label(change["labels"]).on(change["node"]))
        case "remove-pod":
            await cluster.delete_pod(*change["pod"].split("/"))
        case "ungate":
            await cluster.change_pod(corner.namespace, name, {"spec": {"schedulingGates": []}})
        case _:  # what a pod asks for cannot be changed: it is created again
            spec = edited((await cluster.pod(corner.namespace, name))["spec"], kind, change)
            await cluster.delete_pod(corner.namespace, name)

            async def is_gone() -> bool:
                return not await cluster.exists(f"{folder}/{name}")

            await until(is_gone, f"{name} is not gone")
            await cluster.create_at(folder, name, spec=spec)


def edited(spec: dict[str, Any], kind: str, change: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["containers"]
    match kind:
        case "requests":
            container["resources"]["requests"] |= change["requests"]
        case "tolerate":
            spec["tolerations"] = [*spec.get("tolerations", []), *change["tolerations"]]
        case "host-port":
            ports = [port for port in container["ports"] if port["hostPort"] == change["from"]]
            ports[0]["hostPort"] = change["to"]
        case "pod-anti-affinity":
            del spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][change["term"]]
        case _:
            raise AssertionError(f"this test cannot make a change of kind {kind}")
    return spec
