"""Any process is killed in the middle of the work: all pods are bound all the same, once, and within what nodes have.

One pipeline lives through all of it. The nodes have room for exactly the pods, so room that a crash leaves taken would
show.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.errors import ClusterError
from testing.auditor.service import Auditor
from testing.builders import node
from tests.pipeline.following import following
from tests.pipeline.support import (
    Cluster,
    a_cluster,
    all_ready,
    an_auditor,
    cache_is_empty,
    cached,
    numbered,
    plain,
    until,
    web,
)
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES, PODS = 100, 1_000
KILL_AT = 250
"""Pods bound, by then."""
URGENT = "urgent"
"""A priority class for whom others make way."""
GONE_AT_KILL = 20
"""Victims evicted until then."""
PATIENCE = 60.0
"""Seconds from the kill until all is bound. It takes 1 to 5."""

VICTIMS = [
    ("worker-0",),
    ("binder-0",),
    ("snapshot",),
    ("queue",),
    ("cycle",),
    ("watcher",),
    ("redis-server",),
    ("nats-server",),
    ("queue", "cycle"),
    ("snapshot", "nats-server"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    async with Pipeline.running(PipelineOptions()) as running, a_cluster(running) as cluster:
        await cluster.create_priorities(**{URGENT: 100})
        yield running


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
async def test_all_is_bound_though_a_process_is_killed(victims: tuple[str, ...], pipeline: Pipeline) -> None:
    case = "-".join(victims)
    async with an_auditor(pipeline) as auditor, a_cluster(pipeline) as cluster:
        before = {name: pipeline.processes[name] for name in victims}
        creating = await begin(case, cluster)
        await bound(KILL_AT, auditor, pipeline)
        for name in victims:
            pipeline.kill(name)
        await creating
        await bound(PODS, auditor, pipeline)
        assert await auditor.finish() == [], said_by(pipeline)
        await until(lambda: all_ready(pipeline), "not all services are ready")
        assert all(pipeline.processes[name] != before[name] for name in victims)
        await cluster.delete_all(case)
        await until(lambda: cache_is_empty(pipeline), "the cache is not empty")


@pytest.mark.parametrize("victim", ["binder-0", "snapshot", "queue", "cycle"])
async def test_preemptions_end_though_a_process_is_killed(victim: str, pipeline: Pipeline) -> None:
    """Every node is needed, so a node that no worker has, or that two have, would show."""
    case = f"over-{victim}"
    async with an_auditor(pipeline) as auditor, a_cluster(pipeline) as cluster, following(cluster, case) as seen:
        await cluster.create_namespace(case)
        await fill(case, cluster)
        await until(lambda: cached(pipeline, "pods", NODES), "the pods are not known")
        before = pipeline.processes[victim]
        urgent = numbered(web("urgent", case).request(cpu=2), NODES, priorityClassName=URGENT)
        await cluster.create_many(f"/api/v1/namespaces/{case}/pods", urgent)

        async def some_are_gone() -> bool:
            return len(seen.gone) >= GONE_AT_KILL

        await until(some_are_gone, "no victim is evicted")
        pipeline.kill(victim)
        await bound(NODES, auditor, pipeline)
        assert await auditor.finish() == [], said_by(pipeline)
        await until(lambda: all_ready(pipeline), "not all services are ready")
        assert pipeline.processes[victim] != before
        assert len(seen.gone) == NODES
        await until(lambda: cached(pipeline, "nominated_pods", 0), "some are still nominated")
        await cluster.delete_all(case)
        await until(lambda: cache_is_empty(pipeline), "the cache is not empty")


async def begin(case: str, cluster: Cluster) -> "asyncio.Task[None]":
    """Creates nodes, and goes on to create as many pods as they have room for."""
    await cluster.create_namespace(case)
    room = node(case).capacity(cpu=PODS // NODES, memory="64Gi")
    await cluster.create_many("/api/v1/nodes", numbered(room, NODES))
    made = web("p", case).request(cpu=1, memory="1Gi")
    return asyncio.create_task(cluster.create_many(f"/api/v1/namespaces/{case}/pods", numbered(made, PODS)))


async def fill(case: str, cluster: Cluster) -> None:
    """Creates nodes, and on each of them a pod that takes all of it."""
    await cluster.create_many("/api/v1/nodes", numbered(node(case).capacity(cpu=2, memory="64Gi"), NODES))
    small = (plain(web(f"small-{i:04}", case).request(cpu=2).on(f"{case}-{i:04}")) for i in range(NODES))
    await cluster.create_many(f"/api/v1/namespaces/{case}/pods", small)


async def bound(pods: int, auditor: Auditor, pipeline: Pipeline) -> None:
    try:
        await auditor.wait_until(lambda a: a.counts().bound >= pods, PATIENCE)
    except ClusterError as cause:
        raise AssertionError(f"{cause}; {await pipeline.unready()}\n{said_by(pipeline)}") from cause


def said_by(pipeline: Pipeline) -> str:
    return "\n".join(pipeline.log_lines[-60:])
