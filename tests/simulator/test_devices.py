"""Claims made from templates and given back with their pods; devices published for nodes."""

from typing import Any

import pytest

from testing.simulator.claims import FINALIZER
from testing.simulator.controllers import DEVICES, DRIVER, MEMORY, MODEL
from tests.simulator.support import MERGE, NODES, PODS, Client, node, pod, running

pytestmark = pytest.mark.asyncio
API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
SLICES = f"{API}/resourceslices"
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
TEMPLATE: Any = {"metadata": {"name": "one-gpu"}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}}


def claiming(name: str = "p", **spec: Any) -> Any:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}, {"name": "own", "resourceClaimName": "shared"}]
    return pod(name, resourceClaims=claims, **spec)


async def claims_of(client: Client, name: str = "p") -> list[Any]:
    return list((await client.fine("GET", f"{PODS}/{name}"))["status"].get("resourceClaimStatuses", []))


async def test_a_pod_gets_a_claim_of_its_own_from_a_template() -> None:
    async with running() as (_, client), client.watch("/api/v1/pods?watch=1") as stream:
        await client.fine("POST", TEMPLATES, TEMPLATE)
        made = await client.fine("POST", PODS, claiming())
        await stream.until("MODIFIED")
        (status,) = await claims_of(client)
        assert status["name"] == "gpu"
        claim = await client.fine("GET", f"{CLAIMS}/{status['resourceClaimName']}")
        meta = claim["metadata"]
        assert meta["name"].startswith("p-gpu-") and meta["labels"] == {"a": "b"}
        assert meta["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        (owner,) = meta["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
        assert claim["spec"]["devices"]["requests"][0]["name"] == "gpu"


async def test_a_pod_waits_for_its_template() -> None:
    async with running() as (_, client), client.watch("/api/v1/pods?watch=1") as stream:
        await client.fine("POST", PODS, claiming())
        await client.fine("POST", PODS, pod("other"))
        assert await claims_of(client) == []
        await client.fine("POST", TEMPLATES, TEMPLATE)
        await stream.until("MODIFIED")


async def allocated(client: Client, name: str, *uids: str) -> None:
    claim = await client.fine("GET", f"{CLAIMS}/{name}")
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = await client.fine("PUT", f"{CLAIMS}/{name}", claim)
    result = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]
    claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    await client.fine("PUT", f"{CLAIMS}/{name}/status", claim)


async def test_claims_are_given_back_with_the_pod_and_its_own_are_deleted() -> None:
    async with running() as (_, client), client.watch("/api/v1/pods?watch=1") as stream:
        await client.fine("POST", TEMPLATES, TEMPLATE)
        await client.fine("POST", CLAIMS, {"metadata": {"name": "shared"}, "spec": SPEC})
        made = await client.fine("POST", PODS, claiming())
        await stream.until("MODIFIED")
        own = (await claims_of(client))[0]["resourceClaimName"]
        await allocated(client, own, made["metadata"]["uid"])
        await allocated(client, "shared", made["metadata"]["uid"], "another")
        async with client.watch(f"{CLAIMS}?watch=1") as claims:
            await client.fine("DELETE", f"{PODS}/p")
            assert (await claims.until("DELETED"))["object"]["metadata"]["name"] == own
        shared = await client.fine("GET", f"{CLAIMS}/shared")
        assert [each["uid"] for each in shared["status"]["reservedFor"]] == ["another"]
        assert shared["status"]["allocation"]


async def test_a_claim_that_no_pod_uses_any_more_is_deallocated() -> None:
    async with running() as (_, client):
        await client.fine("POST", CLAIMS, {"metadata": {"name": "shared"}, "spec": SPEC})
        made = await client.fine(
            "POST", PODS, pod("p", resourceClaims=[{"name": "own", "resourceClaimName": "shared"}])
        )
        await allocated(client, "shared", made["metadata"]["uid"])
        async with client.watch(f"{CLAIMS}?watch=1") as claims:
            await client.fine("DELETE", f"{PODS}/p")
            given_back = (await claims.until("MODIFIED"))["object"]
        assert given_back["status"] == {}
        assert not given_back["metadata"].get("finalizers")


async def test_the_driver_publishes_the_devices_of_nodes_that_ask_for_it() -> None:
    with_devices = node("n")
    with_devices["metadata"]["annotations"] = {DEVICES: "2", MODEL: "a100", MEMORY: "80Gi"}
    async with running() as (_, client), client.watch(f"{SLICES}?watch=1") as slices:
        await client.fine("POST", NODES, node("plain"))
        await client.fine("POST", NODES, with_devices)
        spec = (await slices.until("ADDED"))["object"]["spec"]
        assert (spec["driver"], spec["nodeName"]) == (DRIVER, "n")
        assert spec["pool"] == {"name": "n", "generation": 1, "resourceSliceCount": 1}
        assert [each["name"] for each in spec["devices"]] == ["gpu-0", "gpu-1"]
        assert spec["devices"][1] == {
            "name": "gpu-1",
            "attributes": {"index": {"int": 1}, "model": {"string": "a100"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        await client.fine("PATCH", f"{NODES}/n", {"metadata": {"annotations": {DEVICES: "3"}}}, media=MERGE)
        spec = (await slices.until("MODIFIED"))["object"]["spec"]
        assert (len(spec["devices"]), spec["pool"]["generation"]) == (3, 2)
        await client.fine("DELETE", f"{NODES}/n")
        await slices.until("DELETED")


async def test_a_malformed_pod_stops_no_controller() -> None:
    async with running() as (simulator, client), client.watch("/api/v1/pods?watch=1") as stream:
        odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"resourceClaims": "many"}}
        simulator.store_raw("pods", odd)
        await client.fine("POST", TEMPLATES, TEMPLATE)
        await client.fine("POST", PODS, claiming())
        await stream.until("MODIFIED")
