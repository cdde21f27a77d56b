"""Semantic versions, with the errors of the library that Kubernetes uses."""

import re

from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.types import BOOL, INT, SEMVER, STRING
from shared.cel.values import MAX_UINT, CelError, Semver, Value, go_quote

_WORD = re.compile(r"[0-9A-Za-z-]*")
_DIGITS = re.compile(r"[0-9]*")


def parse_version(text: str) -> Semver:
    """The version of a text; ValueError with the reason if it is none."""
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major", "Major"), _number(parts[1], "minor", "Minor")
    rest, plus, build = parts[2].partition("+")
    rest, dash, prerelease = rest.partition("-")
    patch = _number(rest, "patch", "Patch")
    version = Semver(major, minor, patch, tuple(map(_prerelease, prerelease.split("."))) if dash else ())
    if plus:
        for each in build.split("."):
            if not each:
                raise ValueError("Build meta data is empty")
            if not _WORD.fullmatch(each):
                raise ValueError(f"Invalid character(s) found in build meta data {go_quote(each)}")
    return version


def _number(text: str, name: str, title: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in {name} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise ValueError(f"{title} number must not contain leading zeroes {go_quote(text)}")
    return _unsigned(text)


def _unsigned(text: str) -> int:
    if not text:
        raise ValueError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > MAX_UINT:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return int(text)


def _prerelease(text: str) -> int | str:
    if not text:
        raise ValueError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(text)}")
        return _unsigned(text)
    if not _WORD.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in prerelease {go_quote(text)}")
    return text


def _normalized(text: str) -> str:
    """The text without a leading v and leading zeroes, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in "0123456789" else f"0{stripped}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _semver(text: str, normalize: bool = False) -> Value:
    try:
        return parse_version(_normalized(text) if normalize else text)
    except ValueError as cause:
        return CelError(str(cause))


def _is_semver(text: str, normalize: bool = False) -> Value:
    return not isinstance(_semver(text, normalize), CelError)


def _compare(one: Semver, other: Semver) -> int:
    return (one.order() > other.order()) - (one.order() < other.order())


def _is_greater(one: Semver, other: Semver) -> Value:
    return _compare(one, other) > 0


def _is_less(one: Semver, other: Semver) -> Value:
    return _compare(one, other) < 0


def _signed(number: int) -> int:
    """Numbers beyond the integers wrap around, as in Go."""
    return number if number < 2**63 else number - 2**64


FUNCTIONS: list[FunctionDeclaration] = [
    function(
        "semver",
        overload("string_to_semver", [STRING], SEMVER, _semver),
        overload("string_bool_to_semver", [STRING, BOOL], SEMVER, _semver),
    ),
    function(
        "isSemver",
        overload("is_semver_string", [STRING], BOOL, _is_semver),
        overload("is_semver_string_bool", [STRING, BOOL], BOOL, _is_semver),
    ),
    function("isGreaterThan", member("semver_is_greater_than", [SEMVER, SEMVER], BOOL, _is_greater)),
    function("isLessThan", member("semver_is_less_than", [SEMVER, SEMVER], BOOL, _is_less)),
    function("compareTo", member("semver_compare_to", [SEMVER, SEMVER], INT, _compare)),
    function("major", member("semver_major", [SEMVER], INT, lambda version: _signed(version.major))),
    function("minor", member("semver_minor", [SEMVER], INT, lambda version: _signed(version.minor))),
    function("patch", member("semver_patch", [SEMVER], INT, lambda version: _signed(version.patch))),
]
