"""Watcher, queue, snapshot and cycle in one process, as NATS user `core`: all is as with processes of their own."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from shared.bus.rights import USERS, authorization
from shared.config.settings import ApiSettings, Settings
from testing.auditor.service import Auditor
from testing.builders import node
from testing.simulator.service import Simulator
from tests.kube.support import api_server
from tests.pipeline.support import LIMITS, Cluster, a_cluster, all_ready, cached, numbered, until, value_of, web
from tests.servers import ConfiguredNats, configured_nats
from tools.supervisor.options import CORE, SINGLE, PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio

SHORT_LEASES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""
NODES, PODS = 20, 400
PATIENCE = 40.0


@pytest_asyncio.fixture
async def nats(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConfiguredNats]:
    for user in USERS:
        monkeypatch.setenv(f"NATS_{user.upper()}", f"pw-{user}")
    async with configured_nats(authorization()) as server:
        yield server


def options_for(nats: ConfiguredNats, api: Simulator, folder: Path, *, standbys: bool) -> PipelineOptions:
    config = folder / "scheduler.yaml"
    config.write_text(SHORT_LEASES)
    plain = PipelineOptions(
        workers=1,
        grouping=CORE,
        standbys=standbys,
        settings=Settings(config=str(config)),
        nats_url=nats.url,
        api=ApiSettings(server=api.url),
    )
    users = {name: CORE if kind in SINGLE else kind for name, kind in plain.services().items()}
    variables = {
        service: {
            "FLOTILLA_NATS_URL": nats.as_user(f"{users[service]}:pw-{users[service]}"),
            "FLOTILLA_IDENTITY": process,
        }
        for process, services in plain.processes().items()
        for service in services
    }
    return replace(plain, variables=variables)


async def forbidden(pipeline: Pipeline) -> list[str]:
    answers = {name: await pipeline.ask(name, "/metrics") for name in pipeline.options.services()}
    return [
        name
        for name, answer in answers.items()
        if answer is not None and "flotilla_bus_forbidden_total{" in answer.body
    ]


async def pods(cluster: Cluster, namespace: str, number: int) -> None:
    await cluster.create_namespace(namespace)
    made = web("p", namespace).request(cpu=1, memory="1Gi")
    await cluster.create_many(f"/api/v1/namespaces/{namespace}/pods", numbered(made, number))


async def test_it_binds_and_goes_on_after_kills_and_without_nats(nats: ConfiguredNats, tmp_path: Path) -> None:
    """The nodes have room for exactly the pods."""
    async with (
        api_server() as api,
        Pipeline.running(options_for(nats, api, tmp_path, standbys=False)) as pipeline,
        Auditor.watching(pipeline.api, redis_url=pipeline.redis_url, limits=LIMITS) as auditor,
        a_cluster(pipeline) as cluster,
    ):
        room = node("n").capacity(cpu=PODS // NODES, memory="64Gi")
        await cluster.create_many("/api/v1/nodes", numbered(room, NODES))
        await pods(cluster, "one", PODS // 4)
        await auditor.wait_until(lambda a: a.counts().bound >= PODS // 4, PATIENCE)
        assert await forbidden(pipeline) == []
        answer = await pipeline.ask("cycle", "/metrics")
        assert answer is not None
        assert value_of(answer.body, "flotilla_bus_messages_total", direction="out", subject="queue.take") > 0
        before = pipeline.processes["core"]
        assert before == pipeline.pid("queue") == pipeline.pid("snapshot")
        await pods(cluster, "two", PODS // 4)
        pipeline.kill("queue")
        await pods(cluster, "three", PODS // 4)
        await auditor.wait_until(lambda a: a.counts().bound >= 3 * PODS // 4, PATIENCE)
        assert pipeline.processes["core"] != before
        await nats.kill()
        await pods(cluster, "four", PODS // 4)
        await nats.start()
        await auditor.wait_until(lambda a: a.counts().bound >= PODS, PATIENCE)
        assert await auditor.finish() == []
        await until(lambda: all_ready(pipeline), "not all services are ready")


async def test_leaders_may_be_in_different_groups(nats: ConfiguredNats, tmp_path: Path) -> None:
    """A leader hears services in its own process and in the other alike; standbys beside them do not interfere."""
    async with api_server() as api:
        options = options_for(nats, api, tmp_path, standbys=True)
        leads = {"watcher": "core", "queue": "core-standby", "snapshot": "core", "cycle": "core-standby"}
        for service, process in leads.items():
            lease = {
                "metadata": {"name": f"flotilla-{service}", "namespace": "kube-system"},
                "spec": {
                    "holderIdentity": f"{process}-{service}",
                    "leaseDurationSeconds": 3,
                    "leaseTransitions": 1,
                    "renewTime": "2026-01-01T00:00:00.000000Z",
                },
            }
            api.store_raw("leases", lease, group="coordination.k8s.io")
        async with Pipeline.running(options) as pipeline, a_cluster(pipeline) as cluster:
            standing_by = await pipeline.standing_by()
            assert sorted(standing_by) == ["cycle", "queue", "snapshot-standby", "watcher-standby"]
            async with Auditor.watching(pipeline.api, redis_url=pipeline.redis_url, limits=LIMITS) as auditor:
                await cluster.create_many(
                    "/api/v1/nodes", numbered(node("n").capacity(cpu=PODS, memory="999Gi"), NODES)
                )
                await pods(cluster, "one", PODS // 4)
                await auditor.wait_until(lambda a: a.counts().bound >= PODS // 4, PATIENCE)
                pipeline.kill("core-standby")
                await pods(cluster, "two", PODS // 4)
                await auditor.wait_until(lambda a: a.counts().bound >= PODS // 2, PATIENCE)
                assert await auditor.finish() == []
                await until(lambda: cached(pipeline, "pods", PODS // 2), "the snapshot does not know all pods")
            assert await forbidden(pipeline) == []
