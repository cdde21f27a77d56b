"""What says how a pod on a node counts, as the bytes in which the watcher has encoded it.

Most pods on nodes are one of many alike, which differ in name, uid, node and times. What they are alike in is a key
here: who follows the watch decodes one of them, and what it has made of that one holds for all others.
"""

import msgspec

from shared.model.objects import Volume, dec_hook, encode_msgpack

READ_CONDITIONS = ("DisruptionTarget", "PodResizePending")
"""The conditions that say something about a pod on a node."""

AlikeKey = tuple[str, bool, bytes, bytes, tuple[bytes, ...]]
"""Equal for pods on nodes that are alike."""

_NONE = msgspec.Raw(b"")
_CONDITIONS = tuple(type_.encode() for type_ in READ_CONDITIONS)
_VOLUME_LIST = msgspec.msgpack.Decoder(list[Volume], dec_hook=dec_hook)
_FIELDS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_MAP_16 = b"\xde"
"""The first byte of a map whose length takes two more."""
_NODE_NAME = encode_msgpack("nodeName")


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    labels: msgspec.Raw = _NONE
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    start_time: str | None = None
    conditions: msgspec.Raw = _NONE
    container_statuses: msgspec.Raw = _NONE
    init_container_statuses: msgspec.Raw = _NONE
    resources: msgspec.Raw = _NONE
    allocated_resources: msgspec.Raw = _NONE
    resource_claim_statuses: msgspec.Raw = _NONE

    def parts(self) -> tuple[bytes, ...]:
        """Without times, and without conditions that nobody reads; empty if there is nothing else."""
        conditions, found = self.conditions, _NOTHING
        if (
            self.container_statuses is not _NONE
            or self.init_container_statuses is not _NONE
            or self.resources is not _NONE
            or self.allocated_resources is not _NONE
            or self.resource_claim_statuses is not _NONE
        ):
            found = tuple(bytes(getattr(self, part)) for part in _RESOURCES)
        if conditions is not _NONE and any(type_ in (encoded := bytes(conditions)) for type_ in _CONDITIONS):
            return (encoded, *found)
        return found


_NOTHING: tuple[bytes, ...] = ()
_RESOURCES = _Status.__struct_fields__[2:]


class AssignedBody(msgspec.Struct, frozen=True, gc=False):
    """The body of a pod on a node. The parts are not checked before they are decoded."""

    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = _NONE
    status: _Status = _Status()

    def key(self, namespace: str, node: str) -> AlikeKey:
        metadata, spec = self.metadata, bytes(self.spec)
        own = _NODE_NAME + encode_msgpack(node)
        begin = 3 if spec.startswith(_MAP_16) else 1
        if spec.startswith(own, begin):  # it is the first field, and how many there are follows from the others
            spec = spec[begin + len(own) :]
        deleted = metadata.deletion_timestamp is not None
        return namespace, deleted, bytes(metadata.labels), spec, self.status.parts()

    def split_spec(self) -> tuple[bytes, list[Volume]]:
        """The specification without node and volumes, and the volumes with a source.

        Most volumes have only a name here, a different one in each pod. A claim may be named after its pod, so what is
        made of a pod with such volumes holds for no other pod.
        """
        if not len(self.spec):
            return b"", []
        fields = _FIELDS.decode(self.spec)
        fields.pop("nodeName", None)
        volumes = _VOLUME_LIST.decode(fields.pop("volumes", _NO_VOLUMES))
        return encode_msgpack(fields), [volume for volume in volumes if volume != Volume(name=volume.name)]


_NO_VOLUMES = msgspec.Raw(encode_msgpack([]))
decode_assigned = msgspec.msgpack.Decoder(AssignedBody).decode
"""Raises DecodeError."""
