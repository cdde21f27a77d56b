"""Lists and watches on the wire: pages, lines with one event each, and the few fields that are read of them.

A list comes in pages, or streamed as the start of a watch: all objects as ADDED, then a bookmark at the end.

An object is passed on undecoded, as a part of the larger buffer that it keeps alive.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from shared.errors import ClusterError
from shared.http.errors import HttpFailure, Late
from shared.kube.errors import Gone, Refused, Silent, Unreachable
from shared.kube.outcome import STATUS

MAX_LINE_BYTES = 32 << 20
"""An object has at most 1.5 MiB in etcd; a longer line is invalid."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the last object of a streamed list."""

CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """`type`: ADDED, MODIFIED or DELETED. `object`: JSON, a part of a larger buffer that it keeps alive."""

    type: str
    object: msgspec.Raw


class ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    following: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class _ObjectMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _ObjectMeta


class Lines:
    """Splits the input into whole lines; keeps an unfinished line for the next input."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._bytes = 0

    def take(self, data: bytes) -> bytes:
        """All complete lines, in one piece."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._bytes += len(data)
            if self._bytes > MAX_LINE_BYTES:
                raise ClusterError(f"a watch event of more than {MAX_LINE_BYTES} bytes")
            self._begun.append(data)
            return b""
        rest = data[end:]
        if self._begun:
            data, end = b"".join([*self._begun, data[:end]]), self._bytes + end
        self._begun, self._bytes = ([rest], len(rest)) if rest else ([], 0)
        return data[:end]


class WatchBatch:
    """The events of some lines. `newest`: the last object, bookmarks included; None without one."""

    __slots__ = ("changes", "error", "has_bookmark", "newest")

    def __init__(self, events: Sequence[WatchEvent]) -> None:
        self.changes = [event for event in events if event.type in CHANGES]
        self.newest: msgspec.Raw | None = None
        self.has_bookmark = False
        self.error: msgspec.Raw | None = None
        if len(self.changes) == len(events):
            self.newest = events[-1].object if events else None
            return
        for event in events:
            match event.type:
                case "ERROR":
                    self.error = event.object
                    return
                case "BOOKMARK":
                    self.has_bookmark, self.newest = True, event.object
                case _:
                    self.newest = event.object


def read_page(body: bytes) -> Page:
    """Raises ClusterError if it is no list."""
    try:
        return _PAGE.decode(body)
    except _UNREADABLE as cause:
        raise ClusterError(f"not a list: {cause}") from cause


def read_events(lines: bytes) -> list[WatchEvent]:
    """Raises ClusterError if a line is no event."""
    try:
        return _EVENTS.decode_lines(lines)
    except _UNREADABLE as cause:
        raise ClusterError(f"not a watch event: {cause}") from cause


def version_of(raw: msgspec.Raw) -> str:
    """The object's resourceVersion; empty if it has none."""
    try:
        return _OBJECT.decode(raw).metadata.resource_version
    except _UNREADABLE:
        return ""


def ends_initial_events(bookmark: msgspec.Raw) -> bool:
    try:
        annotations = _OBJECT.decode(bookmark).metadata.annotations
    except _UNREADABLE:
        return False
    return annotations is not None and annotations.get(INITIAL_EVENTS_END) == "true"


def error_of(raw: msgspec.Raw, server: str, path: str) -> ClusterError:
    """The error of an ERROR event, which ends a watch: Gone, unless the server is merely busy, because a watch cannot
    resume.
    """
    try:
        status = STATUS.decode(raw)
    except _UNREADABLE:
        return Gone(server, f"watch {path}", 0, "an error that cannot be read")
    kind = Refused if is_busy(status.code) else Gone
    return kind(server, f"watch {path}", status.code, status.message, status.retry_after)


def is_busy(status: int) -> bool:
    return status == 429 or status >= 500


_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_PAGE = msgspec.json.Decoder(Page)
_EVENTS = msgspec.json.Decoder(WatchEvent)
_OBJECT = msgspec.json.Decoder(_Object)


# Connections


class StreamedBody(Protocol):
    """The body of an answer, as HttpStream has it."""

    status: int

    def header(self, name: bytes) -> str | None: ...

    async def read(self, patience: float) -> bytes: ...

    def close(self) -> None: ...


class Stream:
    """`server`, `asked`: for error messages. `patience`: seconds without a byte after which reading fails."""

    def __init__(self, body: StreamedBody, server: str, asked: str, patience: float) -> None:
        self.patience = patience
        self._body = body
        self._server = server
        self._asked = asked

    async def read(self) -> bytes:
        """What has arrived, waiting for at least one byte; empty at the end.

        Raises Unreachable if the connection breaks, Silent if nothing comes; it cannot be read on then.
        """
        try:
            return await self._body.read(self.patience)
        except Late as cause:
            self.close()
            reason = f"nothing has come for {self.patience:g} s"
            raise Silent(self._server, self._asked, reason, maybe_done=True) from cause
        except HttpFailure as cause:
            raise Unreachable(self._server, self._asked, str(cause), maybe_done=True) from cause

    def close(self) -> None:
        """Also ends a `read` in progress."""
        self._body.close()


# Lists


def query(path: str, selector: str, asked: str) -> str:
    """`selector` and `asked` are URL-encoded."""
    return f"{path}?{asked}&{selector}" if selector else f"{path}?{asked}"


MAX_HELD = 10_000
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
        if len(self._held) > MAX_HELD:
            raise ClusterError(f"{self._server}: {self._path}: too many events during a streamed list")
        return objects

    def _end(self, bookmark: msgspec.Raw) -> None:
        if not ends_initial_events(bookmark):
            raise NotStreamed(f"{self._server}: {self._path}: the server streams no lists")
        self.version = version_of(bookmark)
        if not self.version:
            raise ClusterError(f"{self._server}: {self._path}: the list has no resourceVersion")
        self.since = version_of(self._held[0].object) if self._held else self.version
