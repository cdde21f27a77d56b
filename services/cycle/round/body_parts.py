"""Leaves out of a pod's body, as bytes, what pods of a class may differ in: names of claims, the nominated node."""

import msgspec

_RAW_FIELDS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_RAW_USES = msgspec.msgpack.Decoder(list[dict[str, msgspec.Raw]])
_EMPTY_TEXT = msgspec.Raw(b"\xa0")
_TEXT = msgspec.msgpack.Decoder(str)
NOMINATED = "nominatedNodeName"


def nominated_node(status: bytes) -> tuple[str, bytes]:
    """The node that a pod's status names as nominated, and the status without it."""
    fields = _RAW_FIELDS.decode(status)
    node = fields.pop(NOMINATED, _EMPTY_TEXT)
    return _TEXT.decode(node), msgspec.msgpack.encode(fields)


def without_made_claims(status: bytes) -> bytes:
    """A pod's status without the names of the claims that were made for it."""
    fields = _RAW_FIELDS.decode(status)
    fields.pop("resourceClaimStatuses", None)
    return msgspec.msgpack.encode(fields)


def without_named_claims(spec: msgspec.Raw) -> bytes:
    """A pod's specification without the names of the claims that it names."""
    fields = _RAW_FIELDS.decode(spec)
    if "resourceClaims" not in fields:
        return bytes(spec)
    uses = _RAW_USES.decode(fields.pop("resourceClaims"))
    unnamed = [use | {"resourceClaimName": _EMPTY_TEXT} if "resourceClaimName" in use else use for use in uses]
    return msgspec.msgpack.encode((fields, unnamed))


def without_volume_claims(spec: bytes) -> bytes:
    """A pod's specification without the names of the volume claims that it names."""
    fields = _RAW_FIELDS.decode(spec)
    volumes = _RAW_USES.decode(fields.pop("volumes"))
    for volume in volumes:
        if "persistentVolumeClaim" in volume:
            claim = _RAW_FIELDS.decode(volume["persistentVolumeClaim"])
            claim.pop("claimName", None)
            volume["persistentVolumeClaim"] = msgspec.Raw(msgspec.msgpack.encode(claim))
    return msgspec.msgpack.encode((fields, volumes))
