"""The operator's commands on a running pipeline: pending pods, permits, a dump that matches the cluster."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from testing.builders import node
from tests.cli.operating import Operator, Said
from tests.pipeline.corner import a_corner
from tests.pipeline.ownplugins import BY_HAND, own_plugins
from tests.pipeline.support import until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pipeline]:
    with own_plugins(tmp_path_factory.mktemp("plugins")) as settings:
        async with Pipeline.running(PipelineOptions(workers=1, settings=settings)) as running:
            yield running


@pytest.fixture(autouse=True)
def reached(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's commands go to the pipeline."""
    monkeypatch.setenv("FLOTILLA_NATS_URL", pipeline.nats_url)


async def says(operator: Operator, wanted: str, *arguments: str) -> Said:
    """Once it does."""
    said: list[Said] = []

    async def is_said() -> bool:
        said.append(await operator.types(*arguments))
        return wanted in said[-1].out

    await until(is_said, f"{arguments} does not say {wanted}", patience=20.0)
    return said[-1]


async def test_an_operator_inspects_and_moves_pending_pods(pipeline: Pipeline, operator: Operator) -> None:
    async with a_corner(pipeline, "shop") as corner:
        await corner.has_nodes(node("n").capacity(cpu=2, memory="8Gi"))
        await corner.cluster.create(corner.pod("large").request(cpu=3), corner.pod("gated").gate("later"))
        listed = await says(operator, "unschedulable", "queue")
        rows = {line.split()[0]: line for line in listed.lines[2:]}
        assert rows["shop/large"].split()[3:7] == ["1", "1", "Insufficient", "cpu"]
        assert "a node is added" in rows["shop/large"]
        assert "gate SchedulingGates: waiting for scheduling gates: [later]" in rows["shop/gated"]
        alone = await operator.types("queue", "shop/large")
        assert any("0/1 nodes are available: 1 Insufficient cpu" in line for line in alone.lines)

        await corner.cluster.create(corner.pod("web").label(BY_HAND), corner.pod("other").label(BY_HAND))
        await says(operator, "shop/other", "permit", "list")
        allowed = await operator.types("permit", "allow", "shop/web")
        assert allowed.lines == ["shop/web: allowed for ByHand; binder-0 is binding it to n"]
        await corner.lands("web", "n")
        assumed = [json.loads(line) for line in (await operator.types("dump")).lines]
        assert [each["key"] for each in assumed if each["kind"] == "assumed"] == ["shop/other"]
        rejected = await operator.types("permit", "reject", "other", "-n", "shop", "--reason", "not today")
        assert rejected.lines[0].startswith(
            "shop/other: rejected for ByHand (not today); back in the queue, no longer assumed on n"
        )
        await says(operator, "not today", "queue", "shop/other")
        await corner.cluster.delete_pod("shop", "other")
        corner.left = {"large", "gated"}


async def test_a_dump_matches_the_cluster(pipeline: Pipeline, operator: Operator, tmp_path: Path) -> None:
    async with a_corner(pipeline, "dumped") as corner:
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
            "SIGUSR2: only the queue and the snapshot can dump",
        ):
            await until(lambda wanted=wanted: logged(pipeline, wanted), f"nothing is logged of {wanted}")  # type: ignore[misc]
        corner.left = {line.split()[0].removeprefix("dumped/") for line in (await operator.types("queue")).lines[2:]}


async def test_the_status_of_a_pipeline_names_a_frozen_worker(pipeline: Pipeline, operator: Operator) -> None:
    said = await says(operator, "all is well", "status")
    assert said.code == 0
    assert [line.split()[0] for line in said.lines[2:]] == [
        "watcher", "queue", "snapshot", "cycle", "worker-0", "binder-0",
    ]  # fmt: skip
    found = json.loads((await operator.types("status", "-o", "json")).out)
    by_name = {each["name"]: each for each in found["processes"]}
    assert {name: each["pid"] for name, each in by_name.items()} == {
        name: pid for name, pid in pipeline.processes.items() if name in by_name
    }
    assert by_name["queue"]["url"] == f"http://127.0.0.1:{pipeline.port('queue')}"
    worker = psutil.Process(pipeline.processes["worker-0"])
    worker.suspend()
    try:
        said = await operator.types("status")
    finally:
        worker.resume()
    assert said.code == 1
    assert "  ! no worker answers" in said.lines
    await says(operator, "all is well", "status")


async def test_a_doctor_of_a_running_pipeline_finds_it_well(
    pipeline: Pipeline, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOTILLA_REDIS_URL", pipeline.redis_url)
    await says(operator, "all is well", "status")
    said = await operator.types("doctor", "--server", str(pipeline.api_url))
    assert said.code == 0, said.out
    for text in ("processes: all 6 are ready", "hold the state of this cluster"):
        assert text in said.out
    assert "held for watcher by" in " ".join(said.out.split())


async def logged(pipeline: Pipeline, wanted: str) -> bool:
    return any(wanted in line for line in pipeline.log_lines)
