"""PodDecoder, NodeDecoder: decode pods and nodes from msgpack so that those alike share all that is equal in them.

NodeParts: the same for nodes that are decoded already.

Both are structures of many small parts, most of which are the same in every pod of a controller, or every node of a
kind. Parts are compared as bytes, before they are decoded: so an equal part costs neither time nor memory, and the
garbage collector has next to nothing to look at. Objects of the model are immutable, so nobody can tell that they are
shared.
"""

from sys import intern
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from shared.bounded import BoundedDict
from shared.model.objects import (
    ContainerImage,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    ResourceList,
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


class _NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    allocatable: msgspec.Raw = _NONE
    images: list[msgspec.Raw] = []
    conditions: msgspec.Raw = _NONE
    declared_features: msgspec.Raw = _NONE


_LABELS = msgspec.msgpack.Decoder(dict[str, str])
_NODE = msgspec.msgpack.Decoder(Node, dec_hook=dec_hook)
_SPEC = msgspec.msgpack.Decoder(PodSpec, dec_hook=dec_hook)
_BODY = msgspec.msgpack.Decoder(_Body)
_FIELDS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_STATUS = msgspec.msgpack.Decoder(_NodeStatus)
_TEXT = msgspec.msgpack.Decoder(str)
_VOLUMES, _NODE_NAME = encode_msgpack("volumes"), encode_msgpack("nodeName")


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


def _shared_labels(labels: dict[str, str]) -> dict[str, str]:
    """A node has labels of its own, whose keys and values others have as well."""
    return {intern(key): intern(value) for key, value in labels.items()}


class _MetadataDecoder:
    def __init__(self) -> None:
        self._maps = _Parts(dict[str, str])
        self._owners = _Parts(list[OwnerReference])

    def of_pod(self, raw: _Metadata) -> ObjectMeta:
        return self._decode(raw, raw.name, self._maps.part(raw.labels))

    def of_node(self, raw: _Metadata) -> ObjectMeta:
        """Its name is in each of its pods."""
        labels = _LABELS.decode(raw.labels) if len(raw.labels) else {}
        return self._decode(raw, intern(raw.name), _shared_labels(labels))

    def _decode(self, raw: _Metadata, name: str, labels: dict[str, str]) -> ObjectMeta:
        return ObjectMeta(
            name=name,
            namespace=intern(raw.namespace),
            uid=raw.uid,
            labels=labels,
            annotations=self._maps.part(raw.annotations),
            creation_timestamp=None if raw.creation_timestamp is None else intern(raw.creation_timestamp),
            deletion_timestamp=raw.deletion_timestamp,
            owner_references=self._owners.part(raw.owner_references),
            resource_version=raw.resource_version,
        )


class PodDecoder:
    def __init__(self) -> None:
        self._metadata = _MetadataDecoder()
        self._specs = _Parts(PodSpec)
        self._templates: BoundedDict[tuple[tuple[str, bytes], ...], PodSpec] = BoundedDict(MAX_PARTS)
        self._volumes = _Parts(list[Volume])
        self._statuses = _Parts(PodStatus)

    def decode(self, raw: bytes | msgspec.Raw) -> Pod:
        """As `pod_from_msgpack`: raises DecodeError."""
        try:
            body = _BODY.decode(raw)
            metadata, spec = self._metadata.of_pod(body.metadata), self._spec(body.spec)
            return Pod(metadata=metadata, spec=spec, status=self._statuses.part(body.status))
        except msgspec.DecodeError:
            return pod_from_msgpack(raw)  # names the field of the whole pod

    def _spec(self, raw: msgspec.Raw) -> PodSpec:
        """Pods of one template differ in their nodes, and in volumes such as that of the service account's token."""
        encoded = bytes(raw)
        if _VOLUMES not in encoded and _NODE_NAME not in encoded:
            return self._specs.part(raw)
        fields = _FIELDS.decode(raw)
        volumes, node = fields.pop("volumes", _NONE), fields.pop("nodeName", _NONE)
        template = tuple((name, bytes(value)) for name, value in fields.items())
        spec = self._templates.get(template)
        if spec is None:
            spec = self._templates[template] = _SPEC.decode(encode_msgpack(fields))
        name = intern(_TEXT.decode(node)) if len(node) else ""
        return replace(spec, node_name=name, volumes=self._volumes.part(volumes))


class NodeDecoder:
    def __init__(self) -> None:
        self._metadata = _MetadataDecoder()
        self._specs = _Parts(NodeSpec)
        self._allocatable = _Parts(ResourceList)
        self._images = _Parts(ContainerImage)
        self._conditions = _Parts(list[NodeCondition])
        self._features = _Parts(list[str])
        self._statuses: BoundedDict[bytes, NodeStatus] = BoundedDict(MAX_PARTS)

    def decode(self, raw: bytes | msgspec.Raw) -> Node:
        """Raises DecodeError."""
        try:
            body = _BODY.decode(raw)
            metadata, spec = self._metadata.of_node(body.metadata), self._specs.part(body.spec)
            return Node(metadata=metadata, spec=spec, status=self._status(body.status))
        except msgspec.DecodeError:
            return _NODE.decode(raw)  # names the field of the whole node

    def _status(self, raw: msgspec.Raw) -> NodeStatus:
        encoded = bytes(raw)
        status = self._statuses.get(encoded)
        if status is None:
            parts = _STATUS.decode(encoded) if encoded else _NodeStatus()
            status = self._statuses[encoded] = NodeStatus(
                allocatable=self._allocatable.part(parts.allocatable),
                images=[self._images.part(image) for image in parts.images],
                conditions=self._conditions.part(parts.conditions),
                declared_features=self._features.part(parts.declared_features),
            )
        return status


class NodeParts:
    def __init__(self) -> None:
        self._specs = _Known[NodeSpec]()
        self._allocatable = _Known[ResourceList]()
        self._images = _Known[ContainerImage]()
        self._conditions = _Known[list[NodeCondition]]()
        self._features = _Known[list[str]]()

    def shared(self, node: Node) -> Node:
        """An equal node that shares its parts with earlier ones."""
        metadata, status = node.metadata, node.status
        return Node(
            metadata=replace(metadata, name=intern(metadata.name), labels=_shared_labels(metadata.labels)),
            spec=self._specs.part(node.spec),
            status=NodeStatus(
                allocatable=self._allocatable.part(status.allocatable),
                images=[self._images.part(image) for image in status.images],
                conditions=self._conditions.part(status.conditions),
                declared_features=self._features.part(status.declared_features),
            ),
        )


class _Known(Generic[T]):
    """The first of equal parts of one sort."""

    def __init__(self) -> None:
        self._known: BoundedDict[bytes, T] = BoundedDict(MAX_PARTS)

    def part(self, part: T) -> T:
        return self._known.obtain(encode_msgpack(part), lambda: part)
