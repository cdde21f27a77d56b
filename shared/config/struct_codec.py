"""Decode plain values into configuration structs, report everything that is wrong with them, and encode them back.

A struct says each field once: its name, type and default. `msgspec.convert` stops at the first error and takes null
for a wrong type; kube-scheduler reports all errors and takes null for an absent value. So a walker goes through
structs, lists and maps, and msgspec converts the values in them.
"""

import struct
from collections.abc import Collection, Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from shared.config.problems import Problem, invalid, wrong
from shared.config.spelling import did_you_mean
from shared.model.durations import Duration, format_duration, nanoseconds_of, parse_duration

GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

SIGNIFICANT_FLOAT32: Final = 9
HEAD: Final = ("apiVersion", "kind")

# Names in kube-scheduler's own types that are not those of v1 with a capital letter.
GO_NAMES: Final[Mapping[str, str]] = {
    "qps": "QPS",
    "caFile": "CAFile",
    "caData": "CAData",
    "urlPrefix": "URLPrefix",
    "tlsConfig": "TLSConfig",
    "httpTimeout": "HTTPTimeout",
}


class Mark(Enum):
    """What kube-scheduler's types say about a field besides its type."""

    OMIT_EMPTY = "left out of v1 when it is empty"
    FILLED = "has its default in place of zero, too"
    FLOAT32 = "a number of 32 bits"
    DURATION = "a duration like 15s"
    NANOSECONDS = "a number of nanoseconds, or a duration"
    PATH = "no field of the file, but the path of the struct in it"


