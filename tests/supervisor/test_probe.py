"""CPU time by name, the ports of processes, and their answers over HTTP."""

import asyncio
import os
import socket
import sys

import psutil
import pytest

from tests.supervisor.waiting import until
from tools.supervisor.probe import CpuAccounts, get, listening_port

pytestmark = pytest.mark.asyncio


async def spend(accounts: CpuAccounts, seconds: float) -> None:
    """Run a process of the account until it has used this much more CPU time."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        accounts.opened("busy", process.pid)
        goal = accounts.seconds()["busy"] + seconds
        await until(lambda: accounts.seconds()["busy"] >= goal)
    finally:
        process.kill()
        await process.wait()
    accounts.closed("busy")


async def test_cpu_time_adds_up_over_restarts() -> None:
    accounts = CpuAccounts()
    await spend(accounts, 0.05)
    first = accounts.seconds()["busy"]
    assert first >= 0.05
    await spend(accounts, 0.05)
    assert accounts.seconds()["busy"] >= first + 0.05


async def test_a_process_that_has_ended_already_counts_as_zero() -> None:
    accounts = CpuAccounts()
    accounts.opened("gone", unused_pid())
    assert accounts.seconds() == {"gone": 0.0}


def unused_pid() -> int:
    return next(pid for pid in range(4_000_000, 2, -1) if not psutil.pid_exists(pid))


async def test_the_port_of_a_process_is_found() -> None:
    assert listening_port(unused_pid()) is None
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        before = listening_port(os.getpid())
        listening.listen()
        assert before is None
        assert listening_port(os.getpid()) == listening.getsockname()[1]


async def test_an_answer_that_is_not_http_counts_as_none() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"nonsense\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert await get(port, "/") is None
    assert await get(port, "/") is None


async def test_no_answer_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert await get(silent.getsockname()[1], "/", timeout=0.05) is None
