"""One watch: the events queued for one client.

The queue is bounded in bytes. When a client falls too far behind its watch ends, and it has to list again.
"""

from collections.abc import Callable, Iterable, Iterator

from testing.simulator.errors import ApiError, expired
from testing.simulator.resources import ApiResource
from testing.simulator.selectors import Selection
from testing.simulator.store import ADDED, DELETED, MODIFIED, Bucket, Change, Item, encode
from testing.simulator.views import View

ITEMS_A_CHUNK = 500
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """`on_ready` is called when there is something to send or the watch ends, `on_overflow` when it ends because the
    client did not keep up."""

    def __init__(
        self, bucket: Bucket, resource: ApiResource, selection: Selection, view: View, max_pending_bytes: int
    ) -> None:
        self.bucket = bucket
        self.resource = resource
        self.closed = False
        self.overflowed = False
        self.on_ready: Callable[[], None] | None = None
        self.on_overflow: Callable[[], object] | None = None
        self._view = view
        self._selection = selection
        self._everything = selection.everything
        self._max_pending_bytes = max_pending_bytes
        self._pending: list[bytes] = []
        self.pending_bytes = 0
        self._initial: list[Item] = []
        self._initial_end = b""

    def start(
        self, initial: Iterable[Item] = (), missed: Iterable[Change] = (), initial_end: int | None = None
    ) -> None:
        """Send these objects first, then a bookmark of version `initial_end` if given, then the missed and all further
        changes."""
        self._initial = [item for item in initial if self._selection.matches(item)]
        if initial_end is not None:
            self._initial_end = self.bookmark(initial_end, {INITIAL_EVENTS_END: "true"})
        for change in missed:
            self._on_change(change)
            change.forget_lines()
        if self.overflowed:
            self._pending = [_error_line(expired("too old resource version: too much has changed since"))]
        else:
            self.bucket.listeners.append(self._on_change)

    def resume(self, version: int, current: int) -> None:
        """Send the changes after a version. A compacted or future version is refused inside the stream."""
        missed = self.bucket.since(version) if version <= current else None
        if missed is None:
            oldest = self.bucket.compacted if version <= current else current
            self._push(_error_line(expired(f"too old resource version: {version} ({oldest})")))
            self.close()
        else:
            self.start(missed=missed)

    def close(self) -> None:
        """End the watch once its queue has been sent."""
        if not self.closed:
            self.closed = True
            if self._on_change in self.bucket.listeners:
                self.bucket.listeners.remove(self._on_change)
            if self.on_ready is not None:
                self.on_ready()

    def initial_chunks(self) -> Iterator[bytes]:
        initial, self._initial = self._initial, []
        for start in range(0, len(initial), ITEMS_A_CHUNK):
            yield b"".join([self._view.line(ADDED, item) for item in initial[start : start + ITEMS_A_CHUNK]])
        if self._initial_end:
            yield self._initial_end

    def take(self) -> bytes:
        """Everything queued, as one piece."""
        pending, self._pending, self.pending_bytes = self._pending, [], 0
        return pending[0] if len(pending) == 1 else b"".join(pending)

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        kind, api_version = self.resource.kind, self.resource.api_version
        obj: dict[str, object] = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        if self.resource.kind == "Pod":
            obj |= {"spec": {"containers": None}, "status": {}}
        return b'{"type":"BOOKMARK","object":%b}\n' % encode(obj)

    def _on_change(self, change: Change) -> None:
        """Queue the change as this client sees it: an object may begin or cease to match its selector."""
        if self._everything:
            self._push(change.line() if self._view.plain else self._view.line(change.type, change.item))
            return
        matches = self._selection.matches
        now = change.type != DELETED and matches(change.item)
        before = change.before is not None and matches(change.before)
        if before and not now and change.type != DELETED:
            self._push(self._view.departed(change))
        elif now or before:
            type_ = DELETED if not now else MODIFIED if before else ADDED
            same = self._view.plain and type_ == change.type
            self._push(change.line() if same else self._view.line(type_, change.item))

    def _push(self, line: bytes) -> None:
        self._pending.append(line)
        self.pending_bytes += len(line)
        if self.pending_bytes > self._max_pending_bytes:
            self.overflowed = True
            self._pending.clear()
            self.close()
            if self.on_overflow is not None:
                self.on_overflow()
        elif self.on_ready is not None:
            self.on_ready()


def _error_line(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % error.body()
