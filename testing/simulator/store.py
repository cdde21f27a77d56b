"""The object store. Every object is encoded once, when it is written.

Only the fields that selectors use are kept decoded. A write assigns the next resource version, replaces the object and
appends the change to its type's history, from which watches resume. The history is bounded: older changes are
compacted, and a watch that resumes before them gets 410 Expired.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import msgspec

from testing.simulator.resources import ApiResource, Object, StorageKey

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
NO_LABELS: Mapping[str, str] = {}
TYPE_FIELDS = ("kind", "apiVersion")
SHARED = 4_096
"""Recent labels and values of fields that equal ones of other objects share: half the memory of a large cluster."""

encode = msgspec.json.Encoder().encode
decode_any = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(Object).decode


class Item:
    """One version of an object; immutable."""

    __slots__ = ("fields", "labels", "name", "namespace", "raw", "uid", "version")

    def __init__(self, resource: ApiResource, obj: Object, version: int) -> None:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        # kind and apiVersion come first, so that lists, which omit them, can cut them off.
        self.raw: bytes = encode({key: obj[key] for key in TYPE_FIELDS if key in obj} | obj)
        self.version = version
        self.namespace = _shared(metadata.get("namespace") or "")
        self.name: str = metadata["name"]
        self.uid: str = metadata.get("uid") or ""
        self.labels = _labels_of(metadata)
        self.fields = _shared_fields(tuple([_shared(field.value(obj)) for field in resource.fields]))

    def decode(self) -> Object:
        """A fresh copy."""
        return _decode_object(self.raw)


def _labels_of(metadata: Object) -> Mapping[str, str]:
    """The labels for selectors; none if any value is not a string."""
    labels = metadata.get("labels")
    if not labels or not isinstance(labels, dict):
        return NO_LABELS
    for value in labels.values():
        if not isinstance(value, str):
            return NO_LABELS
    return _shared_labels(tuple(labels.items()))


@lru_cache(SHARED)
def _shared(text: str) -> str:
    """An equal string that other objects have as well, if any."""
    return text


@lru_cache(SHARED)
def _shared_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    return fields


@lru_cache(SHARED)
def _shared_labels(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {_shared(key): _shared(value) for key, value in labels}


class Change:
    """A write: the object's new version and the one before."""

    __slots__ = ("_departed", "_line", "before", "item", "type")

    def __init__(self, type_: str, item: Item, before: Item | None) -> None:
        self.type = type_
        self.item = item
        self.before = before
        self._line: bytes | None = None
        self._departed: bytes | None = None

    def line(self) -> bytes:
        """The watch event, encoded once for all watches."""
        if self._line is None:
            self._line = event_line(self.type, self.item.raw)
        return self._line

    def departed(self) -> bytes:
        """DELETED with the object's previous state, for watches whose selector it no longer matches."""
        if self._departed is None:
            assert self.before is not None
            self._departed = event_line(DELETED, encode(at_version(self.before, self.item.version)))
        return self._departed

    def forget_lines(self) -> None:
        """Drop encoded lines: the history holds items only."""
        self._line = self._departed = None


def at_version(item: Item, version: int) -> Object:
    obj = item.decode()
    obj["metadata"]["resourceVersion"] = str(version)
    return obj


def event_line(type_: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), raw)


Listener = Callable[[Change], None]


class Bucket:
    """All objects of one type and the history of their changes."""

    def __init__(self, resource: ApiResource, history: int) -> None:
        self.resource = resource
        self.history: deque[Change] = deque(maxlen=history)
        self.compacted = 0
        self.listeners: list[Listener] = []
        self._namespaces: dict[str, dict[str, Item]] = {}

    def get(self, namespace: str, name: str) -> Item | None:
        objects = self._namespaces.get(namespace)
        return None if objects is None else objects.get(name)

    def items(self, namespace: str | None = None) -> Iterator[Item]:
        if namespace is None:
            for objects in self._namespaces.values():
                yield from objects.values()
        else:
            yield from self._namespaces.get(namespace, {}).values()

    def in_order(self, namespace: str | None = None) -> list[Item]:
        return sorted(self.items(namespace), key=lambda item: (item.namespace, item.name))

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def since(self, version: int) -> list[Change] | None:
        """The changes after a version; None if some are compacted."""
        if version < self.compacted:
            return None
        missed: list[Change] = []
        for change in reversed(self.history):
            if change.item.version <= version:
                break
            missed.append(change)
        missed.reverse()
        return missed

    def at(self, version: int, namespace: str | None) -> list[Item] | None:
        """The objects as of a version, in order; None if that is compacted."""
        if version < self.compacted:
            return None
        then = {(item.namespace, item.name): item for item in self.items(namespace)}
        for change in reversed(self.history):
            item = change.item
            if item.version <= version:
                break
            if namespace in (None, item.namespace):
                then.pop((item.namespace, item.name), None)
                if change.before is not None:
                    then[item.namespace, item.name] = change.before
        return [then[key] for key in sorted(then)]

    def compact(self, version: int) -> None:
        self.history.clear()
        self.compacted = version

    def resize_history(self, history: int) -> None:
        if len(self.history) > history:
            self.compacted = self.history[len(self.history) - history - 1].item.version
        self.history = deque(self.history, maxlen=history)

    def put(self, item: Item) -> None:
        objects = self._namespaces.setdefault(item.namespace, {})
        before = objects.get(item.name)
        objects[item.name] = item
        self._record(Change(ADDED if before is None else MODIFIED, item, before))

    def remove(self, last: Item) -> None:
        before = self._namespaces[last.namespace].pop(last.name)
        self._record(Change(DELETED, last, before))

    def _record(self, change: Change) -> None:
        if len(self.history) == self.history.maxlen:
            self.compacted = self.history[0].item.version if self.history else change.item.version
        self.history.append(change)
        for listener in tuple(self.listeners):
            listener(change)
        change.forget_lines()


class Store:
    """All buckets and the resource version they share."""

    def __init__(self, history: int) -> None:
        self.version = 1
        self.dry_run = False
        """Writes return what they would store, and store nothing."""
        self._history = history
        self._buckets: dict[StorageKey, Bucket] = {}

    def bucket(self, resource: ApiResource) -> Bucket:
        key = resource.storage
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(resource, self._history)
        return bucket

    def buckets(self) -> list[Bucket]:
        return list(self._buckets.values())

    def put(self, resource: ApiResource, obj: Object) -> Item:
        """Create or replace an object."""
        bucket = self.bucket(resource)
        if self.dry_run:
            before = bucket.get(obj["metadata"].get("namespace") or "", obj["metadata"]["name"])
            return Item(bucket.resource, obj, 0 if before is None else before.version)
        item = Item(bucket.resource, obj, self.version + 1)
        self.version += 1
        bucket.put(item)
        return item

    def remove(self, resource: ApiResource, obj: Object) -> Item:
        """Remove an object; `obj` is its last state."""
        bucket = self.bucket(resource)
        item = Item(bucket.resource, obj, self.version + 1)
        self.version += 1
        bucket.remove(item)
        return item

    def drop(self, resource: ApiResource) -> None:
        """Remove a whole type."""
        self._buckets.pop(resource.storage, None)

    def compact(self) -> None:
        for bucket in self._buckets.values():
            bucket.compact(self.version)

    def resize_history(self, history: int) -> None:
        self._history = history
        for bucket in self._buckets.values():
            bucket.resize_history(history)
