"""Short fault runs from start to end: they pass, and violations are found."""

import io
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from testing.auditor.violations import Limits
from testing.simulator.resources import PODS
from tools.api_objects import ObjectWriter
from tools.faults.checks import Inspector
from tools.faults.environment import Environment, running_environment
from tools.faults.runner import FaultRun, create_cluster, write_wave
from tools.faults.workload import NAMESPACE, PODS_PATH, FaultWorkload, Wave, pod

pytestmark = pytest.mark.asyncio

SECONDS, NODES, SEEDS = 4.0, 20, (5187,)
"""The snapshot is killed, Redis goes back by a second and hangs, a worker is stopped, and the API server is restarted
without its history and loses answers to status patches."""
PODS_CREATED = 300
IDLE_TIMEOUT = 60.0
"""Long enough for a busy machine."""
LIMITS = Limits(lag=0.5, patience=1.0)
"""Short, because nothing is killed."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
async def test_all_checks_pass_under_faults(seed: int) -> None:
    output = io.StringIO()
    code = await FaultRun(SECONDS, FaultWorkload(PODS_CREATED, NODES, seed), output).play()
    assert code == 0, output.getvalue()
    assert output.getvalue().startswith(f"seed {seed}: ")
    assert "✗" not in output.getvalue()
    assert output.getvalue().endswith("all checks passed\n")


async def test_violations_are_found(tmp_path: Path) -> None:
    work = FaultWorkload(100, NODES, 1)
    async with (
        running_environment(work.seed, tmp_path, LIMITS) as environment,
        Inspector.of(environment) as inspector,
    ):
        writer = ObjectWriter(environment.api.url)
        await create_cluster(writer, work)
        await write_wave(writer, work.initial())
        assert await inspector.wait_until_idle(IDLE_TIMEOUT) == ""
        await violate_invariants(environment, writer)
        checks = await inspector.checks(await inspector.activity())
    broken = {check.what.partition(",")[0]: "\n".join(check.broken) for check in checks if check.broken}
    assert "small-90000" in broken["every pod that fits is bound"]
    assert "which exceeds its capacity" in broken["no node ever exceeded its capacity"]
    assert "small-90001" in broken["no pod was bound twice"]
    assert "nothing of the sort" in broken["every pod that does not fit is pending"]


async def violate_invariants(environment: Environment, writer: ObjectWriter) -> None:
    """A pending pod that fits, an overcommitted node, a pod that moves, and a wrong condition."""
    gated = pod("small", 90_000)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    moving, filler, misfit = pod("small", 90_001), pod("filler", 90_000), pod("huge", 90_000)
    for each in (moving, filler):
        each["spec"]["schedulerName"] = "another"
    misfit["spec"]["schedulerName"] = "another"
    misfit["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "nothing of the sort"}]}
    await write_wave(writer, Wave([gated, moving, filler]))
    await call(environment, f"{PODS_PATH}/{filler['metadata']['name']}/binding", {"target": {"name": "tight-0018"}})
    await call(environment, f"{PODS_PATH}/{moving['metadata']['name']}/binding", {"target": {"name": "wide-0000"}})
    moved = environment.api.stored("pods", moving["metadata"]["name"], NAMESPACE)
    moved["spec"]["nodeName"] = "wide-0001"
    environment.api.cluster.store.put(PODS, moved)
    misfit["metadata"]["uid"] = "a-misfit"
    environment.api.store_raw("pods", misfit)


async def call(environment: Environment, path: str, body: dict[str, Any]) -> None:
    async with aiohttp.ClientSession() as session, session.post(environment.api.url + path, json=body) as answer:
        assert answer.status < 300, await answer.text()
