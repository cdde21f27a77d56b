"""Claims that PodGroups own and their pods share; groups that stay until their last pod is done."""

from typing import Any

import pytest

from testing.simulator.claims import FINALIZER
from testing.simulator.cluster import PROTECTION
from tests.simulator.support import PODS, pod, running
from tests.simulator.test_devices import CLAIMS, TEMPLATE, TEMPLATES, claims_of

pytestmark = pytest.mark.asyncio
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
USE = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}


def a_group(*claims: dict[str, str]) -> Any:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(claims)}
    return {"metadata": {"name": "g"}, "spec": spec}


def a_member(name: str, *claims: dict[str, str]) -> Any:
    return pod(name, schedulingGroup={"podGroupName": "g"}, resourceClaims=list(claims))


@pytest.mark.parametrize("group_first", [False, True])
async def test_a_group_gets_a_claim_from_its_template_and_its_pods_share_it(group_first: bool) -> None:
    async with running() as (_, client), client.watch("/api/v1/pods?watch=1") as pods:
        await client.fine("POST", TEMPLATES, TEMPLATE)
        if group_first:
            await client.fine("POST", GROUPS, a_group(USE))
        for name in "ab":
            await client.fine("POST", PODS, a_member(name, USE))
        if not group_first:
            await client.fine("POST", GROUPS, a_group(USE))
        for _ in "ab":
            await pods.until("MODIFIED")
        (status,) = (await client.fine("GET", f"{GROUPS}/g"))["status"]["resourceClaimStatuses"]
        assert [await claims_of(client, name) for name in "ab"] == [[status], [status]]
        (claim,) = (await client.fine("GET", CLAIMS))["items"]
        assert claim["metadata"]["name"] == status["resourceClaimName"]
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("scheduling.k8s.io/v1alpha2", "PodGroup", "g")


async def test_a_claim_that_the_group_does_not_name_alike_is_the_pods_own() -> None:
    async with running() as (_, client), client.watch("/api/v1/pods?watch=1") as pods:
        await client.fine("POST", TEMPLATES, TEMPLATE)
        await client.fine("POST", GROUPS, a_group(USE))
        made = await client.fine("POST", PODS, a_member("a", {**USE, "name": "other"}))
        await pods.until("MODIFIED")
        (status,) = await claims_of(client, "a")
        claim = await client.fine("GET", f"{CLAIMS}/{status['resourceClaimName']}")
        assert claim["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_a_group_stays_until_its_pods_are_gone_and_gives_its_claims_back_then() -> None:
    async with running() as (_, client), client.watch(f"{GROUPS}?watch=1") as groups:
        await client.fine("POST", TEMPLATES, TEMPLATE)
        made = await client.fine("POST", GROUPS, a_group(USE))
        assert made["metadata"]["finalizers"] == [PROTECTION]
        (status,) = (await groups.until("MODIFIED"))["object"]["status"]["resourceClaimStatuses"]
        path = f"{CLAIMS}/{status['resourceClaimName']}"
        claim = await client.fine("GET", path)
        claim["metadata"]["finalizers"] = [FINALIZER]
        claim = await client.fine("PUT", path, claim)
        consumer = {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "g",
            "uid": made["metadata"]["uid"],
        }
        claim["status"] = {"allocation": {"devices": {"results": []}}, "reservedFor": [consumer]}
        await client.fine("PUT", f"{path}/status", claim)
        await client.fine("POST", PODS, a_member("a", USE))
        await client.fine("DELETE", f"{GROUPS}/g")
        assert (await client.fine("GET", f"{GROUPS}/g"))["metadata"]["deletionTimestamp"]
        async with client.watch(f"{CLAIMS}?watch=1") as claims:
            await client.fine("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
            await groups.until("DELETED")
            await claims.until("DELETED")


async def test_without_controllers_groups_are_not_protected() -> None:
    async with running(kubelet=False) as (_, client):
        made = await client.fine("POST", GROUPS, a_group())
        assert "finalizers" not in made["metadata"]
        await client.fine("DELETE", f"{GROUPS}/g")
