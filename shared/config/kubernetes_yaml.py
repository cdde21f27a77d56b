"""Read and write YAML as Kubernetes does: version 1.1, the first document only, with keys as strings as in JSON.

Plain words differ from what PyYAML makes of them: `y` and `on` are true, `010` is 8, `0b11` is 3, `1_6` is 16, and a
date is a string. Keys that a map repeats are reported with their lines.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple

import yaml  # type: ignore[import-untyped]

MAX_VALUES: Final = 200_000
"""Aliases can make a small text very large, so longer documents are refused."""

_FIRST_WITH_EXPONENT: Final = 1e21
_VERSION: Final = (1, 1)


class YamlFault(Exception):
    """The text is not YAML, or has what JSON cannot represent."""


def parse_yaml(text: bytes) -> tuple[object, tuple[str, ...]]:
    """Parse the first document: its value, and a line for each key that a map has twice. Raises YamlFault."""
    try:
        reader = _Reader(yaml.parse(text, Loader=yaml.SafeLoader))
        return reader.first_document(), tuple(reader.repeated)
    except yaml.MarkedYAMLError as fault:
        raise YamlFault(_located(fault)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise YamlFault(" ".join(str(fault).split())) from None
    except RecursionError:
        raise YamlFault("is nested too deeply") from None


class _Sized(NamedTuple):
    """An anchored value, and the number of values in it, including itself."""

    value: object
    size: int


class _Reader:
    """Build values from events. An alias repeats the value of its anchor, and counts as many values."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.repeated: list[str] = []
        self._events = events
        self._count = 0
        self._anchors: dict[str, _Sized | None] = {}

    def first_document(self) -> object:
        next(self._events)  # the start of the stream
        start = next(self._events)
        if not isinstance(start, yaml.DocumentStartEvent):
            return None
        if start.version not in (None, _VERSION):
            raise YamlFault("%YAML: must be 1.1")
        value = self._value(next(self._events))
        next(self._events)  # the end of the document, after which nothing is read
        return value

    def _value(self, event: Any) -> object:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        self._add(1)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        before = self._count - 1
        if isinstance(event, yaml.ScalarEvent):
            value = _json_value(_word(event), event)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._map()
        else:
            value = [self._value(item) for item in self._until(yaml.SequenceEndEvent)]
        if event.anchor is not None:
            self._anchors[event.anchor] = _Sized(value, self._count - before)
        return value

    def _alias(self, event: Any) -> object:
        if event.anchor not in self._anchors:
            raise YamlFault(f"{_line(event)}: there is no anchor {event.anchor!r} before this")
        found = self._anchors[event.anchor]
        if found is None:
            raise YamlFault(f"{_line(event)}: the value of the anchor {event.anchor!r} contains itself")
        self._add(found.size)
        return found.value

    def _map(self) -> dict[str, object]:
        result: dict[str, object] = {}
        for event in self._until(yaml.MappingEndEvent):
            if _is_merge(event):
                for key, value in self._merged(next(self._events)):
                    self._put(result, key, value, event)
            else:
                key = self._key(event)
                self._put(result, key, self._value(next(self._events)), event)
        return result

    def _merged(self, event: Any) -> list[tuple[str, object]]:
        value = self._value(event)
        merged: list[tuple[str, object]] = []
        for part in reversed(value) if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise YamlFault(f"{_line(event)}: << takes a map or a list of maps")
            merged += part.items()
        return merged

    def _key(self, event: Any) -> str:
        value = self._value(event)
        match value:
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                return str(value)
        raise YamlFault(f"{_line(event)}: a key must be a text, not a list, a map or null")

    def _put(self, result: dict[str, object], key: str, value: object, event: Any) -> None:
        if key in result:
            self.repeated.append(f"{_line(event)}: key {key!r} is in the same map twice")
        result[key] = value

    def _until(self, end: type) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _add(self, values: int) -> None:
        self._count += values
        if self._count > MAX_VALUES:
            raise YamlFault(f"has more than {MAX_VALUES} values")


def _word(event: Any) -> object:
    plain, _ = event.implicit
    try:
        if event.tag is not None and event.tag != "!":
            return _tagged_word(event.tag, event.value)
    except ValueError as fault:
        raise YamlFault(f"{_line(event)}: {fault}") from None
    return plain_word(event.value) if plain and event.tag is None else event.value


def _json_value(value: object, event: Any) -> object:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise YamlFault(f"{_line(event)}: {event.value} is not a number in JSON")
        # JSON writes a whole number without a point, unless it is very large.
        if value.is_integer() and abs(value) < _FIRST_WITH_EXPONENT:
            return int(value)
    return value


def _is_merge(event: Any) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != "<<":
        return False
    return event.tag == f"{TAG}merge" or (event.tag is None and bool(event.implicit[0]))


def _line(event: Any) -> str:
    return f"line {event.start_mark.line + 1}"


def _located(fault: Any) -> str:
    mark = fault.problem_mark or fault.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return where + " ".join(part for part in (fault.context, fault.problem) if part)


# Words

TAG: Final = "tag:yaml.org,2002:"

_WORDS: Final[Mapping[str, bool | float | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_DIGITS: Final = 400
_LEAST_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**64 - 1


def _tagged_word(tag: str, text: str) -> object:
    """The value of a word with a tag, a string where YAML does not define the tag; ValueError where it does not fit."""
    kind = tag.removeprefix(TAG) if tag.startswith(TAG) else ""
    if kind == "binary":
        try:
            return base64.b64decode(text, validate=True).decode()
        except ValueError:
            raise ValueError("!!binary: must be base64 of a string") from None
    if kind not in _TYPES:
        return text
    value = plain_word(text)
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ValueError(f"!!{kind}: cannot be {text!r}")
    return value


def plain_word(text: str) -> object:
    """The value of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    # int() refuses thousands of digits with an exception.
    if len(text) > _MAX_DIGITS:
        return text
    if text[0] == ".":
        return float(text) if _FLOAT.fullmatch(text) else text
    bare = text.replace("_", "")
    if (integer := _integer(bare)) is not None:
        return integer
    if _FLOAT.fullmatch(bare):
        number = float(bare)
        return text if math.isinf(number) else number
    return text


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits, base = next((match[name], base) for name, base in _BASES.items() if match[name] is not None)
    number = int(digits, base) * (-1 if match["sign"] == "-" else 1)
    # Only numbers without a sign may exceed 63 bits.
    most = _MAX_INTEGER if not match["sign"] else -_LEAST_INTEGER - 1
    return number if _LEAST_INTEGER <= number <= most else None


_BASES: Final[Mapping[str, int]] = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_TYPES: Final[Mapping[str, Any]] = {"bool": bool, "int": int, "float": int | float, "null": NoneType}


# Writing

_BARE: Final = re.compile(r"[A-Za-z0-9/](?:[\w./@+-]|[: ](?=[\w/.]))*", re.ASCII)


def write_yaml(value: object) -> str:
    """Format plain data as YAML; maps keep their order."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(str(key))}:", item, indent="  ")
    elif isinstance(value, list) and value:
        for item in value:
            if isinstance(item, dict | list) and item:
                for i, line in enumerate(_lines(item)):
                    yield f"{'  ' if i else '- '}{line}"
            else:
                yield f"- {_scalar(item)}"
    else:
        yield _scalar(value)


def _entry(head: str, item: object, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list) and item:
        yield head
        # A list is not indented below its key.
        indent = "" if isinstance(item, list) else indent
        for line in _lines(item):
            yield f"{indent}{line}"
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) is not None and plain_word(value) == value and ": " not in value
        return value if bare else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped)
