"""Functions of strings."""

from shared.cel import types
from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.library.formatting import format_string
from shared.cel.types import BOOL, DYN, INT, STRING
from shared.cel.values import NO_SUCH_OVERLOAD, CelError, Value, go_text

_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
_SPACES += "\u202f\u205f\u3000"
_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> Value:
    return text[index : index + 1] if 0 <= index <= len(text) else _out_of_range(index)


def _index_of(text: str, part: str, start: int = 0) -> Value:
    if not part:
        return start
    return _out_of_range(start) if start < 0 else text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> Value:
    if start is None:
        return text.rfind(part) if part else len(text)
    if not part:
        return start
    if start < 0:
        return _out_of_range(start)
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, most: int = -1) -> Value:
    return text.replace(old, new, max(most, -1))


def _split(text: str, separator: str, most: int = -1) -> Value:
    if not most:
        return []
    if separator:
        return list(text.split(separator, most - 1 if most > 0 else -1))
    if 0 < most < len(text):
        return [*text[: most - 1], text[most - 1 :]]
    return list(text)


def _substring(text: str, start: int, end: int | None = None) -> Value:
    if end is not None and start > end:
        return CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, len(text) if end is None else end):
        if not 0 <= index <= len(text):
            return _out_of_range(index)
    return text[start:end]


def _join(parts: list[Value], separator: str = "") -> Value:
    for each in parts:
        if not isinstance(each, str):
            return CelError(f"join: invalid input: {go_text(each)}")
    return separator.join(map(str, parts))


def _contains(text: Value, part: Value) -> Value:
    return part in text if isinstance(text, str) and isinstance(part, str) else NO_SUCH_OVERLOAD


def _starts_with(text: Value, part: Value) -> Value:
    return text.startswith(part) if isinstance(text, str) and isinstance(part, str) else NO_SUCH_OVERLOAD


def _ends_with(text: Value, part: Value) -> Value:
    return text.endswith(part) if isinstance(text, str) and isinstance(part, str) else NO_SUCH_OVERLOAD


def _lower(text: str) -> Value:
    return text.translate(_LOWER)


def _upper(text: str) -> Value:
    return text.translate(_UPPER)


def _trim(text: str) -> Value:
    return text.strip(_SPACES)


def _quote(text: str) -> Value:
    return f'"{text.translate(_QUOTED)}"'


_STRINGS = types.list_of(STRING)

FUNCTIONS: list[FunctionDeclaration] = [
    function("contains", member("contains_string", [STRING, STRING], BOOL, _contains), guarded=False),
    function("endsWith", member("ends_with_string", [STRING, STRING], BOOL, _ends_with), guarded=False),
    function("startsWith", member("starts_with_string", [STRING, STRING], BOOL, _starts_with), guarded=False),
    function("charAt", member("string_char_at_int", [STRING, INT], STRING, _char_at)),
    function(
        "indexOf",
        member("string_index_of_string", [STRING, STRING], INT, _index_of),
        member("string_index_of_string_int", [STRING, STRING, INT], INT, _index_of),
    ),
    function(
        "lastIndexOf",
        member("string_last_index_of_string", [STRING, STRING], INT, _last_index_of),
        member("string_last_index_of_string_int", [STRING, STRING, INT], INT, _last_index_of),
    ),
    function("lowerAscii", member("string_lower_ascii", [STRING], STRING, _lower)),
    function(
        "replace",
        member("string_replace_string_string", [STRING, STRING, STRING], STRING, _replace),
        member("string_replace_string_string_int", [STRING, STRING, STRING, INT], STRING, _replace),
    ),
    function(
        "split",
        member("string_split_string", [STRING, STRING], _STRINGS, _split),
        member("string_split_string_int", [STRING, STRING, INT], _STRINGS, _split),
    ),
    function(
        "substring",
        member("string_substring_int", [STRING, INT], STRING, _substring),
        member("string_substring_int_int", [STRING, INT, INT], STRING, _substring),
    ),
    function("trim", member("string_trim", [STRING], STRING, _trim)),
    function("upperAscii", member("string_upper_ascii", [STRING], STRING, _upper)),
    function("format", member("string_format", [STRING, types.list_of(DYN)], STRING, format_string)),
    function("strings.quote", overload("strings_quote", [STRING], STRING, _quote)),
    function(
        "join",
        member("list_join", [_STRINGS], STRING, _join),
        member("list_join_string", [_STRINGS, STRING], STRING, _join),
    ),
]
