"""YAML as Kubernetes reads it: version 1.1, the first document only.

Keys become texts, as in JSON. What a map says twice is told, with its line.
"""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml  # type: ignore[import-untyped]

from shared.config.yamlwords import TAG, WordFault, plain_word, tagged_word

MOST_VALUES: Final = 200_000
"""More values than that are not read: aliases can make a small text very large."""

_FIRST_WITH_EXPONENT: Final = 1e21
_VERSION: Final = (1, 1)


class YamlFault(Exception):
    """The text is no YAML that JSON could say."""


def parse_yaml(text: bytes) -> tuple[object, list[str]]:
    """The value of the first document, and each key that a map has twice; YamlFault where it is no such text."""
    try:
        reader = _Reader(yaml.parse(text, Loader=yaml.SafeLoader))
        return reader.first_document(), reader.repeated
    except yaml.MarkedYAMLError as fault:
        raise YamlFault(_located(fault)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise YamlFault(" ".join(str(fault).split())) from None
    except RecursionError:
        raise YamlFault("is nested too deeply") from None


class _Sized(NamedTuple):
    """A value, and how many values are in it, itself included."""

    value: object
    size: int


class _Reader:
    """From events to values. An alias gives the value of its anchor once more, and counts as much."""

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
        if self._count > MOST_VALUES:
            raise YamlFault(f"has more than {MOST_VALUES} values")


def _word(event: Any) -> object:
    plain, _ = event.implicit
    try:
        if event.tag is not None and event.tag != "!":
            return tagged_word(event.tag, event.value)
    except WordFault as fault:
        raise YamlFault(f"{_line(event)}: {fault}") from None
    return plain_word(event.value) if plain and event.tag is None else event.value


def _json_value(value: object, event: Any) -> object:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise YamlFault(f"{_line(event)}: {event.value} is no number that JSON has")
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
