"""Lists in pages, and lists streamed as the start of a watch: all objects as ADDED, then a bookmark at the end."""

from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Refused
from shared.kube.stream import Stream
from shared.kube.wire import Lines, Page, WatchEvent, ends_initial_events, error_of, read_events, read_page, version_of

PAGE_PATIENCE = 60.0
"""Seconds for one page."""


async def get_page(client: KubeClient, path: str, selector: str, limit: int, following: str) -> Page:
    """`following`: the continue token of the page before; empty for the first.

    Gone if the server has forgotten the state of the pages. Its offer to continue with a newer state is not used,
    because changes to objects of earlier pages would be lost.
    """
    part = f"limit={limit}" + (f"&continue={quote(following, safe='')}" if following else "")
    answer = await client.call("GET", query(path, selector, part), timeout=PAGE_PATIENCE)
    asked = f"GET {path}"
    if answer.status == 410:
        raise Gone(client.server, asked, 410, answer.message)
    if not answer.ok:
        raise Refused(client.server, asked, answer.status, answer.message, answer.retry_after)
    return read_page(answer.body)


def query(path: str, selector: str, asked: str) -> str:
    """`selector` and `asked` are URL-encoded."""
    return f"{path}?{asked}&{selector}" if selector else f"{path}?{asked}"


MOST_HELD = 10_000
"""Events that may come between the objects of the list and its end."""


class NotStreamed(ClusterError):
    """The server does not support streamed lists, and started an ordinary watch."""


class StreamedList:
    """At the end, `version` is where a watch may resume, and `events` are those received already.

    `since`: the version of the first of these events, which may be older than the list's.
    """

    def __init__(self, server: str, path: str, stream: Stream, lines: Lines) -> None:
        self.version = ""
        self.since = ""
        self.events: Sequence[WatchEvent] = ()
        self._server = server
        self._path = path
        self._stream = stream
        self._lines = lines
        self._held: list[WatchEvent] = []

    async def pages(self) -> AsyncIterator[Sequence[msgspec.Raw]]:
        """As many objects at a time as could be read at once; ClusterError if the list breaks off."""
        while not self.version:
            data = await self._stream.read()
            if not data:
                raise ClusterError(f"{self._server}: {self._path}: the list broke off")
            objects = self._take(read_events(self._lines.take(data)))
            if objects:
                yield objects

    def _take(self, events: Sequence[WatchEvent]) -> Sequence[msgspec.Raw]:
        """The objects among these events. From the first deletion on, events are held back to the end: a list cannot
        say that an object is gone.
        """
        objects: list[msgspec.Raw] = []
        for position, event in enumerate(events):
            match event.type:
                case "ADDED" | "MODIFIED" if not self._held:
                    objects.append(event.object)
                case "ADDED" | "MODIFIED" | "DELETED":
                    self._held.append(event)
                case "BOOKMARK":
                    self._end(event.object)
                    self.events = [*self._held, *events[position + 1 :]]
                    break
                case "ERROR":
                    raise error_of(event.object, self._server, self._path)
        if len(self._held) > MOST_HELD:
            raise ClusterError(f"{self._server}: {self._path}: too many events during a streamed list")
        return objects

    def _end(self, bookmark: msgspec.Raw) -> None:
        if not ends_initial_events(bookmark):
            raise NotStreamed(f"{self._server}: {self._path}: the server streams no lists")
        self.version = version_of(bookmark)
        if not self.version:
            raise ClusterError(f"{self._server}: {self._path}: the list has no resourceVersion")
        self.since = version_of(self._held[0].object) if self._held else self.version
