"""A made-up cluster looks like one that has run for a while."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from testing.simulator.controllers import SLICES
from testing.simulator.resources import NODES, PODS
from testing.simulator.service import Simulator, SimulatorOptions
from tests.simulator.support import MERGE, Object, running
from tests.supervisor.waiting import until

pytestmark = pytest.mark.asyncio


def all_of(simulator: Simulator, plural: str, group: str = "") -> list[Object]:
    resource = simulator._resource(plural, group, "v1")
    return [item.decode() for item in simulator.cluster.store.bucket(resource).in_order()]


async def test_nodes_are_in_zones_and_pools_and_run_the_pods_of_the_system() -> None:
    async with running(nodes=20) as (simulator, _):
        nodes = all_of(simulator, "nodes")
        labels = [node["metadata"]["labels"] for node in nodes]
        assert Counter(each["topology.kubernetes.io/zone"] for each in labels) == {
            "north-1a": 7,
            "north-1b": 7,
            "north-1c": 6,
        }
        assert Counter(each["example.com/pool"] for each in labels) == {"general": 16, "large": 2, "gpu": 2}
        assert [each["kubernetes.io/hostname"] for each in labels] == [node["metadata"]["name"] for node in nodes]
        assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 20
        for node in nodes:
            tainted = bool(node["spec"].get("taints"))
            assert tainted == node["metadata"]["name"].startswith("gpu-")
            assert node["status"]["allocatable"] != node["status"]["capacity"]
        pods = all_of(simulator, "pods")
        assert len(pods) == 42
        assert {pod["metadata"]["namespace"] for pod in pods} == {"kube-system"}
        on = Counter(pod["spec"]["nodeName"] for pod in pods)
        assert set(on) == {node["metadata"]["name"] for node in nodes}
        assert max(on.values()) == 3
        bucket = simulator.cluster.store.bucket(PODS)
        await until(lambda: all(b'"phase":"Running"' in item.raw for item in bucket.items()))
        await until(lambda: len(simulator.cluster.store.bucket(SLICES)) == 2)
        (device_class,) = all_of(simulator, "deviceclasses", "resource.k8s.io")
        assert (
            device_class["metadata"]["name"]
            == all_of(simulator, "resourceslices", "resource.k8s.io")[0]["spec"]["driver"]
        )


async def test_a_new_node_gets_the_pods_of_the_system() -> None:
    async with running(nodes=3) as (simulator, client):
        await client.fine("POST", "/api/v1/nodes", {"metadata": {"name": "new"}})
        await until(lambda: len(simulator.cluster.store.bucket(PODS)) == 10)


async def test_a_claim_gets_a_volume_in_the_zone_of_its_node_and_takes_it_along() -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    async with running(nodes=3) as (simulator, client):
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        await client.fine("POST", claims, {"metadata": {"name": "c"}, "spec": wanted})

        def claim() -> Object:
            return simulator.stored("persistentvolumeclaims", "c", "default")

        await until(lambda: claim()["spec"].get("storageClassName") == "standard")
        assert all_of(simulator, "persistentvolumes") == []
        selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "general-b1"}}}
        await client.fine("PATCH", f"{claims}/c", selected, MERGE)
        await until(lambda: claim()["status"]["phase"] == "Bound")
        (volume,) = all_of(simulator, "persistentvolumes")
        assert claim()["spec"]["volumeName"] == volume["metadata"]["name"]
        assert volume["spec"]["claimRef"]["uid"] == claim()["metadata"]["uid"]
        assert volume["spec"]["capacity"] == {"storage": "5Gi"}
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == ["north-1b"]
        await client.fine("DELETE", f"{claims}/c")
        await until(lambda: all_of(simulator, "persistentvolumes") == [])


async def test_the_job_of_the_docs_claims_devices_of_this_cluster() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    manifest = page.partition("```yaml\n")[2].partition("```")[0]
    template, job = (msgspec.yaml.decode(part) for part in manifest.split("---\n"))
    async with running(nodes=20) as (simulator, client):
        await client.fine("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", template)
        await client.fine("POST", "/apis/batch/v1/namespaces/default/jobs", job)
        await until(lambda: len(all_of(simulator, "resourceclaims", "resource.k8s.io")) == 10)
        (wanted,) = all_of(simulator, "resourceclaims", "resource.k8s.io")[0]["spec"]["devices"]["requests"]
        assert simulator.stored("deviceclasses", wanted["exactly"]["deviceClassName"], group="resource.k8s.io")


async def test_without_a_kubelet_there_are_nodes_only() -> None:
    async with running(nodes=3, kubelet=False) as (simulator, _):
        assert len(all_of(simulator, "nodes")) == 3
        assert all_of(simulator, "pods") == []


async def test_names_are_the_same_every_time() -> None:
    made = []
    for _ in range(2):
        simulator = Simulator(SimulatorOptions(nodes=7))
        await simulator.start()
        made.append([item.name for item in simulator.cluster.store.bucket(NODES).items()])
        await simulator.stop()
    assert made[0] == made[1]
    assert made[0][:5] == ["general-a1", "general-b1", "general-c1", "general-a2", "large-b1"]
