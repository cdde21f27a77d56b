"""Finds out whether the API server can have shown what the watcher's stream named.

Followers refuse states older than one that they were shown. A version that was never shown, because a process forged
it or because the server's store was restored from a backup, would have them refuse everything. So once they refuse a
state they compare with a version that the server gives out afterwards.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from shared.runtime.context import Context
from shared.watch import Effect, WatchReader


class ShownVersions:
    def __init__(
        self,
        context: Context,
        reader: WatchReader,
        later_version: Callable[[], Awaitable[int]],
        carry_out: Callable[[Iterable[Effect]], None],
    ) -> None:
        """`later_version`: as that of `Leadership`."""
        self._context = context
        self._reader = reader
        self._later_version = later_version
        self._carry_out = carry_out
        self._checking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Called regularly."""
        if self._reader.is_contradicted and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._check(), name="comparing versions")
            self._context.fault.watch(self._checking)

    async def _check(self) -> None:
        shown = self._reader.versions
        present = await self._later_version()
        self._carry_out(self._reader.correct(shown, present, self._context.clock()))
