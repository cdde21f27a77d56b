"""How objects are shown to a client: as stored, converted to another version, or as rows of a table.

Events are stored as v1 and served as events.k8s.io/v1 as well. Versions of a custom resource differ in name only.
Tables have the columns of `columns`.
"""

from collections.abc import Callable, Sequence

from testing.simulator.columns import columns_of
from testing.simulator.resources import EVENTS, NEW_EVENTS, ApiResource, Object
from testing.simulator.store import DELETED, Change, Item, at_version, encode, event_line

_STORED_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES = {stored: new for new, stored in _STORED_NAMES.items()}


def stored_type(resource: ApiResource) -> ApiResource:
    """The type that the objects are stored as."""
    return EVENTS if resource is NEW_EVENTS else resource


def stored_form(resource: ApiResource, obj: Object) -> Object:
    """Convert a client's object to the stored version."""
    if resource is not NEW_EVENTS:
        return obj
    stored = {_STORED_NAMES.get(key, key): value for key, value in obj.items()}
    if obj.get("apiVersion") in (None, "", resource.api_version):
        stored["apiVersion"] = EVENTS.api_version
    stored.setdefault("involvedObject", {})
    return stored


def shown_form(resource: ApiResource, obj: Object) -> Object:
    """Convert a stored object to the version that the client requested."""
    if resource is NEW_EVENTS:
        obj = {_NEW_NAMES.get(key, key): value for key, value in obj.items()}
    obj["apiVersion"] = resource.api_version
    return obj


class View:
    """Objects as stored."""

    plain = True

    def __init__(self, resource: ApiResource) -> None:
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


def view_of(resource: ApiResource) -> View:
    return DecodedView(resource) if resource.stored_as else View(resource)


class DecodedView(View):
    """Objects that are decoded in order to show them."""

    plain = False

    def show(self, item: Item) -> bytes:
        return self.show_object(item.decode())

    def departed(self, change: Change) -> bytes:
        assert change.before is not None
        return event_line(DELETED, self.show_object(at_version(change.before, change.item.version)))

    def show_object(self, obj: Object) -> bytes:
        """Converted to the version of the resource."""
        return encode(shown_form(self._resource, obj))


class PrintedTable(DecodedView):
    """Objects as rows of a table. `include` says how much of the object accompanies its row."""

    def __init__(self, resource: ApiResource, include: str, now: Callable[[], float]) -> None:
        super().__init__(resource)
        self._include = include
        self._now = now

    def show_object(self, obj: Object) -> bytes:
        return self._table([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]})

    def listing(self, items: Sequence[Item], metadata: Object) -> bytes:
        return self._table([item.decode() for item in items], metadata)

    def _table(self, objects: Sequence[Object], metadata: Object) -> bytes:
        resource, now = self._resource, self._now()
        columns = columns_of(resource)
        shown = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in columns],
            "rows": [
                {"cells": [column.cell(obj, now) for column in columns], "object": self._included(obj)}
                for obj in objects
            ],
        }
        return encode(shown)

    def _included(self, obj: Object) -> Object | None:
        if self._include in ("None", "Object"):
            return obj if self._include == "Object" else None
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
