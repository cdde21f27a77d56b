"""Regular expressions, in RE2's syntax and in linear time, with Go's errors."""

from functools import lru_cache

import re2

from shared.cel import types
from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.types import BOOL, INT, STRING
from shared.cel.values import NO_SUCH_OVERLOAD, CelError, DurationValue, TimestampValue, Value

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
            raise ValueError(f"error parsing regexp: {_go_reason(_text(cause))}") from None

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


def _text(cause: Exception) -> str:
    reason = cause.args[0] if cause.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _go_reason(reason: str) -> str:
    fault, _, where = reason.partition(": ")
    fault = _GO_REASONS.get(fault, fault)
    return f"{fault}: `{where}`" if where else fault


def _matches(text: Value, pattern: Value) -> Value:
    if not isinstance(text, str):
        named = isinstance(text, TimestampValue | DurationValue)
        return NO_SUCH_OVERLOAD if named else CelError("no such overload: matches")
    if not isinstance(pattern, str):
        return NO_SUCH_OVERLOAD
    regex = compiled(pattern)
    return regex if isinstance(regex, CelError) else regex.matches(text)


def _find(text: str, pattern: str) -> Value:
    regex = compiled(pattern)
    return _illegal(regex) if isinstance(regex, CelError) else regex.first(text)


def _find_all(text: str, pattern: str, most: int = -1) -> Value:
    regex = compiled(pattern)
    return _illegal(regex) if isinstance(regex, CelError) else regex.all(text, most)


def _illegal(error: CelError) -> CelError:
    return CelError(f"Illegal regex: {error.message}")


FUNCTIONS: list[FunctionDeclaration] = [
    function(
        "matches",
        overload("matches", [STRING, STRING], BOOL),
        member("matches_string", [STRING, STRING], BOOL),
        implementation=_matches,
    ),
    function("find", member("string_find_string", [STRING, STRING], STRING, _find)),
    function(
        "findAll",
        member("string_find_all_string", [STRING, STRING], types.list_of(STRING), _find_all),
        member("string_find_all_string_int", [STRING, STRING, INT], types.list_of(STRING), _find_all),
    ),
]
CONSTANT_PATTERNS = frozenset(each.name for each in FUNCTIONS)
"""Functions whose second argument, if constant, is compiled when the program is made."""
