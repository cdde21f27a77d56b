"""ListWatch: all objects of one resource, and then what happens to them, for as long as anybody wants to know.

    listing --to its end--> watching --stream ends or breaks--> watching, from where it was
       ^                       |
       +--too old, or asked for+

A server that can is asked for the first list and the watch in one stream, which costs it, and us, no more memory than
the objects that are on their way. Others give pages, all of one state; then the watch begins at that state. Either way
a list is the newest that there is (resourceVersion is left empty, never 0): whoever asks for one has missed something,
and a server that is behind could tell the past again as news. A server may be behind all the same: `hear` is told the
version of each list, and may refuse it, or an event, by raising Gone. Then everything is listed again, after a pause.
Later lists come in pages, for these name their version before the first object; a stream does so after the last.

Where several versions of an API have the same objects, a version that the server does not have (404) means that the
next one is asked, and so on until one answers; from there it goes on where it was.

What it hears it hands to `hear`, in order, and waits for it before it reads on. Failures are handed on as Interruption
and tried again, ever more patiently, and not before the time that the server names.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Refused, Silent, Unreachable
from shared.kube.lists import NotStreamed, StreamedList, get_page, query
from shared.kube.stream import Stream
from shared.kube.wire import Lines, Page, Said, WatchEvent, error_of, is_busy, read_events, version_of

PAGE = 500
LARGER_PAGE = 5000
"""After a listing that took longer than the server remembers: fewer, larger pages take less time."""
BEGIN_PATIENCE = 90.0
"""Seconds that a watch may take until it begins. Some proxies hold its head back until an event or bookmark comes."""
MOST_PAGE_RETRIES = 5
"""So often one page is asked for again, until the listing begins anew."""
MOST_REFUSALS = 10
"""So often in a row the server may refuse to go on from where we were, until everything is listed again."""
EARLY = 2.0
"""Seconds from a listing's beginning, within which it is begun anew for somebody who has come too late for it."""
LONGEST_RETRY_AFTER = 120.0
NOT_FOUND = 404
NOT_STREAMED = frozenset({400, 405, 406, 415, 422})
"""What servers say that do not know streamed lists, or have them turned off."""


