"""Each service may do at the API server what it does, and nothing else: manifests, docs, code and a real run agree."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.config.settings import ApiSettings, Settings
from testing.builders import node
from testing.simulator.service import Simulator, SimulatorOptions
from tests.deploy.recorder import Recorder, recorders
from tests.deploy.rendering import CORE, SERVICES, rendered
from tests.deploy.rights import (
    LEASES,
    METHODS,
    Right,
    documented,
    granted,
    granted_by,
    named_by,
    rights_of,
)
from tests.extenders.server import Extender, an_extender
from tests.pipeline.corner import a_corner
from tests.pipeline.support import until
from tests.pipeline.test_devices import FROM_TEMPLATE, GPU_CLASS, an_extended_resource_is_served
from tests.pipeline.test_devices import a_place as a_place_with_devices
from tests.pipeline.test_volumes import CLASSES, PATIENCE, VOLUMES, a_place, a_volume
from tools.cli.main import main
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

NAMESPACE = "flotilla-system"
ASKING = {name: f"{name}-0" if name == "binder" else name for name in SERVICES if name != "worker"}
"""Services that talk to the API server, and what the pipeline calls them."""
EVENTS = "events.k8s.io/events"
CLAIMS = "resource.k8s.io/resourceclaims"
COMPOSITES = "scheduling.k8s.io/compositepodgroups"
NO_PATH = f"{CLAIMS}/binding"
REVIEWS = ("authentication.k8s.io/tokenreviews", "authorization.k8s.io/subjectaccessreviews")
SELDOM = {
    Right("snapshot", "pods", "get"): "a binder that has died, or one that is out of time, has left a binding open",
    Right("snapshot", "pods/status", "patch"): "the same, and the pod is fenced",
    Right("snapshot", CLAIMS, "patch"): "the same, and the pod's claims are fenced",
    Right("snapshot", CLAIMS, "get"): "a claim was recreated under its name",
    Right("snapshot", CLAIMS, "list"): "the ledger was lost",
    Right("binder", CLAIMS, "delete"): "a claim for extended resources is left over",
    Right("binder", NO_PATH, "update"): "the API server asks for it by itself",
    Right("watcher", EVENTS, "patch"): "what is said again is counted after 10 s",
    Right("binder", EVENTS, "patch"): "the same",
    Right("binder", COMPOSITES, "get"): "the server has composite groups",
    Right("binder", f"{COMPOSITES}/status", "patch"): "the same",
    **{Right(service, review, "create"): "its metrics are read by TLS" for service in SERVICES for review in REVIEWS},
}
"""What the run below does not come to."""
GPU = {"example.com/gpu": 1}
OPEN_TO_ALL = ("/version", "/openid")


def lines(rights: Iterable[Right]) -> str:
    return "\n".join(f"  {right.service}: {right.verb} {right.resource}" for right in sorted(rights))


def differences(granted: Iterable[Right], done: Iterable[Right]) -> str:
    """Empty if there are none."""
    missing, idle = set(done) - set(granted), set(granted) - set(done)
    return (f"\nmissing:\n{lines(missing)}" if missing else "") + (f"\nfor nothing:\n{lines(idle)}" if idle else "")


def test_the_docs_tell_of_the_rights_that_are_granted() -> None:
    assert differences(documented(), granted()) == ""


def test_the_account_of_several_services_has_their_rights_and_they_have_none() -> None:
    process_of = {service: process for process, services in CORE.items() for service in services}
    expected = {right._replace(service=process_of[right.service]) for right in granted()}
    assert differences(granted_by(rendered("overlays/core")), expected) == ""


@pytest.mark.parametrize("service", SERVICES)
def test_the_code_has_paths_for_what_is_granted_and_for_nothing_else(service: str) -> None:
    named, ours = named_by(service), {right for right in granted() if right.service == service}
    assert named.resources == {right.resource for right in ours} - {NO_PATH}
    assert named.methods == {METHODS[right.verb] for right in ours if right.verb in METHODS}


@pytest.mark.asyncio
async def test_a_run_does_what_is_granted_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_recorded_pipeline(tmp_path) as (simulator, pipeline, asked, extender):
        await whole_objects_are_sent(pipeline, extender)
        await volumes_are_bound(pipeline)
        await devices_are_allocated(pipeline)
        await preempt_a_pod(pipeline)
        await a_group_is_placed(pipeline)
        await an_owner_is_told_of_a_pod_that_cannot_be_read(simulator)
        monkeypatch.setenv("FLOTILLA_NATS_URL", pipeline.nats_url)
        assert await asyncio.to_thread(main, ["dump", "--output", str(tmp_path / "dump")]) == 0
    done = set(SELDOM)
    for service, recorder in asked.items():
        for method, path in recorder.requests:
            if not path.startswith(OPEN_TO_ALL):
                done |= rights_of(service, method, path)
    assert differences(granted(), done) == ""
    for service, recorder in asked.items():
        leases = {(method, path) for method, path in recorder.requests if "/leases" in path}
        folder = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        own, owner = f"{folder}/flotilla-{service}", f"{folder}/flotilla-snapshot"
        assert leases <= {("POST", folder), ("GET", own), ("PUT", own), ("GET", owner)}
        assert bool(leases) == any(right.service == service and right.resource == LEASES for right in granted())


@asynccontextmanager
async def a_recorded_pipeline(
    folder: Path,
) -> AsyncIterator[tuple[Simulator, Pipeline, dict[str, Recorder], Extender]]:
    """Each service has a URL of its own for the API server. Those of pods with GPUs go through an extender."""
    simulator = Simulator(SimulatorOptions())
    server = await simulator.start()
    simulator.store_raw("namespaces", {"metadata": {"name": NAMESPACE}})
    try:
        async with an_extender() as extender, recorders(server, *ASKING) as asked:
            settings = Settings(config=str(configuration(folder, extender)))
            options = PipelineOptions(
                workers=1,
                settings=settings,
                api=ApiSettings(server=server),
                variables={ASKING[service]: {"FLOTILLA_SERVER": asked[service].url} for service in ASKING},
            )
            async with Pipeline.running(options) as pipeline:
                yield simulator, pipeline, asked, extender
    finally:
        await simulator.stop()


def configuration(folder: Path, extender: Extender) -> Path:
    path = folder / "scheduler.json"
    extender.answers["filter"] = lambda body: {"Nodes": body["Nodes"]}
    asked = {"urlPrefix": extender.url, "filterVerb": "filter", "managedResources": [{"name": "example.com/gpu"}]}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": 1,
        "leaderElection": {"resourceNamespace": NAMESPACE},
        "extenders": [asked],
    }
    path.write_text(json.dumps(config))
    return path


async def whole_objects_are_sent(pipeline: Pipeline, extender: Extender) -> None:
    async with a_corner(pipeline, "gpus") as corner:
        await corner.has_nodes(node("gpu").capacity({"cpu": 8, "memory": "8Gi", "example.com/gpu": 8}))
        await corner.cluster.create(corner.pod("p").request(GPU).limit(GPU))
        await corner.lands("p")
    assert extender.requests("filter")


async def devices_are_allocated(pipeline: Pipeline) -> None:
    async with a_place_with_devices(pipeline, "devices", a=1) as (corner, claims):
        await claims.create("/apis/resource.k8s.io/v1/deviceclasses", GPU_CLASS)
        await corner.cluster.create(corner.pod("p"), **FROM_TEMPLATE)
        await corner.lands("p", patience=PATIENCE)
    await an_extended_resource_is_served(pipeline)


async def volumes_are_bound(pipeline: Pipeline) -> None:
    async with a_place(pipeline, "volumes") as (corner, storage, _):
        for name, provisioner in CLASSES.items():
            fields = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            await corner.cluster.create_at("/apis/storage.k8s.io/v1/storageclasses", name, **fields)
        volume = a_volume("disk", "static", "n1")
        volume["spec"] |= {"csi": None, "awsElasticBlockStore": {"volumeID": "disk"}}
        await storage.write("POST", VOLUMES, volume)
        await storage.claim("a", of_class="static")
        await storage.claim("b", of_class="made")
        await corner.cluster.create(*(corner.pod(name).claim(name) for name in ("a", "b")))
        for name in ("a", "b"):
            await corner.lands(name, patience=PATIENCE)


async def preempt_a_pod(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "full") as corner:
        await corner.cluster.create_priorities(little=1, much=100)
        await corner.has_nodes(node("only").capacity(cpu=2, memory="8Gi"))
        await corner.cluster.create(corner.pod("small").request(cpu=2).on("only"), priorityClassName="little")
        await corner.knows(pods=1)
        await corner.cluster.create(corner.pod("urgent").request(cpu=1), priorityClassName="much")
        await corner.lands("urgent", "only")


async def a_group_is_placed(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "together") as corner:
        await corner.has_nodes(node("place").capacity(cpu=2, memory="8Gi"))
        folder = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{corner.namespace}/podgroups"
        await corner.cluster.create_at(folder, "pair", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
        for name in ("pair-0", "pair-1"):
            await corner.cluster.create(corner.pod(name).request(cpu=1), schedulingGroup={"podGroupName": "pair"})

        async def is_told() -> bool:
            status = (await corner.cluster.get(f"{folder}/pair")).get("status", {})
            return [each["status"] for each in status.get("conditions", [])] == ["True"]

        await until(is_told, "the group does not show that it was placed")


async def an_owner_is_told_of_a_pod_that_cannot_be_read(simulator: Simulator) -> None:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "much"}}}
    spec = {"containers": [container], "schedulerName": "default-scheduler"}
    simulator.store_raw("pods", {"metadata": {"name": "bad", "namespace": "default", "uid": "bad"}, "spec": spec})

    async def told() -> bool:
        return bool(simulator.stored("pods", "bad", "default").get("status", {}).get("conditions"))

    await until(told, "its owner is not told")
