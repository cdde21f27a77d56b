"""Decodes Kubernetes' protobuf encoding, in which newer versions of kubectl send objects of built-in types.

A body is a marker, then a message with the object's type and, as bytes, the object. Only types and fields of
`protobuf_fields` are known; any other is an error, since ignoring it would change what the client asked for.

    int, bool         kept when they are zero: they are only sent when they are set
    number, flag      always sent, and left out when they are zero, as JSON does
    ignored           a field that the server sets itself
"""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from testing.simulator.errors import bad_request
from testing.simulator.protobuf_fields import FIELDS
from testing.simulator.resources import Object

PROTOBUF = "application/vnd.kubernetes.protobuf"
MARKER = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT = 63


class Field(NamedTuple):
    name: str
    type: str
    many: str
    """`*`: a list; `{`: a map."""


class _Malformed(ValueError):
    """The body does not decode."""


def decode(body: bytes) -> Object:
    """The object, as JSON has it; ApiError if that is not possible."""
    try:
        if not body.startswith(MARKER):
            raise _Malformed(f"it does not begin with {MARKER!r}")
        kind, api_version, raw = _envelope(memoryview(body)[len(MARKER) :])
        if kind not in _messages():
            raise _Malformed(f"{api_version} {kind} is only read as JSON")
        return {"kind": kind, "apiVersion": api_version, **_message(kind, raw)}
    except ValueError as error:
        raise bad_request(f"the body cannot be decoded as {PROTOBUF}: {error}; send application/json") from None


@cache
def _messages() -> dict[str, dict[int, Field]]:
    messages: dict[str, dict[int, Field]] = {}
    for line in FIELDS.replace("\n  ", " ").strip().splitlines():
        name, *fields = line.split()
        messages[name] = {int(field.split(":")[0]): _field(*field.split(":")[1:]) for field in fields}
    return messages


def _field(name: str, type_: str = "string") -> Field:
    return Field(name, type_.strip("*{}"), "*" if type_.endswith("*") else type_[0] if type_.startswith("{") else "")


def _envelope(view: memoryview) -> tuple[str, str, memoryview]:
    kind = api_version = ""
    raw = view[:0]
    for number, _, value in _parts(view):
        if number == 1 and isinstance(value, memoryview):
            texts = {inner: _text(text) for inner, _, text in _parts(value)}
            api_version, kind = texts.get(1, ""), texts.get(2, "")
        elif number == 2 and isinstance(value, memoryview):
            raw = value
    return kind, api_version, raw


def _message(name: str, view: memoryview) -> Object:
    fields, obj = _messages()[name], Object()
    for number, wire, value in _parts(view):
        field = fields.get(number)
        if field is None:
            raise _Malformed(f"field {number} of {name} is only read as JSON")
        if field.type == "ignored":
            continue
        if (wire == _BYTES) != (field.many == "{" or field.type not in _NUMBERS):
            raise _Malformed(f"{name}.{field.name} has wire type {wire}")
        if field.many == "{":
            entry = {inner: text for inner, _, text in _parts(_bytes(value))}
            obj.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.type, entry.get(2, b""))
        elif field.many == "*":
            obj.setdefault(field.name, []).append(_value(field.type, value))
        elif field.name == "+":
            obj |= _value(field.type, value)
        elif (decoded := _value(field.type, value)) not in _LEFT_OUT.get(field.type, ()):
            obj[field.name] = decoded
    return obj


_NUMBERS = frozenset({"int", "number", "bool", "flag"})
_LEFT_OUT: dict[str, tuple[Any, ...]] = {"string": ("",), "number": (0,), "flag": (False,), "Time": ("",)}


def _value(type_: str, value: Any) -> Any:
    match type_:
        case "string":
            return _text(value)
        case "int" | "number":
            return value - (1 << 64) if value >> 63 else value
        case "bool" | "flag":
            return bool(value)
        case "bytes":
            return b64encode(value).decode()
        case "Quantity":
            return _text({number: part for number, _, part in _parts(_bytes(value))}.get(1, b""))
        case "IntOrString":
            parts = {number: part for number, _, part in _parts(_bytes(value))}
            return _text(parts.get(3, b"")) if parts.get(1) else _value("int", parts.get(2, 0))
        case "Time":
            seconds = {number: part for number, _, part in _parts(_bytes(value))}.get(1)
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""
    return _message(type_, _bytes(value))


def _bytes(value: Any) -> memoryview:
    if isinstance(value, int):
        raise _Malformed("a number where a message is expected")
    return memoryview(value)


def _text(value: Any) -> str:
    return bytes(_bytes(value)).decode()


def _parts(view: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field: an integer or, for everything with a length, its bytes."""
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(view, at)
            yield number, wire, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            length, at = _varint(view, at)
        if length is None or at + length > len(view):
            raise _Malformed(f"field {number} is cut off, or has the unknown wire type {wire}")
        yield number, wire, view[at : at + length]
        at += length


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift <= _MAX_SHIFT:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise _Malformed("a number is cut off or too large")
