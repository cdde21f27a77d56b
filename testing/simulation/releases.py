"""Services of other releases: the last release omits fields that it does not know, a later one adds some.

The wire record, made by `python -m tests.messages.record`, says what the last release knows.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec

from shared.errors import ProtocolError
from shared.messages.codec import Message, decode

RECORDS = Path(__file__).parent
LATER = "later"
TAGS = {"type", "kind"}
"""Fields that say which struct it is."""
ADDED = {"addedLater": [1, {"a": None}]}
"""A field that this release does not know."""

Translate = Callable[[bytes], bytes | None]
"""None: the release does not know this message."""
Edit = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Edits the fields of a struct of this name."""


class _Described(msgspec.Struct):
    tag: str | None
    fields: dict[str, Any]


class _Record(msgspec.Struct):
    messages: list[str]
    structs: dict[str, _Described]


class _Tagged(msgspec.Struct):
    type: str


_TAG = msgspec.msgpack.Decoder(_Tagged)


@cache
def translation(release: str) -> Translate:
    """How a service of that release, `last` or `later`, reads and writes messages."""
    tags = {str(each.__struct_config__.tag) for each in get_args(Message)}
    if release == LATER:
        return _translate(tags, lambda name, plain: plain | ADDED)
    (path,) = RECORDS.glob("wire-*.json")
    record = msgspec.json.decode(path.read_bytes(), type=_Record)
    known = {name: described.fields.keys() | TAGS for name, described in record.structs.items()}
    known_tags = {str(record.structs[name].tag).removeprefix("type: ") for name in record.messages}

    def without_new_fields(name: str, plain: dict[str, Any]) -> dict[str, Any]:
        fields = known.get(name, plain.keys())
        return {key: value for key, value in plain.items() if key in fields}

    return _translate(tags & known_tags, without_new_fields)


def _translate(tags: set[str], edit: Edit) -> Translate:
    def translate(raw: bytes) -> bytes | None:
        if _TAG.decode(raw).type not in tags:
            return None
        try:
            message = decode(raw)
        except ProtocolError:
            return raw  # a lie, which the receiver refuses
        return msgspec.msgpack.encode(_edited(message, msgspec.msgpack.decode(raw, strict=False), edit))

    return translate


def _edited(value: Any, plain: Any, edit: Edit) -> Any:
    """Edit all structs in a value. `plain`: the value as decoded without types."""
    match value, plain:
        case msgspec.Struct(), dict():
            fields = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
            parts = {
                key: _edited(getattr(value, fields[key]), each, edit) if key in fields else each
                for key, each in plain.items()
            }
            return edit(type(value).__name__, parts)
        case ((list() | tuple()), list()):
            return [_edited(*pair, edit) for pair in zip(value, plain, strict=True)]
        case dict(), dict():
            return {key: _edited(each, plain[key], edit) for key, each in value.items()}
    return plain
