"""What outlives the queue: read from Redis before it begins, and written there a little behind what happens.

Redis may be away. Then what is to be written waits for it, up to a limit, and the queue goes on: the worst that comes
of it is that pods are tried earlier than they should be, once the queue is started anew.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Protocol, Self

import msgspec

from services.queue.events import Lapse, Remember
from services.queue.kept import Kept
from shared.errors import UserError
from shared.store.errors import Deposed, StoreUnreachable
from shared.store.link import RedisLink, connect
from shared.store.memory import Memory
from shared.telemetry import Telemetry
from shared.telemetry.logs import Repeated

RECALL_PATIENCE = 10.0
"""Seconds that Redis is waited for before pods begin anew, all of them."""
PAUSE = 0.05
"""Seconds between two writes, at least."""
PAUSE_AFTER_FAILURE = 1.0
ONE_ATTEMPT = 0.1
"""Seconds to connect in, of which nothing is said before they have passed in vain."""
LAST_PATIENCE = 1.0
"""Seconds for the last write."""
MOST_AT_ONCE = 1 << 12
"""Pods in one write."""
MOST_WAITING = 1 << 17
"""Pods whose records wait for Redis; those of others are not written at all."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Kept)


class Term(Protocol):
    """The one that the queue is in."""

    @property
    def epoch(self) -> int: ...

    async def raise_term(self, beyond: int) -> int: ...


class Remembering:
    def __init__(
        self,
        url: str,
        prefix: str,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: the queue's, of which records speak; `wall` is in Redis, where it outlives the machine."""
        self._url = url
        self._prefix = prefix
        self._clock = clock
        self._wall = wall
        self._epoch = 0
        self._log: logging.Logger = telemetry.log
        self._sparingly = Repeated(telemetry.log)
        self._link: RedisLink | None = None
        self._waiting: dict[str, Kept | None] = {}
        self._changed = asyncio.Event()
        metrics = telemetry.metrics
        self._failures = metrics.counter(
            "flotilla_queue_memory_failures_total", "Attempts to write to Redis what is known of pods that failed."
        )
        self._dropped = metrics.counter(
            "flotilla_queue_memory_dropped_total",
            "Records of pods that were not written: too many wait for Redis.",
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def try_out(self) -> None:
        """UserError if a setting is wrong. That Redis is away is no matter yet."""
        with suppress(StoreUnreachable):
            self._link = await connect(self._url, self._log, ONE_ATTEMPT)

    async def recall(self, term: Term, pipeline: str = "") -> dict[str, Kept]:
        """What there is, by the uid of the pod. UserError if a setting is wrong, or it is another
        pipeline's; nothing if Redis is away.

        From here on no older queue writes there. LeaseLost if there is a newer one.
        """
        self._epoch = term.epoch
        try:
            if self._link is None:
                self._link = await connect(self._url, self._log, RECALL_PATIENCE)
            memory = Memory(self._link, self._prefix, pipeline)
            await self._claim(memory, term)
            return self._read(await memory.load())
        except StoreUnreachable as cause:
            self._failures.inc()
            self._log.warning("%s; what was known of pods is not, and they begin anew", cause)
            return {}

    def take(self, effect: Remember | Lapse) -> None:
        """It will be written soon; of several for one pod the last one."""
        if effect.uid not in self._waiting and len(self._waiting) >= MOST_WAITING:
            self._dropped.inc()
            return
        self._waiting[effect.uid] = effect.kept if isinstance(effect, Remember) else None
        self._changed.set()

    async def run(self) -> None:
        """Writes, for as long as the queue lives. Deposed if there is a newer one."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(PAUSE if await self._write() else PAUSE_AFTER_FAILURE)

    async def finish(self) -> None:
        """What still waits is written if Redis takes it at once."""
        with suppress(TimeoutError, Deposed):
            async with asyncio.timeout(LAST_PATIENCE):
                while self._link is not None and self._waiting and await self._write():
                    pass

    async def close(self) -> None:
        await self.finish()
        if self._link is not None:
            await self._link.close()

    async def _claim(self, memory: Memory, term: Term) -> None:
        """Redis may remember more terms than the Lease, if that was deleted."""
        try:
            await memory.claim(self._epoch)
        except Deposed as newer:
            self._log.warning("%s; beginning a later one", newer)
            self._epoch = await term.raise_term(newer.newest)
            await memory.claim(self._epoch)

    def _read(self, records: Mapping[str, bytes]) -> dict[str, Kept]:
        found: dict[str, Kept] = {}
        ahead, now = self._wall_is_ahead(), self._clock()
        for uid, record in records.items():
            try:
                found[uid] = _DECODER.decode(record).resumed(-ahead, now)
            except msgspec.DecodeError as cause:
                self._sparingly.warning("record", "what Redis has of pod %s cannot be read: %s", uid, cause)
                self.take(Lapse(uid))
        return found

    def _wall_is_ahead(self) -> int:
        """Whole seconds, so that pods which rest through the same second go on doing so."""
        return round(self._wall() - self._clock())

    async def _write(self) -> bool:
        """False if it has failed, and is to be tried again."""
        batch = dict(islice(self._waiting.items(), MOST_AT_ONCE))
        for uid in batch:
            del self._waiting[uid]
        if not self._waiting:
            self._changed.clear()
        try:
            if self._link is None:
                self._link = await connect(self._url, self._log, ONE_ATTEMPT)
            ahead = self._wall_is_ahead()
            encoded = {uid: None if kept is None else _ENCODER.encode(kept.moved(ahead)) for uid, kept in batch.items()}
            await Memory(self._link, self._prefix).write(self._epoch, encoded)
        except (StoreUnreachable, UserError) as cause:
            self._failures.inc()
            self._sparingly.warning("memory", "%s; what is known of pods will be written later", cause)
            self._waiting = batch | self._waiting
            self._changed.set()
            return False
        except asyncio.CancelledError:
            self._waiting = batch | self._waiting
            raise
        return True
