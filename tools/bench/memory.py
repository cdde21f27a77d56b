"""The most memory that each process of a pipeline has held, by samples."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tools.cli.processes import resident_memory
from tools.supervisor.pipeline import Pipeline

SAMPLE_INTERVAL = 0.25
"""Seconds between samples."""


class PeakMemory:
    """Bytes by process. `total`: the most that all of them held at the same moment."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}
        self.total = 0

    @asynccontextmanager
    async def watching(self, pipeline: Pipeline) -> AsyncIterator[None]:
        """Samples inside."""
        task = asyncio.create_task(self._watch(pipeline))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _watch(self, pipeline: Pipeline) -> None:
        while True:
            held = resident_memory(pipeline.processes)
            self.total = max(self.total, sum(held.values()))
            for name, size in held.items():
                self.most[name] = max(self.most.get(name, 0), size)
            await asyncio.sleep(SAMPLE_INTERVAL)
