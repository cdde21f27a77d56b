"""A snapshot that stands by: it follows the watch, and knows how the leader's state in Redis differs from its own."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch.order_dispatcher import BINDER_TIMEOUT
from services.snapshot.events import Effect, Event, PodStale, WatchEvent, WatchEvents
from services.snapshot.state.pending_pods import PendingPods
from services.snapshot.state.published import Published
from services.snapshot.watch_decoder import WatchDecoder
from shared.bus import Subscription, subjects
from shared.errors import FlotillaError, ProtocolError
from shared.messages.binding import BinderBeat
from shared.messages.state import Delta, Heartbeat
from shared.runtime import Context, CoreRunner
from shared.runtime.following import WatchFollower
from shared.runtime.last_beats import LastBeats
from shared.store.link import RedisLink
from shared.store.reader import StoreReader
from shared.store.term import Recovered
from shared.telemetry.logs import Repeated
from shared.watch import Seen

COMPARED = "compared"
COMPARE_INTERVAL = 0.5
"""Seconds between two checks of a standby whether the leader's state is to be compared with its own."""
COMPARED_AT_ONCE = 4
"""Shards that a standby loads at the same time, so that it never holds the whole state twice."""


class Standby:
    """What the watcher's stream shows of the cluster; everything else a new leader reads from Redis."""

    def __init__(self, context: Context, schedulers: frozenset[str], filters: Mapping[str, ProfileFilters]) -> None:
        pending = PendingPods()
        self.core = SnapshotCore(0, filters=filters, pending=pending)
        self.decoder = WatchDecoder(schedulers, self.core.is_bound, pending)
        self.follower = WatchFollower(context, self._apply)
        self.published = Published(self.core.cluster, context.settings.shard_count)
        self._context = context
        self._deltas: Subscription[Delta | Heartbeat] | None = None
        self._beats: Subscription[BinderBeat] | None = None
        self._binders = LastBeats[BinderBeat]()
        self.listens_since: float | None = None
        """From when on binders are heard; None if it has not stood by."""
        self._runner: CoreRunner[Event, Effect] = CoreRunner(self.core, None, self._drop, context, self.core.validate)

    async def run(self, link: RedisLink) -> None:
        """Follow the watch, and what the leader publishes; until cancelled."""
        health = self._context.health
        health.wait_for(COMPARED, "it is not known yet how the leader's state differs from this standby's")
        self._deltas = await self._context.bus.subscribe(
            subjects.SNAPSHOT_DELTAS, (Delta, Heartbeat), lambda message, _: self.published.hear(message)
        )
        self.listens_since = self._context.clock()
        self._beats = await self._context.bus.subscribe(
            subjects.BINDER_BEATS,
            BinderBeat,
            lambda beat, _: self._binders.heard(beat.binder, beat, self._context.clock()),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follower.stand_by())
            tasks.create_task(self._compare(StoreReader(link, self._context.settings.prefix)))

    async def _compare(self, reader: StoreReader) -> None:
        """Compares the leader's state in Redis with ours, whenever their differences are not known."""
        limited_log, health = Repeated(self._context.log), self._context.health
        while True:
            await asyncio.sleep(COMPARE_INTERVAL)
            if not (self.follower.reader.synced and self.published.uncompared and self.published.position[0]):
                continue
            try:
                await self._compare_all(reader)
            except FlotillaError as cause:  # then the whole state is written when this standby leads
                limited_log.warning("compare", "the leader's state cannot be compared: %s", cause)
                health.clear(COMPARED)
            if not self.published.uncompared:
                health.clear(COMPARED)

    async def _compare_all(self, reader: StoreReader) -> None:
        count, published = self._context.settings.shard_count, self.published
        for start in range(0, count, COMPARED_AT_ONCE):
            shards = range(start, min(start + COMPARED_AT_ONCE, count))
            state = await reader.load(shards, count, self._context.bus.pipeline.id, others=not start)
            if state is None or not published.compare(shards, state, others=not start):
                return

    async def end(self, recovered: Recovered) -> bool:
        """The leader before writes nothing more. Returns whether its state in Redis can be continued."""
        if self._deltas is None:
            return False
        await self._deltas.close()
        if self._beats is not None:
            await self._beats.close()
        self._context.health.clear(COMPARED)
        same = recovered.shard_count == self._context.settings.shard_count and not recovered.lost
        return self.published.take_over(recovered.epoch, recovered.seq, recovered.ledger) and same

    def binders(self) -> list[tuple[BinderBeat, float]]:
        """Of binders that are not lost: their last beats, and when they came."""
        return self._binders.since(self._context.clock() - BINDER_TIMEOUT)

    def _apply(self, changes: Sequence[Seen]) -> None:
        events: list[WatchEvent] = []
        for change in changes:
            with suppress(ProtocolError):  # the leader reports it
                events += self.decoder.decode_all(change)
        if events:
            self._runner.feed(WatchEvents(events))

    def _drop(self, effect: Effect) -> None:
        """The leader carries effects out."""
        if isinstance(effect, Delta):
            self.published.changed(effect.changes)
        elif isinstance(effect, PodStale):
            self.follower.doubt()
