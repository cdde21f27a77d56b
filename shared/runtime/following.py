"""WatchFollower: follows the watcher's stream for a queue or a snapshot, while it stands by and while it leads.

A standby follows from when it sees that another process leads, so that its term begins with what the cluster is like.
It says how far it has read, as a leader does, and fetches listings for itself, page by page: one in the stream would
hold up what the leaders wait for. Where no watcher answers, as one of the last release, it asks for one in the stream.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from shared.bus import Envelope, NoAnswer, Silence, subjects
from shared.errors import ClusterError, ProtocolError
from shared.messages.watch import Kind, KindListed, ListKind, Relist, WatchBeat, Watched
from shared.runtime.clocks import ClockOffsets
from shared.runtime.context import Context, Watchdog
from shared.runtime.corerunner import every
from shared.watch import Effect, Seen, WatchReader
from shared.watch_progress import Progress

LISTING = "listing"
TICK_INTERVAL = 0.25
"""Seconds between two checks of a standby whether a requested listing is late."""
PAGE_PATIENCE = 30.0
"""Seconds for a page of a listing."""
FETCH_PATIENCE = 60.0
"""Seconds of failing fetches after which a standby asks for a listing in the stream."""


class WatchFollower:
    def __init__(self, context: Context, apply: Callable[[Sequence[Seen]], None]) -> None:
        """`apply` gets what the stream shows; a leader sets its own."""
        self.reader = WatchReader(context.name, alike=True)
        self.clocks = ClockOffsets(context)
        self.apply = apply
        self.heard: Callable[[Watched | WatchBeat], None] = _ignore
        """Called after each message, when all of it is applied."""
        self._context = context
        self._bus = context.bus
        self._progress = Progress(context.name, alike=True)
        self._beginning: asyncio.Task[None] | None = None
        self.stood_by = False
        """Whether it has followed before its process led."""
        self._fetches = False
        """Whether listings are fetched, as by a standby."""
        self._wanted = asyncio.Event()
        """Whether a listing is to be fetched."""
        context.reported.positions["watch"] = lambda: self.reader.position[1]

    async def begin(self) -> None:
        """Subscribe, if that has not been done."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._subscribe(), name="following the watcher")
        await asyncio.shield(self._beginning)

    async def stand_by(self) -> None:
        """Follow until cancelled; `begin` goes on from there. The process is ready once it knows the cluster."""
        self._context.health.wait_for(LISTING, "the cluster has not been listed yet")
        self.stood_by = self._fetches = True
        self.heard = self._on_heard_by_standby
        await self.begin()
        self.carry_out(self.reader.start(self._context.clock()))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(TICK_INTERVAL, self.tick))
                tasks.create_task(self._fetch())
        finally:
            self._fetches = False
            self.reader.stop_fetching()

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
        self._bus.post(
            subjects.WATCHER_RELIST, Relist(self._context.name, self.reader.versions, sorted(kinds), alike=True)
        )

    def carry_out(self, effects: Iterable[Effect]) -> None:
        seen: list[Seen] = []
        for effect in effects:
            if isinstance(effect, Relist):
                self._request(effect)
            else:
                seen.append(effect)
        if seen:
            self.apply(seen)

    def _request(self, relist: Relist) -> None:
        if self._fetches:
            self._wanted.set()
        else:
            self._bus.post(subjects.WATCHER_RELIST, relist)

    async def _fetch(self) -> None:
        """Fetch a listing whenever the reader wants one. Until one is complete it wants one again and again."""
        failing_since: float | None = None
        while True:
            await self._wanted.wait()
            try:
                for kind in self.reader.fetch():
                    await self._fetch_kind(kind)
                failing_since = None
            except (NoAnswer, ProtocolError, ClusterError) as cause:
                now = self._context.clock()
                failing_since = now if failing_since is None else failing_since
                unheard = isinstance(cause, NoAnswer) and cause.silence is Silence.NO_LISTENER
                if unheard or now - failing_since >= FETCH_PATIENCE:
                    self.relist()
                if not self.reader.synced:
                    self._context.health.wait_for(LISTING, f"the cluster has not been listed yet: {cause}")
            finally:
                self.reader.stop_fetching()
                self._wanted.clear()
            if self.reader.synced:
                self._context.health.clear(LISTING)

    async def _fetch_kind(self, kind: Kind) -> None:
        following, version = "", None
        while self.reader.fetches(kind):
            request = ListKind(kind.value, following, alike=True)
            page = await self._bus.request(subjects.WATCHER_LIST, request, KindListed, timeout=PAGE_PATIENCE)
            if page.problem:
                raise ClusterError(page.problem)
            if page.kind != kind or version not in (None, page.version):
                raise ProtocolError(f"a page of {page.kind} at version {page.version}, and not of {kind} at {version}")
            self.carry_out(self.reader.take_page(page))
            following, version = page.following, page.version

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
