"""Functions of strings, and regular expressions: in RE2's syntax and in linear time, with Go's errors."""

from collections.abc import Callable
from functools import lru_cache

import re2

from shared.cel import types
from shared.cel.declarations import Overload, member, unguarded
from shared.cel.library.formatting import format_string
from shared.cel.library.operators import unsupported
from shared.cel.types import BOOL, DYN, INT, STRING
from shared.cel.values import ESCAPES, NO_SUCH_OVERLOAD, CelError, Value, go_text

_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
_SPACES += "\u202f\u205f\u3000"
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


def _test(holds: Callable[[str, str], bool]) -> Callable[[Value, Value], Value]:
    """A test of a text and a part of it, which checks their types itself."""

    def test(text: Value, part: Value) -> Value:
        return holds(text, part) if isinstance(text, str) and isinstance(part, str) else NO_SUCH_OVERLOAD

    return test


# Regular expressions.

_GO_REASONS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Reasons of RE2 and of Go for the same faults; others read the same."""
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_REMEMBERED = 256


class Regex:
    """A compiled regular expression."""

    def __init__(self, pattern: str) -> None:
        """Raise ValueError with Go's text if the pattern is wrong."""
        try:
            self._compiled = re2.compile(pattern, _OPTIONS)
        except re2.error as cause:
            reason = cause.args[0] if cause.args else ""
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            fault, _, where = text.partition(": ")
            fault = _GO_REASONS.get(fault, fault)
            raise ValueError(
                f"error parsing regexp: {fault}: `{where}`" if where else f"error parsing regexp: {fault}"
            ) from None

    def matches(self, text: str) -> bool:
        return self._compiled.search(text) is not None

    def first(self, text: str) -> str:
        found = self._compiled.search(text)
        return "" if found is None else str(found.group())

    def all(self, text: str, most: int) -> list[Value]:
        """Matches that do not overlap, `most` at most if not negative."""
        found: list[Value] = []
        at, previous_end = 0, -1
        while at <= len(text) and (most < 0 or len(found) < most):
            match = self._compiled.search(text, at)
            if match is None:
                break
            start, end = match.span()
            if end > start:
                found.append(text[start:end])
                at = end
            else:
                # Empty matches right behind a match do not count.
                if start != previous_end:
                    found.append("")
                at = end + 1
            previous_end = end
        return found


@lru_cache(maxsize=_REMEMBERED)
def compiled(pattern: str) -> Regex | CelError:
    try:
        return Regex(pattern)
    except ValueError as cause:
        return CelError(str(cause))


def _matches(text: Value, pattern: Value) -> Value:
    if not isinstance(text, str):
        return unsupported("matches", text)
    if not isinstance(pattern, str):
        return NO_SUCH_OVERLOAD
    regex = compiled(pattern)
    return regex if isinstance(regex, CelError) else regex.matches(text)


def _legal(pattern: str) -> Regex:
    regex = compiled(pattern)
    if isinstance(regex, CelError):
        raise ValueError(f"Illegal regex: {regex.message}")
    return regex


_STRINGS = types.list_of(STRING)

REGEXES = [
    *unguarded(
        _matches,
        Overload("matches", "matches", [STRING, STRING], BOOL),
        member("matches", "matches_string", [STRING, STRING], BOOL),
    ),
    member("find", "string_find_string", [STRING, STRING], STRING, lambda text, pattern: _legal(pattern).first(text)),
    *(
        member(
            "findAll",
            name,
            [STRING, STRING, *count],
            _STRINGS,
            lambda text, pattern, most=-1: _legal(pattern).all(text, most),
        )
        for name, count in (("string_find_all_string", []), ("string_find_all_string_int", [INT]))
    ),
]
CONSTANT_PATTERNS = frozenset(each.function for each in REGEXES)
"""Functions whose second argument, if constant, is compiled when the program is made."""

FUNCTIONS = [
    member(
        "contains", "contains_string", [STRING, STRING], BOOL, _test(lambda text, part: part in text), guarded=False
    ),
    member("endsWith", "ends_with_string", [STRING, STRING], BOOL, _test(str.endswith), guarded=False),
    member("startsWith", "starts_with_string", [STRING, STRING], BOOL, _test(str.startswith), guarded=False),
    member("charAt", "string_char_at_int", [STRING, INT], STRING, _char_at),
    member("indexOf", "string_index_of_string", [STRING, STRING], INT, _index_of),
    member("indexOf", "string_index_of_string_int", [STRING, STRING, INT], INT, _index_of),
    member("lastIndexOf", "string_last_index_of_string", [STRING, STRING], INT, _last_index_of),
    member("lastIndexOf", "string_last_index_of_string_int", [STRING, STRING, INT], INT, _last_index_of),
    member("lowerAscii", "string_lower_ascii", [STRING], STRING, lambda text: text.translate(_LOWER)),
    member("replace", "string_replace_string_string", [STRING, STRING, STRING], STRING, _replace),
    member("replace", "string_replace_string_string_int", [STRING, STRING, STRING, INT], STRING, _replace),
    member("split", "string_split_string", [STRING, STRING], _STRINGS, _split),
    member("split", "string_split_string_int", [STRING, STRING, INT], _STRINGS, _split),
    member("substring", "string_substring_int", [STRING, INT], STRING, _substring),
    member("substring", "string_substring_int_int", [STRING, INT, INT], STRING, _substring),
    member("trim", "string_trim", [STRING], STRING, lambda text: text.strip(_SPACES)),
    member("upperAscii", "string_upper_ascii", [STRING], STRING, lambda text: text.translate(_UPPER)),
    member("format", "string_format", [STRING, types.list_of(DYN)], STRING, format_string),
    Overload("strings.quote", "strings_quote", [STRING], STRING, lambda text: f'"{text.translate(ESCAPES)}"'),
    member("join", "list_join", [_STRINGS], STRING, _join),
    member("join", "list_join_string", [_STRINGS, STRING], STRING, _join),
]
