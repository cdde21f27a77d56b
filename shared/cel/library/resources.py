"""Quantities, semantic versions with the errors of the library that Kubernetes uses, and the authorizer's functions."""

import re

from shared.cel.declarations import Overload, member, parsable
from shared.cel.quantity import QuantityValue, parse
from shared.cel.types import BOOL, DOUBLE, INT, QUANTITY, SEMVER, STRING, CelType, TypeKind
from shared.cel.values import MAX_UINT, CelError, Semver, Value, go_quote


def _as_integer(value: QuantityValue) -> Value:
    integer = value.integer
    return CelError("cannot convert value to integer") if integer is None else integer


def _add(one: QuantityValue, other: QuantityValue | int) -> Value:
    return one.add(other if isinstance(other, QuantityValue) else QuantityValue(other, 0))


def _subtract(one: QuantityValue, other: QuantityValue | int) -> Value:
    return one.subtract(other if isinstance(other, QuantityValue) else QuantityValue(other, 0))


QUANTITIES = [
    Overload("quantity", "string_to_quantity", [STRING], QUANTITY, parse),
    Overload("isQuantity", "is_quantity_string", [STRING], BOOL, parsable(parse)),
    Overload("sign", "quantity_sign", [QUANTITY], INT, lambda value: value.sign),
    member(
        "isGreaterThan", "quantity_is_greater_than", [QUANTITY, QUANTITY], BOOL, lambda one, two: one.compare(two) > 0
    ),
    member("isLessThan", "quantity_is_less_than", [QUANTITY, QUANTITY], BOOL, lambda one, two: one.compare(two) < 0),
    member("compareTo", "quantity_compare_to", [QUANTITY, QUANTITY], INT, QuantityValue.compare),
    member("asApproximateFloat", "quantity_get_float", [QUANTITY], DOUBLE, lambda value: value.approximate),
    member("asInteger", "quantity_get_int", [QUANTITY], INT, _as_integer),
    member("isInteger", "quantity_is_integer", [QUANTITY], BOOL, lambda value: value.integer is not None),
    member("add", "quantity_add", [QUANTITY, QUANTITY], QUANTITY, _add),
    member("add", "quantity_add_int", [QUANTITY, INT], QUANTITY, _add),
    member("sub", "quantity_sub", [QUANTITY, QUANTITY], QUANTITY, _subtract),
    member("sub", "quantity_sub_int", [QUANTITY, INT], QUANTITY, _subtract),
]


# Versions.

_WORD = re.compile(r"[0-9A-Za-z-]*")
_DIGITS = re.compile(r"[0-9]*")


def parse_version(text: str) -> Semver:
    """The version of a text; ValueError with the reason if it is none."""
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    rest, dash, prerelease = rest.partition("-")
    patch = _number(rest, "patch")
    version = Semver(major, minor, patch, tuple(map(_prerelease, prerelease.split("."))) if dash else (), build)
    if plus:
        for each in build.split("."):
            if not each:
                raise ValueError("Build meta data is empty")
            if not _WORD.fullmatch(each):
                raise ValueError(f"Invalid character(s) found in build meta data {go_quote(each)}")
    return version


def _number(text: str, name: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in {name} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise ValueError(f"{name.title()} number must not contain leading zeroes {go_quote(text)}")
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
        if len(part.encode(errors="surrogatepass")) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in "0123456789" else f"0{stripped}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _semver(text: str, normalize: bool = False) -> Value:
    return parse_version(_normalized(text) if normalize else text)


def _compare_versions(one: Semver, other: Semver) -> int:
    return (one.order() > other.order()) - (one.order() < other.order())


def _signed(number: int) -> int:
    """Numbers beyond the integers wrap around, as in Go."""
    return number if number < 2**63 else number - 2**64


VERSIONS = [
    Overload("semver", "string_to_semver", [STRING], SEMVER, _semver),
    Overload("semver", "string_bool_to_semver", [STRING, BOOL], SEMVER, _semver),
    Overload("isSemver", "is_semver_string", [STRING], BOOL, parsable(_semver)),
    Overload("isSemver", "is_semver_string_bool", [STRING, BOOL], BOOL, parsable(_semver)),
    member(
        "isGreaterThan", "semver_is_greater_than", [SEMVER, SEMVER], BOOL, lambda one, two: one.order() > two.order()
    ),
    member("isLessThan", "semver_is_less_than", [SEMVER, SEMVER], BOOL, lambda one, two: one.order() < two.order()),
    member("compareTo", "semver_compare_to", [SEMVER, SEMVER], INT, _compare_versions),
    member("major", "semver_major", [SEMVER], INT, lambda version: _signed(version.major)),
    member("minor", "semver_minor", [SEMVER], INT, lambda version: _signed(version.minor)),
    member("patch", "semver_patch", [SEMVER], INT, lambda version: _signed(version.patch)),
]


# The authorizer: declared, so that errors name its functions, but no selector has one.

_AUTHORIZER = CelType(TypeKind.STRUCT, "kubernetes.authorization.Authorizer")
_PATH_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.PathCheck")
_GROUP_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.GroupCheck")
_RESOURCE_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.ResourceCheck")
_DECISION = CelType(TypeKind.STRUCT, "kubernetes.authorization.Decision")

AUTHORIZATION = [
    member("path", "authorizer_path", [_AUTHORIZER, STRING], _PATH_CHECK),
    member("group", "authorizer_group", [_AUTHORIZER, STRING], _GROUP_CHECK),
    member("serviceAccount", "authorizer_serviceaccount", [_AUTHORIZER, STRING, STRING], _AUTHORIZER),
    member("resource", "groupcheck_resource", [_GROUP_CHECK, STRING], _RESOURCE_CHECK),
    member("subresource", "resourcecheck_subresource", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK),
    member("namespace", "resourcecheck_namespace", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK),
    member("name", "resourcecheck_name", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK),
    member("check", "pathcheck_check", [_PATH_CHECK, STRING], _DECISION),
    member("check", "resourcecheck_check", [_RESOURCE_CHECK, STRING], _DECISION),
    member("errored", "decision_errored", [_DECISION], BOOL),
    member("error", "decision_error", [_DECISION], STRING),
    member("allowed", "decision_allowed", [_DECISION], BOOL),
    member("reason", "decision_reason", [_DECISION], STRING),
    member("fieldSelector", "authorizer_fieldselector", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK),
    member("labelSelector", "authorizer_labelselector", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK),
]
