"""Pods that claim devices, through a whole pipeline with the simulated claim controller and driver."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.messages.limits import MAX_BYTES
from testing.builders import NodeBuilder, node
from testing.simulator.controllers import DEVICES, DRIVER
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.support import Object, a_cluster, cache_is_empty, until, web
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = "/apis/resource.k8s.io/v1"
TEMPLATE = "one-gpu"
SHARED = "shared"
GPU = {"example.com/gpu": 1}
PATIENCE = 20.0
ONE_DEVICE = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
GPU_CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {
        "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
        "extendedResourceName": "example.com/gpu",
    },
}


class Claims:
    """A namespace's claims, as the API server has them."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._folder = f"{API}/namespaces/{namespace}"

    async def create(self, path: str, body: Object) -> None:
        answer = await self._client.call("POST", path, msgspec.json.encode(body))
        assert answer.ok, answer.message

    async def begin(self) -> None:
        """A template, and a claim that pods share."""
        template = {"metadata": {"name": TEMPLATE}, "spec": {"spec": ONE_DEVICE}}
        await self.create(f"{self._folder}/resourceclaimtemplates", template)
        await self.create(f"{self._folder}/resourceclaims", {"metadata": {"name": SHARED}, "spec": ONE_DEVICE})

    async def all(self) -> list[dict[str, Any]]:
        found = await self._client.get(f"{self._folder}/resourceclaims")
        assert found is not None
        claims: list[dict[str, Any]] = msgspec.json.decode(found)["items"]
        return claims

    async def in_use(self) -> Counter[tuple[str, str]]:
        """How many claims have each device, by pool and name."""
        results = [
            result
            for claim in await self.all()
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        return Counter((result["pool"], result["device"]) for result in results)

    async def users(self, of: str) -> list[str]:
        """The pods that the claim of this name is reserved for."""
        (claim,) = [each for each in await self.all() if each["metadata"]["name"] == of]
        return sorted(user["name"] for user in claim.get("status", {}).get("reservedFor", ()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    async with Pipeline.running(PipelineOptions(workers=2)) as running:
        async with a_client(running) as client:
            await Claims(client, "").create(f"{API}/deviceclasses", GPU_CLASS)
        yield running


@asynccontextmanager
async def a_client(pipeline: Pipeline) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(ApiSettings(server=pipeline.api_url))
    try:
        yield client
    finally:
        await client.close()


def with_devices(name: str, count: int) -> NodeBuilder:
    return node(name).annotate(DEVICES, str(count))


@asynccontextmanager
async def a_place(pipeline: Pipeline, namespace: str, **devices: int) -> AsyncIterator[tuple[Corner, Claims]]:
    """A corner with nodes that have so many devices."""
    async with a_client(pipeline) as client, a_corner(pipeline, namespace) as corner:
        claims = Claims(client, namespace)
        await claims.begin()
        await corner.has_nodes(*(with_devices(name, count) for name, count in devices.items()))
        yield corner, claims


def claiming(source: str, name: str) -> Object:
    """The part of a pod's specification that claims a device."""
    return {"resourceClaims": [{"name": "gpu", source: name}]}


NO_USE = (
    "0/1 nodes are available: 1 resourceclaim not available on the node. still not schedulable, preemption: 0/1 nodes "
    "are available: 1 Preemption is not helpful for scheduling."
)
NO_CLASS = (
    "0/2 nodes are available: request r: device class large does not exist. no new claims to deallocate, preemption: "
    "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
FROM_TEMPLATE = claiming("resourceClaimTemplateName", TEMPLATE)


def queue_of(pipeline: Pipeline, pod: str) -> str:
    """What `flotilla queue` says of it."""
    environment = {**os.environ, "FLOTILLA_NATS_URL": pipeline.nats_url}
    command = [sys.executable, "-m", "tools.cli.main", "queue", pod]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


async def test_each_pod_of_a_template_gets_a_device_of_its_node(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "templates", a=2, b=2) as (corner, claims):
        names = [f"p{i}" for i in range(4)]
        for name in names:
            await corner.cluster.create(corner.pod(name), **FROM_TEMPLATE)
        nodes = [await corner.lands(name, patience=PATIENCE) for name in names]
        assert Counter(nodes) == {"a": 2, "b": 2}
        assert await claims.in_use() == {(pool, device): 1 for pool in "ab" for device in ("gpu-0", "gpu-1")}


async def test_a_pod_without_a_device_waits_for_one_to_be_given_back(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "waiting", a=1) as (corner, claims):
        await corner.cluster.create(corner.pod("first"), **FROM_TEMPLATE)
        await corner.lands("first", "a", patience=PATIENCE)
        await corner.cluster.create(corner.pod("second"), **FROM_TEMPLATE)
        await corner.is_unschedulable(
            "second",
            "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are "
            "available: 1 Preemption is not helpful for scheduling.",
        )
        shown = await asyncio.to_thread(queue_of, pipeline, "waiting/second")
        assert " request r: 1 devices satisfy its selectors, 0 of them are not in use" in shown
        await corner.cluster.delete_pod("waiting", "first")
        await corner.lands("second", "a", patience=PATIENCE)
        assert await claims.in_use() == {("a", "gpu-0"): 1}


async def test_pods_share_a_claim_on_the_node_of_its_device(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "sharing", a=1, b=1) as (corner, claims):
        for name in ("first", "second"):
            await corner.cluster.create(corner.pod(name), **claiming("resourceClaimName", SHARED))
        nodes = {await corner.lands(name, patience=PATIENCE) for name in ("first", "second")}
        assert len(nodes) == 1
        assert await claims.users(SHARED) == ["first", "second"]
        assert sum((await claims.in_use()).values()) == 1


async def test_an_extended_resource_is_served_by_a_device(pipeline: Pipeline) -> None:
    await an_extended_resource_is_served(pipeline)


async def an_extended_resource_is_served(pipeline: Pipeline) -> None:
    """Without an auditor: to it, a node that has no such resource is overcommitted."""
    async with a_client(pipeline) as client, a_cluster(pipeline) as cluster:
        await cluster.create_namespace("extended")
        claims = Claims(client, "extended")
        try:
            await cluster.create(with_devices("a", 1), web("p", "extended").request(GPU).limit(GPU))

            async def is_bound() -> bool:
                return await cluster.node_of("extended", "p") == "a"

            await until(is_bound, "the pod is not bound", PATIENCE)
            assert await claims.in_use() == {("a", "gpu-0"): 1}
            status = (await cluster.pod("extended", "p"))["status"]["extendedResourceClaimStatus"]
            assert await claims.users(status["resourceClaimName"]) == ["p"]
        finally:
            await cluster.delete_all("extended")
            await until(lambda: cache_is_empty(pipeline), "the cache is not empty")


async def test_a_pod_is_gated_until_its_claim_exists(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "gated", a=1) as (corner, claims):
        await corner.cluster.create(corner.pod("p"), **claiming("resourceClaimName", "later"))
        path = f"{API}/namespaces/gated/resourceclaims"
        await claims.create(path, {"metadata": {"name": "later"}, "spec": ONE_DEVICE})
        await corner.lands("p", "a", patience=PATIENCE)

        async def is_reserved() -> bool:
            return await claims.users("later") == ["p"]

        await until(is_reserved, "the claim is not reserved for the pod")


async def test_placements_that_fit_in_no_message_together_are_decided_one_round_after_the_other(
    pipeline: Pipeline,
) -> None:
    """The pods wait for their class of devices, so that all are asked about at once."""
    async with a_place(pipeline, "large", a=20, b=20) as (corner, claims):
        names = [f"p{i}" for i in range(36)]
        requests = [{"name": "r", "exactly": {"deviceClassName": "large"}}]
        template = {"metadata": {"name": "large"}, "spec": {"spec": {"devices": {"requests": requests}}}}
        await claims.create(f"{API}/namespaces/large/resourceclaimtemplates", template)
        for name in names:
            await corner.cluster.create(corner.pod(name), **claiming("resourceClaimTemplateName", "large"))
        for name in names:
            await corner.is_said(name, "FailedScheduling", NO_CLASS)
        config = [{"opaque": {"driver": DRIVER, "parameters": {"text": "x" * 100_000}}}] * 3
        assert len(names) * 300_000 > MAX_BYTES
        await claims.create(
            f"{API}/deviceclasses", {**GPU_CLASS, "metadata": {"name": "large"}, "spec": {"config": config}}
        )
        nodes = [await corner.lands(name, patience=PATIENCE) for name in names]
        assert set(nodes) == {"a", "b"}
        assert set((await claims.in_use()).values()) == {1}


GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"


class Gang:
    """Three members at a time, which share a claim from the template of their group."""

    def __init__(self, corner: Corner, claims: Claims) -> None:
        self._corner = corner
        self._claims = claims

    async def found(self) -> None:
        gang = {"schedulingPolicy": {"gang": {"minCount": 3}}, **FROM_TEMPLATE}
        await self._corner.cluster.create_at(GROUPS.format(self._corner.namespace), "train", spec=gang)

    async def begin(self, first: int) -> None:
        member: Object = {"schedulingGroup": {"podGroupName": "train"}, **FROM_TEMPLATE}
        for i in range(first, first + 3):
            await self._corner.cluster.create(self._corner.pod(f"train-{i}"), **member)

    async def lands(self, first: int) -> str:
        """Returns their node, which has the only device in use, reserved for the group."""
        nodes = {await self._corner.lands(f"train-{i}", patience=PATIENCE) for i in range(first, first + 3)}
        (node_name,) = nodes
        (name,) = [each["metadata"]["name"] for each in await self._claims.all() if each["metadata"]["name"] != SHARED]
        assert await self._claims.users(name) == ["train"]
        assert await self._claims.in_use() == {(node_name, "gpu-0"): 1}
        return node_name

    async def end(self, first: int) -> None:
        for i in range(first, first + 3):
            await self._corner.cluster.delete_pod(self._corner.namespace, f"train-{i}")

    async def dissolve(self) -> None:
        """Delete the group, and wait until its claim has no device."""
        await self._corner.cluster.delete_at(GROUPS.format(self._corner.namespace), "train")

        async def is_free() -> bool:
            return not await self._claims.in_use()

        await until(is_free, "the claim keeps its device", PATIENCE)


@pytest.mark.parametrize("gone_first", [True, False])
async def test_a_group_shares_a_claim_and_gets_another_device_when_its_node_is_lost(
    gone_first: bool, pipeline: Pipeline
) -> None:
    """All go where the claim has its device. Once no pod of the group has a node, the claim is given back."""
    async with a_place(pipeline, f"group-{gone_first}".lower(), a=1, b=1) as (corner, claims):
        gang = Gang(corner, claims)
        await gang.found()
        await gang.begin(0)
        lost = await gang.lands(0)
        await corner.cluster.delete_node(lost)
        if gone_first:
            await gang.end(0)
        await gang.begin(3)
        if not gone_first:
            for i in range(3, 6):
                await corner.is_said(f"train-{i}", "FailedScheduling", NO_USE)
            await gang.end(0)
        assert await gang.lands(3) != lost
        await gang.end(3)
        await gang.dissolve()
