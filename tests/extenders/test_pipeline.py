"""A whole pipeline with an extender, as its users see it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from shared.bus import Bus
from shared.config.settings import Settings
from testing.builders import NodeBuilder, node
from tests.bus.support import a_telemetry
from tests.extenders.server import Body, Extender, an_extender
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.support import until
from tools.cli.service_client import ServiceClient
from tools.explain.client import LiveSources, explain
from tools.explain.explanation import Explanation
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio

GPU = {"example.com/gpu": 1}


def config(extender: Extender, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [
            {
                "urlPrefix": extender.url,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 5,
                "bindVerb": "bind",
                "httpTimeout": "5s",
                "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
                **fields,
            }
        ],
    }


@pytest_asyncio.fixture
async def extender() -> AsyncIterator[Extender]:
    async with an_extender() as extender:
        yield extender


@pytest_asyncio.fixture
async def pipeline(extender: Extender, tmp_path: Path) -> AsyncIterator[Pipeline]:
    """The extender is sent nodes, lets pods onto those that are labelled so, and prefers those that say so."""
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(config(extender)))
    extender.answers |= {"filter": with_gpus, "prioritize": by_rank}
    async with Pipeline.running(PipelineOptions(workers=2, settings=Settings(config=str(path)))) as running:
        extender.answers["bind"] = lambda body: bind(running, body)
        yield running


def roomy(name: str) -> NodeBuilder:
    """The GPUs are for the auditor, who does not know that the extender alone keeps account of them."""
    return node(name).capacity({"cpu": 8, "memory": "8Gi", "example.com/gpu": 8})


def with_gpus(body: Body) -> object:
    nodes = body["Nodes"]["items"]
    return {
        "Nodes": {"items": [node for node in nodes if "gpus" in node["metadata"]["labels"]]},
        "FailedNodes": {n["metadata"]["name"]: "no GPU" for n in nodes if "gpus" not in n["metadata"]["labels"]},
    }


def by_rank(body: Body) -> object:
    return [
        {"Host": node["metadata"]["name"], "Score": int(node["metadata"]["labels"]["gpus"])}
        for node in body["Nodes"]["items"]
    ]


async def bind(pipeline: Pipeline, body: Body) -> object:
    """As an extender binds that does so itself."""
    namespace, name = body["PodNamespace"], body["PodName"]
    binding = {
        "metadata": {"name": name, "namespace": namespace, "uid": body["PodUID"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": body["Node"]},
    }
    url = f"{pipeline.api_url}/api/v1/namespaces/{namespace}/pods/{name}/binding"
    async with aiohttp.ClientSession() as session, session.post(url, json=binding) as answer:
        return {"Error": "" if answer.status < 300 else await answer.text()}


async def explained(pipeline: Pipeline, namespace: str, name: str) -> Explanation:
    prefix = pipeline.options.settings.prefix
    bus = await Bus.connect(pipeline.nats_url, prefix, "asker", a_telemetry())
    try:
        client = ServiceClient(bus, Settings(prefix=prefix, nats_url=pipeline.nats_url))
        return await explain(LiveSources(client), namespace, name)
    finally:
        await bus.close()


async def test_an_extender_is_asked(pipeline: Pipeline, extender: Extender) -> None:
    async with a_corner(pipeline, "gpus") as corner:
        await corner.has_nodes(
            roomy("plain").label(x="y"),
            roomy("few").label(gpus="1"),
            roomy("many").label(gpus="9"),
        )
        for i in range(3):
            await corner.cluster.create(corner.pod(f"p{i}").request(GPU).limit(GPU))
        for i in range(3):
            await corner.lands(f"p{i}", "many")
        assert {body["PodName"] for body in extender.requests("bind")} == {"p0", "p1", "p2"}
        assert extender.requests("filter")[0]["Pod"]["metadata"]["name"].startswith("p")
        asked = len(extender.asked)
        await corner.cluster.create(corner.pod("other").request(cpu=1))
        await corner.lands("other")
        assert len(extender.asked) == asked, "it manages nothing that this pod asks for"


async def test_what_it_rejects_is_told_and_tried_again(pipeline: Pipeline, extender: Extender) -> None:
    async with a_corner(pipeline, "none") as corner:
        await corner.has_nodes(roomy("a").label(x="y"))
        await corner.cluster.create(corner.pod("p").request(GPU).limit(GPU))
        await is_told(corner, "p", "0/1 nodes are available: 1 no GPU.")
        told = await explained(pipeline, "none", "p")
        assert told.sentence == "none/p does not fit the only node: it is rejected by an extender: no GPU"
        assert "extenders were asked about 1 node that plugins leave, and left none" in told.notes
        assert not told.help
        await corner.cluster.change_node("a", {"metadata": {"labels": {"gpus": "1"}}})
        await corner.lands("p", "a", patience=30.0)


async def test_an_extender_that_fails_fails_the_attempt(pipeline: Pipeline, extender: Extender) -> None:
    async with a_corner(pipeline, "down") as corner:
        extender.says("filter", {"Error": "the GPUs are on fire"})
        await corner.has_nodes(roomy("a").label(gpus="1"))
        await corner.cluster.create(corner.pod("p").request(GPU).limit(GPU))
        await corner.is_said("p", "FailedScheduling", "the GPUs are on fire")
        told = await explained(pipeline, "down", "p")
        assert told.sentence.endswith("cannot be scheduled now: plugins leave 1 of 1 node, but the GPUs are on fire")
        extender.answers["filter"] = with_gpus
        await corner.lands("p", "a", patience=30.0)


async def is_told(corner: Corner, name: str, beginning: str) -> None:
    async def told() -> bool:
        said = await corner.cluster.events_of(corner.namespace, name, "FailedScheduling")
        return any(note.startswith(beginning) for note in said)

    await until(told, f"{name}: no event says {beginning}")
