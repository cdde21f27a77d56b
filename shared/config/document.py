"""Read a configuration file and parse its text into plain values: JSON where it begins with `{`, YAML otherwise."""

import json
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from shared.config.values import masked
from shared.errors import InvalidConfig

LARGEST: Final = 4 * 2**20
"""Bytes; a longer text is refused."""
DEEPEST: Final = 100
"""Levels of maps and lists; what follows is recursive."""

_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_MAX_DIGITS: Final = 4000


class ConfigSource(NamedTuple):
    """The text of a file, and its name for errors."""

    name: str
    text: bytes


def read_config(path: str | None) -> ConfigSource | None:
    """Read the file, if there is one; `load_config` takes the result. InvalidConfig where it cannot be read."""
    if path is None:
        return None
    try:
        return ConfigSource(path, Path(path).read_bytes())
    except OSError as cause:
        raise InvalidConfig(path, f"cannot be read: {cause.strerror}") from cause


class DocumentFault(Exception):
    """The text cannot be read at all."""


class Document(NamedTuple):
    """The value of a text. `repeated`: a line for each key that any of its YAML maps has twice."""

    value: object
    repeated: tuple[str, ...] = ()


class JsonMap(dict[str, object]):
    """A JSON map. The last value of a key counts; `repeated` lists the keys given twice."""

    repeated: tuple[str, ...] = ()


def parse_document(text: str | bytes) -> Document:
    """Parse into dicts, lists, strings, booleans, None and numbers, which are ints where they are written as such.

    Raises DocumentFault with a line that says where the text is wrong.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > LARGEST:
        raise DocumentFault(f"is longer than {LARGEST} bytes")
    decoded = raw.decode("utf-8", "replace")
    if decoded.lstrip(_SPACE).startswith("{"):
        document = Document(_parse_json(decoded))
    else:
        from shared.config.kubernetes_yaml import YamlFault, parse_yaml  # PyYAML takes long to import

        try:
            document = Document(*parse_yaml(raw))
        except YamlFault as fault:
            raise DocumentFault(f"is not YAML: {fault}") from None
    _check(document.value, 0)
    return document


def _parse_json(text: str) -> object:
    try:
        value: object = json.loads(text, object_pairs_hook=_json_map, parse_int=_number, parse_constant=_number)
    except json.JSONDecodeError as fault:
        where = f"line {fault.lineno}, column {fault.colno}: {fault.msg}"
        raise DocumentFault(f"is not JSON, as a text that begins with {{ must be: {where}") from None
    except (ValueError, RecursionError) as fault:
        reason = "it is nested too deeply" if isinstance(fault, RecursionError) else fault
        raise DocumentFault(f"is not JSON: {reason}") from None
    return value


def _json_map(pairs: list[tuple[str, object]]) -> JsonMap:
    result = JsonMap(pairs)
    if len(result) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        result.repeated = tuple(key for key, count in counts.items() if count > 1)
    return result


def _number(word: str) -> int:
    if not word.lstrip("-").isdigit():
        raise ValueError(f"{word} is not a number in JSON")
    if len(word) > _MAX_DIGITS:
        raise ValueError("a number has too many digits")
    return int(word)


def _check(value: object, depth: int) -> None:
    """Refuse what cannot be walked recursively or written as UTF-8."""
    if depth > DEEPEST:
        raise DocumentFault(f"is nested more than {DEEPEST} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise DocumentFault(f"{value!r} holds half a character")


def without_secrets(source: ConfigSource | None) -> str:
    """The configuration as JSON, without TLS data and passwords of extenders; empty if there is none."""
    if source is None:
        return ""
    value = parse_document(source.text).value
    extenders = value.get("extenders") if isinstance(value, dict) else None
    for extender in extenders if isinstance(extenders, list) else ():
        if isinstance(extender, dict):
            extender.pop("tlsConfig", None)
            if isinstance(extender.get("urlPrefix"), str):
                extender["urlPrefix"] = masked(extender["urlPrefix"])
    return json.dumps(value, ensure_ascii=False)
