"""ListWatch: lists all objects of a resource, then watches their changes until cancelled.

    listing --complete--> watching --stream ends or breaks--> watching, from the last version
       ^                     |
       +--Gone, or requested-+

The first list and its watch come in one stream if the server supports that; it costs no more memory than the objects in
transit. Otherwise the list comes in pages of one state, and the watch begins there. A list always shows the newest
state (resourceVersion is empty, never 0), because it is requested after something was missed. A server may lag all the
same: `handle` gets the version of each list, and may refuse a list or an event by raising Gone, which relists after a
pause. Later lists come in pages, because these name their version before the first object, a stream only after the
last.

If several API versions serve the same objects, a path that the server does not have (404) is followed by the next one,
until one answers; the watch then resumes where it was.

Events go to `handle` in order, one at a time. Failures are passed on as Interruption and retried with back-off, not
before the time that the server names.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Refused, Silent, Unreachable
from shared.kube.wire import (
    Lines,
    NotStreamed,
    Page,
    Stream,
    StreamedList,
    WatchBatch,
    WatchEvent,
    error_of,
    is_busy,
    query,
    read_events,
    read_page,
    version_of,
)

PAGE = 500
"""Objects in one page of a list."""
LARGER_PAGE = 5000
"""After a listing that took longer than the server keeps its state: fewer, larger pages are faster."""
WATCH_START_PATIENCE = 90.0
"""Seconds until a watch begins. Some proxies hold its headers back until the first event or bookmark."""
MAX_PAGE_RETRIES = 5
"""Retries of one page, until the listing starts again."""
MAX_RESUMPTIONS = 10
"""Consecutive failed watch resumptions before relisting."""
RESTART_WINDOW = 2.0
"""Seconds from its start within which a listing is restarted for a follower that came too late for it."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds; a longer Retry-After of the server is cut to this."""
PAGE_PATIENCE = 60.0
"""Seconds for one page."""
NOT_FOUND, GONE = 404, 410
NOT_STREAMED = frozenset({400, 405, 406, 415, 422})
"""Statuses of servers without streamed lists."""


