"""PodDecoder: decodes the watcher's pods so that pods of one template share all that is equal in them.

Pods are structures of many small parts, most of which are the same in every pod of a controller. Parts are compared as
bytes, before they are decoded: so an equal part costs neither time nor memory, and the garbage collector has next to
nothing to look at. Objects of the model are immutable, so nobody can tell that they are shared.
"""

from sys import intern
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from shared.bounded import BoundedDict
from shared.model.objects import (
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Volume,
    dec_hook,
    encode_msgpack,
    pod_from_msgpack,
)

MAX_PARTS = 1 << 14
"""Different parts of one sort that are shared."""
T = TypeVar("T")

_NONE = msgspec.Raw(b"")


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = _NONE
    annotations: msgspec.Raw = _NONE
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: msgspec.Raw = _NONE
    resource_version: str = ""


class _Body(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = _NONE
    status: msgspec.Raw = _NONE


_SPEC = msgspec.msgpack.Decoder(PodSpec, dec_hook=dec_hook)
_BODY = msgspec.msgpack.Decoder(_Body)
_FIELDS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_VOLUMES = encode_msgpack("volumes")


class _Parts(Generic[T]):
    """Decoded parts of one sort, by their encoding."""

    def __init__(self, type_: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(type_, dec_hook=dec_hook)
        self._absent = type_()
        self._known: BoundedDict[bytes, T] = BoundedDict(MAX_PARTS)

    def part(self, raw: msgspec.Raw) -> T:
        encoded = bytes(raw)
        if not encoded:
            return self._absent
        found = self._known.get(encoded)
        if found is None:
            found = self._known[encoded] = self._decoder.decode(encoded)
        return found


class PodDecoder:
    def __init__(self) -> None:
        self._maps = _Parts(dict[str, str])
        self._owners = _Parts(list[OwnerReference])
        self._specs = _Parts(PodSpec)
        self._templates: BoundedDict[tuple[tuple[str, bytes], ...], PodSpec] = BoundedDict(MAX_PARTS)
        self._volumes = _Parts(list[Volume])
        self._statuses = _Parts(PodStatus)

    def decode(self, raw: bytes | msgspec.Raw) -> Pod:
        """As `pod_from_msgpack`: raises DecodeError."""
        try:
            body = _BODY.decode(raw)
            metadata, spec = self._metadata(body.metadata), self._spec(body.spec)
            return Pod(metadata=metadata, spec=spec, status=self._statuses.part(body.status))
        except msgspec.DecodeError:
            return pod_from_msgpack(raw)  # names the field of the whole pod

    def _metadata(self, raw: _Metadata) -> ObjectMeta:
        return ObjectMeta(
            name=raw.name,
            namespace=intern(raw.namespace),
            uid=raw.uid,
            labels=self._maps.part(raw.labels),
            annotations=self._maps.part(raw.annotations),
            creation_timestamp=None if raw.creation_timestamp is None else intern(raw.creation_timestamp),
            deletion_timestamp=raw.deletion_timestamp,
            owner_references=self._owners.part(raw.owner_references),
            resource_version=raw.resource_version,
        )

    def _spec(self, raw: msgspec.Raw) -> PodSpec:
        """Pods of one template differ in the names of volumes, such as that of the service account's token."""
        if _VOLUMES not in bytes(raw):
            return self._specs.part(raw)
        fields = _FIELDS.decode(raw)
        volumes = fields.pop("volumes", _NONE)
        template = tuple((name, bytes(value)) for name, value in fields.items())
        spec = self._templates.get(template)
        if spec is None:
            spec = self._templates[template] = _SPEC.decode(encode_msgpack(fields))
        return replace(spec, volumes=self._volumes.part(volumes))
