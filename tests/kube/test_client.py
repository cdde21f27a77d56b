"""Calls to a (simulated) API server: what they answer, what they raise, and what is asked twice."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from flotilla.results import ApiCall
from shared.config.settings import ApiSettings
from shared.errors import UserError
from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden, Refused, Unauthorized, Unreachable
from shared.kube.events_and_conditions import PodEvent, PodRef, PodScheduled, event_name
from shared.kube.outcome import CallOutcome, result_of
from shared.model.objects import decode_pod
from shared.plugins.queueandbind import DefaultBinder
from testing.simulator.service import Simulator, SimulatorOptions
from tests.kube.support import api_server, client_of, raw_node, raw_pod

pytestmark = pytest.mark.asyncio

P = PodRef("default", "p", "uid-p")
PATH = "/api/v1/namespaces/default/pods/p"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Simulator]:
    async with api_server() as simulator:
        yield simulator


@pytest_asyncio.fixture
async def client(server: Simulator) -> AsyncIterator[KubeClient]:
    server.store_raw("pods", raw_pod("p"))
    server.store_raw("nodes", raw_node("n"))
    async with client_of(server) as client:
        yield client


def binding(node: str = "n", uid: str = "uid-p") -> ApiCall:
    metadata = {"name": "p", "namespace": "default", "uid": uid}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return ApiCall("POST", f"{PATH}/binding", {"kind": "Binding", "metadata": metadata, "target": target})


async def test_a_pod_is_read_or_missing(client: KubeClient) -> None:
    pod = await client.observe_pod("default", "p")
    assert pod is not None
    assert (pod.uid, pod.node) == ("uid-p", "")
    assert await client.observe_pod("default", "nobody") is None


async def test_the_default_binder_binds(client: KubeClient, server: Simulator) -> None:
    raw = await client.get("/api/v1/namespaces/default/pods/p")
    assert raw is not None
    pod = decode_pod(raw)

    class Cycle:
        pod: object

    state = Cycle()
    state.pod = pod
    call = DefaultBinder().bind(state, "n")  # type: ignore[arg-type]
    assert isinstance(call, ApiCall)
    assert (await client.execute(call)).ok
    assert server.stored("pods", "p", "default")["spec"]["nodeName"] == "n"


async def test_each_status_has_its_outcome(client: KubeClient, server: Simulator) -> None:
    assert (await client.execute(binding())).outcome is CallOutcome.OK
    again = await client.execute(binding())
    assert (again.outcome, again.status) == (CallOutcome.CONFLICT, 409)
    assert "already assigned" in again.message
    missing = await client.execute(ApiCall("POST", "/api/v1/namespaces/default/pods/x/binding", binding().body))
    assert missing.outcome in (CallOutcome.NOT_FOUND, CallOutcome.FAILED)
    server.faults.fail("POST", "binding", 410, reason="Gone")
    assert (await client.execute(binding())).outcome is CallOutcome.GONE
    server.faults.fail("POST", "binding", 500)
    failed = await client.execute(binding())
    assert (failed.outcome, failed.status, failed.message) == (CallOutcome.UNKNOWN, 500, "injected fault")


async def test_an_unanswered_write_is_not_retried(client: KubeClient, server: Simulator) -> None:
    assert await client.observe_pod("default", "p") is not None, "so that there is a connection that was used before"
    server.faults.drop("POST", "binding", after=True)
    assert (await client.execute(binding())).outcome is CallOutcome.UNKNOWN
    assert server.stored("pods", "p", "default")["spec"]["nodeName"] == "n"


async def test_a_write_that_was_not_sent_is_unreachable() -> None:
    async with api_server() as server:
        url = server.url
    client = await KubeClient.open(ApiSettings(server=url))
    result = await client.execute(binding())
    assert result.outcome is CallOutcome.UNREACHABLE
    assert result.message.startswith(f"{url}: POST {PATH}/binding: ")
    with pytest.raises(Unreachable, match=f"{url}: GET {PATH}: "):
        await client.observe_pod("default", "p")
    await client.close()


async def test_after_a_lost_answer_the_outcome_stays_unknown() -> None:
    async def take_and_go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        listening.close()
        writer.close()

    listening = await asyncio.start_server(take_and_go, "127.0.0.1", 0)
    client = await KubeClient.open(ApiSettings(server=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"))
    assert (await client.patch_pod_condition(P, None, "n")).outcome is CallOutcome.UNKNOWN
    await client.close()


async def test_no_connection_and_no_answer_are_distinguished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.kube.client.CONNECT_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        client = await KubeClient.open(ApiSettings(server=f"http://127.0.0.1:{full.getsockname()[1]}"))
        with pytest.raises(Unreachable, match=r"(?i)connection timeout") as refused:
            await client.stream("/api/v1/pods?watch=1", 30.0)
        assert not refused.value.maybe_done
        await client.close()


async def test_reads_are_retried(client: KubeClient, server: Simulator) -> None:
    server.faults.drop("GET", "pods")
    server.faults.fail("GET", "pods", 503)
    assert await client.observe_pod("default", "p") is not None


async def test_a_busy_server_is_retried_a_limited_number_of_times(
    client: KubeClient, server: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kube.client.MAX_RETRIES", 1)
    server.faults.fail("POST", "binding", 429, reason="TooManyRequests")
    began = asyncio.get_running_loop().time()
    assert (await client.execute(binding())).ok
    assert asyncio.get_running_loop().time() - began >= 1.0
    monkeypatch.setattr("shared.kube.client.MAX_RETRIES", 0)
    server.faults.fail("POST", "binding", 429, reason="TooManyRequests")
    throttled = await client.execute(binding())
    assert (throttled.outcome, throttled.retry_after) == (CallOutcome.THROTTLED, 1.0)


async def test_a_throttled_write_without_time_for_a_retry_is_not_executed(
    client: KubeClient, server: Simulator
) -> None:
    server.faults.fail("POST", "binding", 429, times=9, reason="TooManyRequests")
    answer = await client.call("POST", f"{PATH}/binding", b"{}", timeout=0.9)
    assert answer.status == 429
    assert result_of(answer).outcome is CallOutcome.THROTTLED


async def test_a_merge_patch_with_a_uid_is_retried(client: KubeClient, server: Simulator) -> None:
    server.faults.fail("PATCH", "pods", 503)
    server.faults.drop("PATCH", "pods", after=True)
    assert (await client.patch_pod_condition(P, PodScheduled("Unschedulable", "no room", 1700000000.0))).ok
    server.faults.fail("DELETE", "pods", 500)
    assert (await client.delete_pod(P, "1")).outcome is CallOutcome.UNKNOWN


async def test_every_call_has_a_deadline(client: KubeClient, server: Simulator) -> None:
    server.faults.delay("GET", "pods", 5.0)
    with pytest.raises(Unreachable, match=r"no answer within 0\.05 s") as late:
        await client.call("GET", PATH, timeout=0.05)
    assert late.value.maybe_done


async def test_wrong_credentials_are_one_line() -> None:
    async with api_server(SimulatorOptions(kubelet=False, token="right")) as server:
        async with client_of(server, "wrong") as client:
            with pytest.raises(Unauthorized, match=f"^{server.url}: GET {PATH}: 401 .*$"):
                await client.observe_pod("default", "p")
            assert (await client.execute(binding())).outcome is CallOutcome.FAILED
        async with client_of(server, "right") as client:
            assert await client.observe_pod("default", "p") is None


async def test_a_forbidden_call_is_one_line(client: KubeClient, server: Simulator) -> None:
    server.faults.fail("GET", "pods", 403, reason="Forbidden")
    with pytest.raises(Forbidden, match=f"^{server.url}: GET {PATH}: 403 injected fault$"):
        await client.observe_pod("default", "p")


async def test_other_refusals_of_a_read_raise(client: KubeClient, server: Simulator) -> None:
    server.faults.fail("GET", "pods", 422, reason="Invalid")
    with pytest.raises(Refused, match="422 injected fault"):
        await client.observe_pod("default", "p")


@pytest.mark.parametrize("path", ["api/v1/pods", "/api v1", "/api/v1/pods\r\nX: y", "/päds"])
async def test_an_invalid_path_is_not_sent(client: KubeClient, path: str) -> None:
    with pytest.raises(UserError, match="is not a path"):
        await client.call("GET", path)


async def test_an_event_is_written_as_kube_scheduler_writes_it(client: KubeClient) -> None:
    event = PodEvent(P, "Warning", "FailedScheduling", "Scheduling", "0/0 nodes", "my-scheduler", "me-1", 1700000000.25)
    assert (await client.create_event(event)).ok
    name = event_name("p", event.at)
    raw = await client.get(f"/apis/events.k8s.io/v1/namespaces/default/events/{name}")
    assert raw is not None
    stored = msgspec.json.decode(raw)
    assert stored["regarding"] | {"resourceVersion": ""} == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
        "resourceVersion": "",
    }
    told = {key: stored[key] for key in ("type", "reason", "action", "note", "eventTime")}
    assert told == {
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "0/0 nodes",
        "eventTime": "2023-11-14T22:13:20.250000Z",
    }
    assert (stored["reportingController"], stored["reportingInstance"]) == ("my-scheduler", "me-1")


async def test_the_condition_says_why_a_pod_is_not_scheduled(client: KubeClient, server: Simulator) -> None:
    assert (await client.patch_pod_condition(P, PodScheduled("Unschedulable", "no room", 1700000000.0, 3))).ok
    condition = server.stored("pods", "p", "default")["status"]["conditions"][0]
    assert {key: condition[key] for key in ("type", "status", "reason", "message", "lastTransitionTime")} == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no room",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }
    assert condition["observedGeneration"] == 3
    assert (await client.patch_pod_condition(P, PodScheduled("SchedulerError", "oh", None))).ok
    conditions = server.stored("pods", "p", "default")["status"]["conditions"]
    assert [(c["reason"], c["lastTransitionTime"]) for c in conditions] == [("SchedulerError", "2023-11-14T22:13:20Z")]


async def test_a_recreated_pod_is_not_touched(client: KubeClient, server: Simulator) -> None:
    other = PodRef("default", "p", "uid-of-before")
    assert (
        await client.patch_pod_condition(other, PodScheduled("Unschedulable", "no", 0.0))
    ).outcome is CallOutcome.CONFLICT
    assert (await client.execute(binding(uid="uid-of-before"))).outcome is CallOutcome.CONFLICT


async def test_calls_are_concurrent(client: KubeClient) -> None:
    pods = await asyncio.gather(*[client.observe_pod("default", "p") for _ in range(200)])
    assert all(pods)


async def test_an_error_that_is_no_status_is_quoted(client: KubeClient) -> None:
    answer = await client.call("GET", "/nothing/of/the/sort")
    assert answer.status == 404
    assert answer.message
    assert msgspec.json.decode(answer.body)["kind"] == "Status"


async def test_https_where_the_server_speaks_http_says_so() -> None:
    async with api_server() as server:
        client = await KubeClient.open(ApiSettings(server=server.url.replace("http:", "https:")))
        try:
            with pytest.raises(Unreachable, match=r"does not support TLS; http://\?$"):
                await client.call("GET", "/api", timeout=20.0)
        finally:
            await client.close()
