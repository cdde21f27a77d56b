"""The HTTP side: authentication, size limits and injected faults."""

import asyncio
import socket
from io import BytesIO
from itertools import count
from typing import Any

import aiohttp
import pytest

from shared.errors import UserError
from testing.simulator.service import MAX_BEHIND, Simulator, SimulatorOptions
from tests.simulator.support import DEADLINE, NODES, PODS, Client, binding, node, pod, running

pytestmark = pytest.mark.asyncio


async def test_requests_without_the_token_are_unauthorized() -> None:
    async with running(token="secret") as (simulator, client), aiohttp.ClientSession() as session:
        await client.fine("GET", PODS)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            async with session.get(simulator.url + PODS, headers=headers) as response:
                assert (response.status, (await response.json())["reason"]) == (401, "Unauthorized")
        async with session.get(f"{simulator.url}/readyz") as response:
            assert (response.status, await response.text()) == (200, "ok")


async def test_a_body_over_the_limit_is_rejected() -> None:
    async with running() as (_, client):
        status, answer = await client.call("POST", PODS, BytesIO(b" " * ((3 << 20) + 1)))
        assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")
        await client.fine("POST", PODS, pod("p"))


async def test_a_port_in_use_is_named_in_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}: "):
            await Simulator(SimulatorOptions(port=port)).start()


async def test_an_injected_failure_is_returned() -> None:
    async with running() as (simulator, client):
        simulator.faults.fail("POST", "/pods$", 503, times=2, reason="ServiceUnavailable")
        for _ in range(2):
            status, answer = await client.call("POST", PODS, pod("p"))
            assert (status, answer["reason"]) == (503, "ServiceUnavailable")
        await client.fine("GET", PODS)
        await client.fine("POST", PODS, pod("p"))


async def test_a_connection_is_dropped_before_or_after_the_request_is_carried_out() -> None:
    async with running() as (simulator, client):
        simulator.faults.drop("POST", "nodes")
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.call("POST", NODES, node("a"))
        simulator.faults.drop("POST", "nodes", after=True)
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.call("POST", NODES, node("b"))
        names = [item["metadata"]["name"] for item in (await client.fine("GET", NODES))["items"]]
        assert names == ["b"]


async def test_a_delayed_request_does_not_block_others() -> None:
    async with running() as (simulator, client):
        simulator.faults.delay("POST", "nodes", DEADLINE)
        late = asyncio.create_task(client.call("POST", NODES, node("a")))
        while simulator.faults:
            await asyncio.sleep(0)
        await client.fine("POST", NODES, node("b"))
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)


async def test_closing_watches_and_compacting_history() -> None:
    async with running() as (simulator, client):
        version = (await client.fine("POST", NODES, node("a")))["metadata"]["resourceVersion"]
        async with client.watch(f"{NODES}?watch=1&resourceVersion={version}") as stream:
            simulator.close_watches()
            assert await stream.next() == {}
        await client.fine("POST", NODES, node("b"))
        simulator.compact()
        async with client.watch(f"{NODES}?watch=1&resourceVersion={version}") as stream:
            event = await stream.next()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert await stream.next() == {}


async def test_a_shorter_history_drops_the_oldest_changes() -> None:
    async with running() as (simulator, client):
        versions = [
            (await client.fine("POST", NODES, node(name)))["metadata"]["resourceVersion"] for name in ("a", "b", "c")
        ]
        simulator.resize_history(1)
        async with client.watch(f"{NODES}?watch=1&resourceVersion={versions[0]}") as stream:
            assert (await stream.next())["type"] == "ERROR"
        async with client.watch(f"{NODES}?watch=1&resourceVersion={versions[1]}") as stream:
            assert (await stream.next())["object"]["metadata"]["name"] == "c"


async def test_store_raw_accepts_invalid_objects() -> None:
    async with running() as (simulator, client):
        broken = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"containers": 7}, "status": {}}
        simulator.store_raw("pods", broken)
        assert (await client.fine("GET", f"{PODS}/x"))["spec"] == {"containers": 7}
        assert simulator.stored("pods", "x", "default")["spec"] == {"containers": 7}
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        async with client.session.get(client.url + PODS, headers={"Accept": table}) as response:
            assert (await response.json())["rows"][0]["cells"][0] == "x"


