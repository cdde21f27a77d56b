"""Services that do not answer are killed and restarted, and each standby names its leader."""

import io
import json
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.supervisor.waiting import until
from tools.supervisor.options import SINGLE, PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio


async def test_a_frozen_service_is_killed_and_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with Pipeline.running(PipelineOptions(workers=1)) as pipeline:
        before = pipeline.processes
        monkeypatch.setattr("tools.supervisor.children.MAX_IDLE_PROBES", 2)
        monkeypatch.setattr("tools.supervisor.children.PROBE_INTERVAL", 0.01)
        pipeline.signal("worker-0", signal.SIGSTOP)
        await until(lambda: pipeline.processes.get("worker-0") not in (None, before["worker-0"]), patience=60)
        assert [
            line
            for line in pipeline.log_lines
            if "worker-0 is killed: it has not answered 2 liveness probes in a row, and used no CPU meanwhile" in line
        ]
        others = {name: pid for name, pid in before.items() if name != "worker-0"}
        assert others.items() <= pipeline.processes.items()
        assert not psutil.pid_exists(before["worker-0"])


async def test_a_warning_says_when_a_frozen_service_will_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    output = io.StringIO()
    async with Pipeline.running(PipelineOptions(workers=1, output=output, as_json=True)) as pipeline:
        binder = pipeline.processes["binder-0"]
        monkeypatch.setattr("tools.supervisor.children.PROBE_TIMEOUT", 0.5)
        monkeypatch.setattr("tools.supervisor.children.PROBE_INTERVAL", 0.5)
        pipeline.signal("binder-0", signal.SIGSTOP)
        warning = f"binder-0 (pid {binder}) does not answer or run for 2 s; it is killed after 4 s"
        await until(lambda: warning in output.getvalue(), patience=60)
        (line,) = [line for line in output.getvalue().splitlines() if warning in line]
        assert json.loads(line)["level"] == "warning"
        pipeline.signal("binder-0", signal.SIGCONT)
        await until(lambda: f"binder-0 (pid {binder}) answers again" in output.getvalue())


async def test_each_standby_names_its_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with Pipeline.running(PipelineOptions(workers=1, standbys=True)) as pipeline:
        standing_by = await pipeline.standing_by()
        assert {name.removesuffix("-standby") for name in standing_by} == set(SINGLE)
        for name, leader in standing_by.items():
            other = name.removesuffix("-standby") if name.endswith("-standby") else f"{name}-standby"
            assert leader.endswith(f"-{other}")
