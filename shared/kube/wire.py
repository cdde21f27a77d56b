"""Formats of lists and watches: pages, lines with one event each, and the few fields that are read of them.

An object is passed on undecoded, as a part of the larger buffer that it keeps alive.
"""

from collections.abc import Sequence

import msgspec

from shared.errors import ClusterError
from shared.kube.errors import Gone, Refused

MOST_LINE_BYTES = 32 << 20
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


class _Details(msgspec.Struct):
    retry_after: int = msgspec.field(default=0, name="retryAfterSeconds")


class Status(msgspec.Struct):
    code: int = 0
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after(self) -> float | None:
        """Seconds, if the server named them."""
        return float(self.details.retry_after) if self.details is not None and self.details.retry_after > 0 else None


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
            if self._bytes > MOST_LINE_BYTES:
                raise ClusterError(f"a watch event of more than {MOST_LINE_BYTES} bytes")
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


def version_number(version: str) -> int:
    """A resourceVersion as a comparable number; 0 if it is none."""
    return int(version) if version.isascii() and version.isdecimal() else 0


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
        status = _STATUS.decode(raw)
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
_STATUS = msgspec.json.Decoder(Status)
