"""Reading what can be read of an object that does not decode as a whole.

An object on a node must count although a part of it is unreadable. So everything that decodes is taken, everything that
does not is left at its default, and the paths of the lost parts are named. From them, readers decide what the object
can still be trusted for.

A part goes as a whole where half of it would mean something else: a selector, and the list of a pod's required (or
preferred) terms, which kube-scheduler drops too when one of them does not parse.
"""

from collections.abc import Iterator
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from shared.model.affinity import LabelSelector, NodeSelector, PodAffinityTerm, WeightedPodAffinityTerm
from shared.model.codec import dec_hook, without_nulls
from shared.model.quantity import Quantity

T = TypeVar("T", bound=msgspec.Struct)

INDIVISIBLE = (LabelSelector, NodeSelector)
INDIVISIBLE_LISTS_OF = (PodAffinityTerm, WeightedPodAffinityTerm)
MAX_INTEGER = 2**63 - 1
"""The integers that a message can hold."""
MAX_LOST = 100
"""Lost parts that are named; after these the rest of the object is dropped."""


class Salvaged(NamedTuple):
    """`lost`: paths of unreadable parts, such as `spec.containers[0].resources.requests.cpu`."""

    object: Any
    lost: tuple[str, ...]


class _Unreadable(Exception):
    pass


class _Field(NamedTuple):
    name: str
    encoded: str
    type: Any
    required: bool


def salvage(type_: type[T], plain: object) -> Salvaged | None:
    """The readable parts of an object in plain data; None if it is no object."""
    if not isinstance(plain, dict):
        return None
    lost: list[str] = []
    try:
        return Salvaged(_struct(type_, without_nulls(plain), "", lost), tuple(lost))
    except _Unreadable:
        return None


def _read(type_: Any, value: object, path: str, lost: list[str]) -> Any:
    if len(lost) >= MAX_LOST:
        raise _Unreadable
    part = _without_none(type_)
    if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in INDIVISIBLE:
        return _struct(part, value, path, lost)
    origin, arguments = get_origin(part), get_args(part)
    if origin is list and isinstance(value, list) and arguments[0] not in INDIVISIBLE_LISTS_OF:
        return [item for _, item in _items(arguments[0], _numbered(value, path), lost)]
    if origin is dict and isinstance(value, dict):
        return dict(_items(arguments[1], _named(value, path), lost))
    return _leaf(type_, value)


def _leaf(type_: Any, value: object) -> Any:
    try:
        found = msgspec.convert(value, type_, dec_hook=dec_hook)
    except msgspec.ValidationError:
        raise _Unreadable from None
    if isinstance(found, int) and not isinstance(found, Quantity) and abs(found) > MAX_INTEGER:
        raise _Unreadable
    if isinstance(found, Quantity) and found < 0:
        raise _Unreadable
    return found


def _struct(type_: type[T], value: object, path: str, lost: list[str]) -> T:
    if not isinstance(value, dict):
        raise _Unreadable
    taken: dict[str, Any] = {}
    for field in _fields(type_):
        if field.encoded not in value:
            if field.required:
                raise _Unreadable
            continue
        where = f"{path}.{field.encoded}" if path else field.encoded
        try:
            taken[field.name] = _read(field.type, value[field.encoded], where, lost)
        except _Unreadable:
            if field.required:
                raise
            lost.append(where)
    try:
        return type_(**taken)
    except ValueError:  # its fields contradict each other
        raise _Unreadable from None


def _items(type_: Any, entries: Iterator[tuple[Any, str, object]], lost: list[str]) -> Iterator[tuple[Any, Any]]:
    for key, where, value in entries:
        try:
            yield key, _read(type_, value, where, lost)
        except _Unreadable:
            lost.append(where)


def _numbered(values: list[object], path: str) -> Iterator[tuple[int, str, object]]:
    return ((number, f"{path}[{number}]", value) for number, value in enumerate(values))


def _named(values: dict[Any, object], path: str) -> Iterator[tuple[str, str, object]]:
    return ((name, f"{path}.{name}", value) for name, value in values.items())


def _without_none(type_: Any) -> Any:
    if get_origin(type_) not in (Union, UnionType):
        return type_
    others = [each for each in get_args(type_) if each is not NoneType]
    return others[0] if len(others) == 1 else type_


@lru_cache(maxsize=256)
def _fields(type_: type[msgspec.Struct]) -> tuple[_Field, ...]:
    types = get_type_hints(type_, include_extras=True)
    return tuple(
        _Field(each.name, each.encode_name, types[each.name], each.required) for each in msgspec.structs.fields(type_)
    )
