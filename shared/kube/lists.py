"""One page of a list, and how lists and watches are asked for."""

from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Refused
from shared.kube.stream import Stream
from shared.kube.wire import Lines, Page, WatchEvent, ends_initial_events, error_of, read_events, read_page, version_of

PAGE_PATIENCE = 60.0
"""Seconds that one page may take."""


async def get_page(client: KubeClient, path: str, selector: str, limit: int, following: str) -> Page:
    """`following`: what the page before said; empty for the first.

    Gone where the server has forgotten the state that the pages show. It offers to go on with pages of a newer one
    then; but what happened meanwhile to the objects of the pages before would never be told: it is not taken up.
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
    """`selector` and `asked`: encoded."""
    return f"{path}?{asked}&{selector}" if selector else f"{path}?{asked}"


MOST_HELD = 10_000
"""Events that may come between the objects of the list and the mark of its end."""


class NotStreamed(ClusterError):
    """The server does not know what it was asked for, and began an ordinary watch."""


class StreamedList:
    """`version` and `events` are what there is at the end: where a watch may go on, and what has come already.

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
        """As many objects at once as could be read at once, to the end of the list; raises ClusterError before it."""
        while not self.version:
            data = await self._stream.read()
            if not data:
                raise ClusterError(f"{self._server}: {self._path}: the list broke off")
            objects = self._take(read_events(self._lines.take(data)))
            if objects:
                yield objects

    def _take(self, events: Sequence[WatchEvent]) -> Sequence[msgspec.Raw]:
        """The objects among them. Events of other kinds may come before the end already.

        From the first deletion on they are held back: in a list nothing can be said to be gone.
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
            raise ClusterError(f"{self._server}: {self._path}: too much happens while it is listed in a stream")
        return objects

    def _end(self, bookmark: msgspec.Raw) -> None:
        if not ends_initial_events(bookmark):
            raise NotStreamed(f"{self._server}: {self._path}: the server streams no lists")
        self.version = version_of(bookmark)
        if not self.version:
            raise ClusterError(f"{self._server}: {self._path}: a list without version")
        self.since = version_of(self._held[0].object) if self._held else self.version
