"""What goes over the wire and into Redis, as plain data: structs with their tags, fields, types and defaults."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec
import msgspec.inspect as inspect

from services.queue.scheduling.queued_pod_info import RetryRecord
from shared.messages.codec import Message
from shared.messages.state import LedgerEntry, PodOnNode
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, Pod, encode_json
from shared.store.schema import StoredPod

MESSAGES: tuple[type[msgspec.Struct], ...] = get_args(Message)
BODIES: tuple[type[msgspec.Struct], ...] = (Pod, Node, *get_args(ClusterObject))
"""What messages carry encoded, and Redis has as well."""
STORED: tuple[type[msgspec.Struct], ...] = (LedgerEntry, PodLoad, StoredPod, RetryRecord)
ROOTS = (*MESSAGES, *BODIES, *STORED)
RELEASED_NAMES: dict[type, str] = {RetryRecord: "Kept", PodOnNode: "PodState"}
"""Names in the record of types that Python calls otherwise by now. No message carries the name of a stored struct."""

Struct = dict[str, Any]


class Wire(msgspec.Struct):
    """`structs` and `enums` by name. `examples`: of each root, as it was encoded, in base64."""

    release: str
    schema: int
    structs: dict[str, Struct]
    enums: dict[str, list[str]]
    messages: list[str]
    examples: dict[str, str]


def structs(roots: Iterable[type[msgspec.Struct]] = ROOTS) -> dict[str, Struct]:
    return {name_of(found.cls): _struct(found) for found in _reached(roots) if isinstance(found, inspect.StructType)}


def name_of(cls: type) -> str:
    return RELEASED_NAMES.get(cls, cls.__name__)


def enums(roots: Iterable[type[msgspec.Struct]] = ROOTS) -> dict[str, list[str]]:
    return {
        found.cls.__name__: [str(member.value) for member in found.cls]
        for found in _reached(roots)
        if isinstance(found, inspect.EnumType)
    }


def parts(type_: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a type is made of."""
    if isinstance(type_, inspect.StructType):
        yield from (field.type for field in type_.fields)
    for name in ("types", "item_types"):
        yield from getattr(type_, name, ())
    for name in ("item_type", "key_type", "value_type"):
        if (part := getattr(type_, name, None)) is not None:
            yield part


def _reached(roots: Iterable[type[msgspec.Struct]]) -> list[inspect.Type]:
    found: dict[type, inspect.Type] = {}
    waiting = [inspect.type_info(root) for root in roots]
    while waiting:
        type_ = waiting.pop()
        named = getattr(type_, "cls", None)
        if named is not None and named in found:
            continue
        if named is not None:
            found[named] = type_
        waiting += parts(type_)
    return sorted(found.values(), key=lambda each: str(getattr(each, "cls", each)))


def _struct(type_: inspect.StructType) -> Struct:
    tag = None if type_.tag is None else f"{type_.tag_field}: {type_.tag}"
    described: Struct = {"tag": tag, "fields": {field.encode_name: _field(field) for field in type_.fields}}
    if type_.array_like:
        described["array_like"] = True
    return described


def _field(field: inspect.Field) -> Struct:
    described: Struct = {"type": spelt(field.type)}
    if field.default is not msgspec.NODEFAULT:
        described["default"] = _plain(field.default)
    elif field.default_factory is not msgspec.NODEFAULT:
        described["default"] = _plain(field.default_factory())
    return described


def _plain(default: Any) -> Any:
    return "" if isinstance(default, msgspec.Raw) else msgspec.json.decode(encode_json(default))


def spelt(type_: inspect.Type) -> str:
    """The type in one line; the same for types that take the same."""
    match type_:
        case inspect.StructType() | inspect.EnumType() | inspect.CustomType():
            return name_of(type_.cls)
        case inspect.UnionType():
            return " | ".join(sorted(spelt(each) for each in type_.types))
        case inspect.LiteralType():
            return f"literal {sorted(map(str, type_.values))}"
        case inspect.DictType():
            return f"dict[{spelt(type_.key_type)}, {spelt(type_.value_type)}]"
        case inspect.TupleType():
            return f"tuple[{', '.join(spelt(each) for each in type_.item_types)}]"
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return f"list[{spelt(type_.item_type)}]"
        case _:
            return type(type_).__name__.removesuffix("Type").lower()
