"""Fault: the one policy for unexpected exceptions: the first one ends the term of the process.

After an exception a core may be half changed, and effects may be lost. So nothing more is handled or sent: the process
exits with a traceback in its log, its supervisor restarts it, and the next term rebuilds the state. Expected failures
(a refused message, an unreachable server, a plugin's exception) never come here.
"""

import asyncio
import logging
from typing import NoReturn

from shared.errors import FlotillaError, Unexpected
from shared.telemetry.metrics import Metrics


class Fault:
    """One per process."""

    def __init__(self, metrics: Metrics, log: logging.Logger) -> None:
        self._log = log
        self._count = metrics.counter(
            "flotilla_core_failures_total", "Unexpected exceptions; the first one ends the process."
        )
        self.found = False
        """Whether the term is over: handle and send nothing more."""
        self._first: FlotillaError | None = None
        self._raised = asyncio.Event()

    def report(self, what: str, cause: BaseException) -> None:
        """Log the exception with its traceback and end the term. `what` failed, as text."""
        self._count.inc()
        if self._first is None:
            self._log.error("%s failed, so this term ends: %r", what, cause, exc_info=cause)
            unexpected = Unexpected(f"{what} failed: {cause!r}")
            unexpected.__cause__ = cause
            self.end(unexpected)

    def end(self, why: FlotillaError) -> None:
        """End the term for a reason outside this process, such as a name conflict."""
        if self._first is None:
            self.found, self._first = True, why
            self._raised.set()

    def watch(self, task: "asyncio.Task[object]") -> None:
        """Report an exception of the task."""
        task.add_done_callback(self._ended)

    async def raised(self) -> NoReturn:
        """Wait for the end of the term and raise its cause. Run it in the service's task group."""
        await self._raised.wait()
        assert self._first is not None
        raise self._first

    def _ended(self, task: "asyncio.Task[object]") -> None:
        cause = None if task.cancelled() else task.exception()
        if cause is not None:
            self.report(f"task {task.get_name()}", cause)
