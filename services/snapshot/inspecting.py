"""Answers those who ask what the snapshot holds, and whether the API server lists the same; on a signal, in the log."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from services.snapshot.cache_comparer import compared, differences, lasting
from services.snapshot.introspection import Cache, Dumps, comparison_lines, lines
from services.snapshot.listing import Get, list_now
from shared.bus import Envelope
from shared.errors import FlotillaError
from shared.messages.inspection import CacheCompared, CompareCache, ListCache, ListLedger
from shared.telemetry.fault import Fault

PAUSE = 2.0
"""Seconds between a listing and the cache it is held against, in which the watch tells what the listing has told; and
between two looks."""
COMPARISON_PATIENCE = 120.0


class Inspecting:
    def __init__(
        self,
        cache: Callable[[], Cache],
        get: Get,
        clock: Callable[[], float],
        log: logging.Logger,
        fault: Fault,
        pause: float = PAUSE,
    ) -> None:
        self._cache = cache
        self._get = get
        self._clock = clock
        self._log = log
        self._fault = fault
        self._pause = pause
        self._dumps = Dumps()
        self._comparison: asyncio.Task[CacheCompared] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, asked: ListCache | ListLedger | CompareCache, envelope: Envelope) -> None:
        match asked:
            case ListCache():
                envelope.respond(self._dumps.nodes(asked, self._cache(), self._clock()))
            case ListLedger():
                envelope.respond(self._dumps.ledger(asked, self._cache(), self._clock()))
            case CompareCache():
                self._spawn(self._answer_compared(envelope))

    def dump(self) -> None:
        """To the log: all there is, up to so many lines, and after a while how it compares."""
        for line in lines(self._cache(), self._clock()):
            self._log.info("dump: %s", line)
        self._spawn(self._log_compared())

    def expire(self) -> None:
        self._dumps.expire(self._clock())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._comparison is not None:
            self._comparison.cancel()

    async def _answer_compared(self, envelope: Envelope) -> None:
        envelope.respond(await self._compared())

    async def _log_compared(self) -> None:
        for line in comparison_lines(await self._compared()):
            self._log.info("dump: %s", line)

    async def _compared(self) -> CacheCompared:
        """One comparison at a time: whoever asks meanwhile is answered with it."""
        if self._comparison is None or self._comparison.done():
            self._comparison = asyncio.create_task(self._compare())
        return await asyncio.shield(self._comparison)

    async def _compare(self) -> CacheCompared:
        try:
            async with asyncio.timeout(COMPARISON_PATIENCE):
                listed = await list_now(self._get)
                await asyncio.sleep(self._pause)
                found = differences(listed, self._cache().view())
                if found:
                    listed = await list_now(self._get)
                    await asyncio.sleep(self._pause)
                    found = lasting(found, differences(listed, self._cache().view()))
        except TimeoutError:
            return CacheCompared(failure=f"listing takes longer than {COMPARISON_PATIENCE:g} s")
        except FlotillaError as cause:
            return CacheCompared(failure=str(cause))
        return compared(listed, found)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._fault.watch(task)
