"""ListWatch: all objects of one resource, and then what happens to them, for as long as anybody wants to know.

    listing --to its end--> watching --stream ends or breaks--> watching, from where it was
       ^                       |
       +--too old, or asked for+

What it hears it hands to `hear`, in order, and waits for it before it reads on. Failures are handed on as Trouble and
tried again, ever more patiently.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient, Stream
from shared.kube.errors import Gone, Refused, one_line

PAGE = 500
LARGER_PAGE = 5000
"""After a listing that took longer than the server remembers: fewer, larger pages take less time."""
PAGE_PATIENCE = 60.0
"""Seconds that one page may take."""
MOST_LINE_BYTES = 32 << 20
"""An object is at most 1.5 MiB in etcd; a longer line is none."""


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """`type`: ADDED, MODIFIED or DELETED. `object`: JSON, a part of a larger buffer that it keeps alive."""

    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class ListBegins:
    """Once more, and without an end before it, where a listing had to be given up."""


@dataclass(frozen=True, slots=True)
class ListPage:
    objects: Sequence[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class ListEnds:
    pass


@dataclass(frozen=True, slots=True)
class Watching:
    """The server has accepted a watch."""


@dataclass(frozen=True, slots=True)
class Events:
    """All that could be read at once."""

    events: Sequence[WatchEvent]


@dataclass(frozen=True, slots=True)
class Trouble:
    """It does not go on; it is tried again in so many seconds."""

    cause: ClusterError
    wait: float


Heard = ListBegins | ListPage | ListEnds | Watching | Events | Trouble


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds."""

    shortest_watch: float = 300.0
    longest_watch: float = 600.0
    """The server ends a watch after a time between these, so that not all watches begin anew at once."""
    silence: float = 30.0
    """So long after that time, a watch without a byte is given up."""
    first_wait: float = 0.2
    longest_wait: float = 10.0
    """Before trying again: twice as long each time, with a jitter of half of it."""


