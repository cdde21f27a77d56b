"""Services are forks of a fork server; they behave as if they had been started directly."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from shared.errors import UserError
from tests.supervisor.waiting import alive, until
from tools.supervisor.fork_server import Started
from tools.supervisor.forked_process import UNKNOWN_END, ForkedProcess, ForkServer
from tools.supervisor.servers import end

pytestmark = pytest.mark.asyncio

PATIENCE = 10.0
WAITING = "http.server"
"""A module of the standard library that runs until it is terminated."""


@pytest_asyncio.fixture
async def fork_server() -> AsyncIterator[ForkServer]:
    fork_server = ForkServer()
    try:
        yield fork_server
    finally:
        await fork_server.stop()


async def launch(fork_server: ForkServer, module: str, *arguments: str, **environment: str) -> ForkedProcess:
    async with asyncio.timeout(PATIENCE):
        return await fork_server.launch(module, arguments, environment)


async def wait(fork_server: ForkServer) -> ForkedProcess:
    return await launch(fork_server, WAITING, "--bind", "127.0.0.1", "0")


async def output_of(process: ForkedProcess) -> str:
    async with asyncio.timeout(PATIENCE):
        return (await process.output.read()).decode()


async def test_a_fork_is_like_a_process_started_directly(fork_server: ForkServer) -> None:
    process = await launch(fork_server, "base64", "-h")
    assert "base64" in await output_of(process)
    process = await wait(fork_server)
    await until(lambda: os.getsid(process.pid) == process.pid)
    assert psutil.Process(process.pid).cwd() == os.getcwd()


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are set on Linux only")
async def test_forks_are_told_apart_by_name(fork_server: ForkServer) -> None:
    async with asyncio.timeout(PATIENCE):
        one = await fork_server.launch(WAITING, ["--bind", "127.0.0.1", "0"], {}, "worker-7")
        other = await fork_server.launch(WAITING, ["--bind", "127.0.0.1", "0"], {}, "binder-with-a-name-" + "x" * 500)
    await until(lambda: title(one) == "flotilla worker-7")
    await until(lambda: title(other).startswith("flotilla binder-with-a-name-x"))
    assert len(title(other)) < 500
    for process, name in ((one, "worker-7"), (other, "binder-with-a-n")):
        assert Path(f"/proc/{process.pid}/comm").read_text() == f"{name}\n"


def title(process: ForkedProcess) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").decode()


async def test_the_exit_code_is_reported(fork_server: ForkServer) -> None:
    process = await launch(fork_server, "services.worker", FLOTILLA_NATS_URL="nonsense")
    assert await process.wait() == 2
    assert process.returncode == 2
    assert process.cpu > 0.0
    assert "nonsense" in await output_of(process)
    process = await wait(fork_server)
    assert process.returncode is None
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    process.kill()  # the pid may have been reused
    process = await wait(fork_server)
    assert await end(process, PATIENCE) == -signal.SIGTERM


async def test_forks_draw_different_random_numbers(fork_server: ForkServer) -> None:
    timed = ("-n", "1", "-s", "import random", "print(random.random())")
    numbers = [(await output_of(await launch(fork_server, "timeit", *timed))).splitlines()[0] for _ in range(2)]
    assert numbers[0] != numbers[1]


async def test_stopping_the_fork_server_kills_its_processes() -> None:
    fork_server = ForkServer()
    process = await wait(fork_server)
    await fork_server.stop()
    assert not alive(process.pid)
    assert await process.wait() == UNKNOWN_END


async def test_a_lost_fork_server_is_replaced(fork_server: ForkServer) -> None:
    process = await wait(fork_server)
    parent = psutil.Process(process.pid).parent()
    assert parent is not None
    parent.kill()
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == UNKNOWN_END
    await until(lambda: not alive(process.pid))
    assert (await wait(fork_server)).returncode is None


async def test_a_cancelled_launch_leaves_no_process(fork_server: ForkServer) -> None:
    await wait(fork_server)
    task = asyncio.create_task(wait(fork_server))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


class Late(ForkServer):
    """Has `launching` cancelled in the turn of the loop in which it learns that the process runs."""

    launching: asyncio.Task[ForkedProcess]
    pid = 0

    def _on_started(self, report: Started) -> None:
        super()._on_started(report)
        self.pid = report.pid
        self.launching.cancel()


async def test_a_launch_that_is_cancelled_too_late_leaves_no_process_either() -> None:
    fork_server = Late()
    try:
        fork_server.launching = asyncio.create_task(wait(fork_server))
        await asyncio.wait([fork_server.launching])
        assert fork_server.launching.cancelled()
        await until(lambda: not alive(fork_server.pid))
    finally:
        await fork_server.stop()


async def test_a_fork_server_that_could_not_be_started_is_started_the_next_time(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as missing:
        missing.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(FileNotFoundError):
            await wait(fork_server)
    assert (await wait(fork_server)).returncode is None


async def test_signalling_a_process_whose_end_is_not_reported_yet(fork_server: ForkServer) -> None:
    """Its parent has reaped it, and the report has not been read yet: the pid does not exist."""
    process = await wait(fork_server)
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while psutil.pid_exists(process.pid):  # the event loop must not run, or it would read the report
        assert time.monotonic() < deadline
    assert process.returncode is None
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGKILL


async def test_a_missing_module_is_one_line_and_not_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nats.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    fork_server = ForkServer()
    try:
        for _ in range(2):
            with pytest.raises(UserError, match=r"^No module named 'a_module_that_is_missing': .* run make setup$"):
                await launch(fork_server, "services.snapshot")
    finally:
        await fork_server.stop()
