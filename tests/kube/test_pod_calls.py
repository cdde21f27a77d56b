"""What is asked of an API server so that a pod makes way for another: its status, its nomination, its deletion."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from shared.errors import ClusterError, InvalidObject
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import (
    DisruptionTarget,
    ObservedCondition,
    ObservedPod,
    PodEvent,
    PodRef,
    PodScheduled,
    event_name,
    observed_pod,
    preemption_condition,
)
from shared.kube.outcome import CallOutcome
from testing.simulator.service import Simulator
from tests.kube.support import api_server, client_of, raw_pod

pytestmark = pytest.mark.asyncio

P = PodRef("default", "p", "uid-p")
BEFORE = PodRef("default", "p", "uid-of-before")
NOBODY = PodRef("default", "nobody", "uid")
MARK = DisruptionTarget("my-scheduler: preempting", 1700000000.0, 3)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Simulator]:
    async with api_server() as simulator:
        simulator.store_raw("pods", raw_pod("p"))
        yield simulator


@pytest_asyncio.fixture
async def client(server: Simulator) -> AsyncIterator[KubeClient]:
    async with client_of(server) as client:
        yield client


def nominated(server: Simulator) -> str | None:
    node: str | None = server.stored("pods", "p", "default")["status"].get("nominatedNodeName")
    return node


async def test_a_nomination_is_written_with_the_condition(client: KubeClient, server: Simulator) -> None:
    assert (await client.patch_pod_condition(P, PodScheduled("Unschedulable", "no room", 0.0), "n1")).ok
    status = server.stored("pods", "p", "default")["status"]
    assert (status["nominatedNodeName"], status["conditions"][0]["message"]) == ("n1", "no room")
    assert (await client.patch_pod_condition(P, PodScheduled("Unschedulable", "still none", None))).ok
    assert nominated(server) == "n1"
    assert (await client.patch_pod_condition(P, None, "n2")).ok
    assert nominated(server) == "n2"
    assert (await client.patch_pod_condition(P, None, "")).ok
    assert nominated(server) is None
    assert len(server.stored("pods", "p", "default")["status"]["conditions"]) == 1


async def test_a_nomination_changes_the_version_that_it_names(client: KubeClient, server: Simulator) -> None:
    before = await client.observe_pod("default", "p")
    assert before is not None
    after = await client.nominate(P, "n1", before.version)
    assert (after.nominated, after.version != before.version) == ("n1", True)
    assert (await client.nominate(P, "n1", after.version)).version == after.version
    with pytest.raises(ClusterError, match="the object has been modified"):
        await client.nominate(P, "n2", before.version)
    for other in (BEFORE, NOBODY):
        with pytest.raises(ClusterError):
            await client.nominate(other, "n2", after.version)
    assert nominated(server) == "n1"


async def test_only_the_named_nomination_is_cleared(client: KubeClient, server: Simulator) -> None:
    assert (await client.clear_nomination(P, "n1")).status == 422
    await client.patch_pod_condition(P, None, "n2")
    assert (await client.clear_nomination(P, "n1")).status == 422
    assert (await client.clear_nomination(BEFORE, "n2")).status == 422
    assert nominated(server) == "n2"
    assert (await client.clear_nomination(P, "n2")).ok
    assert nominated(server) is None
    assert (await client.clear_nomination(NOBODY, "n2")).outcome is CallOutcome.NOT_FOUND


async def test_the_preemption_condition_keeps_other_conditions(client: KubeClient, server: Simulator) -> None:
    await client.patch_pod_condition(P, PodScheduled("Unschedulable", "no", 0.0))
    assert (await client.patch_pod_condition(P, MARK)).ok
    conditions = {c["type"]: c for c in server.stored("pods", "p", "default")["status"]["conditions"]}
    assert conditions.keys() == {"PodScheduled", "DisruptionTarget"}
    assert conditions["DisruptionTarget"] == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "my-scheduler: preempting",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
        "observedGeneration": 3,
    }
    assert (await client.patch_pod_condition(BEFORE, MARK)).outcome is CallOutcome.CONFLICT


async def test_only_the_pod_of_that_uid_and_version_is_deleted(client: KubeClient, server: Simulator) -> None:
    found = await client.observe_pod("default", "p")
    assert found is not None
    assert (await client.delete_pod(BEFORE, found.version)).outcome is CallOutcome.CONFLICT
    await client.patch_pod_condition(P, MARK)
    assert (await client.delete_pod(P, found.version)).outcome is CallOutcome.CONFLICT, "it has changed"
    found = await client.observe_pod("default", "p")
    assert found is not None
    assert (await client.delete_pod(P, found.version)).ok
    assert await client.observe_pod("default", "p") is None
    assert (await client.delete_pod(P, found.version)).outcome is CallOutcome.NOT_FOUND


async def test_an_observed_pod_is_read(client: KubeClient) -> None:
    await client.patch_pod_condition(P, MARK)
    found = await client.observe_pod("default", "p")
    assert found is not None
    assert (found.uid, found.node, found.terminating) == ("uid-p", "", False)
    assert preemption_condition(found, MARK.message, 5.0) is None
    assert await client.observe_pod("default", "nobody") is None


async def test_a_terminating_pod_stays_on_its_node_until_it_is_gone(client: KubeClient, server: Simulator) -> None:
    pod = raw_pod("q")
    pod["spec"]["nodeName"] = "n1"
    pod["status"] = {"phase": "Running"}
    server.store_raw("pods", pod)
    found = await client.observe_pod("default", "q")
    assert found is not None
    assert (await client.delete_pod(PodRef("default", "q", "uid-q"), found.version)).ok
    found = await client.observe_pod("default", "q")
    assert found is not None
    assert (found.node, found.terminating) == ("n1", True)


@pytest.mark.parametrize("raw", [b'{"metadata":{"generation":"many"}}', b"[]", b"no json"])
async def test_invalid_pods_are_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        observed_pod(raw)


async def test_an_unreadable_pod_is_named(client: KubeClient, server: Simulator) -> None:
    pod = raw_pod("bad")
    pod["spec"]["nodeName"] = 7
    server.store_raw("pods", pod)
    with pytest.raises(InvalidObject, match="Pod default/bad"):
        await client.observe_pod("default", "bad")


async def test_the_preemption_condition_keeps_its_time_and_is_written_once() -> None:
    def seen(*conditions: ObservedCondition) -> ObservedPod:
        return ObservedPod("uid-p", "n1", False, 3, list(conditions))

    old = ObservedCondition("DisruptionTarget", "True", "EvictionByEvictionAPI", "drain")
    ended = ObservedCondition("DisruptionTarget", "False", "PreemptionByScheduler", "m")
    same = ObservedCondition("DisruptionTarget", "True", "PreemptionByScheduler", "m")
    assert preemption_condition(seen(), "m", 5.0) == DisruptionTarget("m", 5.0, 3)
    assert preemption_condition(seen(ended), "m", 5.0) == DisruptionTarget("m", 5.0, 3)
    assert preemption_condition(seen(old), "m", 5.0) == DisruptionTarget("m", None, 3)
    assert preemption_condition(seen(same), "m", 5.0) is None


async def test_an_event_names_the_other_pod(client: KubeClient) -> None:
    other = PodRef("default", "high", "uid-high")
    event = PodEvent(P, "Normal", "Preempted", "Preempting", "a note", "my-scheduler", "me-1", 1.0, other)
    assert (await client.create_event(event)).ok
    raw = await client.get(f"/apis/events.k8s.io/v1/namespaces/default/events/{event_name('p', 1.0)}")
    stored = msgspec.json.decode(raw or b"")
    assert (stored["regarding"]["uid"], stored["related"]["uid"]) == ("uid-p", "uid-high")
    assert stored["related"]["kind"] == "Pod"
