"""How objects are shown to a client: as they are kept, in another version's form, or as rows of a table."""

from collections.abc import Callable, Sequence

from testing.simulator.resources import Object, Resource
from testing.simulator.store import DELETED, Change, Item, at_version, encode, event_line
from testing.simulator.tables import table
from testing.simulator.versions import shown_form


class View:
    """Objects as they are kept."""

    plain = True

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._typed = b""
        if not resource.is_custom:
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
        """As an item of a list: only custom resources say there what they are."""
        typed = self._typed
        return b"{" + raw[len(typed) :] if typed and raw.startswith(typed) else raw


class ConvertedView(View):
    """Objects in the form of another version."""

    plain = False

    def show(self, item: Item) -> bytes:
        return encode(shown_form(self._resource, item.decode()))

    def departed(self, change: Change) -> bytes:
        assert change.before is not None
        obj = at_version(change.before, change.item.version)
        return event_line(DELETED, encode(shown_form(self._resource, obj)))


class TableView(View):
    """Objects as rows, for people. `include` says how much of the object goes with its row."""

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
