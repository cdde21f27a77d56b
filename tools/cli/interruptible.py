"""Work that a signal ends in good order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The last one, that the terminal is gone, counts unless it is ignored (nohup)."""


def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Its exit code. A signal cancels the work, which cleans up; a second one kills the processes it waits for.

    Work that a signal has ended has the shell's exit code for that: 130 for Ctrl-C.
    """
    return asyncio.run(_Interruptible(work).run())


class _Interruptible:
    def __init__(self, work: Coroutine[Any, Any, int]) -> None:
        self._work = work
        self._received: signal.Signals | None = None

    async def run(self) -> int:
        task = asyncio.ensure_future(self._work)
        loop = asyncio.get_running_loop()
        heeded = [each for each in SIGNALS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
        for each in heeded:
            loop.add_signal_handler(each, self._receive, each, task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._received is None:
                raise
            return 128 + self._received
        finally:
            for each in heeded:
                loop.remove_signal_handler(each)

    def _receive(self, received: signal.Signals, task: "asyncio.Task[int]") -> None:
        if self._received is None:
            self._received = received
            task.cancel()
            return
        for child in psutil.Process().children():
            child.kill()