class ListWatch:
    """`selector`: a query such as `fieldSelector=...`, encoded."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        hear: Callable[[Heard], Awaitable[None]],
        rng: random.Random,
        *,
        selector: str = "",
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._path = path
        self._hear = hear
        self._rng = rng
        self._selector = selector
        self._timing = timing or Timing()
        self._version: str | None = None
        self._newest: msgspec.Raw | None = None
        self._page = PAGE
        self._list_again = False
        self._wait = self._timing.first_wait
        self._stream: Stream | None = None
        self._opened_at: float | None = None

    def list_again(self) -> None:
        """Everything is to be listed anew, from its beginning: now, or after the listing that is under way."""
        self._list_again = True
        if self._stream is not None:
            self._stream.close()

    async def run(self) -> NoReturn:
        """Until it is cancelled."""
        while True:
            try:
                while self._version is None or self._list_again:
                    await self._list()
                await self._watch(self._version_now())
            except ClusterError as cause:
                if isinstance(cause, Gone):
                    self._version = None
                if not self._list_again or self._stream is None:
                    await self._back_off(cause)
            finally:
                if self._stream is not None:
                    self._stream.close()
                    self._stream = None

    # Listing

    async def _list(self) -> None:
        self._list_again, self._version, self._newest = False, None, None
        await self._hear(ListBegins())
        following = ""
        while True:
            page = await self._get_page(following)
            if page.items:
                await self._hear(ListPage(page.items))
            following = page.metadata.following
            if not following:
                break
        self._version, self._page = page.metadata.resource_version, PAGE
        await self._hear(ListEnds())

    async def _get_page(self, following: str) -> "_Page":
        path = self._query(f"limit={self._page}" + (f"&continue={quote(following, safe='')}" if following else ""))
        answer = await self._client.call("GET", path, timeout=PAGE_PATIENCE)
        asked = f"GET {self._path}"
        if answer.status == 410:
            self._page = LARGER_PAGE
            raise Gone(self._client.server, asked, 410, answer.message)
        if not answer.ok:
            raise Refused(self._client.server, asked, answer.status, answer.message)
        try:
            return _PAGE.decode(answer.body)
        except (msgspec.DecodeError, RecursionError) as cause:
            raise ClusterError(f"{self._client.server}: {asked}: not a list: {cause}") from cause

    # Watching

    async def _watch(self, version: str) -> None:
        timing = self._timing
        seconds = self._rng.uniform(timing.shortest_watch, timing.longest_watch)
        query = (
            f"watch=1&allowWatchBookmarks=true&resourceVersion={quote(version)}&timeoutSeconds={max(1, int(seconds))}"
        )
        self._stream = await self._client.stream(self._query(query), seconds + timing.silence)
        if self._list_again:
            return
        loop = asyncio.get_running_loop()
        self._opened_at = began = loop.time()
        await self._hear(Watching())
        lines = _Lines()
        heard = False
        while data := await self._stream.read():
            if whole := lines.take(data):
                await self._take(whole)
                self._wait, heard = timing.first_wait, True
            if self._list_again:
                return
        if not heard and loop.time() - began < timing.first_wait:
            raise ClusterError(f"{self._client.server}: watch {self._path}: it ended at once")

    async def _take(self, lines: bytes) -> None:
        try:
            said = _EVENTS.decode_lines(lines)
        except (msgspec.DecodeError, RecursionError) as cause:
            raise ClusterError(f"{self._client.server}: watch {self._path}: not a watch event: {cause}") from cause
        events = [event for event in said if event.type in _CHANGES]
        error: msgspec.Raw | None = None
        if len(events) < len(said):
            error = next((event.object for event in said if event.type == "ERROR"), None)
        if said[-1].type != "ERROR":
            self._newest = said[-1].object
        elif events:
            self._newest = events[-1].object
        if events:
            await self._hear(Events(events))
        if error is not None:
            raise self._error(error)

    def _error(self, raw: msgspec.Raw) -> ClusterError:
        """What ends a watch in the middle. Unless the server is merely busy, everything is listed again."""
        asked = f"watch {self._path}"
        try:
            status = _STATUS.decode(raw)
        except msgspec.DecodeError as cause:
            self._version = None
            return ClusterError(f"{self._client.server}: {asked}: an error that cannot be read: {cause}")
        busy = status.code == 429 or status.code >= 500
        return (Refused if busy else Gone)(self._client.server, asked, status.code, one_line(status.message))

    def _version_now(self) -> str:
        """From where to go on. Only asked for between watches, so that not every object is looked into for it."""
        newest, self._newest = self._newest, None
        if newest is not None:
            try:
                self._version = _OBJECT.decode(newest).metadata.resource_version
            except msgspec.DecodeError as cause:
                self._version = None
                raise ClusterError(f"{self._client.server}: watch {self._path}: an object without version") from cause
        if not self._version:
            self._version = None
            raise ClusterError(f"{self._client.server}: {self._path}: a list without version")
        return self._version

    # Inside

    async def _back_off(self, cause: ClusterError) -> None:
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and asyncio.get_running_loop().time() - opened_at > self._timing.longest_wait:
            self._wait = self._timing.first_wait  # it went well for long enough
        wait = self._wait * self._rng.uniform(0.5, 1.0)
        self._wait = min(2 * self._wait, self._timing.longest_wait)
        await self._hear(Trouble(cause, wait))
        await asyncio.sleep(wait)

    def _query(self, query: str) -> str:
        return f"{self._path}?{query}&{self._selector}" if self._selector else f"{self._path}?{query}"


class _Lines:
    """Cuts what is read into whole lines. What of the last one is there already waits for the rest."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._bytes = 0

    def take(self, data: bytes) -> bytes:
        """All lines that are whole now, in one piece."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._bytes += len(data)
            if self._bytes > MOST_LINE_BYTES:
                raise ClusterError(f"a watch event of more than {MOST_LINE_BYTES} bytes")
            self._begun.append(data)
            return b""
        rest = data[end:]
        if self._begun:
            data, end = b"".join([*self._begun, data[:end]]), self._bytes + end
        self._begun, self._bytes = ([rest], len(rest)) if rest else ([], 0)
        return data[:end]


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    following: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Object(msgspec.Struct):
    metadata: _ListMeta


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_PAGE = msgspec.json.Decoder(_Page)
_EVENTS = msgspec.json.Decoder(WatchEvent)
_OBJECT = msgspec.json.Decoder(_Object)
_STATUS = msgspec.json.Decoder(_Status)
