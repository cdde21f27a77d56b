"""Commands that run processes: ended by signals in good order, and the errors, memory and bus connection they share."""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil

from shared.errors import FlotillaError

if TYPE_CHECKING:
    from shared.bus import Bus

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP counts unless it is ignored (nohup)."""
MIB = 1 << 20


def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Run `work` and return its exit code. A signal cancels it; a second signal kills its child processes.

    After a signal the exit code is the shell's: 130 for Ctrl-C.
    """
    return asyncio.run(_interruptible(work))


async def _interruptible(work: Coroutine[Any, Any, int]) -> int:
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def receive(number: signal.Signals) -> None:
        if not received:
            task.cancel()
        else:
            for child in psutil.Process().children():
                child.kill()
        received.append(number)

    handled = [each for each in SIGNALS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    for each in handled:
        loop.add_signal_handler(each, receive, each)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]
    finally:
        for each in handled:
            loop.remove_signal_handler(each)


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


@asynccontextmanager
async def connected_bus(nats_url: str, prefix: str, name: str) -> "AsyncIterator[Bus]":
    """The bus of a command that takes part in a pipeline. Its telemetry is not exported."""
    from random import Random

    from shared.bus import Bus
    from shared.telemetry import Telemetry
    from shared.telemetry.logs import logger
    from shared.telemetry.metrics import Metrics
    from shared.telemetry.tracing import Tracer

    telemetry = Telemetry(Metrics(), Tracer(name, name, ids=Random()), logger(name))
    bus = await Bus.connect(nats_url, prefix, name, telemetry)
    try:
        yield bus
    finally:
        await bus.close()
