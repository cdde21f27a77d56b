"""The operator's commands on a pipeline that runs: what waits, permits by hand, a dump that agrees with the cluster."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from services.supervisor.options import PipelineOptions
from services.supervisor.pipeline import Pipeline
from shared.config.settings import Settings
from tests.builders import node
from tests.cli.operating import Operator, Said
from tests.pipeline.corner import a_corner
from tests.pipeline.support import until

PLUGIN = """
from shared.framework.plugin import Permission, PermitPlugin
from shared.framework.status import Code, Status


class ByHand(PermitPlugin):
    name = "ByHand"

    def permit(self, state, node):
        waits = "by-hand" in state.pod.metadata.labels
        return Permission(Status(Code.WAIT), 60.0) if waits else Permission()
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {permit: {enabled: [{name: ByHand}]}}
"""
pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pipeline]:
    """With a plugin of its own, installed as any package is."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    site = tmp_path / "site"
    about = site / "by_hand-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "by_hand.py").write_text(PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: by-hand\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[flotilla.plugins]\nByHand = by_hand:ByHand\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), *filter(None, [os.environ.get("PYTHONPATH")]))))
    options = PipelineOptions(workers=1, settings=Settings(config=str(tmp_path / "config.yaml")))
    async with Pipeline.running(options) as running:
        monkeypatch.setenv("FLOTILLA_NATS_URL", running.nats_url)
        yield running


async def says(operator: Operator, wanted: str, *arguments: str) -> Said:
    """Once it does."""
    said: list[Said] = []

    async def is_said() -> bool:
        said.append(await operator.types(*arguments))
        return wanted in said[-1].out

    await until(is_said, f"{arguments} does not say {wanted}", patience=20.0)
    return said[-1]


async def test_an_operator_sees_and_moves_what_waits(pipeline: Pipeline, operator: Operator) -> None:
    async with a_corner(pipeline, "shop") as corner:
        await corner.has_nodes(node("n").capacity(cpu=2, memory="8Gi"))
        await corner.cluster.create(corner.pod("large").request(cpu=3), corner.pod("gated").gate("later"))
        listed = await says(operator, "unschedulable", "queue")
        rows = {line.split()[0]: line for line in listed.lines[2:]}
        assert rows["shop/large"].split()[3:5] == ["1", "NodeResourcesFit"]
        assert "NodeAdd" in rows["shop/large"]
        assert "gate SchedulingGates" in rows["shop/gated"]
        alone = await operator.types("queue", "shop/large")
        assert any("0/1 nodes are available: 1 Insufficient cpu" in line for line in alone.lines)

        await corner.cluster.create(
            corner.pod("web").label({"by-hand": ""}), corner.pod("other").label({"by-hand": ""})
        )
        await says(operator, "shop/other", "permit", "list")
        allowed = await operator.types("permit", "allow", "shop/web")
        assert allowed.lines == ["shop/web: allowed for ByHand; binder-0 goes on to bind it to n"]
        await corner.lands("web", "n")
        assumed = [json.loads(line) for line in (await operator.types("dump")).lines]
        assert [each["key"] for each in assumed if each["kind"] == "assumed"] == ["shop/other"]
        rejected = await operator.types("permit", "reject", "other", "-n", "shop", "--reason", "not today")
        assert rejected.lines[0].startswith("shop/other: rejected for ByHand (not today); binder-0 gives up n")
        await says(operator, "not today", "queue", "shop/other")
        await corner.cluster.delete_pod("shop", "other")
        corner.left = {"large", "gated"}


async def test_a_dump_agrees_with_the_cluster(pipeline: Pipeline, operator: Operator, tmp_path: Path) -> None:
    async with a_corner(pipeline, "shop") as corner:
        await corner.has_nodes(node("a").capacity(cpu=2, memory="8Gi"), node("b").capacity(cpu=2, memory="8Gi"))
        await corner.cluster.create(*(corner.pod(f"web-{i}").request(cpu=1) for i in range(5)))
        await says(operator, "1 unschedulable", "queue")
        await corner.knows(pods=4, assumed_pods=0)
        said = await operator.types("dump", "--output", str(tmp_path / "dump"))
        assert said.code == 0, said.err
        nodes = [json.loads(line) for line in (tmp_path / "dump" / "node.jsonl").read_text().splitlines()]
        assert [(each["name"], each["requested"]["cpu"], each["pod_count"]) for each in nodes] == [
            ("a", 2000, 2),
            ("b", 2000, 2),
        ]
        summary = json.loads((tmp_path / "dump" / "summary.json").read_text())
        assert (summary["comparison"]["pods"], summary["comparison"]["waiting"]) == (4, 1)
        for name in ("queue", "snapshot", "cycle"):
            psutil.Process(pipeline.processes[name]).send_signal(signal.SIGUSR2)
        for wanted in (
            "dump: the queue holds 1 unschedulable",
            "dump: node a: 2 pods, cpu 2000/2000",
            "dump: compared with 2 nodes and 4 pods of the API server: 0 differences",
            "SIGUSR2: only the queue and the snapshot have something to dump",
        ):
            await until(lambda wanted=wanted: logged(pipeline, wanted), f"nothing is logged of {wanted}")  # type: ignore[misc]
        corner.left = {line.split()[0].removeprefix("shop/") for line in (await operator.types("queue")).lines[2:]}


async def logged(pipeline: Pipeline, wanted: str) -> bool:
    return any(wanted in line for line in pipeline.log_lines)