T = TypeVar("T")
OmitEmpty = Annotated[T, Mark.OMIT_EMPTY]
Filled = Annotated[T, Mark.FILLED]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Float32 = Annotated[float, Mark.FLOAT32]
Seconds = Annotated[float, Mark.DURATION]
Nanoseconds = Annotated[float, Mark.NANOSECONDS]
Path = Annotated[str, Mark.PATH]


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A map of a configuration file. A field that may be None has no zero: absent stays absent."""


class CoreSection(Section, frozen=True):
    """A type of Kubernetes' core API: its field names are the same in kube-scheduler's internal version."""


class TypedSection(Section, frozen=True, tag_field="kind", tag=True):
    """A section that may say its apiVersion and kind; the tag is the kind."""


class FieldType(NamedTuple):
    """A type without its marks. `converted`: what msgspec converts to. `item`: that of the items of a list or map."""

    base: Any
    converted: Any
    limits: msgspec.Meta | None
    optional: bool
    marks: frozenset[Mark]
    item: "FieldType | None"

    @property
    def zero(self) -> Any:
        """What Go has where nothing is given."""
        if self.optional or self.base is object:
            return None
        if self.marks & {Mark.DURATION, Mark.NANOSECONDS}:
            return Duration(0)
        return self.base()


class Field(NamedTuple):
    """A field of a struct. `name` is the attribute, `key` the name in v1, `go_key` that in the internal version."""

    name: str
    key: str
    go_key: str
    type: FieldType
    default: Any


@cache
def fields_of(section: type[Section]) -> tuple[Field, ...]:
    """The fields that a file may give."""
    found = []
    for field in msgspec.structs.fields(section):
        declared = _type_of(field.type)
        if Mark.PATH not in declared.marks:
            key = field.encode_name
            go_key = key if issubclass(section, CoreSection) else GO_NAMES.get(key, key[0].upper() + key[1:])
            default = declared.zero if field.default is msgspec.NODEFAULT else field.default
            found.append(Field(field.name, key, go_key, declared, default))
    return tuple(found)


@cache
def _path_field(section: type[Section]) -> str | None:
    return next((f.name for f in msgspec.structs.fields(section) if Mark.PATH in _type_of(f.type).marks), None)


def _type_of(annotation: Any) -> FieldType:
    marks: list[Mark] = []
    limits: msgspec.Meta | None = None
    optional = False
    bare = annotation
    while get_origin(bare) in (Annotated, Union, UnionType):
        if get_origin(bare) is Annotated:
            bare, *extras = get_args(bare)
            marks += (extra for extra in extras if isinstance(extra, Mark))
            limits = next((extra for extra in extras if isinstance(extra, msgspec.Meta)), limits)
        else:
            optional = True
            (bare,) = (part for part in get_args(bare) if part is not NoneType)
    item = None
    if get_origin(bare) in (tuple, dict):
        item = _type_of(get_args(bare)[0 if get_origin(bare) is tuple else 1])
        bare = get_origin(bare)
    return FieldType(bare, annotation, limits, optional, frozenset(marks), item)


class Decoder:
    """Decode values into structs and collect what is wrong. `internal`: with Go's field names, without defaults."""

    def __init__(self, internal: bool = False) -> None:
        self.problems: list[Problem] = []
        self._internal = internal

    def refuse(self, path: str, value: object, allowed: str) -> None:
        self.problems.append(invalid(path, value, allowed))

    def section(self, section: type[T], value: object, path: str) -> T:
        """Decode a map into the struct; a wrong value becomes a problem, and the field gets its default."""
        fields = fields_of(section)  # type: ignore[arg-type]
        known = {field.go_key if self._internal else field.key: field for field in fields}
        head = HEAD if issubclass(section, TypedSection) else ()
        given: dict[str, Any] = {}
        if not isinstance(value, dict):
            self.refuse(path, value, "must be a map")
            value = {}
        self._report_repeated(value, path)
        for key, item in value.items():
            if field := known.get(key):
                given[field.name] = self._value(field.type, item, child(path, key))
            elif key not in head:
                self.problems.append(unknown_field(child(path, str(key)), key, [*known, *head]))
        values = {field.name: self._completed(field, given.get(field.name)) for field in fields}
        if path_field := _path_field(section):  # type: ignore[arg-type]
            values[path_field] = path
        return section(**values)

    def _completed(self, field: Field, value: Any) -> Any:
        """The value; if it is absent, the default, or zero in the internal version."""
        declared = field.type
        if not self._internal and (value is None or (Mark.FILLED in declared.marks and not value)):
            return field.default
        if value is None and not declared.optional:
            return self.section(declared.base, {}, "") if _is_section(declared) else declared.zero
        return value

    def _value(self, declared: FieldType, value: object, path: str) -> Any:
        if value is None:
            if Mark.DURATION in declared.marks and not declared.optional:
                self.refuse(path, None, 'must be a duration like "15s"; leave the field out for its default')
            return None
        if _is_section(declared):
            return self.section(declared.base, value, path)
        if declared.base is tuple:
            return self._list(declared, value, path)
        if declared.base is dict:
            return self._map(declared, value, path)
        if declared.base is object:
            if self._internal:
                self.refuse(path, value, "cannot be read in this version; use kubescheduler.config.k8s.io/v1")
            return value
        try:
            return _scalar(declared, value)
        except ValueError as wrong:
            # Bytes may be a key, so they are not shown.
            self.refuse(path, "(hidden)" if declared.base is bytes else value, _allowed(declared, wrong))
            return None

    def _item(self, declared: FieldType | None, value: object, path: str) -> Any:
        assert declared is not None
        if value is None and _is_section(declared):
            return self.section(declared.base, {}, path)
        found = self._value(declared, value, path)
        return declared.zero if found is None else found

    def _list(self, declared: FieldType, value: object, path: str) -> Any:
        if isinstance(value, list | tuple):
            return tuple(self._item(declared.item, item, f"{path}[{i}]") for i, item in enumerate(value))
        return self.refuse(path, value, "must be a list")

    def _map(self, declared: FieldType, value: object, path: str) -> Any:
        if isinstance(value, dict):
            self._report_repeated(value, path)
            return {str(key): self._item(declared.item, item, f"{path}.{key}") for key, item in value.items()}
        return self.refuse(path, value, "must be a map")

    def _report_repeated(self, value: dict[Any, Any], path: str) -> None:
        """A key that a JSON map has twice is a problem."""
        for key in getattr(value, "repeated", ()):
            self.problems.append(wrong(child(path, key), key, "is given twice"))


