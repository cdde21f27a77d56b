"""Services of other releases: what the last one leaves out of messages that it reads or sends, what a later one adds.

What the last release knows is in the record of its messages, which `python -m tests.messages.record` makes.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import msgspec.inspect as inspect

from shared.messages.codec import Message

RECORDS = Path(__file__).parent
LAST, LATER = "last", "later"
ADDED = {"addedLater": [1, {"a": None}]}
"""A field that this release does not know."""

Translate = Callable[[bytes], bytes | None]
"""None: the release does not know this message."""
Edit = Callable[[str, dict[str, Any]], dict[str, Any]]
"""What becomes of a struct of that name."""
Walk = Callable[[Any], Any]


class _Described(msgspec.Struct):
    tag: str | None
    fields: dict[str, Any]


class _Record(msgspec.Struct):
    messages: list[str]
    structs: dict[str, _Described]


class _Tagged(msgspec.Struct):
    type: str


_TAG = msgspec.msgpack.Decoder(_Tagged)


def translation(release: str) -> Translate:
    """How a service of that release reads and writes: `last` or `later`."""
    return {LAST: _last, LATER: _later}[release]()


@cache
def _last() -> Translate:
    (path,) = RECORDS.glob("wire-*.json")
    record = msgspec.json.decode(path.read_bytes(), type=_Record)
    known = {name: frozenset(described.fields) for name, described in record.structs.items()}
    tags = {f"type: {each.__struct_config__.tag}" for each in get_args(Message)}
    tags &= {str(record.structs[name].tag) for name in record.messages}

    def without_new_fields(name: str, plain: dict[str, Any]) -> dict[str, Any]:
        fields = known.get(name)
        return (
            plain if fields is None else {key: value for key, value in plain.items() if key in fields or key == "type"}
        )

    def has_new_fields(struct: inspect.StructType) -> bool:
        fields = known.get(struct.cls.__name__)
        return fields is not None and not fields.issuperset(field.encode_name for field in struct.fields)

    return _translate(without_new_fields, has_new_fields, lambda tag: f"type: {tag}" in tags)


@cache
def _later() -> Translate:
    return _translate(lambda name, plain: plain | ADDED, lambda struct: True, lambda tag: True)


def _translate(edit: Edit, changes: Callable[[inspect.StructType], bool], knows: Callable[[str], bool]) -> Translate:
    types = {str(each.__struct_config__.tag): each for each in get_args(Message)}
    walks = _Walks(edit, changes)

    @cache
    def walk_of(tag: str) -> Walk | None:
        return walks.of(inspect.type_info(types[tag]))

    def translate(raw: bytes) -> bytes | None:
        tag = _TAG.decode(raw).type
        if not knows(tag):
            return None
        walk = walk_of(tag)
        return raw if walk is None else msgspec.msgpack.encode(walk(msgspec.msgpack.decode(raw, strict=False)))

    return translate


class _Walks:
    """For a type the function that edits all structs in its values; None where there is nothing to edit."""

    def __init__(self, edit: Edit, changes: Callable[[inspect.StructType], bool]) -> None:
        self._edit = edit
        self._changes = changes

    def of(self, type_: inspect.Type) -> Walk | None:
        match type_:
            case inspect.StructType(array_like=False):
                return self._struct(type_)
            case inspect.UnionType(types=types):
                return self._union(types)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return _in_list(self.of(item))
            case inspect.DictType(value_type=value):
                return _in_dict(self.of(value))
        return None

    def _struct(self, struct: inspect.StructType) -> Walk | None:
        walks: dict[str, Walk] = {}
        for field in struct.fields:
            if (walk := self.of(field.type)) is not None:
                walks[field.encode_name] = walk
        name, edit = struct.cls.__name__, self._edit
        if not walks and not self._changes(struct):
            return None

        def walk_struct(plain: dict[str, Any]) -> dict[str, Any]:
            return edit(name, {key: walks[key](each) if key in walks else each for key, each in plain.items()})

        return walk_struct

    def _union(self, types: tuple[inspect.Type, ...]) -> Walk | None:
        structs = [each for each in types if isinstance(each, inspect.StructType)]
        walks = {each.tag: walk for each in structs if (walk := self.of(each)) is not None}
        rest = [walk for each in types if each not in structs and (walk := self.of(each)) is not None]
        if not walks and not rest:
            return None

        def walk_union(plain: Any) -> Any:
            if isinstance(plain, dict) and structs:
                walk = walks.get(plain.get("type")) if len(structs) > 1 else next(iter(walks.values()), None)
            else:
                walk = rest[0] if rest and plain is not None else None
            return plain if walk is None else walk(plain)

        return walk_union


def _in_list(walk: Walk | None) -> Walk | None:
    return None if walk is None else lambda plain: [walk(each) for each in plain]


def _in_dict(walk: Walk | None) -> Walk | None:
    return None if walk is None else lambda plain: {key: walk(each) for key, each in plain.items()}
