"""flotilla bench-start --restart, as it is used."""

from pathlib import Path

import psutil
import pytest

from tests.cli.commands import flotilla
from tests.kube.support import api_server, raw_node

pytestmark = pytest.mark.asyncio
STARTS = ("nothing: the first start", "Ctrl-C", "SIGTERM to all processes", "kill -9 of all processes")


async def test_each_kind_of_restart_is_timed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with api_server() as server:
        server.store_raw("nodes", raw_node("n"))
        async with flotilla(tmp_path, "bench-start", "--restart", "--server", server.url, "--workers", "1") as command:
            for start in STARTS:
                line = await command.prints(lambda line, start=start: line.startswith(start))  # type: ignore[misc]
                seconds, unit, cpu, load = line.removeprefix(start).split()
                assert (float(seconds) > 0, unit, float(cpu) > 0, float(load) >= 0) == (True, "s", True, True)
            assert await command.ends() == 0
        bucket = server.cluster.store.bucket(server.cluster.catalog.find("", "v1", "pods"))  # type: ignore[arg-type]
        assert not list(bucket.in_order())
    assert not list(tmp_path.iterdir())


async def test_a_cluster_can_only_be_given_with_restart(tmp_path: Path) -> None:
    async with flotilla(tmp_path, "bench-start", "--kubeconfig", str(tmp_path)) as command:
        assert await command.ends() == 2
        assert command.lines == ["flotilla: --server and --kubeconfig: require --restart"]


async def test_a_pipeline_that_fails_to_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("just text")
    before = set(psutil.Process().children(recursive=True))
    async with flotilla(tmp_path, "bench-start", "--restart", "--kubeconfig", str(tmp_path / "config")) as command:
        assert await command.ends() == 2
        assert "not a usable kubeconfig" in command.lines[-1]
    assert set(psutil.Process().children(recursive=True)) <= before
