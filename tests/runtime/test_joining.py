"""A prefix that another pipeline has is refused at start; who comes to be wrong later ends."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from shared.bus.wire import pipeline_id
from shared.config.settings import ApiSettings, Settings
from shared.config.structs import LeaderElection
from shared.errors import ClusterError, UserError
from shared.framework.loading import load_scheduler_config
from shared.kube.access import DEFAULT_CONNECTION
from shared.messages.state import Heartbeat
from shared.runtime import Context, Health, joining
from shared.runtime.joining import joined
from testing.simulator.service import Simulator, SimulatorOptions
from tests.bus.support import PATIENCE, PREFIX, a_bus, a_telemetry
from tests.kube.support import api_server, until
from tests.servers import nats_server
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

ELECTION = load_scheduler_config(None).leader_election


def another_cluster() -> AbstractAsyncContextManager[Simulator]:
    return api_server(SimulatorOptions(kubelet=False, seed=2))


@asynccontextmanager
async def a_member(
    nats: NatsServer,
    api: Simulator,
    *,
    answers: bool = True,
    wall: float = 1e9,
    election: LeaderElection = ELECTION,
    health: Health | None = None,
) -> AsyncIterator[Context]:
    telemetry = a_telemetry()
    async with a_bus(nats, telemetry) as bus:
        context = Context(
            service="queue",
            name="queue",
            settings=Settings(prefix=PREFIX, nats_url=nats.url, api=ApiSettings(server=api.url)),
            bus=bus,
            telemetry=telemetry,
            health=health or Health(),
            http_url="",
            wall=lambda: wall,
        )
        async with joined(context, election, DEFAULT_CONNECTION, answers=answers):
            yield context


async def end_of(context: Context) -> Exception:
    async with asyncio.timeout(PATIENCE):
        try:
            await context.fault.raised()
        except (UserError, ClusterError) as why:
            return why


async def test_a_process_of_the_same_pipeline_joins() -> None:
    async with nats_server() as nats, api_server() as api, a_member(nats, api) as one, a_member(nats, api) as other:
        assert one.bus.pipeline.id == other.bus.pipeline.id == pipeline_id(uid_of(api), "kube-system")


async def test_a_prefix_used_by_another_cluster_is_refused() -> None:
    async with nats_server() as nats, api_server() as api, another_cluster() as another, a_member(nats, api):
        with pytest.raises(UserError) as refused:
            async with a_member(nats, another, answers=False):
                raise AssertionError
    assert str(refused.value) == (
        f"prefix {PREFIX!r} on NATS at {nats.url.rpartition('@')[2].removeprefix('nats://')} is used by the pipeline of"
        f" cluster {uid_of(api)} with its Leases in namespace kube-system, since 2001-09-09 01:46:40 UTC:"
        " set --prefix or FLOTILLA_PREFIX to another one"
    )


async def test_other_leases_in_the_same_cluster_make_another_pipeline() -> None:
    async with nats_server() as nats, api_server() as api, a_member(nats, api):
        with pytest.raises(UserError, match="Leases in namespace kube-system") as refused:
            async with a_member(nats, api, election=replace(ELECTION, resource_namespace="elsewhere")):
                raise AssertionError
    assert str(refused.value).endswith(
        ": set --prefix or FLOTILLA_PREFIX to another one, and scheduler names of its own in the configuration"
        " (profiles[].schedulerName), as both serve this cluster"
    )


async def test_a_prefix_is_free_once_its_pipeline_has_ended() -> None:
    async with nats_server() as nats, api_server() as api, another_cluster() as another:
        async with a_member(nats, api):
            pass
        async with a_member(nats, another):
            pass


async def test_of_two_pipelines_started_together_the_later_one_ends() -> None:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(nats_server())
        apis = [await stack.enter_async_context(each) for each in (api_server(), another_cluster())]
        first = await stack.enter_async_context(a_member(nats, apis[0], answers=False))
        later = await stack.enter_async_context(a_member(nats, apis[1], answers=False, wall=1e9 + 1))
        await stack.enter_async_context(a_member(nats, apis[0]))
        for context in (first, later):
            await context.bus.subscribe("snapshot.deltas", Heartbeat, lambda *_: None)
        first.bus.post("snapshot.deltas", Heartbeat(1, 1))
        later.bus.post("snapshot.deltas", Heartbeat(1, 1))
        assert "is used by" in str(await end_of(later))
        assert not first.fault.found


async def test_a_recreated_cluster_at_the_same_address_is_noticed(monkeypatch: Any) -> None:
    """Also without any message: the pipeline may be idle, or the only one."""
    monkeypatch.setattr(joining, "LOOK_EVERY", 0.05)
    async with nats_server() as nats, api_server() as api, a_member(nats, api) as context:
        recreate(api, "new-uid")
        why = await end_of(context)
    assert isinstance(why, ClusterError)
    assert str(why).startswith("the API server is that of another cluster now: the pipeline of cluster new-uid ")


async def test_later_failures_of_the_api_server_are_retried(monkeypatch: Any) -> None:
    """Nothing is known of another cluster then."""
    monkeypatch.setattr(joining, "LOOK_EVERY", 0.05)
    async with nats_server() as nats, api_server() as api, a_member(nats, api) as context:
        refused = api.faults.fail("GET", "namespaces/kube-system", 403, times=3, reason="Forbidden")
        await until(lambda: refused.times == 0)
        failed = api.faults.fail("GET", "namespaces/kube-system", 401, times=3, reason="Unauthorized")
        await until(lambda: failed.times == 0)
        assert not context.fault.found


async def test_a_process_whose_clock_differs_from_the_api_servers_is_not_ready() -> None:
    wrong = time.time() + 60
    async with nats_server() as nats, api_server() as api, a_member(nats, api, wall=wrong) as context:
        (reason,) = [each for each in context.health.reasons() if each.startswith("clocks")]
    assert re.fullmatch(r"clocks: this process's clock is (59|60|61)\.\d s ahead of the API server's", reason)
    async with nats_server() as nats, api_server() as api, a_member(nats, api, wall=time.time()) as context:
        assert not [each for each in context.health.reasons() if each.startswith("clocks")]


async def test_joining_waits_for_the_api_server(monkeypatch: Any) -> None:
    monkeypatch.setattr(joining, "PAUSE", 0.01)
    async with nats_server() as nats, api_server() as api:
        api.faults.fail("GET", "namespaces/kube-system", 500, times=3)
        async with a_member(nats, api) as context:
            assert context.bus.pipeline.id == pipeline_id(uid_of(api), "kube-system")
            assert joining.CLUSTER not in context.health.reasons()


async def test_while_the_api_server_is_silent_it_is_said_what_is_waited_for() -> None:
    health = Health()

    async def join(nats: NatsServer, api: Simulator) -> None:
        async with a_member(nats, api, health=health):
            raise AssertionError

    async with nats_server() as nats, api_server() as api:
        api.faults.delay("GET", "namespaces/kube-system", 60.0)
        member = asyncio.create_task(join(nats, api))
        await until(lambda: f"cluster: asks {api.url} which cluster this is" in health.reasons())
        member.cancel()
        await asyncio.gather(member, return_exceptions=True)


async def test_a_missing_right_is_named() -> None:
    async with nats_server() as nats, api_server() as api:
        api.faults.fail("GET", "namespaces/kube-system", 403, times=3, reason="Forbidden")
        with pytest.raises(UserError, match="the right to get namespace kube-system"):
            async with a_member(nats, api):
                raise AssertionError


def recreate(api: Simulator, uid: str) -> None:
    """As by a cluster that was deleted and made again: at the same address, and everything has another uid."""
    api.store_raw("namespaces", {"metadata": {"name": "kube-system", "uid": uid}})


def uid_of(api: Simulator) -> str:
    resource = api.cluster.catalog.find("", "v1", "namespaces")
    assert resource is not None
    found = api.cluster.store.bucket(resource).get("", "kube-system")
    assert found is not None
    return found.uid
