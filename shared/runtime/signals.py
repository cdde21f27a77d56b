"""SIGUSR2: dumps a service's state to its log, as kube-scheduler's cache debugger does on the same signal.

If FLOTILLA_PROFILE names a file, the signal starts and stops the profiler instead, for benchmarks. The profiler slows
everything down; when stopped, it writes the file in pstats' format.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cProfile

PROFILE = "FLOTILLA_PROFILE"


def handle_sigusr2(log: logging.Logger) -> None:
    """Install the handler of a service without a dump; unhandled, the signal would end the process."""
    path = os.environ.get(PROFILE)
    loop = asyncio.get_running_loop()
    if path:
        loop.add_signal_handler(signal.SIGUSR2, _Profiler(Path(path)).toggle)
    else:
        loop.add_signal_handler(signal.SIGUSR2, log.info, "SIGUSR2: only the queue and the snapshot can dump")


@contextmanager
def on_dump_signal(dump: Callable[[], None]) -> Iterator[None]:
    """Call `dump` on the signal while the context lasts."""
    if os.environ.get(PROFILE):
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, dump)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGUSR2)


class _Profiler:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._profile: cProfile.Profile | None = None

    def toggle(self) -> None:
        if self._profile is None:
            import cProfile

            self._profile = cProfile.Profile()
            self._profile.enable()
            return
        self._profile.disable()
        unfinished = self._path.with_suffix(".unfinished")
        self._profile.dump_stats(unfinished)
        unfinished.replace(self._path)
        self._profile = None