@dataclass(frozen=True, slots=True)
class ListStarted:
    """A listing begins; it begins again, without an end, if it had to be given up.

    `version`: of the listed state; empty if the server names it only at the end.
    """

    version: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    """An object may come more than once, newer each time."""

    objects: Sequence[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class ListDone:
    """`version`: of the listed state. `since`: the events that follow are not older than this."""

    version: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class WatchStarted:
    """The server has accepted a watch."""


@dataclass(frozen=True, slots=True)
class ObjectEvents:
    """As many events as could be read at once."""

    events: Sequence[WatchEvent]


@dataclass(frozen=True, slots=True)
class Interruption:
    """The list or watch failed; it is retried after `wait` seconds."""

    cause: ClusterError
    wait: float


ListWatchEvent = ListStarted | ListPage | ListDone | WatchStarted | ObjectEvents | Interruption


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds."""

    shortest_watch: float = 300.0
    longest_watch: float = 600.0
    """The server ends a watch after a random time between these, so that watches do not all resume together."""
    silence: float = 30.0
    """Silence after that time before a watch is given up."""
    bookmark_silence: float = 150.0
    """Silence before a watch with bookmarks is given up: API servers send one about every minute, even without events.
    Until the first bookmark, and from servers without them (no watch cache, extension servers), a healthy watch may be
    silent to its end; only the limit above and TCP keep-alive detect a dead one.
    """
    list_silence: float = 30.0
    """Silence before a streamed list is given up."""
    first_wait: float = 0.2
    longest_wait: float = 10.0
    """Before a retry: doubled each time, with a jitter of half of it."""


class ListWatch:
    """`selector`: an encoded query such as `fieldSelector=...`. `others`: further paths of the same objects."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        handle: Callable[[ListWatchEvent], Awaitable[None]],
        rng: random.Random,
        *,
        selector: str = "",
        others: Sequence[str] = (),
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._paths = deque((path, *others))
        self._paths_absent = 0
        self._handle = handle
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
        self._in_pages = False
        self._refusals = 0
        self._wait = self._timing.first_wait
        self._stream: Stream | None = None
        self._opening: asyncio.Timeout | None = None
        """While a watch is requested that the server has not begun."""
        self._opened_at: float | None = None

    def list_again(self) -> None:
        """List everything again: now, or after a listing that has run for long already."""
        self._list_again = True
        if self._opening is not None:
            self._opening.reschedule(asyncio.get_running_loop().time())
            self._opening = None
        elif self._stream is not None and not self._listing:
            self._stream.close()

    def resume(self, version: str) -> None:
        """Before `run`: watch from this version on instead of listing; list if the server has forgotten it."""
        self._version, self._in_pages = version, True

    def list_in_pages(self) -> None:
        """List in pages, which name their version first, also the first time: the state must not go back in time."""
        self._in_pages = True

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        while True:
            try:
                await self._go_on()
            except ClusterError as cause:
                if isinstance(cause, Gone):
                    self._version = None
                if self._try_next_path(cause):
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

    def _try_next_path(self, cause: ClusterError) -> bool:
        """Whether a path remains that was not tried since the last answer."""
        if not (isinstance(cause, Refused) and cause.status == NOT_FOUND):
            return False
        self._paths.rotate(-1)
        self._paths_absent = (self._paths_absent + 1) % len(self._paths)
        return self._paths_absent != 0

    async def _go_on(self) -> None:
        if self._version is not None and not self._list_again:
            await self._watch(self._version_now())
        elif self._streams and not self._broke_off and not self._in_pages:
            await self._stream_list()
        else:
            await self._list()

    # Lists in pages

    async def _list(self) -> None:
        self._begin_listing()
        page = await self._get_page_with_retries("")
        await self._handle(ListStarted(page.metadata.resource_version))
        while True:
            if page.items:
                await self._handle(ListPage(page.items))
            following = page.metadata.following
            if not following:
                break
            if self._restarts():
                return
            page = await self._get_page_with_retries(following)
        version = page.metadata.resource_version
        await self._handle(ListDone(version, version))
        self._version, self._page, self._in_pages = version, PAGE, True
        self._listing = self._broke_off = False

    async def _get_page_with_retries(self, following: str) -> Page:
        """Retry a page, so that a busy server does not cost the pages read before."""
        for _ in range(MAX_PAGE_RETRIES):
            try:
                return await self._get_page(following)
            except (Unreachable, Refused) as cause:
                if not following or not (isinstance(cause, Unreachable) or is_busy(cause.status)):
                    raise
                await self._back_off(cause)
        return await self._get_page(following)

    async def _get_page(self, following: str) -> Page:
        try:
            page = await self.page(self._page, following)
        except Gone:
            self._page = LARGER_PAGE
            raise
        self._wait, self._refusals, self._paths_absent = self._timing.first_wait, 0, 0
        return page

    async def page(self, limit: int, following: str) -> Page:
        """`following`: the continue token of the page before; empty for the first.

        Gone if the server has forgotten the state of the pages. Its offer to continue with a newer state is not used,
        because changes to objects of earlier pages would be lost. The watch goes on meanwhile.
        """
        client, asked = self._client, f"GET {self._path}"
        part = f"limit={limit}" + (f"&continue={quote(following, safe='')}" if following else "")
        answer = await client.call("GET", query(self._path, self._selector, part), timeout=PAGE_PATIENCE)
        if answer.status == GONE:
            raise Gone(client.server, asked, GONE, answer.message)
        if not answer.ok:
            raise Refused(client.server, asked, answer.status, answer.message, answer.retry_after)
        return read_page(answer.body)

    # Streamed lists

    async def _stream_list(self) -> None:
        """Continue as a watch. A server without streamed lists is not asked again; one that breaks off is not asked the
        next time.
        """
        seconds = self._watch_seconds()
        asked = f"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&{_watch_query('', seconds)}"
        try:
            self._stream = await self._client.stream(query(self._path, self._selector, asked), WATCH_START_PATIENCE)
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
        await self._handle(ListStarted())
        try:
            async for objects in streamed.pages():
                await self._handle(ListPage(objects))
                if self._restarts():
                    return
        except ClusterError as cause:
            self._broke_off = True
            self._streams = not isinstance(cause, Silent | NotStreamed)
            raise
        await self._handle(ListDone(streamed.version, streamed.since))
        self._version, self._listing, self._in_pages = streamed.version, False, True
        self._wait, self._paths_absent = self._timing.first_wait, 0
        await self._handle(WatchStarted())
        self._stream.patience = self._patience(seconds, has_bookmarks=await self._take(streamed.events))
        await self._follow(lines)

    # Watches

    async def _watch(self, version: str) -> None:
        seconds = self._watch_seconds()
        asked = query(self._path, self._selector, _watch_query(quote(version), seconds))
        with suppress(TimeoutError):  # if a list is requested: a watch may take long to begin
            try:
                async with asyncio.timeout(None) as self._opening:
                    self._stream = await self._client.stream(asked, WATCH_START_PATIENCE)
            finally:
                self._opening = None
        if self._list_again or self._stream is None:
            return
        self._opened_at = asyncio.get_running_loop().time()
        await self._handle(WatchStarted())
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
                self._wait, self._refusals, self._paths_absent, heard = timing.first_wait, 0, 0, True
        if not (heard or self._list_again) and loop.time() - began < timing.first_wait:
            raise ClusterError(f"{self._client.server}: watch {self._path}: it ended immediately")

    async def _take(self, events: Sequence[WatchEvent]) -> bool:
        """Return whether there was a bookmark among them."""
        batch = WatchBatch(events)
        if batch.newest is not None:
            self._newest = batch.newest
        if batch.changes:
            await self._handle(ObjectEvents(batch.changes))
        if batch.error is not None:
            raise error_of(batch.error, self._client.server, self._path)
        return batch.has_bookmark

    def _version_now(self) -> str:
        """Where to resume. Read only between watches, so that not every object is decoded for it."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._version = version_of(newest)
        if not self._version:
            self._version = None
            raise ClusterError(f"{self._client.server}: {self._path}: a list or an object without version")
        return self._version

    # Internals

    def _begin_listing(self) -> None:
        self._list_again, self._version, self._newest, self._listing = False, None, None, True
        self._listing_since = asyncio.get_running_loop().time()

    def _restarts(self) -> bool:
        """Whether a new request came so early in this listing that restarting it is cheaper."""
        return self._list_again and asyncio.get_running_loop().time() - self._listing_since < RESTART_WINDOW

    async def _back_off(self, cause: ClusterError) -> None:
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and asyncio.get_running_loop().time() - opened_at > self._timing.longest_wait:
            self._wait = self._timing.first_wait  # it worked for long enough
        if isinstance(cause, Gone) and not self._listing:
            self._wait = self._timing.first_wait  # the server works; it only keeps less history
        wait = self._wait * self._rng.uniform(0.5, 1.0)
        self._wait = min(2 * self._wait, self._timing.longest_wait)
        if isinstance(cause, Refused):
            self._refusals += 1
            if self._refusals > MAX_RESUMPTIONS and cause.status >= 500:
                self._refusals, self._version = 0, None
            if cause.retry_after is not None:
                named = min(cause.retry_after, LONGEST_RETRY_AFTER)
                wait = max(wait, named * self._rng.uniform(1.0, 1.25))
        await self._handle(Interruption(cause, wait))
        await asyncio.sleep(wait)

    def _patience(self, seconds: float, *, has_bookmarks: bool) -> float:
        return self._timing.bookmark_silence if has_bookmarks else seconds + self._timing.silence

    def _watch_seconds(self) -> float:
        return self._rng.uniform(self._timing.shortest_watch, self._timing.longest_watch)


def _watch_query(version: str, seconds: float) -> str:
    """`version` is URL-encoded."""
    return f"watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={max(1, int(seconds))}"
