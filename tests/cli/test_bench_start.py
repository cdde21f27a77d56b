"""flotilla bench-start --restart, as it is used."""

from pathlib import Path

import psutil
import pytest

from tests.cli.commands import flotilla
from tests.kube.support import api_server, raw_node
from tools.bench.start.roll import Takeover, longest_pause

STARTS = ("nothing: the first start", "Ctrl-C", "SIGTERM to all processes", "kill -9 of all processes")


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_a_cluster_can_only_be_given_with_restart(tmp_path: Path) -> None:
    async with flotilla(tmp_path, "bench-start", "--kubeconfig", str(tmp_path)) as command:
        assert await command.ends() == 2
        assert command.lines == ["flotilla: --server and --kubeconfig: require --restart"]


@pytest.mark.asyncio
async def test_a_pipeline_that_fails_to_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("just text")
    before = set(psutil.Process().children(recursive=True))
    async with flotilla(tmp_path, "bench-start", "--restart", "--kubeconfig", str(tmp_path / "config")) as command:
        assert await command.ends() == 2
        assert "not a usable kubeconfig" in command.lines[-1]
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_takeover_is_told_by_what_was_bound_around_it() -> None:
    times = [(at / 10, at / 10 + 0.5) for at in range(100)] + [(20 + at / 10, 20.5 + at / 10) for at in range(100)]
    assert longest_pause(times, 0.0, 10.0) == pytest.approx(0.5)
    over = Takeover("queue", began=2.0, ended=9.0, taken=10.0, ready=15.0, over=25.0, times=times)
    name, before, after, lease, first, _, ready = over.row()
    assert (name, before, after, lease, first, ready) == ("queue", "0.10 s", "10.10 s", "1.00 s", "10.50 s", "6.0 s")