@dataclass(frozen=True, slots=True)
class ListStarted:
    """Once more, and without an end before it, where a listing had to be given up.

    `version`: of the state that is listed; empty where the server tells it only at the end.
    """

    version: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    """An object may come again, newer."""

    objects: Sequence[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class ListDone:
    """`version`: of the state that was listed. `since`: events that follow are not older than this."""

    version: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class WatchStarted:
    """The server has accepted a watch."""


@dataclass(frozen=True, slots=True)
class WatchEvents:
    """All that could be read at once."""

    events: Sequence[WatchEvent]


@dataclass(frozen=True, slots=True)
class Interruption:
    """It does not go on; it is tried again in so many seconds."""

    cause: ClusterError
    wait: float


ListWatchEvent = ListStarted | ListPage | ListDone | WatchStarted | WatchEvents | Interruption


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds."""

    shortest_watch: float = 300.0
    longest_watch: float = 600.0
    """The server ends a watch after a time between these, so that not all watches begin anew at once."""
    silence: float = 30.0
    """So long after that time, a watch without a byte is given up."""
    bookmark_silence: float = 150.0
    """So long a watch may be silent that has had a bookmark: API servers send one about every minute from then on,
    whether anything happens or not. Before (nothing at all has happened since it began), or where there are none (no
    watch cache, an extension's own server), a healthy watch may be silent to its end, and only the time above and the
    kernel's probes tell a dead one.
    """
    list_silence: float = 30.0
    """So long a streamed list may be silent."""
    first_wait: float = 0.2
    longest_wait: float = 10.0
    """Before trying again: twice as long each time, with a jitter of half of it."""


class ListWatch:
    """`selector`: a query such as `fieldSelector=...`, encoded. `others`: where else the same objects may be found."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        hear: Callable[[ListWatchEvent], Awaitable[None]],
        rng: random.Random,
        *,
        selector: str = "",
        others: Sequence[str] = (),
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._paths = deque((path, *others))
        self._absent = 0
        self._hear = hear
        self._rng = rng
        self._selector = selector
        self._timing = timing or Timing()
        self._version: str | None = None
        self._newest: msgspec.Raw | None = None
        self._page = PAGE
        self._list_again = False
        self._listing = False
        self._listing_since = 0.0
        self._streams = True
        self._broke_off = False
        self._has_listed = False
        self._refusals = 0
        self._wait = self._timing.first_wait
        self._stream: Stream | None = None
        self._opened_at: float | None = None

    def list_again(self) -> None:
        """Everything is to be listed anew, from its beginning: now, or after a listing that has gone on for long."""
        self._list_again = True
        if self._stream is not None and not self._listing:
            self._stream.close()

    async def run(self) -> NoReturn:
        """Until it is cancelled."""
        while True:
            try:
                await self._go_on()
            except ClusterError as cause:
                if isinstance(cause, Gone):
                    self._version = None
                if self._is_elsewhere(cause):
                    continue
                if self._listing or not self._list_again or self._stream is None:
                    await self._back_off(cause)
            finally:
                self._listing = False
                if self._stream is not None:
                    self._stream.close()
                    self._stream = None

    @property
    def _path(self) -> str:
        return self._paths[0]

    def _is_elsewhere(self, cause: ClusterError) -> bool:
        """Whether there is a path that has not been asked since something was told."""
        if not (isinstance(cause, Refused) and cause.status == NOT_FOUND):
            return False
        self._paths.rotate(-1)
        self._absent = (self._absent + 1) % len(self._paths)
        return self._absent != 0

    async def _go_on(self) -> None:
        if self._version is not None and not self._list_again:
            await self._watch(self._version_now())
        elif self._streams and not self._broke_off and not self._has_listed:
            await self._stream_list()
        else:
            await self._list()

    # Listing in pages

    async def _list(self) -> None:
        self._begin_listing()
        page = await self._get_page_patiently("")
        await self._hear(ListStarted(page.metadata.resource_version))
        while True:
            if page.items:
                await self._hear(ListPage(page.items))
            following = page.metadata.following
            if not following:
                break
            if self._begins_anew():
                return
            page = await self._get_page_patiently(following)
        version = page.metadata.resource_version
        await self._hear(ListDone(version, version))
        self._version, self._page, self._has_listed = version, PAGE, True
        self._listing = self._broke_off = False

    async def _get_page_patiently(self, following: str) -> Page:
        """What was read of a list is not thrown away because the server is busy for a moment."""
        for _ in range(MOST_PAGE_RETRIES):
            try:
                return await self._get_page(following)
            except (Unreachable, Refused) as cause:
                if not following or not (isinstance(cause, Unreachable) or is_busy(cause.status)):
                    raise
                await self._back_off(cause)
        return await self._get_page(following)

    async def _get_page(self, following: str) -> Page:
        try:
            page = await get_page(self._client, self._path, self._selector, self._page, following)
        except Gone:
            self._page = LARGER_PAGE
            raise
        self._wait, self._refusals, self._absent = self._timing.first_wait, 0, 0
        return page

    # Listing in a stream

    async def _stream_list(self) -> None:
        """Goes on as a watch. Who gives no such list is not asked again; who breaks off, not the next time."""
        seconds = self._watch_seconds()
        asked = f"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&{_watch_query('', seconds)}"
        try:
            self._stream = await self._client.stream(query(self._path, self._selector, asked), BEGIN_PATIENCE)
        except Refused as cause:
            if cause.status in NOT_STREAMED:
                self._streams = False
                return
            self._broke_off = cause.status not in (401, NOT_FOUND, 429)
            raise
        self._begin_listing()
        self._opened_at = asyncio.get_running_loop().time()
        lines = Lines()
        streamed = StreamedList(self._client.server, self._path, self._stream, lines)
        self._stream.patience = self._timing.list_silence
        await self._hear(ListStarted())
        try:
            async for objects in streamed.pages():
                await self._hear(ListPage(objects))
                if self._begins_anew():
                    return
        except ClusterError as cause:
            self._broke_off = True
            self._streams = not isinstance(cause, Silent | NotStreamed)
            raise
        await self._hear(ListDone(streamed.version, streamed.since))
        self._version, self._listing, self._has_listed = streamed.version, False, True
        self._wait, self._absent = self._timing.first_wait, 0
        await self._hear(WatchStarted())
        self._stream.patience = self._patience(seconds, has_bookmarks=await self._take(streamed.events))
        await self._follow(lines)

    # WatchStarted

    async def _watch(self, version: str) -> None:
        seconds = self._watch_seconds()
        self._stream = await self._client.stream(
            query(self._path, self._selector, _watch_query(quote(version), seconds)), BEGIN_PATIENCE
        )
        if self._list_again:
            return
        self._opened_at = asyncio.get_running_loop().time()
        await self._hear(WatchStarted())
        self._stream.patience = self._patience(seconds, has_bookmarks=False)
        await self._follow(Lines())

    async def _follow(self, lines: Lines) -> None:
        assert self._stream is not None
        timing, loop = self._timing, asyncio.get_running_loop()
        began, heard = loop.time(), False
        while not self._list_again:
            data = await self._stream.read()
            if not data:
                break
            if whole := lines.take(data):
                if await self._take(read_events(whole)):
                    self._stream.patience = timing.bookmark_silence
                self._wait, self._refusals, self._absent, heard = timing.first_wait, 0, 0, True
        if not (heard or self._list_again) and loop.time() - began < timing.first_wait:
            raise ClusterError(f"{self._client.server}: watch {self._path}: it ended at once")

    async def _take(self, events: Sequence[WatchEvent]) -> bool:
        """Whether there was a bookmark among them."""
        said = Said(events)
        if said.newest is not None:
            self._newest = said.newest
        if said.changes:
            await self._hear(WatchEvents(said.changes))
        if said.error is not None:
            raise error_of(said.error, self._client.server, self._path)
        return said.has_bookmark

    def _version_now(self) -> str:
        """From where to go on. Only asked for between watches, so that not every object is looked into for it."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._version = version_of(newest)
        if not self._version:
            self._version = None
            raise ClusterError(f"{self._client.server}: {self._path}: a list or an object without version")
        return self._version

    # Inside

    def _begin_listing(self) -> None:
        self._list_again, self._version, self._newest, self._listing = False, None, None, True
        self._listing_since = asyncio.get_running_loop().time()

    def _begins_anew(self) -> bool:
        """Another listing was asked for so early in this one that it is the cheaper one to give up."""
        return self._list_again and asyncio.get_running_loop().time() - self._listing_since < EARLY

    async def _back_off(self, cause: ClusterError) -> None:
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and asyncio.get_running_loop().time() - opened_at > self._timing.longest_wait:
            self._wait = self._timing.first_wait  # it went well for long enough
        if isinstance(cause, Gone) and not self._listing:
            self._wait = self._timing.first_wait  # the server is well, and only remembers less
        wait = self._wait * self._rng.uniform(0.5, 1.0)
        self._wait = min(2 * self._wait, self._timing.longest_wait)
        if isinstance(cause, Refused):
            self._refusals += 1
            if self._refusals > MOST_REFUSALS and cause.status >= 500:
                self._refusals, self._version = 0, None
            if cause.retry_after is not None:
                named = min(cause.retry_after, LONGEST_RETRY_AFTER)
                wait = max(wait, named * self._rng.uniform(1.0, 1.25))
        await self._hear(Interruption(cause, wait))
        await asyncio.sleep(wait)

    def _patience(self, seconds: float, *, has_bookmarks: bool) -> float:
        return self._timing.bookmark_silence if has_bookmarks else seconds + self._timing.silence

    def _watch_seconds(self) -> float:
        return self._rng.uniform(self._timing.shortest_watch, self._timing.longest_watch)


def _watch_query(version: str, seconds: float) -> str:
    """`version`: encoded."""
    return f"watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={max(1, int(seconds))}"
