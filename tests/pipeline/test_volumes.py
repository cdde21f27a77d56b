"""Pods with claims that are bound along with them, through a whole pipeline: decided, written, waited for, bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.model.storage import BIND_COMPLETED, SELECTED_NODE
from testing.builders import node
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.support import Object
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "kubernetes.io/hostname"
NODES = ("n0", "n1", "n2")
CLASSES = {"static": "kubernetes.io/no-provisioner", "made": "made.example.com"}
VOLUMES = "/api/v1/persistentvolumes"
LOOK = 0.05
CONFLICT = 409
PATIENCE = 20.0
"""Seconds for a pod whose volume is prepared, bound by others, and perhaps tried again."""


class Storage:
    """A namespace's claims, and all volumes."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"

    async def get(self, path: str) -> Object:
        found = await self._client.get(path)
        assert found is not None, path
        return msgspec.json.decode(found, type=Object)

    async def write(self, method: str, path: str, body: Object) -> None:
        """The slower of two writers reads again."""
        answer = await self._client.call(method, path, msgspec.json.encode(body))
        assert answer.ok or answer.status == CONFLICT, answer.message

    async def claim(self, *names: str, of_class: str) -> None:
        resources = {"requests": {"storage": "5Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class, "resources": resources}
        for name in names:
            await self.write("POST", self.claims, {"metadata": {"name": name}, "spec": spec})


class Controllers:
    """Bind what the scheduler has prepared, and make volumes, as a cluster's own controllers and a driver would."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.failing: set[str] = set()
        """Claims that no volume can be made for: the selected node is taken back, once."""

    async def run(self) -> None:
        storage = self._storage
        while True:
            volumes = (await storage.get(VOLUMES))["items"]
            for claim in (await storage.get(storage.claims))["items"]:
                kept = [each for each in volumes if reference_of(each).get("uid") == claim["metadata"]["uid"]]
                if claim["spec"].get("volumeName"):
                    continue
                if kept:
                    await self._bind(claim, kept[0])
                elif SELECTED_NODE in claim["metadata"].get("annotations", {}):
                    await self._make(claim)
            await asyncio.sleep(LOOK)

    async def _bind(self, claim: Object, volume: Object) -> None:
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        claim["metadata"].setdefault("annotations", {})[BIND_COMPLETED] = "yes"
        await self._storage.write("PUT", f"{self._storage.claims}/{claim['metadata']['name']}", claim)

    async def _make(self, claim: Object) -> None:
        metadata = claim["metadata"]
        if metadata["name"] in self.failing:
            self.failing.discard(metadata["name"])
            del metadata["annotations"][SELECTED_NODE]
            await self._storage.write("PUT", f"{self._storage.claims}/{metadata['name']}", claim)
            return
        made = a_volume(f"made-{metadata['name']}", "made", metadata["annotations"][SELECTED_NODE])
        made["spec"]["claimRef"] = {field: metadata[field] for field in ("namespace", "name", "uid")}
        await self._storage.write("POST", VOLUMES, made)


def reference_of(volume: Object) -> dict[str, Any]:
    return volume["spec"].get("claimRef") or {}


def a_volume(name: str, of_class: str, on_node: str) -> Object:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on_node]}]}
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of_class,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "csi": {"driver": "made.example.com", "volumeHandle": name},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    """With two workers, and a class of each kind."""
    async with Pipeline.running(PipelineOptions(workers=2)) as running:
        async with a_client(running) as client:
            storage = Storage(client, "")
            for name, provisioner in CLASSES.items():
                fields = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
                path = "/apis/storage.k8s.io/v1/storageclasses"
                await storage.write("POST", path, {"metadata": {"name": name}, **fields})
        yield running


@asynccontextmanager
async def a_client(pipeline: Pipeline) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(ApiSettings(server=pipeline.api_url))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def a_place(pipeline: Pipeline, name: str) -> AsyncIterator[tuple[Corner, Storage, Controllers]]:
    """Three nodes, and a namespace whose claims are seen to by controllers."""
    async with a_corner(pipeline, name) as corner, a_client(pipeline) as client:
        await corner.has_nodes(*(node(name).label({HOST: name}).capacity(cpu=16, memory="32Gi") for name in NODES))
        storage = Storage(client, name)
        controllers = Controllers(storage)
        running = asyncio.create_task(controllers.run())
        try:
            yield corner, storage, controllers
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_volumes_that_are_there_are_bound_each_to_one_claim(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "static") as (corner, storage, _):
        for name in ("n1", "n2"):
            await storage.write("POST", VOLUMES, a_volume(f"disk-{name}", "static", name))
        await storage.claim("a", "b", of_class="static")
        await corner.cluster.create(*(corner.pod(name).claim(name) for name in ("a", "b")))
        assert {await corner.lands(name, patience=PATIENCE) for name in ("a", "b")} == {"n1", "n2"}
        for name in ("n1", "n2"):
            disk = await storage.get(f"{VOLUMES}/disk-{name}")
            assert reference_of(disk)["kind"] == "PersistentVolumeClaim"
            assert disk["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_a_volume_is_made_where_the_pod_goes_and_what_fails_is_tried_again(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "dynamic") as (corner, storage, controllers):
        controllers.failing = {"b"}
        await storage.claim("a", "b", of_class="made")
        await corner.cluster.create(*(corner.pod(name).claim(name) for name in ("a", "b")))
        for name in ("a", "b"):
            where = await corner.lands(name, patience=PATIENCE)
            claim = await storage.get(f"{storage.claims}/{name}")
            assert claim["metadata"]["annotations"][SELECTED_NODE] == where
        expected = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "b"'
        await corner.is_said("b", "FailedScheduling", expected)


async def test_pods_of_one_claim_go_to_the_same_node(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "shared") as (corner, storage, _):
        await storage.claim("data", of_class="made")
        names = ("a", "b", "c")
        await corner.cluster.create(*(corner.pod(name).claim("data") for name in names))
        assert len({await corner.lands(name, patience=PATIENCE) for name in names}) == 1
