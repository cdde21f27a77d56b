"""A whole pipeline: it starts, restarts what crashes, and leaves nothing behind."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest

from shared.config.settings import ApiSettings, Settings
from shared.errors import ClusterError, UserError
from shared.runtime.context import Health
from tests.supervisor.waiting import alive, until, until_awaited
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import IS_STARTING, Pipeline

pytestmark = pytest.mark.asyncio

ALL = ["binder-0", "cycle", "nats-server", "queue", "redis-server", "simulator", "snapshot", "watcher", "worker-0"]
ONE_OF_EACH = PipelineOptions(workers=1)
NO_API_SERVER = ApiSettings(server="http://127.0.0.1:1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pipelines make their folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def left_in(folder: Path, before: set[psutil.Process]) -> list[object]:
    """Files, and processes that were not there before: other tests may have left Python's own helpers."""
    return [*folder.iterdir(), *(children() - before)]


@pytest.fixture
def before() -> set[psutil.Process]:
    return children()


async def test_crashed_processes_are_restarted_and_nothing_is_left(folder: Path, before: set[psutil.Process]) -> None:
    async with Pipeline.running(ONE_OF_EACH) as pipeline:
        assert sorted(pipeline.processes) == ALL
        assert await pipeline.unready() == {}
        assert all(
            seconds > 0 for name, seconds in pipeline.cpu().items() if name in ("cycle", "simulator", "worker-0")
        )
        await the_simulator_answers(pipeline)
        no_secret_is_shown(pipeline)
        await a_killed_service_comes_back(pipeline)
        await nats_comes_back(pipeline)
        pids = pipeline.processes
    assert left_in(folder, before) == []
    assert not any(alive(pid) for pid in pids.values())


async def the_simulator_answers(pipeline: Pipeline) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{pipeline.api_url}/api/v1/nodes") as response:
        assert response.status == 200


def no_secret_is_shown(pipeline: Pipeline) -> None:
    secret = urlsplit(pipeline.nats_url).password or "missing"
    shown = [" ".join(psutil.Process(pid).cmdline()) for pid in pipeline.processes.values()]
    shown += pipeline.log_lines
    assert not [text for text in shown if secret in text]


async def a_killed_service_comes_back(pipeline: Pipeline) -> None:
    before, spent = pipeline.processes["worker-0"], pipeline.cpu()["worker-0"]
    pipeline.kill("worker-0")
    await until(lambda: pipeline.processes.get("worker-0", before) != before)
    assert any("worker-0 was ended by SIGKILL; starts again in 0.2 s" in line for line in pipeline.log_lines)
    again = f"worker-0 runs again, as pid {pipeline.processes['worker-0']}"
    assert any(again in line for line in pipeline.log_lines)
    assert pipeline.cpu()["worker-0"] >= spent
    await until_awaited(lambda: all_ready(pipeline))


async def nats_comes_back(pipeline: Pipeline) -> None:
    url, before = pipeline.nats_url, pipeline.processes["nats-server"]
    pipeline.kill("nats-server")
    await until(lambda: pipeline.processes.get("nats-server", before) != before)
    assert pipeline.nats_url == url
    await until_awaited(lambda: all_ready(pipeline))


async def all_ready(pipeline: Pipeline) -> bool:
    return not await pipeline.unready()


async def test_a_bad_configuration_ends_the_pipeline(
    folder: Path, before: set[psutil.Process], tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = tmp_path_factory.mktemp("config") / "scheduler.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: 7\n")
    with pytest.raises(UserError, match="profiles"):
        async with Pipeline.running(PipelineOptions(workers=1, settings=Settings(config=str(config)))):
            pass
    assert left_in(folder, before) == []


async def test_services_that_are_not_ready_in_time_are_named(folder: Path, before: set[psutil.Process]) -> None:
    with pytest.raises(ClusterError, match=r"not ready after 0\.01 s: [a-z0-9, -]+: .+"):
        async with Pipeline.running(PipelineOptions(start_patience=0.01, api=NO_API_SERVER)):
            pass
    assert left_in(folder, before) == []


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3, 1.2])
async def test_cancelling_the_start_leaves_nothing(seconds: float, folder: Path, before: set[psutil.Process]) -> None:
    """The moments are before the servers, among them, at the simulator, and among the services."""

    async def run() -> None:
        async with Pipeline.running(ONE_OF_EACH):
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_in(folder, before) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (PipelineOptions(workers=0), "at least one worker and one binder"),
        (PipelineOptions(workers=3, settings=Settings(shard_count=2)), "3 workers cannot share 2 shards"),
    ],
)
async def test_impossible_options_are_refused_before_anything_starts(options: PipelineOptions, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        async with Pipeline.running(options):
            pass


async def test_the_supervisor_imports_nothing_that_only_services_need() -> None:
    """It imports before any service starts, so the first pod would wait for it."""
    heavy = {"aiohttp", "kubernetes_asyncio", "nats", "numpy", "opentelemetry", "prometheus_client", "redis", "uvloop"}
    code = f"import sys, tools.cli.up, tools.supervisor.pipeline; print(*({heavy} & sys.modules.keys()))"
    imported = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert imported.stdout.split() == []


async def test_the_answer_of_a_service_that_is_starting() -> None:
    assert Health().reasons() == [IS_STARTING]
