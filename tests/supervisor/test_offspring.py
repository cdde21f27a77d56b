"""Services are forks of a process that has imported what they need; they behave as if they had been started alone."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from tests.supervisor.waiting import alive, until
from tools.supervisor.offspring import UNKNOWN_END, Nursery, Offspring
from tools.supervisor.servers import end

pytestmark = pytest.mark.asyncio

PATIENCE = 10.0
WAITING = "http.server"
"""A module of the standard library that runs until it is told to end."""


@pytest_asyncio.fixture
async def nursery() -> AsyncIterator[Nursery]:
    nursery = Nursery()
    try:
        yield nursery
    finally:
        await nursery.stop()


async def launch(nursery: Nursery, module: str, *arguments: str, **environment: str) -> Offspring:
    async with asyncio.timeout(PATIENCE):
        return await nursery.launch(module, arguments, environment)


async def wait(nursery: Nursery) -> Offspring:
    return await launch(nursery, WAITING, "--bind", "127.0.0.1", "0")


async def said_by(process: Offspring) -> str:
    async with asyncio.timeout(PATIENCE):
        return (await process.output.read()).decode()


async def test_it_is_as_if_started_alone(nursery: Nursery) -> None:
    process = await launch(nursery, "base64", "-h")
    assert "base64" in await said_by(process)
    process = await wait(nursery)
    await until(lambda: os.getsid(process.pid) == process.pid)
    assert psutil.Process(process.pid).cwd() == os.getcwd()


async def test_how_it_ended_is_known(nursery: Nursery) -> None:
    process = await launch(nursery, "services.worker", FLOTILLA_NATS_URL="nonsense")
    assert await process.wait() == 2
    assert process.returncode == 2
    assert "nonsense" in await said_by(process)
    process = await wait(nursery)
    assert process.returncode is None
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    process.kill()  # the number may be somebody else's by now
    process = await wait(nursery)
    assert await end(process, PATIENCE) == -signal.SIGTERM


async def test_each_has_randomness_of_its_own(nursery: Nursery) -> None:
    timed = ("-n", "1", "-s", "import random", "print(random.random())")
    numbers = [(await said_by(await launch(nursery, "timeit", *timed))).splitlines()[0] for _ in range(2)]
    assert numbers[0] != numbers[1]


async def test_it_goes_with_the_one_who_started_it() -> None:
    nursery = Nursery()
    process = await wait(nursery)
    await nursery.stop()
    assert not alive(process.pid)
    assert await process.wait() == UNKNOWN_END


async def test_a_lost_nursery_is_replaced(nursery: Nursery) -> None:
    process = await wait(nursery)
    parent = psutil.Process(process.pid).parent()
    assert parent is not None
    parent.kill()
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == UNKNOWN_END
    await until(lambda: not alive(process.pid))
    assert (await wait(nursery)).returncode is None


async def test_a_launch_that_nobody_waits_for_leaves_nothing(nursery: Nursery) -> None:
    await wait(nursery)
    task = asyncio.create_task(wait(nursery))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_one_that_has_ended_unheard_can_be_signalled(nursery: Nursery) -> None:
    """Its parent has collected it already, and the word of that has not been read yet: there is no such process."""
    process = await wait(nursery)
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while psutil.pid_exists(process.pid):  # the loop must not run meanwhile, or it would hear
        assert time.monotonic() < deadline
    assert process.returncode is None
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGKILL
