"""The simulated kubelets: bound pods run, deleted ones are removed."""

import pytest

from testing.simulator.controllers import RUN_SECONDS
from tests.simulator.support import NODES, PODS, binding, node, pod, running

pytestmark = pytest.mark.asyncio
WATCH = "/api/v1/pods?watch=1"


async def test_a_bound_pod_is_running_after_one_more_event() -> None:
    async with running() as (_, client), client.watch(WATCH) as stream:
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", PODS, pod("p"))
        await client.fine("POST", f"{PODS}/p/binding", binding("p", "n"))
        phases = [(await stream.next())["object"]["status"]["phase"] for _ in range(2)]
        assert phases == ["Pending", "Pending"]
        status = (await stream.next())["object"]["status"]
        assert status["phase"] == "Running"
        assert status["podIP"] and status["hostIP"] and status["startTime"]
        assert status["containerStatuses"][0]["ready"] is True
        conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
        assert conditions["Ready"] == conditions["PodScheduled"] == "True"


async def test_a_deleted_pod_is_removed() -> None:
    async with running() as (_, client), client.watch(WATCH) as stream:
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", PODS, pod("p", nodeName="n"))
        await stream.until("MODIFIED", "Running")
        await client.fine("DELETE", f"{PODS}/p")
        assert (await stream.next())["object"]["metadata"]["deletionTimestamp"]
        assert (await stream.until("DELETED"))["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_pod_completes_after_its_annotated_run_time() -> None:
    brief = pod("p", nodeName="n")
    brief["metadata"]["annotations"] = {RUN_SECONDS: "0.01"}
    async with running() as (_, client), client.watch(WATCH) as stream:
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", PODS, brief)
        status = (await stream.until("MODIFIED", "Succeeded"))["object"]["status"]
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_pod_starts_once_its_node_exists() -> None:
    async with running() as (_, client), client.watch(WATCH) as stream:
        await client.fine("POST", PODS, pod("p", nodeName="n"))
        await client.fine("POST", PODS, pod("q", nodeName="m"))
        await client.fine("POST", NODES, node("m"))
        assert (await stream.until("MODIFIED"))["object"]["metadata"]["name"] == "q"
        await client.fine("POST", NODES, node("n"))
        assert (await stream.until("MODIFIED"))["object"]["metadata"]["name"] == "p"


async def test_a_malformed_pod_does_not_stop_the_kubelets() -> None:
    async with running() as (simulator, client), client.watch(WATCH) as stream:
        await client.fine("POST", NODES, node("n"))
        odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"nodeName": "n", "containers": "many"}}
        simulator.store_raw("pods", {**odd, "status": {"phase": "Pending"}})
        await client.fine("POST", PODS, pod("p", nodeName="n"))
        assert (await stream.until("MODIFIED", "Running"))["object"]["metadata"]["name"] == "p"


async def test_without_kubelets_pods_stay_as_they_are() -> None:
    async with running(kubelet=False) as (_, client):
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", PODS, pod("p", nodeName="n"))
        await client.fine("DELETE", f"{PODS}/p")
        left = await client.fine("GET", f"{PODS}/p")
        assert (left["status"]["phase"], "deletionTimestamp" in left["metadata"]) == ("Pending", True)