def encode(value: Any, go: bool = False) -> Any:
    """A struct, or a list of them, as plain data of v1. `go`: with all fields, as kube-scheduler's errors show it."""
    if isinstance(value, tuple):
        return [encode(item, go) for item in value]
    if not isinstance(value, Section):
        return value
    go = go and not isinstance(value, CoreSection)
    plain: dict[str, Any] = {}
    if isinstance(value, TypedSection):
        plain = {"apiVersion": API_VERSION, "kind": value.__struct_config__.tag}
    for field in fields_of(type(value)):
        item = getattr(value, field.name)
        if go:
            plain[field.go_key] = _encoded(field.type, item, go) if item or field.type.base is not tuple else None
        elif not _left_out(field, item):
            plain[field.key] = _encoded(field.type, item, go)
    return plain


def child(path: str, key: object) -> str:
    """The path of a field under a path; at the top of the file the path is empty."""
    return f"{path}.{key}" if path else str(key)


def unknown_field(path: str, name: object, fields: Collection[str]) -> Problem:
    """A field that does not exist, with the one that was meant, if one is near, and all that there are."""
    return wrong(path, name, f"unknown field{did_you_mean(name, fields)}; allowed are {', '.join(sorted(fields))}")


def _is_section(declared: FieldType) -> bool:
    return isinstance(declared.base, type) and issubclass(declared.base, Section)


def _left_out(field: Field, item: Any) -> bool:
    """As Go's omitempty: a pointer is left out when it is nil, a struct never, anything else when it is zero."""
    declared = field.type
    if Mark.OMIT_EMPTY not in declared.marks:
        return False
    is_pointer = declared.optional and declared.base is not tuple
    return item is None if is_pointer or _is_section(declared) else not item


def _scalar(declared: FieldType, value: Any) -> Any:
    if Mark.NANOSECONDS in declared.marks and isinstance(value, int) and not isinstance(value, bool):
        return Duration(value)
    if declared.marks & {Mark.DURATION, Mark.NANOSECONDS}:
        return parse_duration(msgspec.convert(value, str))
    if declared.base is bytes and isinstance(value, str):
        value = value.replace("\r", "").replace("\n", "")
    converted = msgspec.convert(value, declared.converted)
    return _nearest_float32(converted) if Mark.FLOAT32 in declared.marks else converted


def _allowed(declared: FieldType, wrong: Exception) -> str:
    if Mark.NANOSECONDS in declared.marks:
        return 'must be a whole number of nanoseconds, or a duration like "5s"'
    if Mark.DURATION in declared.marks:
        is_string = not isinstance(wrong, msgspec.ValidationError)
        return str(wrong) if is_string else 'must be a duration in quotes or with a unit, like "15s"'
    if declared.limits is not None:
        return f"must be a whole number from {declared.limits.ge} to {declared.limits.le}"
    return {
        str: "must be a string (in quotes where YAML would take it for something else)",
        bool: "must be true or false",
        float: "must be a number of 32 bits",
        bytes: "must be base64",
    }[declared.base]


def _encoded(declared: FieldType, value: Any, go: bool) -> Any:
    if value is None or declared.base is dict:
        return value
    if declared.marks & {Mark.DURATION, Mark.NANOSECONDS}:
        return format_duration(nanoseconds_of(value))
    if declared.base is bytes:
        return msgspec.to_builtins(value)
    if declared.base is float and value.is_integer():
        return int(value)
    return encode(value, go)


def _nearest_float32(value: float) -> float:
    """The shortest number with the same value in 32 bits; ValueError beyond them."""
    try:
        nearest = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError from None
    for digits in range(1, SIGNIFICANT_FLOAT32 + 1):
        short = float(f"{nearest:.{digits}g}")
        if struct.unpack("<f", struct.pack("<f", short))[0] == nearest:
            return short
    return float(nearest)
