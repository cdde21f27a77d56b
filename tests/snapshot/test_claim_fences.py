"""Fencing of claims, over the simulated API server: of one attempt, and of all that earlier terms may have ordered."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from services.snapshot.dispatch.claim_fences import ClaimFences
from services.snapshot.events import ClaimsFenced, FenceClaims
from services.snapshot.store.claim_barrier import MAX_TRIES, ClaimBarrier
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.errors import ClusterError
from shared.kube.claims import list_claims, touch_claim
from shared.kube.client import KubeClient
from shared.kube.outcome import ApiResponse
from shared.messages.state import Assignment, LedgerEntry
from shared.messages.watch import ObjectChange
from shared.model.devices import FENCED, AllocationResult
from shared.model.load import load_of
from shared.model.objects import ObjectKind
from testing.builders import pod
from testing.simulator.service import Simulator, SimulatorOptions
from tests.bus.support import a_telemetry
from tests.kube.support import api_server, client_of

ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": "g"}]}}
DEADLINE = 10.0

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Simulator]:
    async with api_server() as running:
        yield running


@pytest_asyncio.fixture
async def client(server: Simulator) -> AsyncIterator[KubeClient]:
    async with client_of(server) as opened:
        yield opened


def a_claim(server: Simulator, name: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    body = {"metadata": metadata, "spec": {"devices": {}}, "status": status}
    server.store_raw("resourceclaims", body, group="resource.k8s.io")
    found: dict[str, Any] = server.stored("resourceclaims", name, "default", group="resource.k8s.io")["metadata"]
    return found


def shows(claim: dict[str, Any]) -> ObjectChange:
    key = f"default/{claim['name']}"
    return ObjectChange(ObjectKind.RESOURCE_CLAIM, key, version=claim["resourceVersion"])


# One claim


async def test_a_touched_claim_has_another_version(server: Simulator, client: KubeClient) -> None:
    made = a_claim(server, "c")
    first = await touch_claim(client, "default/c", made["uid"], "1")
    again = await touch_claim(client, "default/c", made["uid"], "2")
    assert first is not None
    assert again is not None
    assert len({made["resourceVersion"], first.version, again.version}) == 3
    assert not again.is_allocated


async def test_a_claim_that_is_gone_or_was_recreated_is_not_touched(server: Simulator, client: KubeClient) -> None:
    assert await touch_claim(client, "default/c", "u", "1") is None
    made = a_claim(server, "c")
    assert await touch_claim(client, "default/c", "another", "1") is None
    assert FENCED not in (made.get("annotations") or {})
    touched = await touch_claim(client, "default/c", "", "1")
    assert touched is not None
    assert touched.version != made["resourceVersion"]


async def test_all_claims_are_listed_in_pages(
    server: Simulator, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kube.claims.PAGE", 2)
    for number in range(5):
        a_claim(server, f"c{number}", **({"allocation": ALLOCATION} if number == 3 else {}))
    found = [claim async for claim in list_claims(client)]
    assert [claim.key for claim in found] == [f"default/c{number}" for number in range(5)]
    assert [claim.is_allocated for claim in found] == [False, False, False, True, False]


async def test_a_right_that_is_missing_is_an_error() -> None:
    options = SimulatorOptions(kubelet=False, token="t")
    async with api_server(options) as guarded, client_of(guarded, "another") as stranger:
        with pytest.raises(ClusterError):
            await touch_claim(stranger, "default/c", "", "1")


# An attempt


def an_entry(*claims: ClaimAllocation, special: str = "", version: str = "1") -> LedgerEntry:
    devices = DeviceDecision(list(claims), SpecialClaim([], [], AllocationResult(), special) if special else None)
    assignment = Assignment(
        uid="uid-p", namespace="default", name="p", node="n", profile="test", version=version, devices=devices
    )
    return LedgerEntry(assignment, 7, load_of(pod("p").build()), 1, 1, 0.0, 30.0).hold()


async def fenced(client: KubeClient, entry: LedgerEntry) -> ClaimsFenced:
    told: asyncio.Queue[ClaimsFenced] = asyncio.Queue()
    fences = ClaimFences(client, told.put_nowait, logging.getLogger("fences"), a_telemetry().fault)
    try:
        fences.begin(FenceClaims(entry))
        fences.begin(FenceClaims(entry))
        async with asyncio.timeout(DEADLINE):
            found = await told.get()
        assert told.empty()
        return found
    finally:
        fences.close()


async def test_every_claim_that_the_attempt_may_allocate_is_touched(server: Simulator, client: KubeClient) -> None:
    made, shared = a_claim(server, "c"), a_claim(server, "shared", allocation=ALLOCATION)
    to_allocate = ClaimAllocation("default/c", made["uid"], AllocationResult(), made["resourceVersion"])
    gone = ClaimAllocation("default/gone", "u", AllocationResult(), "1")
    reserved = ClaimAllocation("default/shared", shared["uid"])
    found = await fenced(client, an_entry(to_allocate, gone, reserved))
    assert found.uid == "uid-p#7"
    assert found.versions.keys() == {"default/c", "default/gone"}
    assert found.versions["default/gone"] == ""
    assert int(found.versions["default/c"]) > int(made["resourceVersion"])


@pytest.mark.parametrize("exists", [True, False])
async def test_the_pod_is_fenced_before_its_special_claim_is_looked_for(
    server: Simulator, client: KubeClient, exists: bool
) -> None:
    body = {"metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}, "spec": {"containers": []}}
    server.store_raw("pods", body)
    before = server.stored("pods", "p", "default")["metadata"]["resourceVersion"]
    if exists:
        a_claim(server, "special")
    entry = an_entry(special="special", version=before)
    found = await fenced(client, entry)
    assert bool(found.versions["default/special"]) == exists
    now = await client.observe_pod("default", "p")
    assert now is not None
    assert now.version != before


# All claims of earlier terms


async def test_a_term_begins_once_no_claim_can_be_allocated_by_earlier_orders(
    server: Simulator, client: KubeClient
) -> None:
    free, taken = a_claim(server, "free"), a_claim(server, "taken", allocation=ALLOCATION)
    barrier = ClaimBarrier(client, "term 7")
    barrier.on_watch(shows(free))
    assert await barrier.run() == "the watch does not show yet that 1 claims are allocated"
    barrier.on_watch(shows(taken))
    assert await barrier.run() == ""
    (now,) = [claim async for claim in list_claims(client) if claim.key == "default/free"]
    assert int(now.version) > int(free["resourceVersion"])
    assert await barrier.run() == ""
    (again,) = [claim async for claim in list_claims(client) if claim.key == "default/free"]
    assert again.version == now.version, "once is enough"


async def test_what_was_allocated_before_it_was_touched_must_be_shown(
    server: Simulator, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier order's last call comes between the list and the touch."""
    made = a_claim(server, "c")
    barrier = ClaimBarrier(client, "term 7")
    barrier.on_watch(shows(made))
    call = client.call

    async def late(method: str, path: str, *args: Any, **options: Any) -> Any:
        if method == "PATCH":
            body = b'{"status":{"allocation":{"devices":{"results":[]}}}}'
            await call("PATCH", f"{path}/status", body, content_type=options["content_type"])
        return await call(method, path, *args, **options)

    monkeypatch.setattr(client, "call", late)
    assert await barrier.run() != ""
    (now,) = [claim async for claim in list_claims(client)]
    barrier.on_watch(ObjectChange(ObjectKind.RESOURCE_CLAIM, now.key, version=now.version))
    assert await barrier.run() == ""


async def test_a_claim_that_the_server_refuses_to_change_does_not_hold_up_the_term(
    server: Simulator, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, other = a_claim(server, "refused"), a_claim(server, "other")
    barrier = ClaimBarrier(client, "term 7")
    call = client.call

    async def guarded(method: str, path: str, *args: Any, **options: Any) -> Any:
        if method == "PATCH" and path.endswith("/refused"):
            return ApiResponse(422, b'{"message":"a policy"}')
        return await call(method, path, *args, **options)

    monkeypatch.setattr(client, "call", guarded)
    for _ in range(MAX_TRIES - 1):
        with pytest.raises(ClusterError, match="422 a policy"):
            await barrier.run()
    assert await barrier.run() == ""
    assert barrier.aside == {refused["uid"]: "default/refused"}
    (now,) = [claim async for claim in list_claims(client) if claim.key == "default/other"]
    assert now.version != other["resourceVersion"]


async def test_a_refusal_is_told() -> None:
    options = SimulatorOptions(kubelet=False, token="t")
    async with api_server(options) as guarded, client_of(guarded, "another") as stranger:
        with pytest.raises(ClusterError):
            await ClaimBarrier(stranger, "term 7").run()
