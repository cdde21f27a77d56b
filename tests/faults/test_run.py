"""Runs from start to end, short: what should hold does, and what does not is found."""

import io
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from testing.auditor.violations import Limits
from testing.simulator.resources import PODS
from tools.cli.faults.checking import Checking
from tools.cli.faults.load import NAMESPACE, PODS_PATH, Load, Wave, pod
from tools.cli.faults.loading import Loader
from tools.cli.faults.looking import looking
from tools.cli.faults.play import Faults
from tools.cli.faults.stage import Stage, on_stage

pytestmark = pytest.mark.asyncio

SECONDS, NODES, SEEDS = 4.0, 20, (5187,)
"""The snapshot is killed, Redis goes back by a second and hangs, a worker is stopped, and the API server is restarted
without its history and loses answers to status patches."""
PODS_THAT_COME = 300
CALM_PATIENCE = 60.0
"""Seconds; a machine that is busy with other things takes some."""
LIMITS = Limits(lag=0.5, patience=1.0)
"""Nothing is killed where these hold."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
async def test_everything_holds_though_parts_fail(seed: int) -> None:
    said = io.StringIO()
    code = await Faults(SECONDS, Load(PODS_THAT_COME, NODES, seed), said).play()
    assert code == 0, said.getvalue()
    assert said.getvalue().startswith(f"seed {seed}: ")
    assert "✗" not in said.getvalue()
    assert said.getvalue().endswith("everything held\n")


async def test_what_does_not_hold_is_found(tmp_path: Path) -> None:
    load = Load(100, NODES, 1)
    async with (
        on_stage(load.seed, tmp_path, LIMITS) as stage,
        looking(stage, NODES) as look,
        Loader(stage.cluster.url) as loader,
    ):
        await loader.prepare(load)
        await loader.bring(load.calm())
        assert await look.until_quiet(CALM_PATIENCE) == ""
        await break_promises(stage, loader)
        checks = await Checking(stage, look, NODES).all(await look.unrest())
    broken = {check.what.partition(",")[0]: "\n".join(check.broken) for check in checks if check.broken}
    assert "small-90000" in broken["every pod that fits is bound"]
    assert "which is over what it has" in broken["no node held more than it has"]
    assert "small-90001" in broken["no pod was bound twice"]
    assert "nothing of the sort" in broken["every pod that does not fit waits"]


async def break_promises(stage: Stage, loader: Loader) -> None:
    """A pod that waits though it fits, a node that holds too much, a pod that moves, and a condition that is wrong."""
    gated = pod("small", 90_000)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    moving, filler, misfit = pod("small", 90_001), pod("filler", 90_000), pod("huge", 90_000)
    for each in (moving, filler):
        each["spec"]["schedulerName"] = "somebody-else"
    misfit["spec"]["schedulerName"] = "somebody-else"
    misfit["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "nothing of the sort"}]}
    await loader.bring(Wave([gated, moving, filler]))
    await call(stage, f"{PODS_PATH}/{filler['metadata']['name']}/binding", {"target": {"name": "tight-0018"}})
    await call(stage, f"{PODS_PATH}/{moving['metadata']['name']}/binding", {"target": {"name": "wide-0000"}})
    moved = stage.cluster.stored("pods", moving["metadata"]["name"], NAMESPACE)
    moved["spec"]["nodeName"] = "wide-0001"
    stage.cluster.cluster.store.put(PODS, moved)
    misfit["metadata"]["uid"] = "a-misfit"
    stage.cluster.store_raw("pods", misfit)


async def call(stage: Stage, path: str, body: dict[str, Any]) -> None:
    async with aiohttp.ClientSession() as session, session.post(stage.cluster.url + path, json=body) as answer:
        assert answer.status < 300, await answer.text()
