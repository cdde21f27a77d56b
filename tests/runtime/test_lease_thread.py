"""The thread of a process in which its Leases are kept."""

import asyncio
import threading

import pytest

from shared.runtime.lease_thread import LeaseThread
from tests.bus.support import until

pytestmark = pytest.mark.asyncio


class Work:
    """Runs until it is told to end."""

    def __init__(self, leases: LeaseThread) -> None:
        self.thread: threading.Thread | None = None
        self.ended = threading.Event()
        self._end = threading.Event()
        leases.start(self._run, self.ended.set)

    async def _run(self) -> None:
        self.thread = threading.current_thread()
        while not self._end.is_set():
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        self._end.set()
        await until(self.ended.is_set)


async def test_all_work_of_a_process_is_done_in_one_thread_which_ends_with_the_last() -> None:
    leases = LeaseThread()
    one, two = Work(leases), Work(leases)
    await until(lambda: one.thread is not None and two.thread is not None)
    thread = one.thread
    assert thread is not None and thread is two.thread and thread is not threading.current_thread()
    await one.end()
    leases.join()
    assert thread.is_alive(), "the other work goes on"
    await two.end()
    leases.join()
    assert not thread.is_alive()
    leases.join()


async def test_work_that_begins_later_is_done_in_another_thread() -> None:
    leases = LeaseThread()
    one = Work(leases)
    await one.end()
    two = Work(leases)
    await until(lambda: two.thread is not None)
    assert two.thread is not one.thread
    leases.join()
    await two.end()
    leases.join()
    assert two.thread is not None and not two.thread.is_alive()


async def test_work_that_fails_ends() -> None:
    leases, ended = LeaseThread(), threading.Event()

    async def fail() -> None:
        raise ValueError("no")

    leases.start(fail, ended.set)
    await until(ended.is_set)
    leases.join()
