"""Fault: the one policy for exceptions that nobody expects. The first one ends the term of the process.

A core that has raised may have applied half of a change, and effects that were not carried out are lost. So nothing is
handled or sent after it: the process ends with the traceback in its log, its supervisor starts it again, and the next
term rebuilds its state. What *is* expected (a refused message, a server that is away, a plugin that raises) never gets
here.
"""

import asyncio
import logging
from typing import NoReturn

from shared.errors import FlotillaError, Unexpected
from shared.telemetry.metrics import Metrics


class Fault:
    """One for a process."""

    def __init__(self, metrics: Metrics, log: logging.Logger) -> None:
        self._log = log
        self._count = metrics.counter(
            "flotilla_core_failures_total", "Exceptions that nobody expected; the first one ends the process."
        )
        self._first: FlotillaError | None = None
        self._found = asyncio.Event()

    @property
    def found(self) -> bool:
        """Whether the term is over: nothing further is to be handled or sent."""
        return self._first is not None

    def report(self, what: str, cause: BaseException) -> None:
        """Logs the exception with its traceback, and ends the term. `what` failed, in words for the log."""
        self._count.inc()
        if self._first is None:
            self._log.error("%s failed, so this term ends: %r", what, cause, exc_info=cause)
            unexpected = Unexpected(f"{what} failed: {cause!r}")
            unexpected.__cause__ = cause
            self.end(unexpected)

    def end(self, why: FlotillaError) -> None:
        """End the term for a reason that is no fault of ours, such as that another process has our name."""
        if self._first is None:
            self._first = why
            self._found.set()

    def watch(self, task: "asyncio.Task[object]") -> None:
        """Report what the task raises."""
        task.add_done_callback(self._ended)

    async def raised(self) -> NoReturn:
        """Wait for what ends the term, and raise it. Run it in the task group of the service."""
        await self._found.wait()
        assert self._first is not None
        raise self._first

    def _ended(self, task: "asyncio.Task[object]") -> None:
        cause = None if task.cancelled() else task.exception()
        if cause is not None:
            self.report(f"task {task.get_name()}", cause)
