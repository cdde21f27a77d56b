"""Binds decided pods at the simulator, where binders make no API calls, so that the watch confirms them.

Otherwise the snapshot would look them up after 35 seconds, and the queue try them again after 60.
"""

import asyncio
import time
from collections import deque

from testing.inprocess.workloads import NAMESPACE
from tools.api_objects import ObjectWriter

CONFIRM_AFTER = 15.0
"""Seconds from a decision to its binding. A short run ends before."""
INTERVAL = 0.25
BINDINGS = f"/api/v1/namespaces/{NAMESPACE}/bindings"


class Confirmations:
    """Run `run` beside the measurement."""

    def __init__(self, server: str) -> None:
        self.began: float | None = None
        """When the first pods were confirmed."""
        self._writer = ObjectWriter(server)
        self._decided: deque[tuple[float, str, str]] = deque()
        """Time, pod and node."""

    def add(self, pod: str, node: str, now: float) -> None:
        """A pod was decided; called in the order of time."""
        self._decided.append((now, pod, node))

    async def run(self) -> None:
        while True:
            await self.confirm(time.monotonic())
            await asyncio.sleep(INTERVAL)

    async def confirm(self, now: float) -> None:
        """Bind the pods that were decided CONFIRM_AFTER seconds ago or earlier."""
        bindings = []
        while self._decided and self._decided[0][0] <= now - CONFIRM_AFTER:
            _, pod, node = self._decided.popleft()
            bindings.append({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})
        if bindings and self.began is None:
            self.began = now
        await self._writer.create_in_bulk(BINDINGS, bindings)
