"""One watch: what is to be sent to one client, until it is sent.

A client that does not keep up is not waited for: when more than a bound is waiting for it, its watch ends, and it lists
again.
"""

from collections.abc import Callable, Iterator

from testing.simulator.errors import ApiError, expired
from testing.simulator.resources import Resource
from testing.simulator.selectors import Selection
from testing.simulator.store import ADDED, DELETED, MODIFIED, Bucket, Change, Item, encode
from testing.simulator.views import View

ITEMS_AT_A_TIME = 500
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """What waits for one client.

    `on_ready` is called when there is something to send or the watch has ended, `on_overflow` when it has ended because
    the client did not keep up.
    """

    def __init__(self, bucket: Bucket, resource: Resource, selection: Selection, view: View, most_waiting: int) -> None:
        self.bucket = bucket
        self.resource = resource
        self.closed = False
        self.overflown = False
        self.on_ready: Callable[[], None] | None = None
        self.on_overflow: Callable[[], None] | None = None
        self._view = view
        self._selection = selection
        self._everything = selection.everything
        self._most_waiting = most_waiting
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._initial: list[Item] = []
        self._initial_end = b""

    def start_with_state(self, version: int, *, announce_end: bool) -> None:
        """Everything that is there first, then the changes."""
        self._initial = [
            item for item in self.bucket.in_order(self._selection.namespace) if self._selection.matches(item)
        ]
        if announce_end:
            self._initial_end = self.bookmark(version, {INITIAL_EVENTS_END: "true"})
        self.bucket.listeners.append(self._on_change)

    def start_in_the_past(self, items: list[Item], version: int, *, announce_end: bool) -> None:
        """As a cache that is behind: these first, and then all that happened since that version."""
        self._initial = [item for item in items if self._selection.matches(item)]
        if announce_end:
            self._initial_end = self.bookmark(version, {INITIAL_EVENTS_END: "true"})
        for change in self.bucket.since(version) or ():
            self._on_change(change)
        self.bucket.listeners.append(self._on_change)

    def start_after(self, version: int, current: int) -> None:
        """The changes after a version. One that is compacted, or has never been, is refused in the stream itself."""
        missed = self.bucket.since(version) if version <= current else None
        if missed is None:
            oldest = self.bucket.compacted if version <= current else current
            self.refuse(expired(f"too old resource version: {version} ({oldest})"))
            return
        for change in missed:
            self._on_change(change)
            change.forget_lines()
        if self.overflown:
            self._waiting = [_error_line(expired(f"too old resource version: {version}: too much has changed since"))]
            return
        self.bucket.listeners.append(self._on_change)

    def start_now(self) -> None:
        self.bucket.listeners.append(self._on_change)

    def refuse(self, error: ApiError) -> None:
        self._push(_error_line(error))
        self.close()

    def close(self) -> None:
        """End after what is waiting has been sent."""
        if not self.closed:
            self.closed = True
            if self._on_change in self.bucket.listeners:
                self.bucket.listeners.remove(self._on_change)
            if self.on_ready is not None:
                self.on_ready()

    def initial_chunks(self) -> Iterator[bytes]:
        initial, self._initial = self._initial, []
        for start in range(0, len(initial), ITEMS_AT_A_TIME):
            yield b"".join([self._view.line(ADDED, item) for item in initial[start : start + ITEMS_AT_A_TIME]])
        if self._initial_end:
            yield self._initial_end

    def take(self) -> bytes:
        """All that is waiting, as one piece."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        obj: dict[str, object] = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
        }
        if self.resource.kind == "Pod":
            obj |= {"spec": {"containers": None}, "status": {}}
        return b'{"type":"BOOKMARK","object":%b}\n' % encode(obj)

    def _on_change(self, change: Change) -> None:
        if self._everything:
            self._push(change.line() if self._view.plain else self._view.line(change.type, change.item))
            return
        now = change.type != DELETED and self._selection.matches(change.item)
        before = change.before is not None and self._selection.matches(change.before)
        if now:
            type_ = MODIFIED if before else ADDED
            same = self._view.plain and type_ == change.type
            self._push(change.line() if same else self._view.line(type_, change.item))
        elif before and change.type == DELETED:
            self._push(change.line() if self._view.plain else self._view.line(DELETED, change.item))
        elif before:
            self._push(self._view.departed(change))

    def _push(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > self._most_waiting:
            self.overflown = True
            self._waiting.clear()
            self.close()
            if self.on_overflow is not None:
                self.on_overflow()
        elif self.on_ready is not None:
            self.on_ready()


def _error_line(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % error.body()
