"""Where a service spends its time while the clock runs."""

import asyncio
import io
import os
import pstats
import signal
import tempfile
from pathlib import Path

from shared.errors import ClusterError
from shared.runtime.signals import PROFILE
from tools.supervisor.pipeline import Pipeline

LINES = 25
PATIENCE = 10.0
POLL = 0.05


class Profiling:
    """For one process. Used as a context: the file in which it leaves its profile is gone afterwards."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = tempfile.TemporaryDirectory(prefix="flotilla-")
        self._file = Path(self._folder.name) / "profile"

    def __enter__(self) -> "Profiling":
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def variables(self) -> dict[str, dict[str, str]]:
        return {self._name: {PROFILE: str(self._file)}}

    def toggle(self, pipeline: Pipeline) -> None:
        os.kill(pipeline.processes[self._name], signal.SIGUSR2)

    async def written(self) -> None:
        """The process has left its profile."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not self._file.exists():
                    await asyncio.sleep(POLL)
        except TimeoutError:
            raise ClusterError(f"{self._name} has left no profile") from None

    def report(self) -> list[str]:
        text = io.StringIO()
        stats = pstats.Stats(str(self._file), stream=text)
        stats.strip_dirs().sort_stats("tottime").print_stats(LINES)
        return text.getvalue().strip().splitlines()