async def test_an_open_watch_does_not_delay_shutdown() -> None:
    async with asyncio.timeout(DEADLINE), running() as (simulator, client), client.watch(f"{NODES}?watch=1") as stream:
        await simulator.stop()
        assert await stream.next() == {}


async def test_ending_a_fault_ignores_its_remaining_times() -> None:
    async with running() as (simulator, client):
        fault = simulator.faults.fail("POST", "/pods$", 429, times=1_000, reason="TooManyRequests")
        other = simulator.faults.fail("POST", "/nodes$", 503)
        assert (await client.call("POST", PODS, pod("p")))[0] == 429
        simulator.faults.end(fault)
        simulator.faults.end(fault)
        await client.fine("POST", PODS, pod("p"))
        assert (await client.call("POST", NODES, node("n")))[0] == 503
        simulator.faults.end(other)


async def test_two_api_servers_of_one_cluster_have_separate_faults() -> None:
    async with running() as (simulator, client):
        second = Simulator(SimulatorOptions(kubelet=False), cluster=simulator.cluster)
        second.faults.fail("GET", "/pods/p$", 500)
        await second.start()
        try:
            await client.fine("POST", PODS, pod("p"))
            async with aiohttp.ClientSession() as session:
                for status in (500, 200):
                    async with session.get(f"{second.url}{PODS}/p") as response:
                        assert response.status == status
        finally:
            await second.stop()
        await client.fine("GET", f"{PODS}/p")


async def test_a_bulk_request_posts_its_objects_one_by_one_until_one_is_refused() -> None:
    async with running(kubelet=False) as (simulator, client):
        await client.fine("POST", f"/bulk{NODES}", [node("a"), node("b")])
        await client.fine("POST", f"/bulk{PODS}", [pod("p"), pod("q")])
        bindings = "/api/v1/namespaces/default/bindings"
        await client.fine("POST", f"/bulk{bindings}", [binding("p", "a"), binding("q", "b")])
        assert [simulator.stored("pods", name, "default")["spec"]["nodeName"] for name in "pq"] == ["a", "b"]
        status, answer = await client.call("POST", f"/bulk{PODS}", [pod("r"), pod("p"), pod("s")])
        assert (status, answer["message"]) == (409, 'pods "p" already exists')
        names = [item["metadata"]["name"] for item in (await client.fine("GET", PODS))["items"]]
        assert names == ["p", "q", "r"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"/bulk{NODES}", {"metadata": {"name": "a"}}, 400),
        (f"/bulk{NODES}", [{"metadata": "a"}], 400),
        (f"/bulk{NODES}", [{"metadata": {"name": "a"}, "spec": 1}], 400),
        (f"/bulk{NODES}/a", [node("a")], 405),
        ("/bulk/healthz", [node("a")], 405),
        ("/bulk/api/v1/nothing", [node("a")], 404),
    ],
)
async def test_a_bad_bulk_request_is_refused(path: str, body: Any, status: int) -> None:
    async with running() as (_, client):
        assert (await client.call("POST", path, body))[0] == status
        assert (await client.fine("GET", NODES))["items"] == []


async def test_a_bulk_request_waits_for_slow_watches() -> None:
    """Without that the watch would end, as more than it may be behind is created."""
    config_maps = "/api/v1/namespaces/default/configmaps"
    made = [{"metadata": {"name": f"m-{i:03}"}, "data": {"text": "x" * 60_000}} for i in range(600)]

    async def create(client: Client) -> None:
        for begin in range(0, len(made), 15):
            await client.fine("POST", f"/bulk{config_maps}", made[begin : begin + 15])

    async with (
        running(max_pending_bytes=16 << 20) as (simulator, client),
        client.watch(f"{config_maps}?watch=true&resourceVersion=1") as watch,
        asyncio.TaskGroup() as group,
    ):
        creating = group.create_task(create(client))
        for number in count():  # the kernel may still take more for the client, and so let the first ones through
            while not any(each.pending_bytes > MAX_BEHIND for each in simulator._watches):
                assert not creating.done()
                await asyncio.sleep(0)
            late = group.create_task(client.fine("POST", f"/bulk{NODES}", [node(f"a{number}")]))
            for _ in range(3):
                await client.fine("GET", NODES)
            if not late.done():
                break
        assert not creating.done()
        names = [(await watch.next())["object"]["metadata"]["name"] for _ in made]
    assert names == [each["metadata"]["name"] for each in made]
