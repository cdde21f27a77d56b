"""Restarts of a whole pipeline with an empty Redis, while the API server keeps running."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from shared.config.settings import ApiSettings
from testing.simulator.service import Simulator
from tests.kube.support import api_server, raw_node, raw_pod
from tests.supervisor.waiting import alive, until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio
WAITS = "the ledger of earlier terms is lost"


def options(server: Simulator) -> PipelineOptions:
    return PipelineOptions(workers=1, api=ApiSettings(server=server.url))


def is_bound(server: Simulator, name: str) -> bool:
    return bool(server.stored("pods", name, "default")["spec"].get("nodeName"))


async def test_after_a_clean_stop_the_next_start_decides_at_once() -> None:
    async with api_server() as server:
        server.store_raw("nodes", raw_node("n"))
        for name in ("first", "second"):
            server.store_raw("pods", raw_pod(name, cpu="1m"))
            async with Pipeline.running(options(server)) as pipeline:
                await until(lambda name=name: is_bound(server, name))  # type: ignore[misc]
                assert not [line for line in pipeline.log_lines if WAITS in line]
            lease = server.stored("leases", "flotilla-snapshot", "kube-system", group="coordination.k8s.io")
            term = lease["spec"]["leaseTransitions"]
            assert lease["metadata"]["annotations"]["flotilla.io/settled"] == str(term)


@asynccontextmanager
async def command(server: Simulator, log: Path, *arguments: str) -> AsyncIterator[psutil.Process]:
    """Run `flotilla up`; all of its processes are killed at the end."""
    with log.open("wb") as output:
        up = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tools.cli.main", "up", "--server", server.url, "--workers", "1", *arguments),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process = psutil.Process(up.pid)
    try:
        yield process
    finally:
        everything = [process, *process.children(recursive=True)]
        for each in everything:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        await up.wait()
        await until(lambda: not any(alive(each.pid) for each in everything))


async def test_after_everything_was_killed_the_next_start_waits_for_no_lease_also_with_another_grouping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with api_server() as server:
        server.store_raw("nodes", raw_node("n"))
        holders = []
        for name, grouping in (("first", "apart"), ("second", "core")):
            server.store_raw("pods", raw_pod(name, cpu="1m"))
            log = tmp_path / f"{name}.log"
            async with command(server, log, "--grouping", grouping):
                await until(lambda name=name: is_bound(server, name), patience=60)  # type: ignore[misc]
                lease = server.stored("leases", "flotilla-snapshot", "kube-system", group="coordination.k8s.io")
                holders.append(lease["spec"]["holderIdentity"])
            assert "standby" not in log.read_text()
        assert holders[0] == holders[1]
