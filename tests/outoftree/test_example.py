"""The worked example, installed as by a user: its own tests pass, and a whole pipeline runs it."""

import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.bus import Bus
from shared.bus.subjects import BINDER_PERMITS
from shared.config.settings import Settings
from shared.messages.binding import PermitAnswer
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.builders import node
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.support import until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

EXAMPLE = Path(__file__).parents[2] / "examples" / "flotilla-example-plugins"

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: SameAppLimit
      - name: PreferredRank
        weight: 100
      - name: Approval
    postFilter:
      disabled:
      - name: "*"
  pluginConfig:
  - name: SameAppLimit
    args:
      most: 2
  - name: Approval
    args:
      seconds: 60
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package in it, installed without any network."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = folder / "site"
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source))
    yield target


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_tests_pass(installed: Path) -> None:
    tests = str(installed.parent / "source" / "tests")
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    arguments = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tests, tests)
    assert "8 passed" in run(sys.executable, "-c", code, *arguments)


@pytest_asyncio.fixture
async def pipeline(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pipeline]:
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    options = PipelineOptions(workers=2, settings=Settings(config=str(tmp_path / "config.yaml")))
    async with Pipeline.running(options) as running:
        yield running


@pytest.mark.asyncio
async def test_a_pipeline_runs_it(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "example") as corner:
        await corner.has_nodes(
            node("low").capacity(cpu=8, memory="8Gi"),
            node("high").capacity(cpu=8, memory="8Gi").label({"example.com/rank": "5"}),
        )
        for i in range(4):
            await corner.cluster.create(corner.pod(f"web-{i}").label(app="web"))
            await corner.lands(f"web-{i}", "high" if i < 2 else "low")
        await corner.cluster.create(corner.pod("web-4").label(app="web"))
        await corner.is_unschedulable("web-4", "0/2 nodes are available: 2 node(s) had 2 pods of app web.")
        await corner.cluster.create(corner.pod("careful").label({"example.com/needs-approval": "true"}))
        await approve(pipeline, corner, "careful")
        await corner.lands("careful", "high")
        corner.left = {"web-4"}


async def approve(pipeline: Pipeline, corner: Corner, name: str) -> None:
    """Once the pod waits for it, and not before."""
    uid = (await corner.cluster.pod(corner.namespace, name))["metadata"]["uid"]

    async def assumed() -> bool:
        answer = await pipeline.ask("binder-0", "/metrics")
        return answer is not None and "flotilla_binder_held 1.0" in answer.body

    await until(assumed, f"{name} does not wait")
    assert await corner.node_of(name) == ""
    telemetry = Telemetry(Metrics(), Tracer("test", "test", ids=random.Random()), logger("test"))
    bus = await Bus.connect(pipeline.nats_url, pipeline.options.settings.prefix, "approver", telemetry)
    try:

        async def bound() -> bool:
            """A binder that holds the order may not wait for the answer yet, and then takes no notice of it."""
            bus.post(BINDER_PERMITS, PermitAnswer(uid, "Approval", True))
            return await corner.node_of(name) != ""

        await until(bound, f"{name} is not bound", 30.0)
    finally:
        await bus.close()
