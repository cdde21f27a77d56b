"""How objects are shown to a client: as stored, converted to another version, or as rows of a table.

Events are stored as v1 and served as events.k8s.io/v1 as well. Versions of a custom resource differ in name only.
"""

from collections.abc import Callable, Sequence

from testing.simulator.resources import EVENTS, NEW_EVENTS, Object, Resource
from testing.simulator.store import DELETED, Change, Item, at_version, encode, event_line
from testing.simulator.tables import table

_KEPT_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES = {kept: new for new, kept in _KEPT_NAMES.items()}


def is_converted(resource: Resource) -> bool:
    return resource.stored_as is not None


def kept_type(resource: Resource) -> Resource:
    """The type that the objects are stored as."""
    return EVENTS if _is_new_event(resource) else resource


def kept_form(resource: Resource, obj: Object) -> Object:
    """Convert a client's object to the stored version."""
    if not _is_new_event(resource):
        return obj
    kept = {_KEPT_NAMES.get(key, key): value for key, value in obj.items()}
    if obj.get("apiVersion") in (None, "", resource.api_version):
        kept["apiVersion"] = EVENTS.api_version
    kept.setdefault("involvedObject", {})
    return kept


def shown_form(resource: Resource, obj: Object) -> Object:
    """Convert a stored object to the version that the client requested."""
    if _is_new_event(resource):
        obj = {_NEW_NAMES.get(key, key): value for key, value in obj.items()}
    obj["apiVersion"] = resource.api_version
    return obj


def _is_new_event(resource: Resource) -> bool:
    return resource is NEW_EVENTS


class View:
    """Objects as stored."""

    plain = True

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._typed = b""
        if resource.strategic:
            self._typed = b'{"kind":"%b","apiVersion":"%b",' % (resource.kind.encode(), resource.api_version.encode())

    def show(self, item: Item) -> bytes:
        return item.raw

    def line(self, type_: str, item: Item) -> bytes:
        return event_line(type_, self.show(item))

    def departed(self, change: Change) -> bytes:
        return change.departed()

    def listing(self, items: Sequence[Item], metadata: Object) -> bytes:
        head = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[' % (
            self._resource.kind.encode(),
            self._resource.api_version.encode(),
            encode(metadata),
        )
        return b"%b%b]}" % (head, b",".join([self._untyped(self.show(item)) for item in items]))

    def _untyped(self, raw: bytes) -> bytes:
        """As an item of a list: only custom resources carry kind and apiVersion there."""
        typed = self._typed
        return b"{" + raw[len(typed) :] if typed and raw.startswith(typed) else raw


class ConvertedView(View):
    """Objects converted to another version."""

    plain = False

    def show(self, item: Item) -> bytes:
        return encode(shown_form(self._resource, item.decode()))

    def departed(self, change: Change) -> bytes:
        assert change.before is not None
        obj = at_version(change.before, change.item.version)
        return event_line(DELETED, encode(shown_form(self._resource, obj)))


class TableView(View):
    """Objects as rows of a table. `include` says how much of the object accompanies its row."""

    plain = False

    def __init__(self, resource: Resource, include: str, now: Callable[[], float]) -> None:
        super().__init__(resource)
        self._include = include
        self._now = now

    def show(self, item: Item) -> bytes:
        return self.listing([item], {"resourceVersion": str(item.version)})

    def departed(self, change: Change) -> bytes:
        assert change.before is not None
        obj = at_version(change.before, change.item.version)
        shown = table(self._resource, [obj], {"resourceVersion": str(change.item.version)}, self._include, self._now())
        return event_line(DELETED, encode(shown))

    def listing(self, items: Sequence[Item], metadata: Object) -> bytes:
        objects = [item.decode() for item in items]
        return encode(table(self._resource, objects, metadata, self._include, self._now()))
