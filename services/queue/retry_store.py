"""Retry records in Redis: read before the queue's term begins, written shortly after they change.

If Redis is unreachable, records wait for it, up to a limit, and the queue goes on: at worst pods are tried earlier than
they should be after a restart.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Protocol, Self

import msgspec

from services.queue.events import StoreRetry
from services.queue.scheduling.queued_pod_info import RetryRecord
from shared.errors import UserError
from shared.store.errors import Deposed, StoreUnreachable
from shared.store.link import RedisLink, connect
from shared.store.retry_records import Memory
from shared.telemetry import Telemetry
from shared.telemetry.logs import Repeated

LOAD_TIMEOUT = 10.0
"""Seconds to wait for Redis at the start; then all pods begin without history."""
WRITE_INTERVAL = 0.05
"""Seconds between two writes, at least."""
RETRY_INTERVAL = 1.0
"""Seconds between two writes after a failure."""
CONNECT_TIMEOUT = 0.1
"""Seconds for one attempt to connect to Redis."""
LAST_WRITE_TIMEOUT = 1.0
"""Seconds for writing what waits when the process ends."""
MAX_BATCH = 1 << 12
"""Records in one write."""
MAX_WAITING = 1 << 17
"""Records waiting for Redis; further ones are dropped."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(RetryRecord)


class Term(Protocol):
    """The queue's term of leadership."""

    @property
    def epoch(self) -> int: ...

    async def raise_term(self, beyond: int) -> int: ...


class RetryStore:
    def __init__(
        self,
        url: str,
        prefix: str,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: the queue's, for records in the process; `wall`, for records in Redis, outlives the machine."""
        self._url = url
        self._prefix = prefix
        self._clock = clock
        self._wall = wall
        self._epoch = 0
        self._pipeline = ""
        self._claimed = False
        self._log: logging.Logger = telemetry.log
        self._limited_log = Repeated(telemetry.log)
        self._link: RedisLink | None = None
        self._waiting: dict[str, RetryRecord | None] = {}
        self._changed = asyncio.Event()
        metrics = telemetry.metrics
        self._failures = metrics.counter(
            "flotilla_queue_memory_failures_total", "Failed attempts to read or write retry records in Redis."
        )
        self._dropped = metrics.counter(
            "flotilla_queue_memory_dropped_total", "Retry records dropped because too many were waiting for Redis."
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def probe(self) -> None:
        """Raises UserError if a setting is wrong; Redis may be unreachable at this point."""
        with suppress(StoreUnreachable):
            self._link = await connect(self._url, self._log, CONNECT_TIMEOUT)

    async def load(self, term: Term, pipeline: str = "") -> dict[str, RetryRecord]:
        """Claims the records for this term and returns them by uid; none if Redis is unreachable.

        Raises UserError if a setting is wrong or the records are another pipeline's, LeaseLost in an older term.
        """
        self._epoch, self._pipeline = term.epoch, pipeline
        try:
            if self._link is None:
                self._link = await connect(self._url, self._log, LOAD_TIMEOUT)
            memory = Memory(self._link, self._prefix, pipeline)
            await self._claim(memory, term)
            self._claimed = True
            return self._decode(await memory.load())
        except StoreUnreachable as cause:
            self._changed.set()
            self._failures.inc()
            self._log.warning("%s; pods start without their retry history", cause)
            return {}

    def save(self, effect: StoreRetry) -> None:
        """Schedules a write; of several records of one pod, the last one is written."""
        if effect.uid not in self._waiting and len(self._waiting) >= MAX_WAITING:
            self._dropped.inc()
            return
        self._waiting[effect.uid] = effect.record
        self._changed.set()

    async def run(self) -> None:
        """Writes until cancelled. Raises Deposed if there is a newer term.

        If Redis was unreachable at the start, it is asked for a newer term as soon as it answers: cycle and binders may
        know that one, and would ignore this queue for good.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(WRITE_INTERVAL if await self._write() else RETRY_INTERVAL)

    async def finish(self) -> None:
        """Writes what waits, if Redis takes it at once."""
        with suppress(TimeoutError, Deposed):
            async with asyncio.timeout(LAST_WRITE_TIMEOUT):
                while self._link is not None and self._waiting and await self._write():
                    pass

    async def close(self) -> None:
        await self.finish()
        if self._link is not None:
            await self._link.close()

    async def _claim(self, memory: Memory, term: Term) -> None:
        """Raises the term if Redis knows a newer one, as it may after the Lease was deleted."""
        try:
            await memory.claim(self._epoch)
        except Deposed as newer:
            self._log.warning("%s; raising the term", newer)
            self._epoch = await term.raise_term(newer.newest)
            await memory.claim(self._epoch)

    def _decode(self, records: Mapping[str, bytes]) -> dict[str, RetryRecord]:
        found: dict[str, RetryRecord] = {}
        ahead, now = self._wall_ahead(), self._clock()
        for uid, record in records.items():
            try:
                found[uid] = _DECODER.decode(record).restored(-ahead, now)
            except msgspec.DecodeError as cause:
                self._limited_log.warning("record", "retry record of pod %s in Redis cannot be read: %s", uid, cause)
                self.save(StoreRetry(uid, None))
        return found

    def _wall_ahead(self) -> int:
        """Whole seconds, so that pods that back off through the same second still do."""
        return round(self._wall() - self._clock())

    async def _write(self) -> bool:
        """False if it failed and is to be retried."""
        batch = dict(islice(self._waiting.items(), MAX_BATCH))
        for uid in batch:
            del self._waiting[uid]
        if not self._waiting:
            self._changed.clear()
        try:
            if self._link is None:
                self._link = await connect(self._url, self._log, CONNECT_TIMEOUT)
            ahead = self._wall_ahead()
            encoded = {
                uid: None if record is None else _ENCODER.encode(record.shifted(ahead)) for uid, record in batch.items()
            }
            memory = Memory(self._link, self._prefix, self._pipeline)
            if not self._claimed:
                await memory.claim(self._epoch)
                self._claimed = True
            await memory.write(self._epoch, encoded)
        except (StoreUnreachable, UserError) as cause:
            self._failures.inc()
            self._limited_log.warning("memory", "%s; retry records will be written later", cause)
            self._waiting = batch | self._waiting
            self._changed.set()
            return False
        except asyncio.CancelledError:
            self._waiting = batch | self._waiting
            raise
        return True
