"""WatchFollower: follows the watcher's stream for a queue or a snapshot, while it stands by and while it leads.

A standby follows from when it sees that another process leads, so that its term begins with what the cluster is like.
It asks for a listing and says how far it has read, as a leader does, and nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from shared.bus import Envelope, subjects
from shared.messages.watch import Relist, WatchBeat, Watched
from shared.runtime.clocks import ClockOffsets
from shared.runtime.context import Context, Watchdog
from shared.runtime.corerunner import every
from shared.watch import Effect, Progress, Seen, WatchReader

LISTING = "listing"
TICK_INTERVAL = 0.25
"""Seconds between two checks of a standby whether a requested listing is late."""


class WatchFollower:
    def __init__(self, context: Context, apply: Callable[[Sequence[Seen]], None]) -> None:
        """`apply` gets what the stream shows; a leader sets its own."""
        self.reader = WatchReader(context.name)
        self.clocks = ClockOffsets(context)
        self.apply = apply
        self.heard: Callable[[Watched | WatchBeat], None] = _ignore
        """Called after each message, when all of it is applied."""
        self._context = context
        self._bus = context.bus
        self._progress = Progress(context.name)
        self._beginning: asyncio.Task[None] | None = None
        self.stood_by = False
        """Whether it has followed before its process led."""
        context.reported.positions["watch"] = lambda: self.reader.position[1]

    async def begin(self) -> None:
        """Subscribe, if that has not been done."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._subscribe(), name="following the watcher")
        await asyncio.shield(self._beginning)

    async def stand_by(self) -> None:
        """Follow until cancelled; `begin` goes on from there. The process is ready once it knows the cluster."""
        self._context.health.wait_for(LISTING, "the cluster has not been listed yet")
        self.stood_by, self.heard = True, self._on_heard_by_standby
        await self.begin()
        self.carry_out(self.reader.start(self._context.clock()))
        await every(TICK_INTERVAL, self.tick)

    def tick(self) -> None:
        self.carry_out(self.reader.tick(self._context.clock()))

    def doubt(self) -> None:
        """The stream showed an old state."""
        self.carry_out(self.reader.doubt(self._context.clock()))

    def start_over(self) -> None:
        """Be synced only after another listing of everything."""
        self.carry_out(self.reader.start_over(self._context.clock()))

    def relist(self, kinds: Iterable[str] = ()) -> None:
        """Request a listing of these kinds; of all, if none is named."""
        self._bus.post(subjects.WATCHER_RELIST, Relist(self._context.name, self.reader.versions, sorted(kinds)))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        seen: list[Seen] = []
        for effect in effects:
            if isinstance(effect, Relist):
                self._bus.post(subjects.WATCHER_RELIST, effect)
            else:
                seen.append(effect)
        if seen:
            self.apply(seen)

    async def _subscribe(self) -> None:
        missing = "nothing has been heard from a watcher"
        self._watcher = Watchdog(self._context.health, self._context.clock, "watcher", missing)
        await self._bus.subscribe(subjects.WATCH, (Watched, WatchBeat), self._on_message)

    def _on_message(self, message: Watched | WatchBeat, envelope: Envelope) -> None:
        if isinstance(message, WatchBeat):
            self.clocks.heard("watcher", message.at)
        self.carry_out(self.reader.take(message, self._context.clock()))
        if message.epoch == self.reader.epoch:
            self._watcher.reset()
        seen = self._progress.due(self.reader, message)
        if seen is not None:
            self._bus.post(subjects.WATCHER_SEEN, seen)
        self.heard(message)

    def _on_heard_by_standby(self, message: Watched | WatchBeat) -> None:
        if self.reader.synced:
            self._context.health.clear(LISTING)


def _ignore(message: Watched | WatchBeat) -> None:
    pass
