"""A profile of a process, between two signals: for benchmarks.

FLOTILLA_PROFILE names the file. SIGUSR2 starts the profiler, which slows everything down; the next one stops it and
writes the file, as pstats reads it. Without the variable the signal is not heeded.
"""

import asyncio
import cProfile
import os
import signal
from pathlib import Path

PROFILE = "FLOTILLA_PROFILE"


class Profiler:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._profile: cProfile.Profile | None = None

    def toggle(self) -> None:
        if self._profile is None:
            self._profile = cProfile.Profile()
            self._profile.enable()
            return
        self._profile.disable()
        unfinished = self._path.with_suffix(".unfinished")
        self._profile.dump_stats(unfinished)
        unfinished.replace(self._path)
        self._profile = None


def heed_profile_signal() -> None:
    """On the event loop that runs; does nothing where the environment does not ask for a profile."""
    path = os.environ.get(PROFILE)
    if path:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, Profiler(Path(path)).toggle)
