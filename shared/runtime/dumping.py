"""SIGUSR2 has a service tell in its log what it holds, as kube-scheduler's cache debugger does on the same signal.

Where FLOTILLA_PROFILE is set the signal is the profiler's.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.runtime.profiling import PROFILE


def survive_dump_signal(log: logging.Logger) -> None:
    """Unheeded, the signal would end the process, and it is sent by hand."""
    if not os.environ.get(PROFILE):
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR2, log.info, "SIGUSR2: only the queue and the snapshot have something to dump"
        )


@contextmanager
def on_dump_signal(dump: Callable[[], None]) -> Iterator[None]:
    """Inside, the signal has this called."""
    if os.environ.get(PROFILE):
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, dump)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGUSR2)
