"""Commands that run processes: ended by signals in good order, and the errors, memory and telemetry they share."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import psutil

from shared.errors import FlotillaError

if TYPE_CHECKING:
    from shared.telemetry import Telemetry

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP counts unless it is ignored (nohup)."""
MIB = 1 << 20


def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Run `work` and return its exit code. A signal cancels it; a second signal kills its child processes.

    After a signal the exit code is the shell's: 130 for Ctrl-C.
    """
    return asyncio.run(_Interruptible(work).run())


class _Interruptible:
    def __init__(self, work: Coroutine[Any, Any, int]) -> None:
        self._work = work
        self._received: signal.Signals | None = None

    async def run(self) -> int:
        task = asyncio.ensure_future(self._work)
        loop = asyncio.get_running_loop()
        handled = [each for each in SIGNALS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
        for each in handled:
            loop.add_signal_handler(each, self._receive, each, task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._received is None:
                raise
            return 128 + self._received
        finally:
            for each in handled:
                loop.remove_signal_handler(each)

    def _receive(self, received: signal.Signals, task: "asyncio.Task[int]") -> None:
        if self._received is None:
            self._received = received
            task.cancel()
            return
        for child in psutil.Process().children():
            child.kill()


def resident_memory(processes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by name, of the processes that still run. `processes`: pids by name."""
    found: dict[str, int] = {}
    for name, pid in processes.items():
        try:
            found[name] = psutil.Process(pid).memory_info().rss
        except psutil.Error:
            continue
    return found


def root_cause(error: BaseException) -> BaseException:
    """The first of our errors in an exception group; otherwise the error itself."""
    ours = error.subgroup(FlotillaError) if isinstance(error, BaseExceptionGroup) else None
    return error if ours is None else root_cause(ours.exceptions[0])


def local_telemetry(name: str) -> "Telemetry":
    """Telemetry of a command that takes part in a pipeline; it is not exported."""
    from random import Random

    from shared.telemetry import Telemetry
    from shared.telemetry.logs import logger
    from shared.telemetry.metrics import Metrics
    from shared.telemetry.tracing import Tracer

    return Telemetry(Metrics(), Tracer(name, name, ids=Random()), logger(name))
